/* test_plugin_devices.c: from the daemon's status to the devices that a pod gets. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "kubernetes/plugin/choose_devices.h"
#include "kubernetes/plugin/grant.h"
#include "kubernetes/plugin/processes.h"

#define MOST 64

static struct cards cards;
static char names[MOST][DEVICE_ID_MAX];
static char *available[MOST];
static size_t n_available;

/* Cards named GPU-0, GPU-1, ..., each of 1000 bytes and with `devices` devices, all of them free.
 */
static void begin(unsigned n, unsigned devices)
{
        memset(&cards, 0, sizeof(cards));
        cards = (struct cards){.n = n, .devices = devices, .daemon = true};
        n_available = 0;
        for (unsigned i = 0; i < n; i++) {
                cards.list[i].total = 1000;
                (void)snprintf(cards.list[i].uuid, CARD_UUID_MAX, "GPU-%u", i);
                for (unsigned k = 0; k < devices; k++) {
                        available[n_available] = names[n_available];
                        (void)device_id(&cards.list[i], k, names[n_available++]);
                }
        }
}

/* Returns which cards are chosen, as digits. */
static const char *chosen(enum place place, size_t size, char **must, size_t n_must)
{
        static char digits[MOST + 1];
        const char *got[MOST];
        const size_t n =
                choose_devices(&cards, place, available, n_available, must, n_must, size, got);

        for (size_t i = 0; i < n; i++) {
                digits[i] = (char)('0' + device_card(&cards, got[i]));
                for (size_t k = 0; k < i; k++)
                        assert_string_not_equal(got[i], got[k]);
        }
        digits[n] = '\0';
        return digits;
}

static void status_is_taken(const char *text)
{
        json_t *status = json_loads(text, 0, NULL);

        assert_true(cards_take(&cards, status));
        json_decref(status);
}

static void several_devices_are_of_different_cards(void **state)
{
        begin(4, 2);
        assert_string_equal(chosen(PLACE_SPREAD, 4, NULL, 0), "0123");
        assert_string_equal(chosen(PLACE_PACK, 4, NULL, 0), "0123");
        assert_string_equal(chosen(PLACE_SPREAD, 6, NULL, 0), "012301");
        assert_string_equal(chosen(PLACE_SPREAD, 9, NULL, 0), "01230123"); /* there are no more */
}

static void spread_takes_the_card_with_the_least_load(void **state)
{
        begin(3, 8);
        cards.list[0].committed = 500;
        cards.list[1].committed = 100;
        cards.list[1].waiting = 1;
        cards.list[2].committed = 900;
        assert_string_equal(chosen(PLACE_SPREAD, 1, NULL, 0), "0");
}

static void pack_takes_the_fullest_card_that_still_fits(void **state)
{
        begin(3, 8);
        cards.list[0].committed = 500;
        cards.list[1].committed = 700;
        cards.list[2].committed = 1200;
        assert_string_equal(chosen(PLACE_PACK, 1, NULL, 0), "1");
        cards.list[1].committed = 1100;
        cards.list[0].waiting = 1;
        assert_string_equal(chosen(PLACE_PACK, 1, NULL, 0), "1"); /* none fits: the least load */
}

static void devices_that_are_given_out_count_before_their_programs_run(void **state)
{
        begin(2, 8);
        cards.list[1].committed = 250;
        memmove(available, available + 3, (n_available - 3) * sizeof(*available));
        n_available -= 3; /* three of card 0 are given out */
        assert_string_equal(chosen(PLACE_SPREAD, 1, NULL, 0), "1");
        cards.list[0].clients = 3; /* they run, and commit nothing */
        assert_string_equal(chosen(PLACE_SPREAD, 1, NULL, 0), "0");
        cards.list[1].committed = 0; /* the same load: the devices count */
        assert_string_equal(chosen(PLACE_SPREAD, 1, NULL, 0), "1");
        assert_string_equal(chosen(PLACE_PACK, 1, NULL, 0), "0");
}

