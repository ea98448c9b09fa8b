/* test_doors.c: calls of exported functions, dlsym() and cuGetProcAddress reach fakedriver.c
 * through the doors. */
#include "unit.h"

#include <dlfcn.h>
#include <pthread.h>

#include "doors_core.h"
#include "fakes/measure.h"
#include "fakedriver.h"
#include "preload/entry/doors.h"
#include "preload/stream/gate.h"
#include "preload/process/libc_compat.h"
#include "preload/driver/real.h"

/* The fake driver's controls and the exported functions under test, found by a dlsym that is not
 * ours. */
static void *driver;
#define KNOB(name) ((__typeof__(name) *)compat_dlsym(driver, #name))

#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        typedef CUresult fn_##symbol params;
#include "cuda/cuda_api.def"
#define OURS(symbol)   ((fn_##symbol *)doors_wrapper(DOOR_##symbol))
#define THEIRS(symbol) compat_dlsym(driver, #symbol)

static void *open_from_thread(void *argument)
{
        if (real_open() < 0 || rows_find_symbol("cuLaunchKernel") != DOOR_cuLaunchKernel ||
            rows_find_symbol("cuNoSuchThing") != DOOR_NONE)
                return NULL;
        return doors_wrap((void *)real.cuLaunchKernel);
}

static int open_everything(void **state)
{
        pthread_t threads[8];

        driver = compat_dlopen("libcuda.so.1", RTLD_NOW);
        assert_non_null(driver);
        assert_int_equal(real.cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);

        /* Eight threads call at once, as threads of a program may. */
        for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
                assert_int_equal(pthread_create(&threads[i], NULL, open_from_thread, NULL), 0);
        for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
                void *result;

                assert_int_equal(pthread_join(threads[i], &result), 0);
                assert_ptr_equal(result, doors_wrapper(DOOR_cuLaunchKernel));
        }
        return 0;
}

static int clean(void **state)
{
        doors_core = (struct doors_core){0};
        atomic_store(&gate_bits, 0);
        return 0;
}

