/* test_sim_channels.c: work freezes while its channels are disabled, and goes on afterwards. */
#include <errno.h>
#include <semaphore.h>
#include <unistd.h>

#include "channels_bench.h"

static CUstream stream_new(void)
{
        CUstream s;

        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        return s;
}

/* Waits long enough for work to finish if its channels let it run. */
static void settle(void)
{
        (void)usleep(30000);
}

/* ---- work that runs ---- */

SIM_TEST(a_kernel_freezes_in_the_middle_and_goes_on)
{
        struct counter *k;
        CUstream s;

        (void)bench_begin();
        s = stream_new();
        k = bench_count(s);
        for (int i = 0; i < 5; i++) {
                CHECK_EQUAL(rm_freeze(), 0);
                CHECK(bench_stands(k));
                CHECK_EQUAL(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
                CHECK_EQUAL(rm_thaw(), 0);
                bench_await_progress(k);
        }
        bench_end_count(k, s);
        CHECK_EQUAL(unit_totals(0).freezes, 5);
        CHECK_EQUAL(unit_totals(0).thaws, 5);
}

static CUcontext mover_new(void)
{
        CUcontext c;

        rm_make_for(CHANNELS_MOVER);
        OK(cuCtxCreate_v2(&c, 0, 0));
        rm_make_for(CHANNELS_PROGRAM);
        return c;
}

SIM_TEST(memory_of_a_frozen_kernel_leaves_and_comes_back)
{
        struct counter *seen;
        CUmemGenericAllocationHandle h;
        uint64_t before;
        CUcontext program;
        CUdeviceptr at;
        CUstream s;

        program = bench_begin();
        s = stream_new();
        at = unit_map(2 * UNIT_MIB, &h);
        OK(cuMemsetD8_v2(at, 0, 2 * UNIT_MIB));
        OK(cuCtxSynchronize());
        OK(unit_launch(unit_kernel("count"), at, s));
        (void)mover_new(); /* the mover's context is current from here on */
        seen = unit_pinned(2 * UNIT_MIB);
        settle();
        CHECK_EQUAL(rm_freeze(), 0);
        OK(cuMemcpyDtoH_v2(seen, at, 2 * UNIT_MIB));
        before = seen->count;
        OK(cuMemUnmap(at, 2 * UNIT_MIB));
        OK(cuMemRelease(h));
        settle();
        unit_map_at(at, 2 * UNIT_MIB, unit_create(2 * UNIT_MIB));
        seen->stop = 1;
        OK(cuMemcpyHtoD_v2(at, seen, 2 * UNIT_MIB));
        CHECK_EQUAL(rm_thaw(), 0);
        OK(cuCtxSetCurrent(program));
        OK(cuStreamSynchronize(s));
        OK(cuMemcpyDtoH_v2(seen, at, 2 * UNIT_MIB));
        CHECK(seen->count >= before);
        CHECK_EQUAL(seen->sum, seen->count * (seen->count + 1) / 2);
}

/* Marks functions that read memory while a copy writes it. */
#define LOOKS __attribute__((no_sanitize("thread")))

LOOKS static size_t bytes_of(const uint8_t *p, size_t n, uint8_t value)
{
        size_t found = 0;

        for (size_t i = 0; i < n; i++)
                found += ((volatile const uint8_t *)p)[i] == value;
        return found;
}

SIM_TEST_WITH(a_large_copy_freezes_in_the_middle_and_goes_on, "SIMCUDA_BUS=8MB/s")
{
        const size_t bytes = 16 * UNIT_MIB;
        CUdeviceptr on_card;
        uint8_t *here;
        CUstream s;
        size_t n;

        (void)bench_begin();
        s = stream_new();
        here = unit_pinned(bytes);
        OK(cuMemAlloc_v2(&on_card, bytes));
        OK(cuMemsetD8_v2(on_card, 0xab, bytes));
        OK(cuCtxSynchronize());
        OK(cuMemcpyDtoHAsync_v2(here, on_card, bytes, s));
        while (bytes_of(here, 1, 0xab) == 0)
                (void)usleep(100);
        CHECK_EQUAL(rm_freeze(), 0);
        n = bytes_of(here, bytes, 0xab);
        (void)usleep(300000);
        CHECK_EQUAL(bytes_of(here, bytes, 0xab), n);
        CHECK(n < bytes);
        CHECK_EQUAL(rm_thaw(), 0);
        OK(cuStreamSynchronize(s));
        CHECK_EQUAL(bytes_of(here, bytes, 0xab), bytes);
}

/* Returns how many words a fill has written, from the start on. */
LOOKS static size_t filled(const unsigned *at, size_t n, unsigned value)
{
        size_t low = 0, high = n;

        while (low < high) {
                size_t middle = (low + high) / 2;

                if (((volatile const unsigned *)at)[middle] == value)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

SIM_TEST(a_fill_freezes_in_the_middle_and_goes_on)
{
        const size_t n = 64 * UNIT_MIB / 4;
        unsigned value = 0, seen = 0;
        unsigned *at;
        CUstream s;

        (void)bench_begin();
        s = stream_new();
        at = unit_pinned(4 * n);
        while (!seen) {
                OK(cuMemsetD32Async(unit_address(at), ++value, n, s));
                for (size_t so_far = 0; so_far < n;) {
                        CHECK_EQUAL(rm_freeze(), 0);
                        so_far = filled(at, n, value);
                        (void)usleep(2000);
                        CHECK_EQUAL(filled(at, n, value), so_far);
                        seen += so_far > 0 && so_far < n;
                        CHECK_EQUAL(rm_thaw(), 0);
                }
                OK(cuStreamSynchronize(s));
                CHECK_EQUAL(at[0], value);
                CHECK_EQUAL(at[n - 1], value);
        }
}

/* The transfer needs 20 s of the bus, but nothing waits for it: the process exits. */
SIM_TEST_WITH(freezing_does_not_wait_for_a_slow_bus, "SIMCUDA_BUS=400KB/s")
{
        const size_t bytes = 8 * UNIT_MIB;
        const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
        CUmemGenericAllocationHandle h;
        CUdeviceptr at;
        CUstream s;

        (void)bench_begin();
        s = stream_new();
        OK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
        OK(cuMemCreate(&h, bytes, &prop, 0));
        unit_map_at(at, bytes, h);
        OK(cuMemsetD32Async(at, 1, bytes / 4, s));
        settle();
        CHECK_EQUAL(rm_freeze(), 0);
        settle();
        CHECK_EQUAL(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
        CHECK_EQUAL(rm_thaw(), 0);
}

SIM_TEST(a_graph_freezes_between_its_nodes)
{
        CUgraphExec exec;
        unsigned *flag, *sum;
        CUgraph graph;
        CUstream s;

        (void)bench_begin();
        s = stream_new();
        flag = unit_pinned(64);
        sum = &flag[1];
        OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(unit_launch(unit_kernel("wait_flag"), unit_address(flag), s));
        for (int i = 0; i < 20; i++)
                OK(unit_launch(unit_kernel("add_one"), unit_address(sum), s));
        OK(cuStreamEndCapture(s, &graph));
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(cuGraphLaunch(exec, s));
        settle();
        CHECK_EQUAL(rm_freeze(), 0);
        unit_set_flag(flag);
        settle();
        CHECK_EQUAL(*(volatile unsigned *)sum, 0);
        CHECK_EQUAL(rm_thaw(), 0);
        OK(cuStreamSynchronize(s));
        CHECK_EQUAL(*sum, 20);
}

static sem_t called, may_return;

static void host_function(void *unused)
{
        (void)unused;
        CHECK(sem_post(&called) == 0 && sem_wait(&may_return) == 0);
}

SIM_TEST(freezing_does_not_wait_for_a_running_host_function)
{
        unsigned *seen;
        CUstream s;

        (void)bench_begin();
        s = stream_new();
        seen = unit_pinned(64);
        CHECK(sem_init(&called, 0, 0) == 0 && sem_init(&may_return, 0, 0) == 0);
        OK(cuLaunchHostFunc(s, host_function, NULL));
        OK(unit_launch(unit_kernel("store"), unit_address(seen), s));
        CHECK(sem_wait(&called) == 0);
        CHECK_EQUAL(rm_freeze(), 0);
        CHECK(sem_post(&may_return) == 0);
        settle();
        CHECK_EQUAL(*(volatile unsigned *)seen, 0);
        CHECK_EQUAL(rm_thaw(), 0);
        OK(cuStreamSynchronize(s));
        CHECK_EQUAL(*seen, 1);
}

SIM_TEST(a_frozen_stream_ignores_the_value_that_it_waits_for)
{
        unsigned *seen;
        CUstream s;

        (void)bench_begin();
        s = stream_new();
        seen = unit_pinned(64);
        OK(cuStreamWaitValue32_v2(s, unit_address(seen), 1, CU_STREAM_WAIT_VALUE_EQ));
        OK(unit_launch(unit_kernel("store"), unit_address(seen + 1), s));
        CHECK_EQUAL(rm_freeze(), 0);
        unit_set_flag(seen);
        settle();
        CHECK_EQUAL(*(volatile unsigned *)(seen + 1), 0);
        CHECK_EQUAL(rm_thaw(), 0);
        OK(cuStreamSynchronize(s));
        CHECK_EQUAL(seen[1], 1);
}

SIM_TEST(the_processor_reads_managed_memory_of_a_frozen_kernel)
{
        struct counter *k;
        uint64_t before;
        CUdeviceptr at;
        CUstream s;

        (void)bench_begin();
        s = stream_new();
        OK(cuMemAllocManaged(&at, 2 * UNIT_MIB, CU_MEM_ATTACH_GLOBAL));
        k = (void *)(uintptr_t)at;
        k->count = k->stop = k->sum = 0;
        OK(unit_launch(unit_kernel("count"), at, s));
        settle();
        CHECK_EQUAL(rm_freeze(), 0);
        before = k->count;
        CHECK(bench_stands(k));
        CHECK_EQUAL(rm_thaw(), 0);
        while (k->count == before)
                (void)usleep(100);
        bench_end_count(k, s);
}

/* ---- work that has not begun ---- */

SIM_TEST(work_queued_during_a_freeze_begins_after_the_thaw)
{
        unsigned *seen, back = 7;
        CUdeviceptr p;
        CUstream s;

        (void)bench_begin();
        s = stream_new();
        seen = unit_pinned(64);
        OK(cuMemAlloc_v2(&p, 64));
        OK(cuMemsetD32_v2(p, 1, 16));
        OK(cuCtxSynchronize());
        CHECK_EQUAL(rm_freeze(), 0);
        OK(unit_launch(unit_kernel("store"), unit_address(seen), s));
        OK(cuMemcpyDtoHAsync_v2(seen + 1, p, 4, s));
        OK(cuMemsetD32Async(unit_address(seen + 2), 1, 1, s));
        settle();
        for (int i = 0; i < 3; i++)
                CHECK_EQUAL(((volatile unsigned *)seen)[i], 0);
        CHECK_EQUAL(rm_thaw(), 0);
        OK(cuStreamSynchronize(s));
        for (int i = 0; i < 3; i++)
                CHECK_EQUAL(seen[i], 1);
        OK(cuMemcpyDtoH_v2(&back, p, 4));
        CHECK_EQUAL(back, 1);
}

SIM_TEST(the_movers_context_runs_during_a_freeze)
{
        struct counter *stands, *runs;
        CUstream s, other;
        CUcontext mover;

        (void)bench_begin();
        s = stream_new();
        stands = bench_count(s);
        mover = mover_new();
        other = stream_new();
        runs = bench_count(other);
        CHECK_EQUAL(rm_freeze(), 0);
        CHECK(bench_stands(stands));
        bench_await_progress(runs);
        bench_end_count(runs, other);
        CHECK(bench_stands(stands));
        CHECK_EQUAL(rm_thaw(), 0);
        OK(cuCtxDestroy_v2(mover));
        bench_end_count(stands, s);
}

/* ---- ends ---- */

static void *destroy(void *context)
{
        OK(cuCtxDestroy_v2(context));
        return NULL;
}

SIM_TEST(destroying_a_context_waits_for_its_frozen_work)
{
        struct counter *k;
        pthread_t thread;
        CUcontext c;
        CUstream s;

        (void)bench_begin();
        k = unit_pinned(sizeof(*k)); /* allocated outside the context that is destroyed */
        OK(cuCtxCreate_v2(&c, 0, 0));
        s = stream_new();
        OK(unit_launch(unit_kernel("count"), unit_address(k), s));
        bench_await_progress(k);
        CHECK_EQUAL(rm_freeze(), 0);
        k->stop = 1;
        CHECK(pthread_create(&thread, NULL, destroy, c) == 0);
        settle();
        CHECK_EQUAL(rm_channels(), 24);
        CHECK_EQUAL(k->sum, 0);
        CHECK_EQUAL(rm_thaw(), 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_EQUAL(k->sum, k->count * (k->count + 1) / 2);
        CHECK_EQUAL(rm_channels(), 12);
}

/* A real driver, measured on an H200, behaves in the same way. */
SIM_TEST(destroying_a_frozen_idle_context_waits_for_the_thaw)
{
        pthread_t thread;
        CUcontext c;
        CUstream s;

        (void)bench_begin();
        OK(cuCtxCreate_v2(&c, 0, 0));
        CHECK_EQUAL(rm_freeze(), 0);
        CHECK(pthread_create(&thread, NULL, destroy, c) == 0);
        settle();
        CHECK_EQUAL(rm_channels(), 24);
        CHECK_EQUAL(rm_thaw(), 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_EQUAL(rm_channels(), 12);
        OK(cuCtxCreate_v2(&c, 0, 0));
        s = stream_new();
        bench_end_count(bench_count(s), s);
}

/* A failed kernel of one context takes the card from all contexts of the process. */
SIM_TEST(frozen_work_ends_with_a_failed_context)
{
        CUcontext program = bench_begin();
        struct counter *k;
        CUfunction store;
        CUstream s;

        (void)mover_new();
        store = unit_kernel("store");
        s = stream_new();
        k = unit_pinned(sizeof(*k)); /* allocated outside the context that is destroyed */
        OK(cuCtxPushCurrent_v2(program));
        OK(unit_launch(unit_kernel("count"), unit_address(k), stream_new()));
        bench_await_progress(k);
        CHECK_EQUAL(rm_freeze(), 0);
        OK(cuCtxPopCurrent_v2(&program));
        OK(unit_launch(store, UNIT_MIB, s)); /* an address without memory */
        CHECK_EQUAL(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
        OK(cuDevicePrimaryCtxReset_v2(0)); /* waits for all work of the context */
        CHECK(bench_stands(k));
        CHECK_EQUAL(k->sum, 0);
}

SIM_TEST(freed_channels_freeze_no_work)
{
        struct channels_call all;
        struct counter *k;
        CUstream s;

        (void)bench_begin();
        s = stream_new();
        k = bench_count(s);
        all = bench_channels(CHANNELS_PROGRAM);
        CHECK_EQUAL(bench_switch(&all, true), 0);
        CHECK(bench_stands(k));
        for (unsigned i = 0; i < 3; i++)
                CHECK_EQUAL(bench_free(all.client, bench_object(RM_CLASS_GROUP, i)), 0);
        CHECK_EQUAL(bench_switch(&all, false), RM_NO_CHANNEL);
        bench_await_progress(k);
        bench_end_count(k, s);
}

static void leave_with_work_that_stands(void)
{
        CUdeviceptr p;
        CUstream s, t;

        (void)bench_begin();
        s = stream_new();
        t = stream_new();
        OK(cuMemAlloc_v2(&p, 128 * UNIT_MIB));
        (void)bench_count(s);
        CHECK_EQUAL(rm_freeze(), 0);
        OK(cuMemcpyDtoHAsync_v2(unit_pinned(8 * UNIT_MIB), p, 8 * UNIT_MIB, t));
        unit_tell();
        unit_wait_told();
}

static void check_all_is_back(void)
{
        CUdeviceptr p;

        (void)bench_begin();
        /* An allocation that lacks room looks for processes that have died. */
        OK(cuMemAlloc_v2(&p, 240 * UNIT_MIB));
}

SIM_TEST_WITH(a_process_can_exit_while_its_work_is_frozen, "SIMCUDA_MEMORY=256MiB")
{
        struct unit_peer peer = unit_peer_start(leave_with_work_that_stands);

        unit_peer_wait(&peer);
        CHECK(unit_used(0) >= 128 * UNIT_MIB);
        unit_peer_tell(&peer);
        unit_peer_end(&peer);
        CHECK_EQUAL(unit_used(0), 0);
        check_all_is_back();
}

SIM_TEST_WITH(killing_a_process_with_frozen_work_frees_its_memory, "SIMCUDA_MEMORY=256MiB")
{
        struct unit_peer peer = unit_peer_start(leave_with_work_that_stands);

        unit_peer_wait(&peer);
        unit_peer_kill(&peer);
        check_all_is_back();
}

static void *freeze_and_thaw(void *stop)
{
        unsigned rounds = 0, stood = 0;

        while (!__atomic_load_n((bool *)stop, __ATOMIC_SEQ_CST)) {
                int r = rm_freeze();

                /* On a busy machine the ledger may still list channels that are gone. */
                CHECK(r == 0 || r == -EIO);
                stood += r == 0;
                (void)usleep(rounds++ % 7 * 100);
                while (rm_thaw() != 0)
                        ;
                (void)usleep(rounds % 5 * 200);
        }
        CHECK(stood > 0);
        return NULL;
}

/* The main thread uses contexts, streams, copies, managed memory and host functions. */
SIM_TEST(work_stays_correct_while_another_thread_freezes_and_thaws)
{
        const size_t bytes = 4 * UNIT_MIB;
        CUfunction add_one;
        bool stop = false;
        pthread_t thread;
        unsigned *sum;
        uint8_t *here;

        (void)bench_begin();
        add_one = unit_kernel("add_one");
        sum = unit_pinned(64);
        here = unit_pinned(bytes);
        CHECK(sem_init(&called, 0, 0) == 0 && sem_init(&may_return, 0, 40) == 0);
        CHECK(pthread_create(&thread, NULL, freeze_and_thaw, &stop) == 0);
        for (unsigned i = 0; i < 40; i++) {
                CUstream s = stream_new();
                CUdeviceptr p;
                CUcontext c;

                OK(cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
                memset((void *)(uintptr_t)p, (int)i, bytes);
                OK(cuMemPrefetchAsync(p, bytes, 0, s));
                OK(unit_launch(add_one, unit_address(sum), s));
                OK(cuLaunchHostFunc(s, host_function, NULL));
                OK(cuMemcpyDtoHAsync_v2(here, p, bytes, s));
                OK(cuCtxCreate_v2(&c, 0, 0));
                OK(cuCtxDestroy_v2(c));
                OK(cuStreamSynchronize(s));
                CHECK_EQUAL(bytes_of(here, bytes, (uint8_t)i), bytes);
                OK(cuMemFree_v2(p));
                OK(cuStreamDestroy_v2(s));
        }
        __atomic_store_n(&stop, true, __ATOMIC_SEQ_CST);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_EQUAL(*sum, 40);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_kernel_freezes_in_the_middle_and_goes_on),
                cmocka_unit_test(memory_of_a_frozen_kernel_leaves_and_comes_back),
                cmocka_unit_test(a_large_copy_freezes_in_the_middle_and_goes_on),
                cmocka_unit_test(a_fill_freezes_in_the_middle_and_goes_on),
                cmocka_unit_test(freezing_does_not_wait_for_a_slow_bus),
                cmocka_unit_test(a_graph_freezes_between_its_nodes),
                cmocka_unit_test(freezing_does_not_wait_for_a_running_host_function),
                cmocka_unit_test(a_frozen_stream_ignores_the_value_that_it_waits_for),
                cmocka_unit_test(the_processor_reads_managed_memory_of_a_frozen_kernel),
                cmocka_unit_test(work_queued_during_a_freeze_begins_after_the_thaw),
                cmocka_unit_test(the_movers_context_runs_during_a_freeze),
                cmocka_unit_test(destroying_a_context_waits_for_its_frozen_work),
                cmocka_unit_test(destroying_a_frozen_idle_context_waits_for_the_thaw),
                cmocka_unit_test(frozen_work_ends_with_a_failed_context),
                cmocka_unit_test(freed_channels_freeze_no_work),
                cmocka_unit_test(a_process_can_exit_while_its_work_is_frozen),
                cmocka_unit_test(killing_a_process_with_frozen_work_frees_its_memory),
                cmocka_unit_test(work_stays_correct_while_another_thread_freezes_and_thaws),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