static void what_must_be_included_is(void **state)
{
        char first[] = "GPU-1::1", unknown[] = "GPU-9::0", *must[] = {first, unknown};

        begin(3, 2);
        assert_string_equal(chosen(PLACE_SPREAD, 3, must, 1), "102");
        assert_string_equal(chosen(PLACE_SPREAD, 1, must, 1), "1");
        assert_string_equal(chosen(PLACE_SPREAD, 6, must, 1), "102012");
        assert_int_equal(chosen(PLACE_SPREAD, 2, must, 2)[0], '1'); /* and kubelet's word counts */
}

static void unhealthy_cards_come_last(void **state)
{
        begin(2, 2);
        cards.list[0].mps = true;
        cards.list[1].committed = 5000;
        assert_string_equal(chosen(PLACE_SPREAD, 1, NULL, 0), "1");
}

static void only_written_ids_are_devices(void **state)
{
        static const char *const wrong[] = {
                "",          "GPU-0",     "GPU-0::",     "GPU-0::2",
                "GPU-0::01", "GPU-0::+1", "GPU-0:: 1",   "GPU-0::1 ",
                "::1",       "GPU-00::1", "GPU-0::1::1", "GPU-0::18446744073709551616",
                "gpu-0::1"};

        begin(1, 2);
        assert_int_equal(device_card(&cards, "GPU-0::1"), 0);
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                assert_int_equal(device_card(&cards, wrong[i]), -ENODEV);
}

#define GPU(uuid, index, age)                                                          \
        "{\"uuid\": \"" uuid "\", \"nvml_index\": " index ", \"measured_s_ago\": " age \
        ", \"total\": 100, \"committed\": 7, \"waiting\": 1, \"clients\": [{}, {}]}"

static void health_follows_the_daemons_status(void **state)
{
        memset(&cards, 0, sizeof(cards));
        cards.devices = 1;
        status_is_taken("{\"gpus\": [" GPU("A", "0", "0.5") ", " GPU("B", "1", "60") ", " GPU(
                "C", "null", "0") "]}");
        assert_int_equal(cards.n, 2); /* NVML never listed C */
        assert_int_equal(card_health(&cards, &cards.list[0]), CARD_HEALTHY);
        assert_int_equal(card_health(&cards, &cards.list[1]), CARD_UNREADABLE);
        assert_int_equal(cards.list[0].committed, 7);
        assert_int_equal(cards.list[0].clients, 2);
        assert_int_equal(cards_smallest(&cards), 100);
        status_is_taken("{\"gpus\": [" GPU("A", "null", "0.5") "]}");
        assert_int_equal(cards.n, 2);
        assert_int_equal(card_health(&cards, &cards.list[0]), CARD_ABSENT);
        assert_int_equal(card_health(&cards, &cards.list[1]), CARD_ABSENT);
        status_is_taken("{\"gpus\": [" GPU("A", "0", "0.5") "]}");
        assert_int_equal(card_health(&cards, &cards.list[0]), CARD_HEALTHY);
        cards.daemon = false;
        assert_int_equal(card_health(&cards, &cards.list[0]), CARD_NO_DAEMON);
}

/* Takes a status of one card in this mode; NULL: the daemon does not know it. */
static enum card_health health_in(const char *mode)
{
        json_t *status = json_pack("{s:[{s:s, s:i, s:f, s:s?}]}", "gpus", "uuid", "A", "nvml_index",
                                   0, "measured_s_ago", 0.5, "compute_mode", mode);

        assert_true(cards_take(&cards, status));
        json_decref(status);
        return card_health(&cards, &cards.list[0]);
}

static void only_a_card_in_default_compute_mode_is_healthy(void **state)
{
        memset(&cards, 0, sizeof(cards));
        cards.devices = 1;
        assert_int_equal(health_in("default"), CARD_HEALTHY);
        assert_int_equal(health_in("exclusive_process"), CARD_EXCLUSIVE);
        assert_int_equal(health_in("exclusive_thread"), CARD_EXCLUSIVE);
        assert_int_equal(health_in("prohibited"), CARD_PROHIBITED);
        assert_int_equal(health_in(NULL), CARD_HEALTHY);
        cards.list[0].mps = true; /* MPS is why it is exclusive */
        assert_int_equal(health_in("exclusive_process"), CARD_MPS);
        assert_int_equal(health_in("prohibited"), CARD_PROHIBITED);
}

