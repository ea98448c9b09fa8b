/* test_sim_streams.c: order within and between streams, events, host functions, graphs. */
#include "sim_unit.h"

#include <unistd.h>

/* Holds streams up with a kernel that waits for a flag in pinned memory. */
struct gate {
        unsigned *flag;
        CUfunction wait, store, add_one;
};

static struct gate gate_new(void)
{
        return (struct gate){unit_pinned(64), unit_kernel("wait_flag"), unit_kernel("store"),
                             unit_kernel("add_one")};
}

static void hold(const struct gate *g, CUstream s)
{
        OK(unit_launch(g->wait, unit_address(g->flag), s));
}

static CUstream stream_new(unsigned flags)
{
        CUstream s;

        OK(cuStreamCreate(&s, flags));
        return s;
}

/* Waits long enough for work to finish if nothing holds it up. */
static void settle(void)
{
        (void)usleep(30000);
}

SIM_TEST(work_of_one_stream_runs_in_order)
{
        CUstream s;
        CUdeviceptr p;
        unsigned v;
        CUfunction add;

        (void)unit_begin();
        add = unit_kernel("add_one");
        s = stream_new(CU_STREAM_NON_BLOCKING);
        OK(cuMemAlloc_v2(&p, 4));
        for (unsigned i = 0; i < 200; i++) {
                OK(cuMemsetD32Async(p, i, 1, s));
                OK(unit_launch(add, p, s));
        }
        OK(cuMemcpyDtoHAsync_v2(&v, p, 4, s));
        OK(cuStreamSynchronize(s));
        CHECK_EQUAL(v, 200);
}

