/* test_sim_hand.c: disabling is a count for each channel, which all processes of a session change,
 * also one that reaches the resource manager (RM) without libcuda, by the simulated NVML's open(),
 * ioctl() and close(). */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "channels_bench.h"

enum {
        INVALID_ARGUMENT = 0x1f,
        UNKNOWN_SOURCE = 0x33,
        INVALID_PARAMETERS = 0x3a,
        DUP = 0x34,
        DEVICE = 0x5b000001,
        SUBDEVICE = 0x5b000002,
};

/* ---- within one process ---- */

static struct counter *k;
static CUstream busy;

static struct channels_call begin_with_a_kernel(void)
{
        (void)bench_begin();
        OK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
        k = bench_count(busy);
        return bench_channels(CHANNELS_PROGRAM);
}

static struct channels_call with_a_missing_channel(const struct channels_call *all)
{
        struct channels_call c = *all;

        c.channels[c.count++] = 0x77;
        return c;
}

SIM_TEST(a_channel_disabled_twice_needs_two_enablings)
{
        const struct channels_call all = begin_with_a_kernel();

        CHECK_EQUAL(bench_switch(&all, false), 0); /* at a count of 0: nothing happens */
        CHECK_EQUAL(bench_switch(&all, true), 0);
        CHECK_EQUAL(bench_switch(&all, true), 0);
        CHECK_EQUAL(bench_switch(&all, false), 0);
        CHECK(bench_stands(k));
        CHECK_EQUAL(bench_switch(&all, false), 0);
        bench_end_count(k, busy);
}

SIM_TEST(a_disabling_that_fails_is_counted_and_stops_nothing)
{
        const struct channels_call all = begin_with_a_kernel();
        const struct channels_call wrong = with_a_missing_channel(&all);

        CHECK_EQUAL(bench_switch(&wrong, true), RM_NO_CHANNEL);
        bench_await_progress(k);
        CHECK_EQUAL(bench_switch(&all, true), 0);
        CHECK_EQUAL(bench_switch(&all, false), 0);
        CHECK(bench_stands(k));
        CHECK_EQUAL(bench_switch(&all, false), 0);
        bench_await_progress(k);
        CHECK_EQUAL(bench_switch(&wrong, true), RM_NO_CHANNEL);
        CHECK_EQUAL(bench_switch(&all, false), 0); /* takes the count away */
        CHECK_EQUAL(bench_switch(&all, true), 0);
        CHECK_EQUAL(bench_switch(&all, false), 0);
        bench_end_count(k, busy);
}

SIM_TEST(an_enabling_that_fails_enables_the_channels_before_the_missing_one)
{
        const struct channels_call all = begin_with_a_kernel();
        const struct channels_call wrong = with_a_missing_channel(&all);

        CHECK_EQUAL(bench_switch(&all, true), 0);
        CHECK_EQUAL(bench_switch(&wrong, false), RM_NO_CHANNEL);
        bench_end_count(k, busy);
}

SIM_TEST(an_empty_list_of_channels_is_refused)
{
        struct channels_call all = begin_with_a_kernel();

        all.count = 0;
        CHECK_EQUAL(bench_switch(&all, true), INVALID_PARAMETERS);
        bench_end_count(k, busy);
}

/* ---- without libcuda ---- */

static int (*open_)(const char *, int, ...);
static int (*ioctl_)(int, unsigned long, ...);
static int (*close_)(int);

struct hand {
        int control, card;
        uint32_t client;
};

static void find_functions(void)
{
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);

        CHECK(library != NULL);
        open_ = (__typeof__(open_))dlsym(library, "open");
        ioctl_ = (__typeof__(ioctl_))dlsym(library, "ioctl");
        close_ = (__typeof__(close_))dlsym(library, "close");
        CHECK(open_ && ioctl_ && close_);
}

static uint32_t hand_request(int fd, unsigned escape, void *argument, size_t bytes,
                             const uint32_t *status)
{
        int r = ioctl_(fd, _IOC(_IOC_READ | _IOC_WRITE, RM_IOCTL_TYPE, escape, bytes), argument);

        return r < 0 ? BENCH_FAILED | (uint32_t)errno : *status;
}