static void every_row_is_found_by_its_names(void **state)
{
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        assert_int_equal(rows_find_symbol(#symbol), DOOR_##symbol);     \
        assert_string_equal(rows_symbol(DOOR_##symbol), #symbol);       \
        assert_true(rows_knows_base(#base));                            \
        assert_int_equal(rows_find_base(#base, since, (flags)&CU_API_PTSZ ? 2 : 0), DOOR_##symbol);
#include "cuda/cuda_api.def"
        assert_int_equal(rows_find_symbol("cuNoSuchThing"), DOOR_NONE);
        assert_int_equal(rows_find_symbol(""), DOOR_NONE);
        assert_false(rows_knows_base("cuMemAlloc_v2"));
}

static void a_base_answers_by_version_and_flags(void **state)
{
        assert_int_equal(rows_find_base("cuCtxCreate", 3020, 0), DOOR_cuCtxCreate_v2);
        assert_int_equal(rows_find_base("cuCtxCreate", 12040, 0), DOOR_cuCtxCreate_v3);
        assert_int_equal(rows_find_base("cuCtxCreate", 99000, 0), DOOR_cuCtxCreate_v4);
        assert_int_equal(rows_find_base("cuMemcpyHtoDAsync", 12000, 2),
                         DOOR_cuMemcpyHtoDAsync_v2_ptsz);
        assert_int_equal(rows_find_base("cuMemcpyHtoDAsync", 12000, 1), DOOR_cuMemcpyHtoDAsync_v2);
        assert_int_equal(rows_find_base("cuMemcpyHtoDAsync", 6000, 2), DOOR_cuMemcpyHtoDAsync_v2);
        assert_int_equal(rows_find_base("cuMemcpyHtoDAsync", 2000, 0), DOOR_NONE);
        assert_int_equal(rows_find_base("cuMemAlloc", 13000, 2), DOOR_cuMemAlloc_v2);
}

static void a_submitting_call_enters_and_leaves_the_gate(void **state)
{
        unsigned before = KNOB(fakedriver_calls)("cuLaunchKernel");
        uint64_t submissions;

        assert_int_equal(OURS(cuLaunchKernel)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
        submissions = atomic_load(&gate_self->submissions);
        assert_int_equal(OURS(cuLaunchKernel)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), 0);
        assert_int_equal(KNOB(fakedriver_calls)("cuLaunchKernel"), before + 2);
        assert_int_equal(atomic_load(&gate_self->submissions), submissions + 1);
        assert_int_equal(atomic_load(&gate_self->inside), 0);
}

static void the_gate_is_told_the_stream(void **state)
{
        CUstream s = (CUstream)0x1234;
        CUlaunchConfig config = {.hStream = s};

        atomic_store(&gate_bits, GATE_TELL);
        (void)OURS(cuMemsetD8Async)(0, 0, 0, s);
        assert_ptr_equal(doors_core.stream, s);
        (void)OURS(cuLaunchKernelEx)(&config, NULL, NULL, NULL);
        assert_ptr_equal(doors_core.stream, s);
        (void)OURS(cuLaunchKernelEx)(NULL, NULL, NULL, NULL);
        assert_null(doors_core.stream);
        config.hStream = NULL;
        (void)OURS(cuLaunchKernelEx_ptsz)(&config, NULL, NULL, NULL);
        assert_ptr_equal(doors_core.stream, CU_STREAM_PER_THREAD);
        (void)OURS(cuMemcpyHtoDAsync_v2_ptsz)(0, NULL, 0, s);
        assert_ptr_equal(doors_core.stream, s);
        (void)OURS(cuMemcpyHtoDAsync_v2_ptsz)(0, NULL, 0, NULL);
        assert_ptr_equal(doors_core.stream, CU_STREAM_PER_THREAD);
        (void)OURS(cuMemcpyHtoD_v2)(0, NULL, 0);
        assert_null(doors_core.stream);
        (void)OURS(cuMemcpy_ptds)(0, 0, 0);
        assert_ptr_equal(doors_core.stream, CU_STREAM_PER_THREAD);
        assert_int_equal(doors_core.slow, 8);
        assert_int_equal(atomic_load(&gate_self->inside), 0);
}

static void copies_within_unified_addresses_are_counted_as_looking(void **state)
{
        unsigned before = doors_core.looks;

        (void)OURS(cuMemcpyHtoDAsync_v2)(0, NULL, 0, NULL);
        assert_int_equal(doors_core.looks, before);
        (void)OURS(cuMemcpyAsync)(0, 0, 0, NULL);
        (void)OURS(cuMemcpy_ptds)(0, 0, 0);
        assert_int_equal(doors_core.looks, before + 2);
        assert_int_equal(atomic_load(&doors_looking.looks), 0);
}

/* Calls a door whose range ends with PAST, and once more with nothing past the end. */
#define PAST UINT64_C(0x5040)
#define REFUSED(symbol, args)                                                   \
        do {                                                                    \
                unsigned before_ = KNOB(fakedriver_calls)(#symbol);             \
                                                                                \
                doors_core.past = PAST;                                         \
                assert_int_equal(OURS(symbol) args, CUDA_ERROR_INVALID_VALUE);  \
                doors_core.past = PAST + 1;                                     \
                assert_int_equal(OURS(symbol) args, CUDA_SUCCESS);              \
                doors_core.past = 0;                                            \
                assert_int_equal(KNOB(fakedriver_calls)(#symbol), before_ + 1); \
                assert_int_equal(doors_core.refused, ++refused);                \
                assert_int_equal(atomic_load(&doors_looking.looks), 0);         \
        } while (0)

/* One door for each type of driver function, and for each argument with an address. */
static void a_copy_or_fill_past_an_allocation_does_not_reach_the_driver(void **state)
{
        const CUdeviceptr at = 0x5000;
        void *const pointer = (void *)(uintptr_t)at;
        CUDA_MEMCPY2D two = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = at,
                             .srcPitch = 16,
                             .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                             .WidthInBytes = 1,
                             .Height = 5};
        CUDA_MEMCPY3D three = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = at,
                               .dstPitch = 16,
                               .dstHeight = 2,
                               .WidthInBytes = 1,
                               .Height = 1,
                               .Depth = 3};
        CUDA_MEMCPY3D_PEER peer;
        CUDA_MEMSET_NODE_PARAMS set = {at, 16, 0, 1, 1, 5};
        CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
        CUDA_MEMCPY3D_BATCH_OP op = {.src = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY},
                                     .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER},
                                     .extent = {1, 5, 1}};
        CUdeviceptr ours[] = {at}, others[] = {0x100};
        size_t bytes[] = {0x41}, failed = 99;
        CUgraphNode n = NULL;
        unsigned refused = doors_core.refused;

        memcpy(&peer, &three, sizeof(peer));
        node.memcpy.copyParams = three;
        op.dst.op.ptr.ptr = at - 3; /* the last element has four bytes */
        op.dst.op.ptr.rowLength = 4;
        REFUSED(cuMemcpy, (at, 0x100, 0x41));
        REFUSED(cuMemcpy_ptds, (0x100, at, 0x41));
        REFUSED(cuMemcpyAsync, (0x100, at, 0x41, NULL));
        REFUSED(cuMemcpyWithAttributesAsync, (at, 0x100, 0x41, NULL, NULL));
        REFUSED(cuMemcpyHtoD_v2, (at, NULL, 0x41));
        REFUSED(cuMemcpyHtoD_v2, (0x100, pointer, 0x41));
        REFUSED(cuMemcpyHtoDAsync_v2_ptsz, (at, NULL, 0x41, NULL));
        REFUSED(cuMemcpyDtoH_v2, (NULL, at, 0x41));
        REFUSED(cuMemcpyDtoH_v2, (pointer, 0x100, 0x41));
        REFUSED(cuMemcpyDtoHAsync_v2, (NULL, at, 0x41, NULL));
        REFUSED(cuMemcpyPeer, (at, NULL, 0x100, NULL, 0x41));
        REFUSED(cuMemcpyPeer, (0x100, NULL, at, NULL, 0x41));
        REFUSED(cuMemcpyPeerAsync, (0x100, NULL, at, NULL, 0x41, NULL));
        REFUSED(cuMemcpyDtoA_v2, (NULL, 0x9000, at, 0x41));
        REFUSED(cuMemcpyAtoD_v2, (at, NULL, 0x9000, 0x41));
        REFUSED(cuMemcpyHtoA_v2, (NULL, 0x9000, pointer, 0x41));
        REFUSED(cuMemcpyHtoAAsync_v2, (NULL, 0x9000, pointer, 0x41, NULL));
        REFUSED(cuMemcpyAtoH_v2, (pointer, NULL, 0x9000, 0x41));
        REFUSED(cuMemcpyAtoHAsync_v2, (pointer, NULL, 0x9000, 0x41, NULL));
        REFUSED(cuMemcpy2D_v2, (&two));
        REFUSED(cuMemcpy2DUnaligned_v2, (&two));
        REFUSED(cuMemcpy2DAsync_v2, (&two, NULL));
        REFUSED(cuMemcpy3D_v2, (&three));
        REFUSED(cuMemcpy3DAsync_v2_ptsz, (&three, NULL));
        REFUSED(cuMemcpy3DPeer, (&peer));
        REFUSED(cuMemcpy3DPeerAsync, (&peer, NULL));
        REFUSED(cuMemcpyBatchAsync, (ours, others, bytes, 1, NULL, NULL, 0, &failed, NULL));
        assert_int_equal(failed, 0);
        REFUSED(cuMemcpyBatchAsync_v2, (others, ours, bytes, 1, NULL, NULL, 0, NULL));
        failed = 99;
        REFUSED(cuMemcpy3DBatchAsync, (1, &op, &failed, 0, NULL));
        assert_int_equal(failed, 0);
        REFUSED(cuMemcpy3DBatchAsync_v2, (1, &op, 0, NULL));
        REFUSED(cuMemcpy3DWithAttributesAsync, (&op, 0, NULL));
        REFUSED(cuMemsetD8_v2, (at, 0, 0x41));
        REFUSED(cuMemsetD8Async, (at, 0, 0x41, NULL));
        REFUSED(cuMemsetD16_v2, (at - 1, 0, 0x21));
        REFUSED(cuMemsetD16Async, (at - 1, 0, 0x21, NULL));
        REFUSED(cuMemsetD32_v2, (at - 3, 0, 0x11));
        REFUSED(cuMemsetD32Async, (at - 3, 0, 0x11, NULL));
        REFUSED(cuMemsetD2D8_v2, (at, 16, 0, 1, 5));
        REFUSED(cuMemsetD2D8Async, (at, 16, 0, 1, 5, NULL));
        REFUSED(cuMemsetD2D16_v2, (at - 1, 16, 0, 1, 5));
        REFUSED(cuMemsetD2D16Async, (at - 1, 16, 0, 1, 5, NULL));
        REFUSED(cuMemsetD2D32_v2, (at - 3, 16, 0, 1, 5));
        REFUSED(cuMemsetD2D32Async, (at - 3, 16, 0, 1, 5, NULL));
        REFUSED(cuGraphAddMemcpyNode, (&n, NULL, NULL, 0, &three, NULL));
        REFUSED(cuGraphMemcpyNodeSetParams, (n, &three));
        REFUSED(cuGraphExecMemcpyNodeSetParams, (NULL, n, &three, NULL));
        REFUSED(cuGraphMemsetNodeSetParams, (n, &set));
        REFUSED(cuGraphExecMemsetNodeSetParams, (NULL, n, &set, NULL));
        REFUSED(cuGraphNodeSetParams, (n, &node));
        REFUSED(cuGraphExecNodeSetParams, (NULL, n, &node));
        assert_int_equal(OURS(cuMemcpy3D_v2)(NULL), CUDA_SUCCESS);
}

static uint64_t work_of_blocks(uintptr_t func, unsigned x, unsigned y)
{
        (void)OURS(cuLaunchKernel)((CUfunction)func, x, y, 1, 32, 1, 1, 0, NULL, NULL, NULL);
        return doors_core.work;
}

static uint64_t work_of_bytes(size_t bytes)
{
        (void)OURS(cuMemcpyHtoDAsync_v2)(0, NULL, bytes, NULL);
        return doors_core.work;
}

static void work_of_about_equal_size_has_the_same_identity(void **state)
{
        CUlaunchConfig config = {.gridDimX = 1000, .gridDimY = 2, .gridDimZ = 1};
        uint64_t kernel, copy, fill;

        atomic_store(&gate_bits, GATE_TELL);
        kernel = work_of_blocks(0x1000, 1000, 2);
        assert_int_equal(kernel, work_of_blocks(0x1000, 1, 1500));
        assert_int_not_equal(kernel, work_of_blocks(0x1000, 1000, 4));
        assert_int_not_equal(kernel, work_of_blocks(0x1001, 1000, 2));
        (void)OURS(cuLaunchKernelEx)(&config, (CUfunction)0x1000, NULL, NULL);
        assert_int_equal(doors_core.work, kernel);

        copy = work_of_bytes(5 << 20);
        assert_int_equal(copy, work_of_bytes(7 << 20));
        assert_int_not_equal(copy, work_of_bytes(9 << 20));
        assert_int_not_equal(copy, work_of_bytes(0));
        (void)OURS(cuMemsetD8Async)(0, 0, 5 << 20, NULL);
        fill = doors_core.work;
        assert_int_not_equal(copy, fill);
        (void)OURS(cuMemsetD8Async)(0, 0, 64, NULL);
        assert_int_not_equal(doors_core.work, fill);

        (void)OURS(cuGraphLaunch)((CUgraphExec)0x2000, NULL);
        fill = doors_core.work;
        (void)OURS(cuGraphLaunch)((CUgraphExec)0x2001, NULL);
        assert_int_not_equal(doors_core.work, fill);
}

static void expect_measured(const char *call, CUstream stream, uint64_t a, uint64_t b)
{
        assert_string_equal(measure_fake.call, call);
        assert_ptr_equal(measure_fake.stream, stream);
        assert_int_equal(measure_fake.numbers[0], a);
        assert_int_equal(measure_fake.numbers[1], b);
        assert_int_equal(measure_fake.begun, measure_fake.ended);
}

/* The type of the driver's function chooses what is told: one call of each type. */
static void a_measured_call_tells_its_arguments_and_its_result(void **state)
{
        const uint64_t launch[] = {0x1000, 7, 6, 5, 4, 3, 2, 1};
        CUstream s = (CUstream)0x1234;
        CUfunction f = (CUfunction)0x1000;
        CUlaunchConfig config = {.hStream = s};
        CUDA_MEMCPY2D two = {0};
        CUDA_MEMCPY3D three = {0};
        CUgraphExec exec = NULL;
        CUgraph graph = (CUgraph)0x2000;
        char host[8];

        atomic_store(&gate_bits, GATE_MEASURE);
        (void)OURS(cuLaunchKernel)(f, 7, 6, 5, 4, 3, 2, 1, s, NULL, NULL);
        expect_measured("kernel", s, 0x1000, 7);
        assert_memory_equal(measure_fake.numbers, launch, sizeof(launch));
        assert_int_equal(measure_fake.work, doors_core.work);
        (void)OURS(cuLaunchKernel_ptsz)(f, 7, 6, 5, 4, 3, 2, 1, NULL, NULL, NULL);
        expect_measured("kernel", CU_STREAM_PER_THREAD, 0x1000, 7);
        (void)OURS(cuLaunchCooperativeKernel)(f, 7, 6, 5, 4, 3, 2, 1, s, NULL);
        expect_measured("kernel", s, 0x1000, 7);
        (void)OURS(cuLaunchKernelEx)(&config, f, NULL, NULL);
        expect_measured("launch", s, (uintptr_t)&config, 0x1000);
        (void)OURS(cuGraphLaunch)((CUgraphExec)0x3000, s);
        expect_measured("graph", s, 0x3000, 0);
        assert_true(measure_fake.launches_graph);
        (void)OURS(cuGraphUpload)((CUgraphExec)0x3000, s);
        assert_false(measure_fake.launches_graph);
        (void)OURS(cuGraphInstantiateWithFlags)(&exec, graph, 0);
        expect_measured("instantiate", NULL, (uintptr_t)&exec, 0x2000);
        (void)OURS(cuGraphInstantiateWithParams)(&exec, graph, NULL);
        expect_measured("instantiate", NULL, (uintptr_t)&exec, 0x2000);
        (void)OURS(cuGraphInstantiate_v2)(&exec, graph, NULL, NULL, 0);
        expect_measured("instantiate", NULL, (uintptr_t)&exec, 0x2000);
        (void)OURS(cuMemcpyHtoD_v2)(0x5000, host, 8);
        expect_measured("to device", NULL, 0x5000, 8);
        (void)OURS(cuMemcpyHtoDAsync_v2)(0x5000, host, 8, s);
        expect_measured("to device", s, 0x5000, 8);
        (void)OURS(cuMemcpyDtoH_v2)(host, 0x5000, 8);
        expect_measured("to host", NULL, 0x5000, 8);
        (void)OURS(cuMemcpyDtoHAsync_v2)(host, 0x5000, 8, s);
        expect_measured("to host", s, 0x5000, 8);
        (void)OURS(cuMemcpyDtoD_v2)(0x5000, 0x6000, 8);
        expect_measured("either", NULL, 0x5000, 0x6000);
        (void)OURS(cuMemcpyAsync)(0x5000, 0x6000, 8, s);
        expect_measured("either", s, 0x5000, 0x6000);
        (void)OURS(cuMemcpy2DAsync_v2)(&two, s);
        expect_measured("2d", s, (uintptr_t)&two, 0);
        (void)OURS(cuMemcpy3D_v2)(&three);
        expect_measured("3d", NULL, (uintptr_t)&three, 0);
        (void)OURS(cuMemsetD8Async)(0x5000, 0, 8, s);
        expect_measured("other", s, 0, 0);
        assert_int_equal(measure_fake.result, CUDA_SUCCESS);
}

static void nothing_is_told_while_nothing_is_measured(void **state)
{
        unsigned before = measure_fake.begun;

        atomic_store(&gate_bits, 0);
        (void)OURS(cuLaunchKernel)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        atomic_store(&gate_bits, GATE_TELL);
        (void)OURS(cuLaunchKernel)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        (void)OURS(cuMemcpyAsync)(0, 0, 0, NULL);
        assert_int_equal(measure_fake.begun, before);
}

static void out_of_memory_is_retried_outside_the_gate_while_there_is_room(void **state)
{
        unsigned before = KNOB(fakedriver_calls)("cuGraphLaunch");

        doors_core.room = 3;
        KNOB(fakedriver_refuse)("cuGraphLaunch", 2);
        assert_int_equal(OURS(cuGraphLaunch)(NULL, NULL), CUDA_SUCCESS);
        assert_int_equal(KNOB(fakedriver_calls)("cuGraphLaunch"), before + 3);
        assert_int_equal(doors_core.rooms, 2);
        assert_false(doors_core.inside_while_making_room);

        KNOB(fakedriver_refuse)("cuGraphLaunch", 9);
        assert_int_equal(OURS(cuGraphLaunch)(NULL, NULL), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(KNOB(fakedriver_calls)("cuGraphLaunch"), before + 7);

        doors_core.room = 0;
        assert_int_equal(OURS(cuGraphLaunch)(NULL, NULL), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(KNOB(fakedriver_calls)("cuGraphLaunch"), before + 8);
        KNOB(fakedriver_refuse)("cuGraphLaunch", 0);
        assert_int_equal(atomic_load(&gate_self->inside), 0);
}

static void a_call_that_a_freeze_failed_is_repeated_through_the_gate(void **state)
{
        unsigned before = KNOB(fakedriver_calls)("cuGraphLaunch");

        doors_core.again = true;
        KNOB(fakedriver_refuse)("cuGraphLaunch", 1);
        assert_int_equal(OURS(cuGraphLaunch)(NULL, NULL), CUDA_SUCCESS);
        assert_int_equal(KNOB(fakedriver_calls)("cuGraphLaunch"), before + 2);
        atomic_store(&gate_bits, GATE_TELL);
        doors_core.failed = 0;
        KNOB(fakedriver_refuse)("cuGraphLaunch", 2);
        assert_int_equal(OURS(cuGraphLaunch)(NULL, NULL), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(KNOB(fakedriver_calls)("cuGraphLaunch"), before + 4);
        assert_int_equal(doors_core.slow, 2);
        assert_int_equal(doors_core.failed, 2);
        assert_int_equal(atomic_load(&gate_self->inside), 0);

        doors_core.again = false;
        KNOB(fakedriver_refuse)("cuGraphLaunch", 1);
        assert_int_equal(OURS(cuGraphLaunch)(NULL, NULL), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(KNOB(fakedriver_calls)("cuGraphLaunch"), before + 5);
}

static void the_door_of_ioctl_calls_the_ioctl_that_libcuda_would_find(void **state)
{
        assert_non_null(atomic_load(&real_ioctl));
        assert_ptr_equal(atomic_load(&real_ioctl), compat_dlsym(driver, "ioctl"));
}

static void calls_that_are_only_retried_skip_the_gate(void **state)
{
        unsigned before = KNOB(fakedriver_calls)("cuModuleLoadData");

        atomic_store(&gate_bits, GATE_TELL);
        doors_core.room = 1;
        KNOB(fakedriver_refuse)("cuModuleLoadData", 1);
        assert_int_equal(OURS(cuModuleLoadData)(NULL, NULL), CUDA_SUCCESS);
        assert_int_equal(KNOB(fakedriver_calls)("cuModuleLoadData"), before + 2);
        assert_int_equal(doors_core.slow, 0);
        assert_int_equal(doors_core.rooms, 1);
}

static void first_versions_of_functions_reach_the_hooks_of_the_second(void **state)
{
        unsigned before = KNOB(fakedriver_calls)("cuCtxDestroy_v2");

        assert_int_equal(OURS(cuCtxDestroy)(NULL), CUDA_SUCCESS);
        assert_int_equal(doors_core.hooks, 1);
        assert_int_equal(KNOB(fakedriver_calls)("cuCtxDestroy_v2"), before + 1);
        assert_int_equal(KNOB(fakedriver_calls)("cuCtxDestroy"), 0);
}

static void addresses_of_driver_functions_become_addresses_of_doors(void **state)
{
        for (unsigned row = 0; row < DOOR_COUNT; row++) {
                void *theirs = compat_dlsym(driver, rows_symbol(row));

                if (!theirs)
                        continue;
                assert_ptr_equal(doors_wrap(theirs),
                                 doors_wrapper(row) ? doors_wrapper(row) : theirs);
        }
        assert_ptr_equal(doors_wrap((void *)open_everything), open_everything);
        assert_null(doors_wrap(NULL));
        assert_ptr_equal(doors_wrap(doors_wrapper(DOOR_cuInit)), doors_wrapper(DOOR_cuInit));
}

static void *resolved(const char *name, int version, cuuint64_t flags)
{
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        void *one = NULL, *two = NULL;

        assert_int_equal(OURS(cuGetProcAddress_v2)(name, &two, version, flags, &status), 0);
        assert_int_equal(status, CU_GET_PROC_ADDRESS_SUCCESS);
        assert_int_equal(OURS(cuGetProcAddress)(name, &one, version, flags), 0);
        assert_ptr_equal(one, two);
        return two;
}

static void every_row_resolves_to_its_own_door(void **state)
{
#define CU(base, symbol, since, flags, behaviour, stream, params, args)                      \
        if (THEIRS(symbol) && strcmp(#base, "cuEventRecord") != 0)                           \
                assert_ptr_equal(resolved(#base, since, (flags)&CU_API_PTSZ ? 2 : 0),        \
                                 doors_wrapper(DOOR_##symbol) ? doors_wrapper(DOOR_##symbol) \
                                                              : THEIRS(symbol));
#include "cuda/cuda_api.def"
        assert_ptr_equal(resolved("cuGetProcAddress", 11030, 0),
                         doors_wrapper(DOOR_cuGetProcAddress));
        assert_ptr_equal(resolved("cuGetProcAddress", 12000, 0),
                         doors_wrapper(DOOR_cuGetProcAddress_v2));
}

static void functions_unknown_to_the_driver_stay_unknown(void **state)
{
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
        void *p = (void *)1;

        assert_int_equal(OURS(cuGetProcAddress_v2)("cuMemAlloc", &p, 2000, 0, &status),
                         CUDA_ERROR_NOT_FOUND);
        assert_null(p);
        assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
        assert_int_equal(OURS(cuGetProcAddress_v2)("cuNoSuchThing", &p, 13000, 0, NULL),
                         CUDA_ERROR_NOT_FOUND);
        assert_int_equal(rows_unknown_count(), 0);
}

static void a_second_entry_to_a_known_function_is_intercepted(void **state)
{
        fn_cuLaunchHostFunc *launch = (fn_cuLaunchHostFunc *)resolved("cuLaunchHostFunc", 12000, 0);

        assert_ptr_equal(launch, OURS(cuLaunchHostFunc));
        assert_ptr_equal(resolved("cuLaunchHostFunc", 13010, 0), launch);
        assert_int_equal(launch(NULL, NULL, NULL), CUDA_SUCCESS);
        assert_int_equal(KNOB(fakedriver_calls)("cuLaunchHostFunc"), 1);
        assert_int_equal(KNOB(fakedriver_second_entry_calls)(), 0);

        /* cuEventRecord is not intercepted: the program gets the driver's function. */
        assert_ptr_not_equal(resolved("cuEventRecord", 12000, 0), THEIRS(cuEventRecord));
        assert_int_equal(rows_unknown_count(), 0);
}

static void a_function_without_a_symbol_is_called_once_it_was_resolved(void **state)
{
        fn_cuFuncLoad *load;

        assert_null(THEIRS(cuFuncLoad));
        assert_int_equal(OURS(cuFuncLoad)(NULL), CUDA_ERROR_NOT_SUPPORTED);
        load = (fn_cuFuncLoad *)resolved("cuFuncLoad", 13000, 0);
        assert_ptr_equal(load, OURS(cuFuncLoad));
        assert_int_equal(load(NULL), CUDA_SUCCESS);
        assert_int_equal(KNOB(fakedriver_calls)("cuFuncLoad"), 1);
}

static void check_missing(const char *name, int version, cuuint64_t flags)
{
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS, theirs;
        void *p = (void *)1, *none;

        /* The answer is the one that the driver gives for functions that it lacks. */
        assert_int_equal(OURS(cuGetProcAddress_v2)(name, &p, version, flags, &status),
                         real.cuGetProcAddress_v2("cuNoSuchThing", &none, version, flags, &theirs));
        assert_null(p);
        assert_int_equal(status, theirs);
        p = (void *)1;
        assert_int_equal(OURS(cuGetProcAddress)(name, &p, version, flags), CUDA_ERROR_NOT_FOUND);
        assert_null(p);
}

static void a_new_version_of_an_intercepted_function_is_hidden(void **state)
{
        unsigned before = rows_unknown_count();

        check_missing("cuMemFree", 14000, 0);
        assert_int_equal(rows_unknown_count(), before + 1);
        assert_string_equal(rows_unknown_name(before), "cuMemFree");
        check_missing("cuMemFree_v3", 14000, 0);
        assert_int_equal(rows_unknown_count(), before + 2);
        assert_ptr_equal(resolved("cuMemFree", 13000, 0), OURS(cuMemFree_v2));
        assert_ptr_equal(resolved("cuMemFree", 13040, 0), OURS(cuMemFree_v2));
}

static void a_new_version_of_another_function_passes_and_is_counted(void **state)
{
        unsigned before = rows_unknown_count();
        CUresult (*newer)(void) = (CUresult(*)(void))resolved("cuDeviceGetName", 14000, 0);

        assert_int_equal(newer(), CUDA_SUCCESS);
        assert_int_equal(KNOB(fakedriver_newer_calls)(), 1);
        assert_int_equal(rows_unknown_count(), before + 1);
}

static void a_name_says_whether_it_is_an_undecided_version(void **state)
{
        assert_true(rows_is_undecided("cuMemFree_v3"));
        assert_true(rows_is_undecided("cuMemFree_v12"));
        assert_true(rows_is_undecided("cuLaunchKernel_v2_ptsz"));
        assert_true(rows_is_undecided("cuMemcpy_ptsz"));
        assert_false(rows_is_undecided("cuMemFree_v2"));
        assert_false(rows_is_undecided("cuMemFree"));
        assert_false(rows_is_undecided("cuDeviceGetName_v2"));
        assert_false(rows_is_undecided("cuUnheardOf_v2"));
        assert_false(rows_is_undecided("cuUnheardOf"));
        assert_false(rows_is_undecided("cu_v2"));
        assert_false(rows_is_undecided(""));
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        assert_false(rows_is_undecided(#symbol));
#define CU_UNCAUGHT(symbol, reason) assert_false(rows_is_undecided(#symbol));
#include "cuda/cuda_api.def"
#include "cuda/cuda_uncaught.def"
}

static void a_version_older_than_the_table_passes_and_is_not_counted(void **state)
{
        unsigned before = rows_unknown_count();

        assert_non_null(resolved("cuMemFree", 2000, 0));
        assert_ptr_not_equal(resolved("cuMemFree", 2000, 0), OURS(cuMemFree_v2));
        assert_int_equal(rows_unknown_count(), before);
}

static void unknown_functions_are_counted_by_name(void **state)
{
        unsigned before = rows_unknown_count();
        char name[32];

        /* Functions that the tables list as not intercepted do not count as unknown. */
#define CU_UNCAUGHT(symbol, reason)    \
        if (!rows_knows_base(#symbol)) \
                rows_count_unknown(#symbol);
#include "cuda/cuda_uncaught.def"
        assert_int_equal(rows_unknown_count(), before);

        assert_non_null(resolved("cuUnheardOf", 13000, 0));
        assert_non_null(resolved("cuUnheardOf", 13000, 0));
        assert_int_equal(rows_unknown_count(), before + 1);
        assert_string_equal(rows_unknown_name(before), "cuUnheardOf");
        for (int i = 0; i < 2 * ROWS_UNKNOWN_MAX; i++) {
                (void)snprintf(name, sizeof(name), "cuOther%d", i);
                rows_count_unknown(name);
        }
        assert_int_equal(rows_unknown_count(), before + 1 + 2 * ROWS_UNKNOWN_MAX);
        assert_null(rows_unknown_name(ROWS_UNKNOWN_MAX));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(every_row_is_found_by_its_names, clean),
                cmocka_unit_test_setup(a_base_answers_by_version_and_flags, clean),
                cmocka_unit_test_setup(a_submitting_call_enters_and_leaves_the_gate, clean),
                cmocka_unit_test_setup(copies_within_unified_addresses_are_counted_as_looking,
                                       clean),
                cmocka_unit_test_setup(a_copy_or_fill_past_an_allocation_does_not_reach_the_driver,
                                       clean),
                cmocka_unit_test_setup(the_gate_is_told_the_stream, clean),
                cmocka_unit_test_setup(work_of_about_equal_size_has_the_same_identity, clean),
                cmocka_unit_test_setup(a_measured_call_tells_its_arguments_and_its_result, clean),
                cmocka_unit_test_setup(nothing_is_told_while_nothing_is_measured, clean),
                cmocka_unit_test_setup(
                        out_of_memory_is_retried_outside_the_gate_while_there_is_room, clean),
                cmocka_unit_test_setup(a_call_that_a_freeze_failed_is_repeated_through_the_gate,
                                       clean),
                cmocka_unit_test_setup(the_door_of_ioctl_calls_the_ioctl_that_libcuda_would_find,
                                       clean),
                cmocka_unit_test_setup(calls_that_are_only_retried_skip_the_gate, clean),
                cmocka_unit_test_setup(first_versions_of_functions_reach_the_hooks_of_the_second,
                                       clean),
                cmocka_unit_test_setup(addresses_of_driver_functions_become_addresses_of_doors,
                                       clean),
                cmocka_unit_test_setup(every_row_resolves_to_its_own_door, clean),
                cmocka_unit_test_setup(functions_unknown_to_the_driver_stay_unknown, clean),
                cmocka_unit_test_setup(a_second_entry_to_a_known_function_is_intercepted, clean),
                cmocka_unit_test_setup(a_function_without_a_symbol_is_called_once_it_was_resolved,
                                       clean),
                cmocka_unit_test_setup(a_new_version_of_an_intercepted_function_is_hidden, clean),
                cmocka_unit_test_setup(a_new_version_of_another_function_passes_and_is_counted,
                                       clean),
                cmocka_unit_test_setup(a_name_says_whether_it_is_an_undecided_version, clean),
                cmocka_unit_test_setup(a_version_older_than_the_table_passes_and_is_not_counted,
                                       clean),
                cmocka_unit_test_setup(unknown_functions_are_counted_by_name, clean),
        };

        return cmocka_run_group_tests(tests, open_everything, NULL);
}