SIM_TEST(streams_run_beside_each_other)
{
        CUstream a, b;
        struct gate g;

        (void)unit_begin();
        g = gate_new();
        a = stream_new(CU_STREAM_NON_BLOCKING);
        b = stream_new(CU_STREAM_NON_BLOCKING);
        hold(&g, a);
        OK(unit_launch(g.store, unit_address(g.flag + 1), b));
        OK(cuStreamSynchronize(b));
        CHECK_EQUAL(g.flag[1], 1);
        CHECK_EQUAL(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
        unit_set_flag(g.flag);
        OK(cuStreamSynchronize(a));
        OK(cuStreamQuery(a));
}

SIM_TEST(the_legacy_stream_waits_for_blocking_streams_and_they_for_it)
{
        CUstream blocking, other;
        unsigned *seen;
        struct gate g;

        (void)unit_begin();
        g = gate_new();
        seen = unit_pinned(64);
        blocking = stream_new(0);
        other = stream_new(CU_STREAM_NON_BLOCKING);
        hold(&g, blocking);
        OK(unit_launch(g.store, unit_address(&seen[0]), NULL));
        OK(unit_launch(g.store, unit_address(&seen[1]), blocking));
        OK(unit_launch(g.store, unit_address(&seen[2]), other));
        OK(unit_launch(g.store, unit_address(&seen[3]), CU_STREAM_PER_THREAD));
        OK(cuStreamSynchronize(other));
        settle();
        CHECK_EQUAL(seen[2], 1); /* a non-blocking stream does not wait */
        CHECK_EQUAL(*(volatile unsigned *)&seen[0], 0);
        CHECK_EQUAL(*(volatile unsigned *)&seen[3], 0);
        unit_set_flag(g.flag);
        OK(cuCtxSynchronize());
        CHECK(seen[0] && seen[1] && seen[3]);
}

SIM_TEST(blocking_streams_wait_for_the_legacy_stream)
{
        CUstream blocking;
        unsigned *seen;
        struct gate g;

        (void)unit_begin();
        g = gate_new();
        seen = unit_pinned(64);
        blocking = stream_new(0);
        hold(&g, NULL);
        OK(unit_launch(g.store, unit_address(&seen[0]), blocking));
        settle();
        CHECK_EQUAL(*(volatile unsigned *)&seen[0], 0);
        CHECK_EQUAL(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
        unit_set_flag(g.flag);
        OK(cuStreamSynchronize(blocking));
        CHECK_EQUAL(seen[0], 1);
}

SIM_TEST(a_stream_waits_for_an_event_of_another)
{
        CUstream a, b;
        unsigned *seen;
        struct gate g;
        CUevent e;

        (void)unit_begin();
        g = gate_new();
        seen = unit_pinned(64);
        a = stream_new(CU_STREAM_NON_BLOCKING);
        b = stream_new(CU_STREAM_NON_BLOCKING);
        OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
        hold(&g, a);
        OK(cuEventRecord(e, a));
        OK(cuStreamWaitEvent(b, e, 0));
        OK(unit_launch(g.store, unit_address(seen), b));
        CHECK_EQUAL(cuEventQuery(e), CUDA_ERROR_NOT_READY);
        OK(cuEventDestroy_v2(e)); /* the wait stays in the stream */
        settle();
        CHECK_EQUAL(*(volatile unsigned *)seen, 0);
        unit_set_flag(g.flag);
        OK(cuStreamSynchronize(b));
        CHECK_EQUAL(seen[0], 1);
}

SIM_TEST(an_event_means_its_last_record)
{
        CUstream a, b;
        struct gate g;
        CUevent e;

        (void)unit_begin();
        g = gate_new();
        a = stream_new(CU_STREAM_NON_BLOCKING);
        b = stream_new(CU_STREAM_NON_BLOCKING);
        OK(cuEventCreate(&e, 0));
        hold(&g, a);
        OK(cuEventRecord(e, a));
        OK(cuEventRecord(e, b));
        OK(cuEventSynchronize(e)); /* the last record is in b, which has no work */
        unit_set_flag(g.flag);
        OK(cuCtxSynchronize());
}

SIM_TEST(events_measure_the_time_between_them)
{
        CUstream s;
        struct gate g;
        CUevent a, b;
        float ms;

        (void)unit_begin();
        g = gate_new();
        s = stream_new(CU_STREAM_NON_BLOCKING);
        OK(cuEventCreate(&a, 0));
        OK(cuEventCreate(&b, 0));
        OK(cuEventRecord(a, s));
        OK(cuEventSynchronize(a));
        hold(&g, s);
        OK(cuEventRecord(b, s));
        CHECK_EQUAL(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
        (void)usleep(50000);
        unit_set_flag(g.flag);
        OK(cuEventSynchronize(b));
        OK(cuEventElapsedTime(&ms, a, b));
        CHECK(ms >= 45 && ms < 20000);
}

SIM_TEST(null_means_the_threads_stream_in_per_thread_calls)
{
        unsigned *seen;
        struct gate g;

        (void)unit_begin();
        g = gate_new();
        seen = unit_pinned(64);
        hold(&g, CU_STREAM_PER_THREAD);
        OK(cuLaunchKernel_ptsz(g.store, 1, 1, 1, 1, 1, 1, 0, NULL,
                               (void *[]){&(CUdeviceptr){unit_address(seen)}}, NULL));
        settle();
        /* In calls of this form NULL means the thread's stream, which is held up. */
        CHECK_EQUAL(*(volatile unsigned *)seen, 0);
        CHECK_EQUAL(cuStreamQuery_ptsz(NULL), CUDA_ERROR_NOT_READY);
        unit_set_flag(g.flag);
        OK(cuStreamSynchronize_ptsz(NULL));
        CHECK_EQUAL(seen[0], 1);
}

static void *thread_of_its_own(void *argument)
{
        CUdeviceptr p = *(CUdeviceptr *)argument;
        CUcontext c;
        unsigned v = 0;

        OK(cuDevicePrimaryCtxRetain(&c, 0));
        OK(cuCtxSetCurrent(c));
        OK(cuMemsetD32Async(p, 77, 1, CU_STREAM_PER_THREAD));
        OK(cuMemcpyDtoH_v2_ptds(&v, p, 4));
        CHECK_EQUAL(v, 77);
        OK(cuDevicePrimaryCtxRelease_v2(0));
        return NULL;
}

SIM_TEST(short_lived_threads_can_use_their_streams)
{
        CUdeviceptr p;

        (void)unit_begin();
        OK(cuMemAlloc_v2(&p, 4));
        for (unsigned i = 0; i < 30; i++) {
                pthread_t t;

                CHECK_EQUAL(pthread_create(&t, NULL, thread_of_its_own, &p), 0);
                CHECK_EQUAL(pthread_join(t, NULL), 0);
        }
}

struct order {
        unsigned count, at[3];
};

static void note(void *data)
{
        struct order *o = data;

        o->at[o->count] = o->count;
        o->count++;
}

static void note_stream(CUstream s, CUresult status, void *data)
{
        CHECK_EQUAL(status, CUDA_SUCCESS);
        note(data);
}

static CUcontext shared_context;
static unsigned long long id_elsewhere;
static pthread_barrier_t both;

static void *thread_that_comes_later(void *unused)
{
        OK(cuCtxSetCurrent(shared_context));
        OK(cuStreamGetId(CU_STREAM_PER_THREAD, &id_elsewhere));
        (void)pthread_barrier_wait(&both);
        (void)pthread_barrier_wait(&both); /* the thread stays, because its stream ends with it */
        return NULL;
}

/* Makes `others` streams before the new thread's stream. The simulator reuses parts of a destroyed
 * context's streams in some order, so one of several numbers hits the stream in question. */
static void meet_a_later_thread(unsigned others)
{
        unsigned long long id;
        CUcontext gone;
        pthread_t t;

        OK(cuCtxCreate_v2(&gone, 0, 0));
        OK(cuStreamGetId(CU_STREAM_PER_THREAD, &id));
        OK(cuCtxDestroy_v2(gone));
        OK(cuCtxSetCurrent(shared_context));
        for (unsigned i = 0; i < others; i++)
                (void)stream_new(CU_STREAM_DEFAULT);
        CHECK_EQUAL(pthread_create(&t, NULL, thread_that_comes_later, NULL), 0);
        (void)pthread_barrier_wait(&both);
        OK(cuStreamGetId(CU_STREAM_PER_THREAD, &id));
        CHECK(id != id_elsewhere);
        (void)pthread_barrier_wait(&both);
        CHECK_EQUAL(pthread_join(t, NULL), 0);
        OK(cuStreamQuery(CU_STREAM_PER_THREAD));
}

SIM_TEST(a_threads_stream_is_its_own_after_a_context_is_destroyed)
{
        shared_context = unit_begin();
        CHECK_EQUAL(pthread_barrier_init(&both, NULL, 2), 0);
        for (unsigned others = 0; others < 4; others++)
                meet_a_later_thread(others);
}

SIM_TEST(host_functions_run_in_order_and_outside_the_driver)
{
        struct order o = {0};
        struct gate g;
        CUstream s;

        (void)unit_begin();
        g = gate_new();
        s = stream_new(CU_STREAM_NON_BLOCKING);
        hold(&g, s);
        OK(cuLaunchHostFunc(s, note, &o));
        OK(cuStreamAddCallback(s, note_stream, &o, 0));
        OK(cuLaunchHostFunc(s, note, &o));
        settle();
        CHECK_EQUAL(*(volatile unsigned *)&o.count, 0);
        unit_set_flag(g.flag);
        OK(cuStreamSynchronize(s));
        CHECK_EQUAL(o.count, 3);
}

SIM_TEST(streams_wait_for_values_that_others_write)
{
        CUstream a, b;
        CUdeviceptr p;
        unsigned v = 0;

        (void)unit_begin();
        a = stream_new(CU_STREAM_NON_BLOCKING);
        b = stream_new(CU_STREAM_NON_BLOCKING);
        OK(cuMemAlloc_v2(&p, 64));
        OK(cuMemsetD32_v2(p, 0, 16));
        /* The fill is asynchronous, and the streams do not wait for the legacy stream. */
        OK(cuCtxSynchronize());
        OK(cuStreamWaitValue32_v2(a, p, 5, CU_STREAM_WAIT_VALUE_GEQ));
        OK(cuStreamWriteValue32_v2(a, p + 4, 9, 0));
        settle();
        CHECK_EQUAL(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
        OK(cuStreamWriteValue32_v2(b, p, 6, 0));
        OK(cuStreamSynchronize(a));
        OK(cuMemcpyDtoH_v2(&v, p + 4, 4));
        CHECK_EQUAL(v, 9);
}

SIM_TEST(a_pageable_source_may_be_changed_after_the_call)
{
        unsigned char small[1000], back[1000];
        struct gate g;
        CUdeviceptr p;
        CUstream s;

        (void)unit_begin();
        g = gate_new();
        s = stream_new(CU_STREAM_NON_BLOCKING);
        OK(cuMemAlloc_v2(&p, sizeof(small)));
        memset(small, 1, sizeof(small));
        hold(&g, s);
        OK(cuMemcpyHtoDAsync_v2(p, small, sizeof(small), s));
        memset(small, 2, sizeof(small));
        unit_set_flag(g.flag);
        /* A copy to pageable memory is done when the call returns. */
        OK(cuMemcpyDtoHAsync_v2(back, p, sizeof(back), s));
        for (unsigned i = 0; i < sizeof(back); i++)
                CHECK_EQUAL(back[i], 1);
}

/* ---- graphs ---- */

SIM_TEST(a_captured_graph_runs_as_often_as_it_is_launched)
{
        CUgraphExec x;
        CUfunction add;
        CUdeviceptr p;
        CUstream s;
        CUgraph g;
        unsigned v;

        (void)unit_begin();
        add = unit_kernel("add_one");
        s = stream_new(CU_STREAM_NON_BLOCKING);
        OK(cuMemAlloc_v2(&p, 8));
        OK(cuMemsetD32_v2(p, 0, 2));
        OK(cuCtxSynchronize());
        OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(unit_launch(add, p, s));
        OK(unit_launch(add, p, s));
        OK(cuMemcpyDtoDAsync_v2(p + 4, p, 4, s));
        OK(cuStreamEndCapture(s, &g));
        OK(cuGraphInstantiateWithFlags(&x, g, 0));
        OK(cuGraphDestroy(g));
        OK(cuMemcpyDtoH_v2(&v, p, 4));
        CHECK_EQUAL(v, 0); /* capturing runs nothing */
        for (unsigned i = 0; i < 10; i++)
                OK(cuGraphLaunch(x, s));
        OK(cuGraphExecDestroy(x)); /* launches in progress continue */
        OK(cuStreamSynchronize(s));
        OK(cuMemcpyDtoH_v2(&v, p + 4, 4));
        CHECK_EQUAL(v, 20);
}

SIM_TEST(a_capture_forks_and_joins_by_events)
{
        CUgraphNode nodes[8], before[8];
        size_t count = 8, edges = 8;
        CUevent fork_event, join_event;
        CUgraphExec x;
        CUfunction add;
        CUstream a, b;
        CUdeviceptr p;
        unsigned v[2];
        CUgraph g;

        (void)unit_begin();
        add = unit_kernel("add_one");
        a = stream_new(CU_STREAM_NON_BLOCKING);
        b = stream_new(CU_STREAM_NON_BLOCKING);
        OK(cuEventCreate(&fork_event, 0));
        OK(cuEventCreate(&join_event, 0));
        OK(cuMemAlloc_v2(&p, 8));
        OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(cuMemsetD32Async(p, 5, 2, a));
        OK(cuEventRecord(fork_event, a));
        OK(cuStreamWaitEvent(b, fork_event, 0));
        OK(unit_launch(add, p, a));
        OK(unit_launch(add, p + 4, b));
        OK(cuEventRecord(join_event, b));
        OK(cuStreamWaitEvent(a, join_event, 0));
        OK(unit_launch(add, p, a));
        OK(cuStreamEndCapture(a, &g));
        OK(cuGraphGetNodes(g, nodes, &count));
        CHECK_EQUAL(count, 4);
        OK(cuGraphNodeGetDependencies(nodes[3], before, &edges));
        CHECK_EQUAL(edges, 2);
        OK(cuGraphInstantiateWithFlags(&x, g, 0));
        OK(cuGraphLaunch(x, b)); /* b no longer captures */
        OK(cuStreamSynchronize(b));
        OK(cuMemcpyDtoH_v2(v, p, 8));
        CHECK_EQUAL(v[0], 7);
        CHECK_EQUAL(v[1], 6);
}

static void set_to_three(void *data)
{
        *(unsigned *)data = 3;
}

SIM_TEST(a_graph_built_by_hand_respects_its_edges)
{
        CUDA_KERNEL_NODE_PARAMS kernel = {.gridDimX = 1,
                                          .gridDimY = 1,
                                          .gridDimZ = 1,
                                          .blockDimX = 1,
                                          .blockDimY = 1,
                                          .blockDimZ = 1};
        CUDA_MEMSET_NODE_PARAMS set = {.value = 40, .elementSize = 4, .width = 1, .height = 1};
        CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstMemoryType = CU_MEMORYTYPE_HOST,
                              .WidthInBytes = 4,
                              .Height = 1,
                              .Depth = 1};
        CUDA_HOST_NODE_PARAMS host = {.fn = set_to_three};
        CUgraphNode n_kernel, n_set, n_copy, n_host, n_empty;
        CUgraphExec x;
        unsigned *out;
        CUdeviceptr p;
        CUgraph g;

        (void)unit_begin();
        out = unit_pinned(64);
        OK(cuMemAlloc_v2(&p, 4));
        kernel.func = unit_kernel("add_one");
        kernel.kernelParams = (void *[]){&p};
        set.dst = p;
        copy.srcDevice = p;
        copy.dstHost = &out[0];
        host.userData = &out[1];
        OK(cuGraphCreate(&g, 0));
        /* Add the last node first: only the edges give the order. */
        OK(cuGraphAddMemcpyNode(&n_copy, g, NULL, 0, &copy, NULL));
        OK(cuGraphAddKernelNode_v2(&n_kernel, g, NULL, 0, &kernel));
        OK(cuGraphAddMemsetNode(&n_set, g, NULL, 0, &set, NULL));
        OK(cuGraphAddHostNode(&n_host, g, &n_copy, 1, &host));
        OK(cuGraphAddEmptyNode(&n_empty, g, &n_host, 1));
        OK(cuGraphAddDependencies(g, &n_set, &n_kernel, 1));
        OK(cuGraphAddDependencies(g, &n_kernel, &n_copy, 1));
        OK(cuGraphInstantiateWithFlags(&x, g, 0));
        OK(cuGraphLaunch(x, NULL));
        OK(cuCtxSynchronize());
        CHECK_EQUAL(out[0], 41);
        CHECK_EQUAL(out[1], 3);

        set.value = 50;
        OK(cuGraphExecMemsetNodeSetParams(x, n_set, &set, NULL));
        OK(cuGraphLaunch(x, NULL));
        OK(cuCtxSynchronize());
        CHECK_EQUAL(out[0], 51);

        OK(cuGraphKernelNodeGetParams_v2(n_kernel, &kernel));
        CHECK_EQUAL(*(CUdeviceptr *)kernel.kernelParams[0], p);
        OK(cuGraphDestroyNode(n_kernel));
        OK(cuGraphInstantiateWithFlags(&x, g, 0));
        OK(cuGraphMemsetNodeSetParams(n_set, &set));
        OK(cuGraphAddDependencies(g, &n_set, &n_copy, 1));
        OK(cuGraphInstantiateWithFlags(&x, g, 0));
        OK(cuGraphLaunch(x, NULL));
        OK(cuCtxSynchronize());
        CHECK_EQUAL(out[0], 50);

        OK(cuGraphAddDependencies(g, &n_empty, &n_set, 1)); /* a cycle */
        CHECK_EQUAL(cuGraphInstantiateWithFlags(&x, g, 0), CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST(module_variables_start_with_their_initial_values)
{
        unsigned v = 0;
        CUdeviceptr p;
        CUmodule m;
        size_t n;

        (void)unit_begin();
        OK(cuFuncGetModule(&m, unit_kernel("store")));
        OK(cuModuleGetGlobal_v2(&p, &n, m, "variable"));
        CHECK_EQUAL(n, 4);
        OK(cuMemcpyDtoH_v2(&v, p, 4));
        CHECK_EQUAL(v, 7);
        CHECK_EQUAL(cuModuleGetGlobal_v2(&p, &n, m, "store"), CUDA_ERROR_NOT_FOUND);
        OK(cuModuleUnload(m));
}

SIM_TEST(invalid_ptx_is_refused_with_its_line)
{
        char log[512] = "";
        CUjit_option option[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *value[] = {log, (void *)sizeof(log)};
        CUmodule m;

        (void)unit_begin();
        CHECK_EQUAL(cuModuleLoadDataEx(&m,
                                       ".version 7.0\n.target sm_70\n.address_size 64\n"
                                       ".visible .entry k()\n{\nfrobnicate.u32 7;\nret;\n}\n",
                                       2, option, value),
                    CUDA_ERROR_INVALID_PTX);
        CHECK(strstr(log, "6") && strstr(log, "frobnicate"));
        CHECK_EQUAL(cuModuleLoadData(&m, "\177ELF..."), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(work_of_one_stream_runs_in_order),
                cmocka_unit_test(streams_run_beside_each_other),
                cmocka_unit_test(the_legacy_stream_waits_for_blocking_streams_and_they_for_it),
                cmocka_unit_test(blocking_streams_wait_for_the_legacy_stream),
                cmocka_unit_test(a_stream_waits_for_an_event_of_another),
                cmocka_unit_test(an_event_means_its_last_record),
                cmocka_unit_test(events_measure_the_time_between_them),
                cmocka_unit_test(null_means_the_threads_stream_in_per_thread_calls),
                cmocka_unit_test(short_lived_threads_can_use_their_streams),
                cmocka_unit_test(a_threads_stream_is_its_own_after_a_context_is_destroyed),
                cmocka_unit_test(host_functions_run_in_order_and_outside_the_driver),
                cmocka_unit_test(streams_wait_for_values_that_others_write),
                cmocka_unit_test(a_pageable_source_may_be_changed_after_the_call),
                cmocka_unit_test(a_captured_graph_runs_as_often_as_it_is_launched),
                cmocka_unit_test(a_capture_forks_and_joins_by_events),
                cmocka_unit_test(a_graph_built_by_hand_respects_its_edges),
                cmocka_unit_test(module_variables_start_with_their_initial_values),
                cmocka_unit_test(invalid_ptx_is_refused_with_its_line),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
