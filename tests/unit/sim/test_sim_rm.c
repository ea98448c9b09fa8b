/* test_sim_rm.c: the simulated resource manager's objects, controls and statuses, the layouts of
 * every generation of driver as libsublet reads them, and faults on demand. */
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "channels_bench.h"
#include "preload/driver/real.h"

#define CHANNELS      12 /* channels of a context */
#define GREEN         8
#define CLASS_CHANNEL 0xc86f
#define DIAGNOSTICS   0x208f

enum {
        DUPLICATE_NAME = 0x19,
        INVALID_ARGUMENT = 0x1f,
        INVALID_CLASS = 0x22,
        INVALID_PARENT = 0x36,
        INVALID_PARAMETERS = 0x3a,
        IN_USE = 0x63,
};

/* ---- objects ---- */

SIM_TEST(objects_are_made_only_below_the_right_parent)
{
        struct rm_group_params group = {.engine = 1};
        uint8_t channel[376] = {0}, device_params[56] = {9};
        struct channels_call all;
        uint32_t device, at, made;

        (void)bench_begin();
        all = bench_channels(CHANNELS_PROGRAM);
        device = bench_object(RM_CLASS_DEVICE, 0);
        at = 0x1111;
        CHECK_EQUAL(bench_alloc(0x77, device, &at, RM_CLASS_GROUP, &group), RM_NO_CLIENT);
        CHECK_EQUAL(bench_alloc(all.client, 0x77, &at, RM_CLASS_GROUP, &group), RM_NO_OBJECT);
        CHECK_EQUAL(bench_alloc(all.client, all.client, &at, RM_CLASS_GROUP, &group),
                    INVALID_PARENT);
        CHECK_EQUAL(bench_alloc(all.client, device, &at, CLASS_CHANNEL, channel), INVALID_PARENT);
        CHECK_EQUAL(bench_alloc(all.client, device, &at, 0x1234, NULL), INVALID_CLASS);
        CHECK_EQUAL(bench_alloc(all.client, device, &at, RM_CLASS_GROUP, NULL), INVALID_ARGUMENT);
        CHECK_EQUAL(bench_alloc(all.client, all.client, &at, RM_CLASS_DEVICE, device_params),
                    INVALID_ARGUMENT);
        CHECK_EQUAL(bench_alloc(all.client, device, &at, RM_CLASS_GROUP, &group), 0);
        CHECK_EQUAL(bench_alloc(all.client, device, &at, RM_CLASS_GROUP, &group), DUPLICATE_NAME);
        made = 0;
        CHECK_EQUAL(bench_alloc(all.client, at, &made, CLASS_CHANNEL, channel), 0);
        CHECK(made != 0);
        CHECK_EQUAL(bench_free(all.client, at), 0);
        CHECK_EQUAL(bench_free(all.client, made), RM_NO_OBJECT); /* freed with its group */
        CHECK_EQUAL(bench_free(0x77, made), RM_NO_CLIENT);
}

SIM_TEST(freeing_a_client_frees_all_its_objects)
{
        uint8_t device_params[56] = {0}, channel[376] = {0};
        struct rm_group_params group = {.engine = 11};
        uint32_t client = 0, device = 0x10, subdevice = 0x11, on = 0x12, of = 0x13;
        struct channels_call c;

        (void)bench_begin();
        CHECK_EQUAL(bench_alloc(0, 0, &client, RM_CLASS_CLIENT, NULL), 0);
        CHECK_EQUAL(bench_alloc(client, client, &device, RM_CLASS_DEVICE, device_params), 0);
        CHECK_EQUAL(bench_alloc(client, device, &subdevice, RM_CLASS_SUBDEVICE, NULL), 0);
        CHECK_EQUAL(bench_alloc(client, device, &on, RM_CLASS_GROUP, &group), 0);
        CHECK_EQUAL(bench_alloc(client, on, &of, CLASS_CHANNEL, channel), 0);
        c = (struct channels_call){
                .client = client, .subdevice = subdevice, .count = 1, .channels = {of}};
        CHECK_EQUAL(bench_switch(&c, true), 0);
        CHECK_EQUAL(bench_free(client, client), 0);
        CHECK_EQUAL(bench_switch(&c, false), RM_NO_CLIENT);
        CHECK_EQUAL(bench_alloc(client, client, &device, RM_CLASS_DEVICE, device_params),
                    RM_NO_CLIENT);
}