static void nonsense_is_no_status(void **state)
{
        json_t *none = json_loads("{\"error\": \"no\"}", 0, NULL);

        memset(&cards, 0, sizeof(cards));
        assert_false(cards_take(&cards, none));
        json_decref(none);
        status_is_taken("{\"gpus\": [7, {}, {\"uuid\": 3}, {\"uuid\": \"\"}, {\"uuid\": "
                        "\"0123456789012345678901234567890123456789012345678901234567890\", "
                        "\"nvml_index\": 0}]}");
        assert_int_equal(cards.n, 0);
}

static void a_container_gets_each_gpu_once(void **state)
{
        const struct grant_options o = {.library = "/l",
                                        .preload_file = "/p",
                                        .socket_dir = "/s",
                                        .cdi_kind = "nvidia.com/gpu",
                                        .proc = "/nonexistent",
                                        .dev = "/nonexistent"};
        char *ids[] = {(char *)"GPU-1::0", (char *)"GPU-0::1", (char *)"GPU-1::1"};
        V1beta1__ContainerAllocateRequest one = V1BETA1__CONTAINER_ALLOCATE_REQUEST__INIT;
        V1beta1__ContainerAllocateRequest *list[] = {&one};
        V1beta1__AllocateRequest request = V1BETA1__ALLOCATE_REQUEST__INIT;
        V1beta1__AllocateResponse *answer;
        char error[GRANT_ERROR_MAX] = "";
        uint8_t *bytes;
        size_t n;

        begin(3, 2);
        one.ids = ids;
        one.n_ids = 3;
        request.containers = list;
        request.n_containers = 1;
        assert_int_equal(grant_answer(&o, &cards, &request, &bytes, &n, error), 0);
        answer = v1beta1__allocate_response__unpack(NULL, n, bytes);
        assert_non_null(answer);
        assert_int_equal(answer->n_containers, 1);
        assert_int_equal(answer->containers[0]->n_envs, 3);
        assert_string_equal(answer->containers[0]->envs[2]->key, "NVIDIA_VISIBLE_DEVICES");
        assert_string_equal(answer->containers[0]->envs[2]->value, "GPU-0,GPU-1");
        v1beta1__allocate_response__free_unpacked(answer, NULL);
        free(bytes);
        one.n_ids = 0; /* NVIDIA_VISIBLE_DEVICES="" would be no GPU, and "all" in some runtimes */
        assert_int_equal(grant_answer(&o, &cards, &request, &bytes, &n, error), -EINVAL);
}

/* ---- MPS ---- */

static char proc[32];

int __real_statx(int folder, const char *name, int flags, unsigned mask, struct statx *ret);
int __wrap_statx(int folder, const char *name, int flags, unsigned mask, struct statx *ret);

/* Descriptors of the test's /proc. A link to "device:MAJOR:MINOR" stands for one of that device,
 * "path:MAJOR:MINOR" for one that was opened with O_PATH, "denied" for one that may not be seen. */
int __wrap_statx(int folder, const char *name, int flags, unsigned mask, struct statx *ret)
{
        char text[64] = "";
        unsigned number[2];
        const bool link = flags & AT_SYMLINK_NOFOLLOW;
        const bool path = readlinkat(folder, name, text, sizeof(text) - 1) > 0 &&
                          strncmp(text, "path:", 5) == 0;

        if (strcmp(text, "denied") == 0 && !link) {
                errno = EACCES;
                return -1;
        }
        if (path && link) {
                *ret = (struct statx){.stx_mode = S_IFLNK};
                return 0;
        }
        if (link || sscanf(strchrnul(text, ':'), ":%u:%u", &number[0], &number[1]) != 2)
                return __real_statx(folder, name, flags, mask, ret);
        *ret = (struct statx){.stx_mode = S_IFCHR | 0666,
                              .stx_rdev_major = number[0],
                              .stx_rdev_minor = number[1]};
        return 0;
}

static int make_proc(void **state)
{
        (void)state;
        (void)strcpy(proc, "/tmp/sublet-proc-XXXXXX");
        return mkdtemp(proc) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
        (void)st;
        (void)type;
        (void)at;
        return remove(path);
}

