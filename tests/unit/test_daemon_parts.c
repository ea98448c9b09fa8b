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
#include "daemon/cards/nvml.h"
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
        char back[NVML_UUID_TEXT_MAX];
        uint8_t uuid[16];

        assert_int_equal(nvml_parse_uuid(text, uuid), 0);
        assert_memory_equal(uuid, bytes, 16);
        nvml_format_uuid(uuid, back);
        assert_string_equal(back, text);
        assert_int_equal(nvml_parse_uuid("01234567-89AB-cdef-fedc-ba9876543210", uuid), 0);
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
                assert_int_equal(nvml_parse_uuid(bad[i], uuid), -EINVAL);
}

static void a_users_connections_are_counted(void **state)
{
        struct users *u = users_new(2);
        struct user *a, *b, *other;

        assert_non_null(u);
        assert_int_equal(users_connect(u, 7, 0, &a), 0);
        assert_int_equal(users_connect(u, 7, 0, &b), 0);
        assert_ptr_equal(a, b);
        assert_int_equal(users_connect(u, 7, 0, &b), -EUSERS);
        assert_int_equal(users_connect(u, 8, 0, &other), 0);
        users_disconnect(a);
        assert_int_equal(users_connect(u, 7, 0, &b), 0);
        users_free(u);
}

static void a_user_that_has_used_more_time_has_less_credit(void **state)
{
        const uint64_t start = 5 * NSEC_PER_SEC;
        struct users *u = users_new(2);
        struct user *loud, *quiet;

        assert_non_null(u);
        assert_int_equal(users_connect(u, 7, start, &loud), 0);
        assert_int_equal(users_connect(u, 8, start, &quiet), 0);
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
        assert_int_equal(users_connect(u, 7, start, &a), 0);
        full = users_credit(a, start);
        users_charge(a, (uint64_t)full + 20 * NSEC_PER_MSEC, start);
        debt = users_credit(a, start);
        assert_int_equal(debt, -(int64_t)(20 * NSEC_PER_MSEC));
        users_disconnect(a);
        users_forget(a);
        assert_int_equal(users_connect(u, 7, start, &again), 0);
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
        assert_int_equal(users_connect(u, 7, start, &a), 0);
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
        full = users_credit(users_find(u, 7, start), start);
        users_charge_since(u, 7, start, end);
        assert_int_equal(users_credit(users_find(u, 7, end), end),
                         full - (int64_t)(2 * NSEC_PER_MSEC));
        assert_int_equal(users_credit(users_find(u, 8, end), end), full);
        users_charge_since(u, 9, end, start); /* a clock that went back costs nothing */
        assert_int_equal(users_credit(users_find(u, 9, end), end), full);
        users_free(u);
}

/* The account of a uid that is gone is not kept for ever, because uids are cheap to make. */
static void a_user_in_debt_is_remembered_until_the_debt_is_paid(void **state)
{
        const uint64_t start = 5 * NSEC_PER_SEC;
        struct users *u = users_new(2);
        struct user *a, *b;

        assert_non_null(u);
        assert_int_equal(users_connect(u, 7, start, &a), 0);
        assert_int_equal(users_connect(u, 8, start, &b), 0);
        users_charge(a, UINT64_MAX, start);
        users_disconnect(a);
        users_forget(a);
        (void)users_find(u, 9, start + NSEC_PER_SEC / 10);
        assert_true(users_credit(users_find(u, 7, start + NSEC_PER_SEC / 10), start) < 0);
        /* A user with a record is kept, however long it is silent. */
        (void)users_find(u, 10, start + 3600 * NSEC_PER_SEC);
        assert_ptr_equal(users_find(u, 8, start + 3600 * NSEC_PER_SEC), b);
        users_free(u);
}

/* A lost connection leaves a record while its process lives, so records must be limited. */
static void records_without_a_connection_are_counted(void **state)
{
        struct users *u = users_new(2);
        struct user *a;

        assert_non_null(u);
        for (unsigned i = 0; i < 4; i++) {
                assert_int_equal(users_connect(u, 7, 0, &a), 0);
                users_disconnect(a);
        }
        assert_int_equal(users_connect(u, 7, 0, &a), -EUSERS);
        users_forget(a);
        assert_int_equal(users_connect(u, 7, 0, &a), 0);
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

/* The roots of all containers have the same uid. */
static void root_in_a_container_pauses_no_process_outside(void **state)
{
        const struct peer user = {.uid = 1000, .pid_namespace = 1};
        const struct peer same_user_elsewhere = {.uid = 1000, .pid_namespace = 2};
        const struct peer other = {.uid = 1001, .pid_namespace = 1};
        const struct peer daemons_user = {.uid = 2000, .trusted = true};
        const struct peer contained = {.uid = 0, .pid_namespace = 2};
        const struct peer contained_too = {.uid = 0, .pid_namespace = 2};
        const struct peer root = {.uid = 0, .pid_namespace = 1, .trusted = true};
        const struct peer unseen = {.uid = 0};

        assert_true(peer_may_pause(&user, &same_user_elsewhere));
        assert_true(peer_may_pause(&daemons_user, &user));
        assert_true(peer_may_pause(&root, &contained));
        assert_true(peer_may_pause(&contained, &contained_too));
        assert_false(peer_may_pause(&other, &user));
        assert_false(peer_may_pause(&contained, &root));
        assert_false(peer_may_pause(&contained, &same_user_elsewhere));
        assert_false(peer_may_pause(&unseen, &unseen));
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

#define ID  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID2 "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define POD "12345678-9abc-def0-1234-56789abcdef0"

static void containers_and_pods_are_known_by_their_cgroup(void **state)
{
        static const struct {
                const char *path, *id, *pod;
        } cases[] = {
                {"/system.slice/docker-" ID ".scope", ID, ""},
                {"/docker/" ID, ID, ""},
                {"/docker/" ID "/docker/" ID2, ID2, ""},
                {"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID
                 ".scope/container",
                 ID, ""},
                {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
                 "12345678_9abc_def0_1234_56789abcdef0.slice/cri-containerd-" ID ".scope",
                 ID, POD},
                {"/kubepods/besteffort/pod" POD "/" ID, ID, POD},
                {"/kubepods.slice/kubepods-pod0123456789abcdef0123456789abcdef.slice/crio-" ID
                 ".scope",
                 ID, "0123456789abcdef0123456789abcdef"},
                {"/lxc.payload.gpu-box/system.slice/x.service", "gpu-box", ""},
                {"/", "", ""},
                {"/user.slice/user-1000.slice/session-3.scope", "", ""},
                {"/system.slice/docker-" ID "0.scope", "", ""},
                {"/lxc.payload./pod12/podxyz", "", ""},
                {"/lxc.payload.a\033b", "", ""},
        };
        struct container c;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                container_of_cgroup(cases[i].path, &c);
                assert_string_equal(c.id, cases[i].id);
                assert_string_equal(c.pod, cases[i].pod);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(containers_and_pods_are_known_by_their_cgroup),
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
                cmocka_unit_test(root_in_a_container_pauses_no_process_outside),
                cmocka_unit_test(without_a_descriptor_no_peer_is_identified),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