/* ---- controls ---- */

SIM_TEST(wrong_parameters_of_the_channel_control_change_nothing)
{
        struct rm_disable_channels d = {.disable = 1, .count = 1};
        struct channels_call all;
        struct counter *k;
        CUstream s;

        (void)bench_begin();
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        k = bench_count(s);
        all = bench_channels(CHANNELS_PROGRAM);
        CHECK_EQUAL(all.count, CHANNELS);
#define SWITCH() bench_control(all.client, all.subdevice, RM_DISABLE_CHANNELS, &d, sizeof(d))
        d.clients[0] = 0x77;
        d.channels[0] = all.channels[0];
        CHECK_EQUAL(SWITCH(), RM_NO_CHANNEL);
        d.clients[0] = all.client;
        d.channels[0] = all.subdevice;
        CHECK_EQUAL(SWITCH(), RM_NO_CHANNEL);
        d.count = 2; /* the first channel is valid, but nothing is disabled */
        d.clients[1] = all.client;
        d.channels[0] = all.channels[0];
        d.channels[1] = 0x77;
        CHECK_EQUAL(SWITCH(), RM_NO_CHANNEL);
        d.count = 65;
        CHECK_EQUAL(SWITCH(), INVALID_ARGUMENT);
        d.count = 1;
        d.event = 1;
        CHECK_EQUAL(SWITCH(), RM_NO_PERMISSION);
        d.event = 0;
        d.only_scheduling = 1;
        CHECK_EQUAL(SWITCH(), RM_NOT_SUPPORTED);
        d.only_scheduling = 0;
#undef SWITCH
        CHECK_EQUAL(bench_control(all.client, all.subdevice, RM_DISABLE_CHANNELS, &d, 535),
                    INVALID_PARAMETERS);
        CHECK_EQUAL(bench_control(all.client, all.subdevice, RM_DISABLE_CHANNELS, NULL, sizeof(d)),
                    INVALID_PARAMETERS);
        CHECK_EQUAL(bench_control(0x77, all.subdevice, RM_DISABLE_CHANNELS, &d, sizeof(d)),
                    RM_NO_CLIENT);
        CHECK_EQUAL(bench_control(all.client, 0x77, RM_DISABLE_CHANNELS, &d, sizeof(d)),
                    RM_NO_OBJECT);
        CHECK_EQUAL(bench_control(all.client, bench_object(RM_CLASS_DEVICE, 0), RM_DISABLE_CHANNELS,
                                  &d, sizeof(d)),
                    RM_NOT_SUPPORTED);
        CHECK_EQUAL(bench_control(all.client, all.subdevice, 0x20801101, &d, sizeof(d)),
                    RM_NOT_SUPPORTED);
        bench_await_progress(k);
        bench_end_count(k, s);
        CHECK_EQUAL(unit_totals(0).freezes, 0);
}

struct state {
        uint32_t channel, client;
        uint8_t bound, enabled, scheduled, rest[5];
};

static struct state state_of(const struct channels_call *all, uint32_t diagnostics, unsigned i)
{
        struct state st = {.channel = all->channels[i], .client = all->client};

        CHECK_EQUAL(bench_control(all->client, diagnostics, 0x208f0403, &st, sizeof(st)), 0);
        return st;
}

SIM_TEST(the_diagnostic_object_tells_which_channels_are_off_the_card)
{
        uint32_t diagnostics = 0x2222, second = 0x2223;
        struct channels_call all, some;
        struct state st;

        (void)bench_begin();
        all = bench_channels(CHANNELS_PROGRAM);
        CHECK_EQUAL(bench_alloc(all.client, all.subdevice, &diagnostics, DIAGNOSTICS, NULL), 0);
        CHECK_EQUAL(bench_alloc(all.client, all.subdevice, &second, DIAGNOSTICS, NULL), IN_USE);
        some = all;
        some.count = 3;
        CHECK_EQUAL(bench_switch(&some, true), 0);
        for (unsigned i = 0; i < all.count; i++) {
                st = state_of(&all, diagnostics, i);
                CHECK(st.bound && st.scheduled);
                CHECK_EQUAL(st.enabled, i >= 3);
        }
        CHECK_EQUAL(bench_switch(&all, false), 0);
        CHECK_EQUAL(state_of(&all, diagnostics, 0).enabled, 1);
        st.channel = 0x77;
        CHECK_EQUAL(bench_control(all.client, diagnostics, 0x208f0403, &st, sizeof(st)),
                    RM_NO_CHANNEL);
        st.client = 0x77;
        CHECK_EQUAL(bench_control(all.client, diagnostics, 0x208f0403, &st, sizeof(st)),
                    RM_NO_CLIENT);
        CHECK_EQUAL(bench_control(all.client, diagnostics, 0x208f0403, &st, sizeof(st) - 1),
                    INVALID_PARAMETERS);
}

