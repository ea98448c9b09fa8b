/* test_daemon_parts.c: the daemon's small parts: host budget, UUIDs, users' buckets, peers. */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/host.h"
#include "base/uuid.h"
#include "daemon/people/container.h"
#include "daemon/people/peer.h"
#include "daemon/people/users.h"

static void the_host_budget_is_half_but_never_the_margin(void **state)
{
        struct host_memory roomy = {128 * GIB, 120 * GIB}, tight = {128 * GIB, 20 * GIB},
                           full = {128 * GIB, 2 * GIB}, small = {2 * GIB, 2 * GIB};

        assert_int_equal(host_memory_budget(&roomy, 0), 64 * GIB);
        assert_int_equal(host_memory_budget(&tight, 0), 12 * GIB);
        assert_int_equal(host_memory_budget(&full, 0), 0);
        assert_int_equal(host_memory_budget(&small, 0), GIB);
}

/* The clients' evicted memory is in use, but it is part of what the earlier daemon promised. */
static void a_restarted_daemon_promises_as_much_as_the_one_before(void **state)
{
        struct host_memory tight = {128 * GIB, 20 * GIB};

        assert_int_equal(host_memory_budget(&tight, 40 * GIB), 40 * GIB);
        assert_int_equal(host_memory_budget(&tight, 5 * GIB), 12 * GIB);
        assert_int_equal(host_memory_budget(&tight, UINT64_MAX), 64 * GIB);
}

static void reading_this_machine_gives_plausible_figures(void **state)
{
        struct host_memory m;

        assert_int_equal(host_memory_read(&m), 0);
        assert_true(m.total_bytes > 0 && m.available_bytes <= m.total_bytes);
}

static void uuids_survive_being_written_and_read(void **state)
{
        const char *text = "GPU-01234567-89ab-cdef-fedc-ba9876543210";
        static const uint8_t bytes[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                                          0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};
        char back[UUID_TEXT_MAX];
        uint8_t uuid[16];

        assert_int_equal(uuid_parse(text, uuid), 0);
        assert_memory_equal(uuid, bytes, 16);
        assert_string_equal(uuid_format(uuid, back), text);
        assert_int_equal(uuid_parse("01234567-89AB-cdef-fedc-ba9876543210", uuid), 0);
        assert_memory_equal(uuid, bytes, 16);
}

static void malformed_uuids_are_refused(void **state)
{
        static const char *const bad[] = {"",
                                          "GPU-",
                                          "GPU-0123",
                                          "gpu",
                                          "GPU-01234567-89ab-cdef-fedc-ba987654321",
                                          "GPU-01234567-89ab-cdef-fedc-ba98765432100",
                                          "GPU-0123456g-89ab-cdef-fedc-ba9876543210"};
        uint8_t uuid[16];

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(uuid_parse(bad[i], uuid), -EINVAL);
}

static void a_users_connections_are_counted(void **state)
{
        struct users *u = users_new(2);
        struct user *a, *b, *other;

        assert_non_null(u);
        assert_int_equal(users_connect(u, USERS_UID(7), 0, &a), 0);
        assert_int_equal(users_connect(u, USERS_UID(7), 0, &b), 0);
        assert_ptr_equal(a, b);
        assert_int_equal(users_connect(u, USERS_UID(7), 0, &b), -EUSERS);
        assert_int_equal(users_connect(u, USERS_UID(8), 0, &other), 0);
        users_disconnect(a);
        assert_int_equal(users_connect(u, USERS_UID(7), 0, &b), 0);
        users_free(u);
}

static void a_user_that_has_used_more_time_has_less_credit(void **state)
{
        const uint64_t start = 5 * NSEC_PER_SEC;
        struct users *u = users_new(2);
        struct user *loud, *quiet;

        assert_non_null(u);
        assert_int_equal(users_connect(u, USERS_UID(7), start, &loud), 0);
        assert_int_equal(users_connect(u, USERS_UID(8), start, &quiet), 0);
        users_charge(loud, 2 * NSEC_PER_MSEC, start);
        users_charge(quiet, NSEC_PER_MSEC, start);
        assert_true(users_credit(loud, start) < users_credit(quiet, start));
        assert_true(users_credit(loud, start) > 0);
        users_free(u);
}