static uint32_t hand_alloc(int fd, uint32_t client, uint32_t parent, uint32_t *object,
                           uint32_t class, void *params)
{
        struct rm_alloc_long a = {
                .alloc = {client, parent, *object, class, (uint64_t)(uintptr_t)params},
                .status = UINT32_MAX};
        uint32_t status = hand_request(fd, RM_ESCAPE_ALLOC, &a, sizeof(a), &a.status);

        *object = a.alloc.object;
        return status;
}

static uint32_t hand_switch(int fd, const struct hand *h, const struct channels_call *c,
                            bool disable)
{
        struct rm_disable_channels d = {.disable = disable, .count = c->count};
        struct rm_control call = {.client = h->client,
                                  .object = SUBDEVICE,
                                  .command = RM_DISABLE_CHANNELS,
                                  .params = (uintptr_t)&d,
                                  .params_size = sizeof(d),
                                  .status = UINT32_MAX};

        for (uint32_t i = 0; i < c->count; i++) {
                d.clients[i] = c->client;
                d.channels[i] = c->channels[i];
        }
        return hand_request(fd, RM_ESCAPE_CONTROL, &call, sizeof(call), &call.status);
}

static uint32_t hand_dup(const struct hand *h, uint32_t from, uint32_t object)
{
        struct {
                uint32_t client, parent, object, from, source, flags, status;
        } d = {h->client, h->client, 0x5b000009, from, object, 0, UINT32_MAX};

        return hand_request(h->control, DUP, &d, sizeof(d), &d.status);
}

static uint32_t make_device(const struct hand *h, uint32_t number, uint32_t handle)
{
        uint32_t params[14] = {number};

        return hand_alloc(h->control, h->client, h->client, &handle, RM_CLASS_DEVICE, params);
}

static struct hand hand_open(void)
{
        struct hand h = {open_("/dev/nvidiactl", O_RDWR | O_CLOEXEC),
                         open_("/dev/nvidia0", O_RDWR | O_CLOEXEC), 0};
        uint32_t subdevice = SUBDEVICE, params = 0;

        CHECK(h.control >= 0 && h.card >= 0);
        CHECK_EQUAL(hand_alloc(h.control, 0, 0, &h.client, RM_CLASS_CLIENT_USER, NULL), 0);
        CHECK_EQUAL(make_device(&h, 0, DEVICE), 0);
        CHECK_EQUAL(
                hand_alloc(h.control, h.client, DEVICE, &subdevice, RM_CLASS_SUBDEVICE, &params),
                0);
        return h;
}

static struct channels_call *others; /* shared with the peer */

static struct unit_peer start_a_peer(void (*body)(void))
{
        others = mmap(NULL, sizeof(*others), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0);
        CHECK(others != MAP_FAILED);
        return unit_peer_start(body);
}

static void await_order(void)
{
        unit_tell();
        unit_wait_told();
}

static void count_until_told(void)
{
        *others = begin_with_a_kernel();
        await_order();
        CHECK(bench_stands(k));
        CHECK_EQUAL(bench_switch(others, true), 0);
        await_order();
        CHECK(bench_stands(k)); /* the peer's own disabling is left */
        CHECK_EQUAL(bench_switch(others, false), 0);
        bench_end_count(k, busy);
}

SIM_TEST(a_process_without_libcuda_disables_and_enables_anothers_channels)
{
        struct unit_peer peer = start_a_peer(count_until_told);
        struct hand h;

        find_functions();
        h = hand_open();
        unit_peer_wait(&peer);
        CHECK_EQUAL(hand_switch(h.control, &h, others, true), 0);
        unit_peer_tell(&peer);
        unit_peer_wait(&peer);
        CHECK_EQUAL(hand_switch(h.control, &h, others, false), 0);
        unit_peer_tell(&peer);
        unit_peer_end(&peer);
}

static void count_on(void)
{
        *others = begin_with_a_kernel();
        await_order();
}