SIM_TEST(kernels_are_preempted_between_instructions)
{
        struct {
                uint32_t channel, zcull, pm, smpc, compute, graphics;
        } modes = {0};
        struct channels_call all;

        (void)bench_begin();
        all = bench_channels(CHANNELS_PROGRAM);
        modes.channel = all.channels[0];
        CHECK_EQUAL(bench_control(all.client, all.subdevice, 0x20801235, &modes, sizeof(modes)), 0);
        CHECK_EQUAL(modes.compute, 2);
        modes.channel = 0x77;
        CHECK_EQUAL(bench_control(all.client, all.subdevice, 0x20801235, &modes, sizeof(modes)),
                    RM_NO_CHANNEL);
}

/* A real driver, measured on an H200, behaves in the same way. */
SIM_TEST(scheduling_a_group_does_not_enable_its_channels)
{
        uint8_t on[3] = {1};
        struct channels_call all;
        struct counter *k;
        CUstream s;

        (void)bench_begin();
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        k = bench_count(s);
        all = bench_channels(CHANNELS_PROGRAM);
        CHECK_EQUAL(bench_switch(&all, true), 0);
        for (unsigned i = 0; i < 3; i++)
                CHECK_EQUAL(bench_control(all.client, bench_object(RM_CLASS_GROUP, i), 0xa06c0101,
                                          on, 3),
                            0);
        CHECK_EQUAL(bench_control(all.client, all.channels[0], 0xa06f0103, on, 3), 0);
        CHECK(bench_stands(k));
        CHECK_EQUAL(bench_control(all.client, all.channels[0], 0xa06f0103, on, 2),
                    INVALID_PARAMETERS);
        CHECK_EQUAL(bench_switch(&all, false), 0);
        bench_end_count(k, s);
}

static struct channels_call *others;

static void freeze_the_others(void)
{
        unit_wait_told();
        (void)bench_begin();
        CHECK_EQUAL(bench_switch(&(struct channels_call){.client = others->client,
                                                         .subdevice = others->subdevice},
                                 true),
                    RM_NO_CLIENT);
}

SIM_TEST(a_process_does_not_reach_the_channels_of_another)
{
        struct unit_peer peer;

        others = mmap(NULL, sizeof(*others), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0);
        CHECK(others != MAP_FAILED);
        peer = unit_peer_start(freeze_the_others);
        (void)bench_begin();
        *others = bench_channels(CHANNELS_PROGRAM);
        unit_peer_tell(&peer);
        unit_peer_end(&peer);
}

/* ---- requests ---- */

SIM_TEST(requests_of_an_unknown_form_are_refused)
{
        struct rm_free f = {0};
        struct rm_wrapped w = {RM_ESCAPE_WRAPPED, sizeof(w), 0};
        char bytes[128] = {0};

        (void)bench_begin();
        for (unsigned i = 0; i < 4; i++) {
                const unsigned escapes[] = {RM_ESCAPE_FREE, RM_ESCAPE_CONTROL, RM_ESCAPE_ALLOC,
                                            RM_ESCAPE_CHECK_VERSION};

                CHECK_EQUAL(bench_ioctl(escapes[i], bytes, 24), -1);
                CHECK_EQUAL(errno, EINVAL);
        }
        CHECK_EQUAL(bench_ioctl(RM_ESCAPE_WRAPPED, &w, sizeof(w)), -1);
        CHECK_EQUAL(errno, EINVAL);
        CHECK_EQUAL(bench_ioctl(0x7f, &f, sizeof(f)), -1);
        CHECK_EQUAL(errno, EINVAL);
}