static void time_pays_a_users_debt_and_reconnecting_does_not(void **state)
{
        const uint64_t start = 5 * NSEC_PER_SEC;
        struct users *u = users_new(2);
        struct user *a, *again;
        int64_t full, debt;

        assert_non_null(u);
        assert_int_equal(users_connect(u, USERS_UID(7), start, &a), 0);
        full = users_credit(a, start);
        users_charge(a, (uint64_t)full + 20 * NSEC_PER_MSEC, start);
        debt = users_credit(a, start);
        assert_int_equal(debt, -(int64_t)(20 * NSEC_PER_MSEC));
        users_disconnect(a);
        users_forget(a);
        assert_int_equal(users_connect(u, USERS_UID(7), start, &again), 0);
        assert_int_equal(users_credit(again, start), debt);
        assert_true(users_credit(again, start + 79 * NSEC_PER_MSEC) < 0);
        assert_int_equal(users_credit(again, start + 80 * NSEC_PER_MSEC), 0);
        users_free(u);
}

static void neither_debt_nor_credit_grows_without_bound(void **state)
{
        const uint64_t start = 5 * NSEC_PER_SEC, hour = 3600 * NSEC_PER_SEC;
        struct users *u = users_new(2);
        struct user *a;
        int64_t full;

        assert_non_null(u);
        assert_int_equal(users_connect(u, USERS_UID(7), start, &a), 0);
        full = users_credit(a, start);
        assert_int_equal(users_credit(a, start + hour), full);
        users_charge(a, UINT64_MAX, start + hour);
        users_charge(a, hour, start + hour);
        assert_int_equal(users_credit(a, start + hour), -full);
        assert_int_equal(users_credit(a, start + hour + NSEC_PER_SEC), full);
        users_free(u);
}

/* A user without a connection is charged as well, as for a note of another daemon. */
static void work_is_charged_to_the_user_that_caused_it(void **state)
{
        const uint64_t start = 5 * NSEC_PER_SEC, end = start + 2 * NSEC_PER_MSEC;
        struct users *u = users_new(2);
        int64_t full;

        assert_non_null(u);
        full = users_credit(users_find(u, USERS_UID(7), start), start);
        users_charge_since(u, USERS_UID(7), start, end);
        assert_int_equal(users_credit(users_find(u, USERS_UID(7), end), end),
                         full - (int64_t)(2 * NSEC_PER_MSEC));
        assert_int_equal(users_credit(users_find(u, USERS_UID(8), end), end), full);
        users_charge_since(u, USERS_UID(9), end, start); /* a clock that went back costs nothing */
        assert_int_equal(users_credit(users_find(u, USERS_UID(9), end), end), full);
        users_free(u);
}

/* The account of a uid that is gone is not kept for ever, because uids are cheap to make. */
static void a_user_in_debt_is_remembered_until_the_debt_is_paid(void **state)
{
        const uint64_t start = 5 * NSEC_PER_SEC;
        struct users *u = users_new(2);
        struct user *a, *b;

        assert_non_null(u);
        assert_int_equal(users_connect(u, USERS_UID(7), start, &a), 0);
        assert_int_equal(users_connect(u, USERS_UID(8), start, &b), 0);
        users_charge(a, UINT64_MAX, start);
        users_disconnect(a);
        users_forget(a);
        (void)users_find(u, USERS_UID(9), start + NSEC_PER_SEC / 10);
        assert_true(users_credit(users_find(u, USERS_UID(7), start + NSEC_PER_SEC / 10), start) <
                    0);
        /* A user with a record is kept, however long it is silent. */
        (void)users_find(u, USERS_UID(10), start + 3600 * NSEC_PER_SEC);
        assert_ptr_equal(users_find(u, USERS_UID(8), start + 3600 * NSEC_PER_SEC), b);
        users_free(u);
}