static int remove_proc(void **state)
{
        (void)state;
        return nftw(proc, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Makes the folders above a file of the test's /proc. */
static void make_way(const char *path)
{
        char whole[160], *at = whole + strlen(proc);

        (void)snprintf(whole, sizeof(whole), "%s/%s", proc, path);
        while ((at = strchr(at + 1, '/'))) {
                *at = '\0';
                if (mkdir(whole, 0700) < 0)
                        assert_int_equal(errno, EEXIST);
                *at = '/';
        }
}

static void put(const char *path, const char *text)
{
        char whole[160];
        FILE *f;

        make_way(path);
        (void)snprintf(whole, sizeof(whole), "%s/%s", proc, path);
        f = fopen(whole, "w");
        assert_non_null(f);
        (void)fputs(text, f);
        assert_int_equal(fclose(f), 0);
}

/* A GPU whose device file is /dev/nvidiaMINOR. */
static void add_gpu(const char *uuid, unsigned minor)
{
        char path[80], text[128];

        (void)snprintf(path, sizeof(path), "driver/nvidia/gpus/0000:%02u:00.0/information", minor);
        (void)snprintf(text, sizeof(text), "GPU UUID: \t %s\nDevice Minor: \t %u\n", uuid, minor);
        put(path, text);
}

static void add_process(int pid, const char *name, const char *cgroup, const char *descriptors)
{
        char path[160], target[64];
        int n = 0;

        (void)snprintf(path, sizeof(path), "%d/comm", pid);
        put(path, name);
        (void)snprintf(path, sizeof(path), "%d/cgroup", pid);
        put(path, cgroup);
        (void)snprintf(path, sizeof(path), "%d/fd/", pid);
        make_way(path);
        while (sscanf(descriptors, "%63s", target) == 1) {
                (void)snprintf(path, sizeof(path), "%s/%d/fd/%d", proc, pid, n++);
                assert_int_equal(symlink(target, path), 0);
                descriptors += strspn(descriptors, " ") + strlen(target);
        }
}

static bool no_pod(const char *uid, void *userdata)
{
        return false;
}

/* Returns which of the cards, "0" to "9", MPS serves. */
static const char *served(void)
{
        static const struct processes_told told = {.is_ours = no_pod};
        static char text[16];
        struct processes_mps mps;
        size_t n = 0;

        processes_look(proc, &told, NULL, &mps);
        processes_mark_mps(&mps, proc, &cards);
        for (unsigned i = 0; i < cards.n; i++)
                if (cards.list[i].mps)
                        text[n++] = (char)('0' + i);
        text[n] = '\0';
        return text;
}

#define MPS     "nvidia-cuda-mps\n"
#define NODE    "0::/system.slice/mps.service\n"
#define POD     "0::/kubepods/besteffort/pod12345678-9abc-def0-1234-56789abcdef0/c\n"
#define CONTROL "device:195:255 " /* /dev/nvidiactl */

static void mps_serves_the_gpus_whose_files_it_has_open(void **state)
{
        begin(3, 2);
        for (unsigned i = 0; i < 3; i++)
                add_gpu(cards.list[i].uuid, 2 - i);
        assert_string_equal(served(), "");
        add_process(70, MPS, NODE, "device:1:3 " CONTROL "device:195:1 device:195:1");
        assert_string_equal(served(), "1");
        add_process(71, MPS, POD, CONTROL "device:195:0");
        assert_string_equal(served(), "12");
}

/* Any pod may choose the name of a process, the text of a link, and make a device file that it may
 * not open. */
static void only_an_open_file_of_a_gpu_makes_mps(void **state)
{
        static const char *const descriptors[] = {
                "",      "/nonexistent/nvidia0", "../../nvidia0", "device:1:195 device:194:0",
                CONTROL, "path:195:0",           "denied"};

        begin(1, 2);
        add_gpu(cards.list[0].uuid, 0);
        put("nvidia0", "a regular file");
        add_process(60, "python3\n", POD, CONTROL "device:195:0");
        for (size_t i = 0; i < ARRAY_SIZE(descriptors); i++)
                add_process(70 + (int)i, MPS, POD, descriptors[i]);
        assert_string_equal(served(), "");
}

/* Instances of MIG have no number of their own. */
static void a_gpu_that_is_no_other_card_may_be_each_card_without_a_number(void **state)
{
        begin(3, 2);
        (void)strcpy(cards.list[1].uuid, "MIG-1");
        (void)strcpy(cards.list[2].uuid, "MIG-2");
        add_gpu("GPU-0", 0);
        add_gpu("GPU-with-mig", 1);
        add_process(70, MPS, NODE, CONTROL "device:195:0");
        assert_string_equal(served(), "0");
        add_process(71, MPS, NODE, CONTROL "device:195:1");
        assert_string_equal(served(), "012");
}

static void mps_of_the_node_that_may_not_be_looked_into_may_serve_every_gpu(void **state)
{
        begin(2, 2);
        add_gpu("GPU-0", 0);
        add_process(70, MPS, NODE, "denied");
        assert_string_equal(served(), "01");
}

static const char *whose;

static bool is_ours(const char *uid, void *userdata)
{
        return strcmp(uid, "12345678-9abc-def0-1234-56789abcdef0") == 0;
}

static bool knows_musl(const char *uid, void *userdata)
{
        return true;
}

static void on_mps(const char *uid, int pid, const char *name, void *userdata)
{
        whose = "ours";
}

/* Returns "ours" if MPS belongs to the pod of ours, and else to the node. ours: the plugin's. */
static const char *owner(const char *theirs, const char *ours)
{
        static const struct processes_told told = {
                .is_ours = is_ours, .knows_musl = knows_musl, .mps = on_mps};
        struct processes_mps mps;

        put("70/cgroup", theirs);
        put("self/cgroup", ours);
        whose = "nobody's";
        processes_look(proc, &told, NULL, &mps);
        return mps.held[0] ? "the node's" : whose;
}

/* tests/unit/test_daemon_parts.c has the forms of these names. */
static void the_pod_of_a_process_is_known_by_the_place_of_its_cgroup(void **state)
{
#define UID "12345678-9abc-def0-1234-56789abcdef0"
        add_process(70, MPS, "", "device:195:0");
        assert_string_equal(owner("0::/kubepods/pod" UID "/c\n", "0::/\n"), "ours");
        /* the plugin has a cgroup namespace of its own, in a pod of another class */
        assert_string_equal(owner("0::/../../../besteffort/pod" UID "/c\n", "0::/\n"), "ours");
        /* the kubelet runs in a container */
        assert_string_equal(
                owner("0::/docker/d/kubepods/pod" UID "/c\n", "0::/docker/d/kubepods/podx\n"),
                "ours");
        /* a user may make these */
        assert_string_equal(owner("0::/user.slice/kubepods/pod" UID "/c\n", "0::/\n"),
                            "the node's");
        assert_string_equal(owner("1:name=systemd:/kubepods/pod" UID "\n0::/a\n", "0::/\n"),
                            "the node's");
        assert_string_equal(owner("0::/docker/d/kubepods/pod" UID "/c\n", "0::/\n"), "the node's");
}

#define MPS_TEST(test) cmocka_unit_test_setup_teardown(test, make_proc, remove_proc)

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(several_devices_are_of_different_cards),
                cmocka_unit_test(spread_takes_the_card_with_the_least_load),
                cmocka_unit_test(pack_takes_the_fullest_card_that_still_fits),
                cmocka_unit_test(devices_that_are_given_out_count_before_their_programs_run),
                cmocka_unit_test(what_must_be_included_is),
                cmocka_unit_test(unhealthy_cards_come_last),
                cmocka_unit_test(only_written_ids_are_devices),
                cmocka_unit_test(health_follows_the_daemons_status),
                cmocka_unit_test(only_a_card_in_default_compute_mode_is_healthy),
                cmocka_unit_test(nonsense_is_no_status),
                cmocka_unit_test(a_container_gets_each_gpu_once),
                MPS_TEST(mps_serves_the_gpus_whose_files_it_has_open),
                MPS_TEST(only_an_open_file_of_a_gpu_makes_mps),
                MPS_TEST(a_gpu_that_is_no_other_card_may_be_each_card_without_a_number),
                MPS_TEST(the_pod_of_a_process_is_known_by_the_place_of_its_cgroup),
                MPS_TEST(mps_of_the_node_that_may_not_be_looked_into_may_serve_every_gpu),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