SIM_TEST(ioctl_on_other_descriptors_reaches_the_kernel)
{
        struct rm_free f = {0};
        int ends[2], n = -1, again;

        (void)bench_begin();
        CHECK(pipe(ends) == 0);
        CHECK_EQUAL(write(ends[1], "four", 4), 4);
        CHECK_EQUAL(ioctl(ends[0], FIONREAD, &n), 0);
        CHECK_EQUAL(n, 4);
        CHECK_EQUAL(ioctl(ends[0], _IOWR('F', RM_ESCAPE_FREE, struct rm_free), &f), -1);
        CHECK_EQUAL(errno, ENOTTY);
        again = dup(bench_descriptor()); /* a duplicate of the descriptor works too */
        f.status = UINT32_MAX;
        CHECK_EQUAL(ioctl(again, _IOWR('F', RM_ESCAPE_FREE, struct rm_free), &f), 0);
        CHECK_EQUAL(f.status, RM_NO_CLIENT);
}

SIM_TEST(a_driver_of_another_version_is_refused)
{
        struct rm_version v = {.text = "470.1.1"};

        (void)bench_begin();
        CHECK_EQUAL(bench_ioctl(RM_ESCAPE_CHECK_VERSION, &v, sizeof(v)), -1);
        v = (struct rm_version){.command = RM_VERSION_QUERY};
        CHECK_EQUAL(bench_ioctl(RM_ESCAPE_CHECK_VERSION, &v, sizeof(v)), 0);
        CHECK_EQUAL(strcmp(v.text, "580.159.04"), 0);
}

/* ---- generations of the driver, through libsublet's door ---- */

/* Freezes and thaws a kernel. The simulator's contexts send all forms of an allocation: long and
 * short, each also wrapped. */
static void stand_once(const char *driver)
{
        struct counter *k;
        CUcontext c;
        CUstream s;

        c = bench_begin();
        CHECK_EQUAL(rm_channels(), CHANNELS);
        CHECK_EQUAL(strcmp(rm_driver(), driver), 0);
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        k = bench_count(s);
        CHECK_EQUAL(rm_freeze(), 0);
        CHECK(bench_stands(k));
        CHECK_EQUAL(rm_thaw(), 0);
        bench_await_progress(k);
        bench_end_count(k, s);
        OK(cuCtxCreate_v2(&c, 0, 0));
        CHECK_EQUAL(rm_channels(), 2 * CHANNELS);
        OK(cuCtxDestroy_v2(c));
        CHECK_EQUAL(rm_channels(), CHANNELS);
        CHECK(bench_requests(RM_ESCAPE_ALLOC) > 2 * CHANNELS);
        CHECK_EQUAL(bench_requests(RM_ESCAPE_FREE), 3);
}