/* A lost connection leaves a record while its process lives, so records must be limited. */
static void records_without_a_connection_are_counted(void **state)
{
        struct users *u = users_new(2);
        struct user *a;

        assert_non_null(u);
        for (unsigned i = 0; i < 4; i++) {
                assert_int_equal(users_connect(u, USERS_UID(7), 0, &a), 0);
                users_disconnect(a);
        }
        assert_int_equal(users_connect(u, USERS_UID(7), 0, &a), -EUSERS);
        users_forget(a);
        assert_int_equal(users_connect(u, USERS_UID(7), 0, &a), 0);
        users_free(u);
}

static void the_kernel_identifies_a_peer_and_reports_its_end(void **state)
{
        struct peer peer;
        int pair[2];
        pid_t child;

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        assert_int_equal(peer_identify(pair[0], &peer), 0);
        assert_int_equal(peer.pid, getpid());
        assert_int_equal(peer.uid, getuid());
        assert_true(peer.pidfd >= 0);
        assert_false(peer_ended(peer.pidfd));
        assert_true(peer_outside_container(peer.pid));
        assert_int_equal(close(peer.pidfd), 0);

        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
                int own[2];

                /* The peer of a pair that the child makes is the child. */
                if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, own) < 0 ||
                    peer_identify(own[0], &peer) < 0 || peer.pid != getpid())
                        _exit(1);
                _exit(0);
        }
        int status;

        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_false(peer_outside_container(child));
        assert_false(peer_outside_container(0));
        assert_false(peer_ended(-EBADF));
        assert_int_equal(close(pair[0]), 0);
        assert_int_equal(close(pair[1]), 0);
}

/* Root of a container can take any uid, which the kernel shows as the same uid outside. */
static void a_process_in_a_container_has_no_rights_outside(void **state)
{
        const struct peer user = {.uid = 1000, .pid_namespace = 1, .outside = true};
        const struct peer contained = {.uid = 1000, .pid_namespace = 2};
        const struct peer contained_too = {.uid = 1000, .pid_namespace = 2};
        const struct peer elsewhere = {.uid = 1000, .pid_namespace = 3};
        const struct peer other = {.uid = 1001, .pid_namespace = 1, .outside = true};
        const struct peer daemons_user = {.uid = 2000, .outside = true, .trusted = true};
        const struct peer root_there = {.uid = 0, .pid_namespace = 2};
        const struct peer root = {.uid = 0, .pid_namespace = 1, .outside = true, .trusted = true};
        const struct peer without_number = {.uid = 1000, .outside = true}; /* of the namespace */
        const struct peer unseen = {.uid = 1000};

        assert_true(peer_has_right(&user, &contained));
        assert_true(peer_has_right(&without_number, &contained));
        assert_true(peer_has_right(&contained, &contained_too));
        assert_true(peer_has_right(&daemons_user, &user) && peer_has_right(&root, &root_there));
        assert_false(peer_has_right(&contained, &user) || peer_has_right(&contained, &elsewhere));
        assert_false(peer_has_right(&contained, &without_number));
        assert_false(peer_has_right(&unseen, &unseen) || peer_has_right(&unseen, &user));
        assert_false(peer_has_right(&root_there, &root) || peer_has_right(&root_there, &contained));
        assert_false(peer_has_right(&other, &user) || peer_has_right(&user, &other));
}

/* Otherwise the peer would be taken for a process whose end cannot be seen. */
static void without_a_descriptor_no_peer_is_identified(void **state)
{
        struct rlimit before, none;
        struct peer peer;
        int pair[2], r;

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        none = before;
        none.rlim_cur = (rlim_t)MAX(pair[0], pair[1]) + 1;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        r = peer_identify(pair[0], &peer);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(r, -EMFILE);
        assert_int_equal(close(pair[0]), 0);
        assert_int_equal(close(pair[1]), 0);
}

