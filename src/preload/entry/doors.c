/* doors.c: owns the exported driver functions and the ways to find one: by name, by address.
 * Everything here is generated from cuda_api.def. Must never allocate; what a call means is decided
 * elsewhere (hooks.h). */
#undef SUBLET_TELLS /* calls made here are the program's */
#include "preload/entry/doors.h"

#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "cuda/cuda_versions.h"
#include "preload/entry/door_count.h"
#include "preload/extra/measure.h"
#include "preload/hooks/bounds.h"
#include "preload/stream/gate.h"

/* ---- the functions themselves ----
 *
 * Each door is a local function with an exported second name. So the addresses that we hand out are
 * ours even if another preloaded library exports the same name. */

#define DOOR(symbol, params)                                                    \
        static CUresult door_##symbol params;                                   \
        extern __typeof__(door_##symbol) symbol                                 \
                __attribute__((alias("door_" #symbol), visibility("default"))); \
        static CUresult door_##symbol params

/* Returns a name for the kind of work (gate_work()). Launches of one kernel with about as many
 * blocks have the same name. So have launches of one graph, and equal calls with about as many
 * bytes. */
static inline uint64_t work_of_kernel(uint64_t func, uint64_t x, uint64_t y, uint64_t z)
{
        return gate_work(func, x * y * z);
}

static inline uint64_t work_of_launch(uint64_t config, uint64_t func)
{
        const CUlaunchConfig *c = (const CUlaunchConfig *)config;

        return c ? work_of_kernel(func, c->gridDimX, c->gridDimY, c->gridDimZ) : 0;
}

/* The type of the first argument tells what the arguments mean: (kernel, blocks...), (graph),
 * (launch, kernel), or else (to, from, bytes). */
#define UNWRAP(...)         __VA_ARGS__
#define WORK_OF(call, args) WORK_OF_LIST(DOOR_##call, UNWRAP args, 0, 0, 0)
#define WORK_OF_LIST(...)   WORK_OF_ARGUMENTS(__VA_ARGS__)
#define WORK_OF_ARGUMENTS(door, a, b, c, d, ...) \
        _Generic((a), CUfunction                                                            \
                 : work_of_kernel((uint64_t)(a), BLOCKS(b), BLOCKS(c), BLOCKS(d)), CUgraphExec \
                 : gate_work((uint64_t)(a), 0), const CUlaunchConfig *                        \
                 : work_of_launch((uint64_t)(a), (uint64_t)(b)), default                    \
                 : gate_work(door, BYTES(c)))
#define BLOCKS(x) _Generic((x), unsigned int : (x), int : (x), default : 1)
#define BYTES(x)  _Generic((x), size_t : (x), default : 0)

/* Makes the driver call, and lets measure.c see it while GATE_MEASURE is set. The type of the
 * driver function tells what its arguments mean. */
#define TYPE_OF(symbol) __typeof__(((struct real_driver *)NULL)->symbol)
#define MEASURE(symbol)                                                       \
        _Generic(real.symbol, TYPE_OF(cuLaunchKernel)                         \
                 : measure_kernel, TYPE_OF(cuLaunchCooperativeKernel)         \
                 : measure_kernel, TYPE_OF(cuLaunchKernelEx)                  \
                 : measure_launch, TYPE_OF(cuGraphLaunch)                     \
                 : measure_graph, TYPE_OF(cuGraphInstantiateWithFlags)        \
                 : measure_instantiate, TYPE_OF(cuGraphInstantiateWithParams) \
                 : measure_instantiate, TYPE_OF(cuGraphInstantiate)           \
                 : measure_instantiate, TYPE_OF(cuMemcpyHtoD_v2)              \
                 : measure_to_device, TYPE_OF(cuMemcpyHtoDAsync_v2)           \
                 : measure_to_device, TYPE_OF(cuMemcpyDtoH_v2)                \
                 : measure_to_host, TYPE_OF(cuMemcpyDtoHAsync_v2)             \
                 : measure_to_host, TYPE_OF(cuMemcpy)                         \
                 : measure_either, TYPE_OF(cuMemcpyAsync)                     \
                 : measure_either, TYPE_OF(cuMemcpy2D_v2)                     \
                 : measure_copy_2d, TYPE_OF(cuMemcpy2DAsync_v2)               \
                 : measure_copy_2d, TYPE_OF(cuMemcpy3D_v2)                    \
                 : measure_copy_3d, TYPE_OF(cuMemcpy3DAsync_v2)               \
                 : measure_copy_3d, default                                   \
                 : measure_other)
#define IS_GRAPH_LAUNCH(symbol) \
        (DOOR_##symbol == DOOR_cuGraphLaunch || DOOR_##symbol == DOOR_cuGraphLaunch_ptsz)
#define MEASURED(symbol, submits_to, args)                                                    \
        ({                                                                                    \
                CUresult of_driver_;                                                          \
                                                                                              \
                if (likely(!(atomic_load_explicit(&gate_bits, memory_order_relaxed) &         \
                             GATE_MEASURE))) {                                                \
                        of_driver_ = real.symbol args;                                        \
                } else {                                                                      \
                        struct measure_call m_ = {.stream = (submits_to),                     \
                                                  .work = WORK_OF(symbol, args),              \
                                                  .launches_graph = IS_GRAPH_LAUNCH(symbol)}; \
                                                                                              \
                        MEASURE(symbol)(&m_, UNWRAP args);                                    \
                        of_driver_ = real.symbol args;                                        \
                        measure_after(&m_, of_driver_);                                       \
                }                                                                             \
                of_driver_;                                                                   \
        })

/* False: the call would reach beyond an allocation (bounds.h). The type of the driver function
 * tells which of its arguments are ranges; descriptors are found by their own types, among the
 * first six arguments. */
#define RANGES(symbol)                                                        \
        _Generic(real.symbol, TYPE_OF(cuMemcpy)                               \
                 : bounds_copy, TYPE_OF(cuMemcpyAsync)                        \
                 : bounds_copy, TYPE_OF(cuMemcpyWithAttributesAsync)          \
                 : bounds_copy, TYPE_OF(cuMemcpyHtoD_v2)                      \
                 : bounds_to_device, TYPE_OF(cuMemcpyHtoDAsync_v2)            \
                 : bounds_to_device, TYPE_OF(cuMemcpyDtoH_v2)                 \
                 : bounds_to_host, TYPE_OF(cuMemcpyDtoHAsync_v2)              \
                 : bounds_to_host, TYPE_OF(cuMemcpyPeer)                      \
                 : bounds_peer, TYPE_OF(cuMemcpyPeerAsync)                    \
                 : bounds_peer, TYPE_OF(cuMemcpyDtoA_v2)                      \
                 : bounds_device_to_array, TYPE_OF(cuMemcpyAtoD_v2)           \
                 : bounds_array_to_device, TYPE_OF(cuMemcpyHtoA_v2)           \
                 : bounds_host_to_array, TYPE_OF(cuMemcpyHtoAAsync_v2)        \
                 : bounds_host_to_array, TYPE_OF(cuMemcpyAtoH_v2)             \
                 : bounds_array_to_host, TYPE_OF(cuMemcpyAtoHAsync_v2)        \
                 : bounds_array_to_host, TYPE_OF(cuMemcpyBatchAsync)          \
                 : bounds_batch, TYPE_OF(cuMemcpyBatchAsync_v2)               \
                 : bounds_batch_v2, TYPE_OF(cuMemcpy3DBatchAsync)             \
                 : bounds_3d_batch, TYPE_OF(cuMemcpy3DBatchAsync_v2)          \
                 : bounds_3d_batch_v2, TYPE_OF(cuMemcpy3DWithAttributesAsync) \
                 : bounds_3d_one, TYPE_OF(cuMemsetD8_v2)                      \
                 : bounds_set_8, TYPE_OF(cuMemsetD8Async)                     \
                 : bounds_set_8, TYPE_OF(cuMemsetD16_v2)                      \
                 : bounds_set_16, TYPE_OF(cuMemsetD16Async)                   \
                 : bounds_set_16, TYPE_OF(cuMemsetD32_v2)                     \
                 : bounds_set_32, TYPE_OF(cuMemsetD32Async)                   \
                 : bounds_set_32, TYPE_OF(cuMemsetD2D8_v2)                    \
                 : bounds_set_2d_8, TYPE_OF(cuMemsetD2D8Async)                \
                 : bounds_set_2d_8, TYPE_OF(cuMemsetD2D16_v2)                 \
                 : bounds_set_2d_16, TYPE_OF(cuMemsetD2D16Async)              \
                 : bounds_set_2d_16, TYPE_OF(cuMemsetD2D32_v2)                \
                 : bounds_set_2d_32, TYPE_OF(cuMemsetD2D32Async)              \
                 : bounds_set_2d_32, default                                  \
                 : bounds_none)
#define AS(type, x)           _Generic((x), const type * : (x), type * : (x), default : (type *)NULL)
#define HOLDS(check, type, x) (!AS(type, x) || check(AS(type, x)))
#define DESCRIBES(x)                                                                       \
        (HOLDS(bounds_of_2d, CUDA_MEMCPY2D, x) && HOLDS(bounds_of_3d, CUDA_MEMCPY3D, x) && \
         HOLDS(bounds_of_peer, CUDA_MEMCPY3D_PEER, x) &&                                   \
         HOLDS(bounds_of_set, CUDA_MEMSET_NODE_PARAMS, x) &&                               \
         HOLDS(bounds_of_node, CUgraphNodeParams, x))
#define IN_BOUNDS(symbol, args) \
        (RANGES(symbol)(0, UNWRAP args) && IN_BOUNDS_LIST(UNWRAP args, 0, 0, 0, 0, 0))
#define IN_BOUNDS_LIST(...) IN_BOUNDS_ARGUMENTS(__VA_ARGS__)
#define IN_BOUNDS_ARGUMENTS(a, b, c, d, e, f, ...)                                       \
        (DESCRIBES(a) && DESCRIBES(b) && DESCRIBES(c) && DESCRIBES(d) && DESCRIBES(e) && \
         DESCRIBES(f))

/* Usually a call sets the thread's mark, loads the gate's bits and clears the mark. All else is in
 * separate functions, because inline code for it would save and set up more registers on each call.
 * failed_: the error that the driver has already returned; 0: the driver was not called, so the
 * function does what HOOKS_SUBMIT() does. */
#define CU_SUBMIT(symbol, submits_to, params, args)                               \
        static NOINLINE CUresult gated_##symbol(CUresult failed_, UNWRAP params)  \
        {                                                                         \
                uint64_t room_ = 0;                                               \
                bool once_ = false;                                               \
                CUresult r_ = failed_;                                            \
                bool call_ = r_ == CUDA_SUCCESS || freeze_call_again(r_, &once_); \
                                                                                  \
                while (call_ || (r_ == CUDA_ERROR_OUT_OF_MEMORY &&                \
                                 hooks_more_room(core_current_gpu(), &room_))) {  \
                        r_ = HOOKS_GATED(submits_to, WORK_OF(symbol, args),       \
                                         MEASURED(symbol, submits_to, args));     \
                        call_ = false;                                            \
                }                                                                 \
                return r_;                                                        \
        }                                                                         \
        DOOR(symbol, params)                                                      \
        {                                                                         \
                struct gate_thread *t_;                                           \
                CUresult r_ = CUDA_SUCCESS;                                       \
                                                                                  \
                door_count(DOOR_##symbol);                                        \
                if (unlikely(!IN_BOUNDS(symbol, args)))                           \
                        return CUDA_ERROR_INVALID_VALUE;                          \
                t_ = gate_try(submits_to);                                        \
                if (likely(t_)) {                                                 \
                        r_ = real.symbol args;                                    \
                        gate_leave(t_);                                           \
                        if (likely(r_ == CUDA_SUCCESS))                           \
                                return r_;                                        \
                }                                                                 \
                return gated_##symbol(r_, UNWRAP args);                           \
        }
#define CU_UNIFIED(symbol, submits_to, params, args)                   \
        DOOR(symbol, params)                                           \
        {                                                              \
                struct gate_thread *t_;                                \
                CUresult r_;                                           \
                                                                       \
                door_count(DOOR_##symbol);                             \
                if (unlikely(!IN_BOUNDS(symbol, args)))                \
                        return CUDA_ERROR_INVALID_VALUE;               \
                t_ = gate_look_begin();                                \
                r_ = HOOKS_SUBMIT(submits_to, WORK_OF(symbol, args),   \
                                  MEASURED(symbol, submits_to, args)); \
                gate_look_end(t_);                                     \
                return r_;                                             \
        }
#define CU_RETRY(symbol, submits_to, params, args)    \
        DOOR(symbol, params)                          \
        {                                             \
                door_count(DOOR_##symbol);            \
                gate_before_call();                   \
                return HOOKS_RETRY(real.symbol args); \
        }
#define CU_CUSTOM(symbol, submits_to, params, args) \
        DOOR(symbol, params)                        \
        {                                           \
                door_count(DOOR_##symbol);          \
                gate_before_call();                 \
                return hook_##symbol args;          \
        }
#define CU_PASS(symbol, submits_to, params, args)
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        CU_##behaviour(symbol, stream, params, args)
#include "cuda/cuda_api.def"

/* ---- the rows ---- */

static void *const door_wrappers[DOOR_COUNT] = {
#define CU_PASS(symbol)
#define CU_SUBMIT(symbol)                                               [DOOR_##symbol] = (void *)door_##symbol,
#define CU_UNIFIED(symbol)                                              [DOOR_##symbol] = (void *)door_##symbol,
#define CU_RETRY(symbol)                                                [DOOR_##symbol] = (void *)door_##symbol,
#define CU_CUSTOM(symbol)                                               [DOOR_##symbol] = (void *)door_##symbol,
#define CU(base, symbol, since, flags, behaviour, stream, params, args) CU_##behaviour(symbol)
#include "cuda/cuda_api.def"
};

void *doors_wrapper(enum door_row row)
{
        return door_wrappers[row];
}

void *doors_wrap(void *real_address)
{
        enum door_row row = rows_find_address(real_address);
        void *wrapper = row == DOOR_NONE ? NULL : door_wrappers[row];

        return wrapper ? wrapper : real_address;
}