#define GENERATION(name, version)                                                 \
        SIM_TEST_WITH(kernels_freeze_on_driver_##name, "SIMCUDA_DRIVER=" version) \
        {                                                                         \
                bench_say_driver(version); /* read in place of /proc */           \
                stand_once(version);                                              \
        }
GENERATION(515, "515.105.01")
GENERATION(520, "520.61.07")
GENERATION(525, "525.147.05")
GENERATION(530, "530.41.03")
GENERATION(535, "535.54.03")
GENERATION(535_104, "535.288.01")
GENERATION(570, "570.211.01")
GENERATION(575, "575.64.05")
GENERATION(580, "580.95.05")
GENERATION(595, "595.45.04")
GENERATION(610, "610.57.04")
GENERATION(620, "620.6.0")

SIM_TEST_WITH(a_driver_before_530_30_02_does_not_tell_its_version, "SIMCUDA_DRIVER=525.147.05")
{
        struct rm_version v = {.command = RM_VERSION_QUERY};

        (void)bench_begin();
        CHECK_EQUAL(bench_ioctl(RM_ESCAPE_CHECK_VERSION, &v, sizeof(v)), 0);
        CHECK_EQUAL(v.text[0], 0);
        CHECK_EQUAL(strcmp(rm_driver(), "unknown"), 0);
        CHECK_EQUAL(rm_freeze(), -EPROTO);
}

SIM_TEST_WITH(a_driver_newer_than_all_known_ones_has_the_newest_layout, "SIMCUDA_DRIVER=625.10.01")
{
        struct channels_call all;
        struct counter *k;
        CUstream s;

        (void)bench_begin();
        CHECK_EQUAL(strcmp(rm_driver(), "625.10.01"), 0);
        CHECK_EQUAL(rm_freeze(), -EPROTO);
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        k = bench_count(s);
        all = bench_channels(CHANNELS_PROGRAM);
        CHECK_EQUAL(all.count, CHANNELS);
        CHECK_EQUAL(bench_switch(&all, true), 0);
        CHECK(bench_stands(k));
        CHECK_EQUAL(bench_switch(&all, false), 0);
        bench_end_count(k, s);
}

SIM_TEST_WITH(a_malformed_driver_version_is_refused, "SIMCUDA_DRIVER=new")
{
        CHECK_EQUAL(cuInit(0), CUDA_ERROR_INVALID_VALUE);
}

/* ---- doors ---- */

static void work_once(void)
{
        unsigned *seen;
        CUcontext c;

        OK(cuCtxCreate_v2(&c, 0, 0));
        seen = unit_pinned(64);
        OK(unit_launch(unit_kernel("store"), unit_address(seen), NULL));
        OK(cuCtxSynchronize());
        CHECK_EQUAL(*seen, 1);
        OK(cuCtxDestroy_v2(c));
}

SIM_TEST(the_simulator_works_behind_libcs_own_ioctl)
{
        atomic_store(&real_ioctl, NULL); /* the door calls the kernel, as libc's ioctl() would */
        (void)unit_begin();
        work_once();
        CHECK_EQUAL(rm_channels(), 0);
}

SIM_TEST(a_program_that_closes_all_descriptors_goes_on)
{
        struct rm_free f = {0};
        int fd;

        (void)bench_begin();
        fd = bench_descriptor();
        for (int i = 3; i < 1024; i++)
                (void)close(i);
        work_once();
        /* Another file now has the descriptor's number; the simulator must not take it for RM. */
        while (dup(0) < fd)
                ;
        CHECK_EQUAL(ioctl(fd, _IOWR('F', RM_ESCAPE_FREE, struct rm_free), &f), -1);
        CHECK(errno != EINVAL);
        work_once();
}

SIM_TEST(a_fork_while_channels_are_off_the_card_does_no_harm)
{
        struct counter *k;
        int status;
        CUstream s;
        pid_t child;

        (void)bench_begin();
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        k = bench_count(s);
        CHECK_EQUAL(rm_freeze(), 0);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                struct rm_free f = {0};
                unsigned devices;

                rm_forget();
                CHECK_EQUAL(bench_ioctl(RM_ESCAPE_FREE, &f, sizeof(f)), -1);
                CHECK_EQUAL(errno, ENOTTY); /* the child cannot reach RM */
                CHECK_EQUAL(cuDeviceGetCount((int *)&devices), CUDA_ERROR_NOT_INITIALIZED);
                _exit(0); /* skips the parent's exit handlers */
        }
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        CHECK_EQUAL(status, 0);
        CHECK(bench_stands(k));
        CHECK_EQUAL(rm_thaw(), 0);
        bench_await_progress(k);
        bench_end_count(k, s);
}

SIM_TEST(a_green_context_has_channels_that_compute)
{
        CUdevResource all, some;
        CUdevResourceDesc d;
        unsigned n = 1;
        CUgreenCtx g;
        CUcontext c;

        (void)bench_begin();
        OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
        OK(cuDevSmResourceSplitByCount(&some, &n, &all, NULL, 0, 8));
        OK(cuDevResourceGenerateDesc(&d, &some, 1));
        OK(cuGreenCtxCreate(&g, d, 0, CU_GREEN_CTX_DEFAULT_STREAM));
        OK(cuCtxFromGreenCtx(&c, g));
        CHECK_EQUAL(rm_channels(), CHANNELS + GREEN);
        OK(cuGreenCtxDestroy(g));
        CHECK_EQUAL(rm_channels(), CHANNELS);
}

/* ---- faults on demand ---- */

static struct counter *k;
static CUstream busy;

static struct channels_call begin_with_a_kernel(void)
{
        (void)bench_begin();
        OK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
        k = bench_count(busy);
        return bench_channels(CHANNELS_PROGRAM);
}

SIM_TEST_WITH(injected_statuses_refuse_the_numbered_freezes, "SIMCUDA_FAIL=freeze:2-3:0x1b")
{
        const struct channels_call all = begin_with_a_kernel();

        for (unsigned i = 1; i <= 4; i++) {
                bool refused = i == 2 || i == 3;

                CHECK_EQUAL(bench_switch(&all, true), refused ? 0x1b : 0);
                CHECK_EQUAL(bench_stands(k), !refused);
                CHECK_EQUAL(bench_switch(&all, false), 0);
                bench_await_progress(k);
        }
        bench_end_count(k, busy);
}