#define ID     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID2    "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define POD    "12345678-9abc-def0-1234-56789abcdef0"
#define POD_   "12345678_9abc_def0_1234_56789abcdef0"
#define POD2   "abcdef01-9abc-def0-1234-56789abcdef0"
#define STATIC "0123456789abcdef0123456789abcdef"

static void containers_are_known_by_their_cgroup(void **state)
{
        static const struct {
                const char *path, *id;
        } cases[] = {
                {"/system.slice/docker-" ID ".scope", ID},
                {"/docker/" ID, ID},
                {"/docker/" ID "/docker/" ID2, ID2},
                {"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID
                 ".scope/container",
                 ID},
                {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" POD_
                 ".slice/cri-containerd-" ID ".scope",
                 ID},
                {"/lxc.payload.gpu-box/system.slice/x.service", "gpu-box"},
                {"/", ""},
                {"/user.slice/user-1000.slice/session-3.scope", ""},
                {"/system.slice/docker-" ID "0.scope", ""},
                {"/lxc.payload./pod12/podxyz", ""},
                {"/lxc.payload.a\033b", ""},
        };
        struct container c;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                container_of_cgroup(cases[i].path, &c);
                assert_string_equal(c.id, cases[i].id);
        }
}

/* What the kernel says about a process, and about the daemon; which tenant that is. */
struct place_case {
        const char *theirs, *ours;
        enum tenant_kind kind;
        const char *id;
};

static void assert_tenants(const struct place_case *cases, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                struct tenant t;

                tenant_of_cgroups(cases[i].theirs, cases[i].ours, &t);
                if (t.kind != cases[i].kind || strcmp(t.id, cases[i].id) != 0)
                        fail_msg("case %zu: kind %d, id \"%s\"", i, (int)t.kind, t.id);
        }
}

#define SERVICE "0::/system.slice/subletd.service\n"
#define QOS     "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"

static void pods_and_jobs_are_known_by_their_cgroups(void **state)
{
        static const struct place_case cases[] = {
                {"0::" QOS POD_ ".slice/cri-containerd-" ID ".scope\n", SERVICE, TENANT_POD, POD},
                {"0::/kubepods.slice/kubepods-pod" STATIC ".slice/crio-" ID ".scope\n", SERVICE,
                 TENANT_POD, STATIC},
                {"0::/kubepods/besteffort/pod" POD "/" ID "\n", SERVICE, TENANT_POD, POD},
                {"0::/kubepods/pod" POD "/" ID "\n", "", TENANT_POD, POD},
                /* version 1: the path of version 2 may say nothing, or be the engine's own */
                {"12:pids:/kubepods/burstable/pod" POD "/" ID
                 "\n4:memory:/kubepods/burstable/pod" POD "/" ID "\n1:name=systemd:/x\n0::/\n",
                 "4:memory:/\n0::/\n", TENANT_POD, POD},
                {"4:cpu,memory:/kubepods/burstable/pod" POD "/" ID
                 "\n0::/system.slice/containerd.service\n",
                 SERVICE, TENANT_POD, POD},
                /* kind: the kubelet runs in a container, and so does the daemon */
                {"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
                 "kubelet-kubepods-burstable-pod" POD_ ".slice/cri-containerd-" ID ".scope\n",
                 "0::/system.slice/subletd.service\n", TENANT_POD, POD},
                {"3:memory:/docker/" ID "/kubelet/kubepods/besteffort/pod" POD "/" ID2 "\n",
                 "3:memory:/docker/" ID "/kubelet/kubepods/besteffort/pod" POD2 "/" ID2 "\n",
                 TENANT_POD, POD},
                {"3:memory:/docker/" ID "/kubepods/pod" POD "\n", "3:memory:/docker/" ID "\n",
                 TENANT_POD, POD},
                /* the daemon has a cgroup namespace of its own, in a pod of this or another class
                 */
                {"0::/../../kubepods-burstable-pod" POD_ ".slice/cri-containerd-" ID ".scope\n",
                 "0::/\n", TENANT_POD, POD},
                {"0::/../../../besteffort/pod" POD "/" ID "\n", "0::/\n", TENANT_POD, POD},
                {"0::/../../../../kubepods.slice/kubepods-pod" POD_ ".slice\n", "0::/\n",
                 TENANT_POD, POD},
                /* Slurm */
                {"9:memory:/slurm/uid_1000/job_5/step_0/task_0\n0::/\n", SERVICE, TENANT_JOB, "5"},
                {"9:freezer:/slurm_node7/uid_0/job_4294967290/step_batch\n", SERVICE, TENANT_JOB,
                 "4294967290"},
                {"0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0\n", SERVICE,
                 TENANT_JOB, "5"},
                {"0::/system.slice/node7_slurmstepd.scope/job_12/step_extern/user/task_special\n",
                 SERVICE, TENANT_JOB, "12"},
                {"0::/gpu.slice/gpu-slurm.slice/slurmstepd.scope/job_5/step_0\n", SERVICE,
                 TENANT_JOB, "5"},
                /* Slurm 26.05 names the cgroups of version 2 by SLUIDs */
                {"0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n", SERVICE,
                 TENANT_JOB, "sEKNKTV3WPV500"},
                /* neither */
                {"0::/user.slice/user-1000.slice/session-3.scope\n", SERVICE, TENANT_NONE, ""},
                {"0::/system.slice/docker-" ID ".scope\n", SERVICE, TENANT_NONE, ""},
                {"", "", TENANT_NONE, ""},
                {"nonsense\n::\n0:\n", "", TENANT_NONE, ""},
        };

        assert_tenants(cases, ARRAY_SIZE(cases));
}