SIM_TEST(objects_of_a_process_that_was_killed_are_unknown)
{
        struct unit_peer peer = start_a_peer(count_on);
        struct hand h;

        find_functions();
        h = hand_open();
        unit_peer_wait(&peer);
        CHECK_EQUAL(hand_switch(h.control, &h, others, true), 0);
        CHECK_EQUAL(hand_dup(&h, others->client, 0x77), RM_NO_OBJECT);
        unit_peer_kill(&peer);
        CHECK_EQUAL(hand_switch(h.control, &h, others, true), RM_NO_CHANNEL);
        CHECK_EQUAL(hand_switch(h.control, &h, others, false), RM_NO_CHANNEL);
        CHECK_EQUAL(hand_dup(&h, others->client, 0x77), UNKNOWN_SOURCE);
}

SIM_TEST(a_copy_of_an_object_tells_whether_it_exists)
{
        struct hand h, other;

        find_functions();
        h = hand_open();
        other = hand_open();
        CHECK_EQUAL(other.client, h.client + 1);
        CHECK_EQUAL(hand_dup(&h, 0xc1dfffff, 1), UNKNOWN_SOURCE);
        CHECK_EQUAL(hand_dup(&h, other.client, 1), RM_NO_OBJECT);
        CHECK_EQUAL(make_device(&other, 0, 0x5b7a11ce), 0);
        CHECK_EQUAL(hand_dup(&h, other.client, 0x5b7a11ce), INVALID_ARGUMENT);
        CHECK_EQUAL(close_(other.control), 0);
        CHECK_EQUAL(hand_dup(&h, other.client, 0x5b7a11ce), UNKNOWN_SOURCE);
}

SIM_TEST(a_client_belongs_to_the_descriptor_that_made_it)
{
        struct hand h, other;
        struct rm_free f;

        find_functions();
        h = hand_open();
        other = hand_open();
        f = (struct rm_free){h.client, h.client, DEVICE, UINT32_MAX};
        CHECK_EQUAL(hand_switch(other.control, &h, &(struct channels_call){.count = 1}, true),
                    RM_NO_CLIENT);
        CHECK_EQUAL(hand_request(other.control, RM_ESCAPE_FREE, &f, sizeof(f), &f.status),
                    RM_NO_CLIENT);
        CHECK_EQUAL(hand_request(h.control, RM_ESCAPE_FREE, &f, sizeof(f), &f.status), 0);
}

SIM_TEST_WITH(a_device_needs_the_cards_node, "SIMCUDA_GPUS=2")
{
        struct hand h;

        find_functions();
        h = hand_open();
        CHECK_EQUAL(make_device(&h, 1, 0x11), RM_NO_PERMISSION);
        CHECK_EQUAL(open_("/dev/nvidia2", O_RDWR), -1);
        CHECK_EQUAL(errno, ENOENT);
        CHECK(open_("/dev/nvidia1", O_RDWR) >= 0);
        CHECK_EQUAL(make_device(&h, 1, 0x11), 0);
        CHECK_EQUAL(make_device(&h, 2, 0x12), INVALID_ARGUMENT);
}

SIM_TEST(other_files_and_requests_reach_the_kernel)
{
        int fd, ends[2], n = -1;

        find_functions();
        fd = open_("/dev/null", O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0);
        CHECK_EQUAL(fcntl(fd, F_GETFD), FD_CLOEXEC);
        CHECK_EQUAL(close_(fd), 0);
        CHECK_EQUAL(close_(fd), -1);
        CHECK_EQUAL(errno, EBADF);
        CHECK(pipe(ends) == 0);
        CHECK_EQUAL(write(ends[1], "four", 4), 4);
        CHECK_EQUAL(ioctl_(ends[0], FIONREAD, &n), 0);
        CHECK_EQUAL(n, 4);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_channel_disabled_twice_needs_two_enablings),
                cmocka_unit_test(a_disabling_that_fails_is_counted_and_stops_nothing),
                cmocka_unit_test(
                        an_enabling_that_fails_enables_the_channels_before_the_missing_one),
                cmocka_unit_test(an_empty_list_of_channels_is_refused),
                cmocka_unit_test(a_process_without_libcuda_disables_and_enables_anothers_channels),
                cmocka_unit_test(objects_of_a_process_that_was_killed_are_unknown),
                cmocka_unit_test(a_copy_of_an_object_tells_whether_it_exists),
                cmocka_unit_test(a_client_belongs_to_the_descriptor_that_made_it),
                cmocka_unit_test(a_device_needs_the_cards_node),
                cmocka_unit_test(other_files_and_requests_reach_the_kernel),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