SIM_TEST_WITH(an_injected_sandbox_forbids_freezing, "SIMCUDA_FAIL=freeze:1+:forbid")
{
        const struct channels_call all = begin_with_a_kernel();

        CHECK_EQUAL(bench_switch(&all, true), BENCH_FAILED | EPERM);
        CHECK_EQUAL(rm_freeze(), -EPERM);
        CHECK_EQUAL(rm_thaw(), 0);
        bench_await_progress(k);
        bench_end_count(k, busy);
}

SIM_TEST_WITH(an_injected_idle_freeze_succeeds_and_stops_nothing, "SIMCUDA_FAIL=freeze:1:idle")
{
        const struct channels_call all = begin_with_a_kernel();

        CHECK_EQUAL(bench_switch(&all, true), 0);
        bench_await_progress(k);
        CHECK_EQUAL(bench_switch(&all, true), 0);
        CHECK(bench_stands(k));
        CHECK_EQUAL(bench_switch(&all, false), 0);
        bench_end_count(k, busy);
}

SIM_TEST_WITH(an_injected_part_disables_only_the_first_channels, "SIMCUDA_FAIL=freeze:1:part=5")
{
        const struct channels_call all = begin_with_a_kernel();
        uint32_t diagnostics = 0;

        CHECK_EQUAL(bench_alloc(all.client, all.subdevice, &diagnostics, DIAGNOSTICS, NULL), 0);
        CHECK_EQUAL(bench_switch(&all, true), RM_TIMEOUT);
        for (unsigned i = 0; i < all.count; i++)
                CHECK_EQUAL(state_of(&all, diagnostics, i).enabled, i >= 5);
        CHECK_EQUAL(bench_switch(&all, false), 0);
        CHECK_EQUAL(state_of(&all, diagnostics, 0).enabled, 1);
        bench_end_count(k, busy);
}

SIM_TEST_WITH(an_injected_refusal_of_a_thaw_leaves_the_kernel_frozen, "SIMCUDA_FAIL=thaw:1:0x65")
{
        const struct channels_call all = begin_with_a_kernel();

        CHECK_EQUAL(bench_switch(&all, true), 0);
        CHECK_EQUAL(bench_switch(&all, false), RM_TIMEOUT);
        CHECK(bench_stands(k));
        CHECK_EQUAL(bench_switch(&all, false), 0);
        bench_await_progress(k);
        bench_end_count(k, busy);
}

SIM_TEST_WITH(an_injected_delay_makes_a_freeze_slow, "SIMCUDA_FAIL=freeze:1:slow=200")
{
        const struct channels_call all = begin_with_a_kernel();
        uint64_t at = clock_now_ns();

        CHECK_EQUAL(bench_switch(&all, true), 0);
        CHECK(clock_now_ns() - at >= 200 * NSEC_PER_MSEC);
        CHECK(bench_stands(k));
        CHECK_EQUAL(bench_switch(&all, false), 0);
        bench_end_count(k, busy);
}

static _Atomic bool returned;

static void *unmap(void *context)
{
        CUmemGenericAllocationHandle h;
        CUdeviceptr at;

        OK(cuCtxSetCurrent(context));
        at = unit_map(2 * UNIT_MIB, &h);
        OK(cuMemUnmap(at, 2 * UNIT_MIB));
        returned = true;
        return NULL;
}