/* A user with a delegated part of the tree, and root of a container, can make any name in it. */
static void a_name_at_any_other_place_makes_no_tenant(void **state)
{
#define DELEGATED "/user.slice/user-1000.slice/user@1000.service"
        static const struct place_case cases[] = {
                {"0::" DELEGATED "/kubepods/pod" POD "/" ID "\n", SERVICE, TENANT_NONE, ""},
                {"0::" DELEGATED QOS POD_ ".slice\n", SERVICE, TENANT_NONE, ""},
                {"0::" DELEGATED "/slurm/uid_1/job_5\n", SERVICE, TENANT_NONE, ""},
                {"0::" DELEGATED "/system.slice/slurmstepd.scope/job_5\n", SERVICE, TENANT_NONE,
                 ""},
                {"0::/user.slice/user-1000.slice/slurmstepd.scope/job_5\n", SERVICE, TENANT_NONE,
                 ""},
                {"1:name=systemd:/kubepods/pod" POD "\n4:memory:/\n", SERVICE, TENANT_NONE, ""},
                {"0::/system.slice/docker-" ID ".scope/kubepods/pod" POD "\n", SERVICE, TENANT_NONE,
                 ""},
                {"3:memory:/docker/" ID "/kubelet/kubepods/pod" POD "\n",
                 "3:memory:/docker/" ID2 "/kubelet/kubepods/pod" POD2 "\n", TENANT_NONE, ""},
                {"0::/../docker-" ID ".scope/kubepods/pod" POD "\n", "0::/\n", TENANT_NONE, ""},
                /* root of a pod makes cgroups below its own: the outermost counts */
                {"0::/kubepods/pod" POD "/" ID "/kubepods/pod" POD2 "\n", SERVICE, TENANT_POD, POD},
                {"0::/kubepods/pod" POD "/" ID "/kubepods/pod" POD2 "\n",
                 "0::/kubepods/pod" POD "/" ID "\n", TENANT_POD, POD},
                {"0::/kubepods/pod" POD "/slurm/uid_1/job_5\n", SERVICE, TENANT_POD, POD},
                {"0::/system.slice/slurmstepd.scope/job_5/step_0/kubepods/pod" POD "\n", SERVICE,
                 TENANT_JOB, "5"},
                /* names that nearly are one */
                {"0::/kubepods/podx" POD "\n", SERVICE, TENANT_NONE, ""},
                {"0::/kubepods/pod" POD "0\n", SERVICE, TENANT_NONE, ""},
                {"0::/kubepods/pod12345678\n", SERVICE, TENANT_NONE, ""},
                {"0::/kubepods/evil/pod" POD "\n", SERVICE, TENANT_NONE, ""},
                {"0::/pod" POD "\n", SERVICE, TENANT_NONE, ""},
                {"0::/slurm/uid_1/job_0\n", SERVICE, TENANT_NONE, ""},
                {"0::/slurm/uid_1/job_5x\n", SERVICE, TENANT_NONE, ""},
                {"0::/slurm/uid_1/job_12345678901\n", SERVICE, TENANT_NONE, ""},
                {"0::/slurm/job_5\n", SERVICE, TENANT_NONE, ""},
                {"0::/slurm/uid_1/sEKNKTV3WPV500\n", SERVICE, TENANT_NONE, ""},
                {"0::/system.slice/slurmstepd.scope/system\n", SERVICE, TENANT_NONE, ""},
                {"0::/system.slice/slurmstepd.scope/sEKNKTV3WPV50\n", SERVICE, TENANT_NONE, ""},
                {"0::/system.slice/slurmstepd.scope/sEKNKTV3WPV50l\n", SERVICE, TENANT_NONE, ""},
                {"0::" DELEGATED "/system.slice/slurmstepd.scope/sEKNKTV3WPV500\n", SERVICE,
                 TENANT_NONE, ""},
                {"0::/slurmfake/uid_1/job_5\n", SERVICE, TENANT_NONE, ""},
        };

        assert_tenants(cases, ARRAY_SIZE(cases));
}