SIM_TEST_WITH(an_injected_call_waits_while_channels_are_frozen, "SIMCUDA_FAIL=cuMemUnmap:1:frozen")
{
        const struct channels_call all = begin_with_a_kernel();
        pthread_t thread;
        CUcontext c;

        OK(cuCtxGetCurrent(&c));
        CHECK_EQUAL(bench_switch(&all, true), 0);
        CHECK(pthread_create(&thread, NULL, unmap, c) == 0);
        (void)usleep(100000);
        CHECK(!returned);
        CHECK_EQUAL(bench_switch(&all, false), 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_EQUAL(bench_switch(&all, true), 0);
        (void)unmap(c); /* only the first call waits */
        CHECK_EQUAL(bench_switch(&all, false), 0);
        bench_end_count(k, busy);
}

SIM_TEST_WITH(faults_of_controls_are_refused_for_calls, "SIMCUDA_FAIL=cuMemUnmap:1:idle")
{
        CHECK_EQUAL(cuInit(0), CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST_WITH(a_fault_for_an_empty_range_of_calls_is_refused, "SIMCUDA_FAIL=freeze:3-2:0x1b")
{
        CHECK_EQUAL(cuInit(0), CUDA_ERROR_INVALID_VALUE);
}

static void is_not_frozen(void)
{
        const struct channels_call all = begin_with_a_kernel();

        CHECK_EQUAL(bench_switch(&all, true), 0x1b);
        bench_end_count(k, busy);
}

SIM_TEST(faults_affect_only_the_process_that_sets_them)
{
        struct unit_peer peer;
        struct channels_call all;

        (void)setenv("SIMCUDA_FAIL", "freeze:1+:0x1b", 1);
        peer = unit_peer_start(is_not_frozen);
        (void)unsetenv("SIMCUDA_FAIL");
        all = begin_with_a_kernel();
        CHECK_EQUAL(bench_switch(&all, true), 0);
        unit_peer_end(&peer);
        CHECK_EQUAL(bench_switch(&all, false), 0);
        bench_end_count(k, busy);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(objects_are_made_only_below_the_right_parent),
                cmocka_unit_test(freeing_a_client_frees_all_its_objects),
                cmocka_unit_test(wrong_parameters_of_the_channel_control_change_nothing),
                cmocka_unit_test(the_diagnostic_object_tells_which_channels_are_off_the_card),
                cmocka_unit_test(kernels_are_preempted_between_instructions),
                cmocka_unit_test(scheduling_a_group_does_not_enable_its_channels),
                cmocka_unit_test(a_process_does_not_reach_the_channels_of_another),
                cmocka_unit_test(requests_of_an_unknown_form_are_refused),
                cmocka_unit_test(ioctl_on_other_descriptors_reaches_the_kernel),
                cmocka_unit_test(a_driver_of_another_version_is_refused),
                cmocka_unit_test(kernels_freeze_on_driver_515),
                cmocka_unit_test(kernels_freeze_on_driver_520),
                cmocka_unit_test(kernels_freeze_on_driver_525),
                cmocka_unit_test(kernels_freeze_on_driver_530),
                cmocka_unit_test(kernels_freeze_on_driver_535),
                cmocka_unit_test(kernels_freeze_on_driver_535_104),
                cmocka_unit_test(kernels_freeze_on_driver_570),
                cmocka_unit_test(kernels_freeze_on_driver_575),
                cmocka_unit_test(kernels_freeze_on_driver_580),
                cmocka_unit_test(kernels_freeze_on_driver_595),
                cmocka_unit_test(kernels_freeze_on_driver_610),
                cmocka_unit_test(kernels_freeze_on_driver_620),
                cmocka_unit_test(a_driver_before_530_30_02_does_not_tell_its_version),
                cmocka_unit_test(a_driver_newer_than_all_known_ones_has_the_newest_layout),
                cmocka_unit_test(a_malformed_driver_version_is_refused),
                cmocka_unit_test(the_simulator_works_behind_libcs_own_ioctl),
                cmocka_unit_test(a_program_that_closes_all_descriptors_goes_on),
                cmocka_unit_test(a_fork_while_channels_are_off_the_card_does_no_harm),
                cmocka_unit_test(a_green_context_has_channels_that_compute),
                cmocka_unit_test(injected_statuses_refuse_the_numbered_freezes),
                cmocka_unit_test(an_injected_sandbox_forbids_freezing),
                cmocka_unit_test(an_injected_idle_freeze_succeeds_and_stops_nothing),
                cmocka_unit_test(an_injected_part_disables_only_the_first_channels),
                cmocka_unit_test(an_injected_refusal_of_a_thaw_leaves_the_kernel_frozen),
                cmocka_unit_test(an_injected_delay_makes_a_freeze_slow),
                cmocka_unit_test(an_injected_call_waits_while_channels_are_frozen),
                cmocka_unit_test(faults_of_controls_are_refused_for_calls),
                cmocka_unit_test(a_fault_for_an_empty_range_of_calls_is_refused),
                cmocka_unit_test(faults_affect_only_the_process_that_sets_them),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