static void a_process_is_known_by_the_path_that_says_most(void **state)
{
        static const struct {
                const char *cgroups, *path;
        } cases[] = {
                {"4:memory:/a\n0::/user.slice/b\n", "/user.slice/b"},
                {"5:pids:/p\n4:memory:/a\n0::/\n", "/a"},
                {"6:freezer:/f\n5:pids:/p\n4:memory:/\n0::/\n", "/p"},
                {"6:freezer:/f\n1:name=systemd:/s\n", "/f"},
                {"4:memory:/\n0::/\n", "/"},
        };
        char path[16];

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                assert_int_equal(tenant_path(cases[i].cgroups, path, sizeof(path)), 0);
                assert_string_equal(path, cases[i].path);
        }
        assert_int_equal(tenant_path("1:name=systemd:/s\n", path, sizeof(path)), -ENOENT);
        assert_int_equal(tenant_path("0::/0123456789abcde\n", path, sizeof(path)), -ENAMETOOLONG);
        assert_int_equal(tenant_path("0::/0123456789abcd\n", path, sizeof(path)), 0);
}

/* In a pod a uid is nobody outside of it, and all containers of one pod are one tenant. */
static void a_pod_is_one_tenant_and_no_other(void **state)
{
        const struct tenant in_a = {TENANT_POD, POD}, in_b = {TENANT_POD, POD2};
        const struct peer a = {.uid = 0, .pid_namespace = 2, .tenant = in_a};
        const struct peer a_too = {.uid = 0, .pid_namespace = 3, .tenant = in_a};
        const struct peer a_host_pid = {.uid = 0, .pid_namespace = 1, .tenant = in_a};
        const struct peer a_other = {.uid = 7, .pid_namespace = 2, .tenant = in_a};
        const struct peer b = {.uid = 0, .pid_namespace = 1, .tenant = in_b};
        const struct peer b_user = {.uid = 7, .pid_namespace = 4, .tenant = in_b};
        const struct peer outside = {.uid = 7, .pid_namespace = 1, .outside = true};
        const struct peer root = {.uid = 0, .pid_namespace = 1, .trusted = true};

        assert_true(peer_same_tenant(&a, &a_too));
        assert_true(peer_has_right(&a, &a_too));
        assert_true(peer_has_right(&a_host_pid, &a));
        assert_false(peer_same_tenant(&a, &a_other) || peer_has_right(&a, &a_other));
        assert_true(peer_same_account(&a, &a_other));
        assert_false(peer_same_account(&a, &b) || peer_same_account(&a_other, &b_user));
        assert_false(peer_has_right(&a_host_pid, &b));
        assert_false(peer_has_right(&a_other, &b_user));
        assert_false(peer_has_right(&a_other, &outside));
        assert_false(peer_has_right(&outside, &a_other));
        assert_false(peer_has_right(&a_host_pid, &root));
        assert_true(peer_has_right(&root, &b_user));
        assert_true(users_same(users_key_of(&a), users_key_of(&a_other)));
        assert_false(users_same(users_key_of(&a), users_key_of(&b)));
        assert_false(users_same(users_key_of(&b_user), users_key_of(&outside)));
}

/* Outside of containers a uid is one person, who may start jobs, and who ends them. */
static void a_user_orders_all_jobs_and_each_has_its_own_limits(void **state)
{
        const struct peer one = {.uid = 7, .pid_namespace = 1, .tenant = {TENANT_JOB, "5"}};
        const struct peer two = {.uid = 7, .pid_namespace = 1, .tenant = {TENANT_JOB, "6"}};
        const struct peer shell = {.uid = 7, .pid_namespace = 1};
        const struct peer others = {.uid = 8, .pid_namespace = 1, .tenant = {TENANT_JOB, "5"}};

        assert_true(peer_has_right(&shell, &one) && peer_has_right(&one, &two));
        assert_false(peer_has_right(&others, &one));
        assert_false(peer_same_tenant(&one, &two) || peer_same_account(&one, &two));
        assert_false(peer_same_account(&others, &one) || peer_same_account(&shell, &one));
        assert_false(users_same(users_key_of(&one), users_key_of(&two)));
        assert_false(users_same(users_key_of(&one), users_key_of(&others)));
        assert_true(users_same(users_key_of(&shell), USERS_UID(7)));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(containers_are_known_by_their_cgroup),
                cmocka_unit_test(pods_and_jobs_are_known_by_their_cgroups),
                cmocka_unit_test(a_name_at_any_other_place_makes_no_tenant),
                cmocka_unit_test(a_process_is_known_by_the_path_that_says_most),
                cmocka_unit_test(a_pod_is_one_tenant_and_no_other),
                cmocka_unit_test(a_user_orders_all_jobs_and_each_has_its_own_limits),
                cmocka_unit_test(the_host_budget_is_half_but_never_the_margin),
                cmocka_unit_test(a_restarted_daemon_promises_as_much_as_the_one_before),
                cmocka_unit_test(reading_this_machine_gives_plausible_figures),
                cmocka_unit_test(uuids_survive_being_written_and_read),
                cmocka_unit_test(malformed_uuids_are_refused),
                cmocka_unit_test(a_users_connections_are_counted),
                cmocka_unit_test(a_user_that_has_used_more_time_has_less_credit),
                cmocka_unit_test(time_pays_a_users_debt_and_reconnecting_does_not),
                cmocka_unit_test(neither_debt_nor_credit_grows_without_bound),
                cmocka_unit_test(work_is_charged_to_the_user_that_caused_it),
                cmocka_unit_test(a_user_in_debt_is_remembered_until_the_debt_is_paid),
                cmocka_unit_test(records_without_a_connection_are_counted),
                cmocka_unit_test(the_kernel_identifies_a_peer_and_reports_its_end),
                cmocka_unit_test(a_process_in_a_container_has_no_rights_outside),
                cmocka_unit_test(without_a_descriptor_no_peer_is_identified),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
