/* doors.c: owns the exported driver functions and the ways to find one: by name, by address.
 * Everything here is generated from cuda_api.def. Must never allocate; what a call means is decided
 * elsewhere (hooks.h). */
#include "preload/entry/doors.h"

#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "cuda/cuda_versions.h"
#include "preload/entry/door_count.h"
#include "preload/extra/measure.h"
#include "preload/stream/gate.h"

/* ---- the functions themselves ----
 *
 * Each door is a local function with an exported second name, so that the addresses we hand out are
 * ours even if another preloaded library exports the same name. */

#define DOOR(symbol, params)                                                    \
        static CUresult door_##symbol params;                                   \
        extern __typeof__(door_##symbol) symbol                                 \
                __attribute__((alias("door_" #symbol), visibility("default"))); \
        static CUresult door_##symbol params

/* Returns a name for the kind of work (gate_work()). Calls have the same name if they launch the
 * same kernel with about as many blocks, launch the same graph, or are the same call with about as
 * many bytes. */
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
                 : measure_cooperative, TYPE_OF(cuLaunchKernelEx)             \
                 : measure_launch, TYPE_OF(cuGraphLaunch)                     \
                 : measure_graph, TYPE_OF(cuGraphInstantiateWithFlags)        \
                 : measure_instantiate, TYPE_OF(cuGraphInstantiateWithParams) \
                 : measure_instantiate_params, TYPE_OF(cuGraphInstantiate)    \
                 : measure_instantiate_log, TYPE_OF(cuMemcpyHtoD_v2)          \
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

/* Usually a call sets the thread's mark, loads the gate's bits and clears the mark. All else is in
 * functions of its own: their registers would otherwise be saved and set up on each call. failed_:
 * the error that the driver has already returned; 0: the driver was not called, so the function
 * does what HOOKS_SUBMIT() does. */
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
                struct gate_thread *t_ = gate_try(submits_to);                    \
                CUresult r_ = CUDA_SUCCESS;                                       \
                                                                                  \
                door_count(DOOR_##symbol);                                        \
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
                struct gate_thread *t_ = gate_look_begin();            \
                CUresult r_;                                           \
                                                                       \
                door_count(DOOR_##symbol);                             \
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
#undef CU
#undef CU_PASS
#undef CU_SUBMIT
#undef CU_UNIFIED
#undef CU_RETRY
#undef CU_CUSTOM

/* ---- the rows ---- */

static void *const door_wrappers[DOOR_COUNT] = {
#define CU_PASS(symbol)
#define CU_SUBMIT(symbol)                                               [DOOR_##symbol] = (void *)door_##symbol,
#define CU_UNIFIED(symbol)                                              [DOOR_##symbol] = (void *)door_##symbol,
#define CU_RETRY(symbol)                                                [DOOR_##symbol] = (void *)door_##symbol,
#define CU_CUSTOM(symbol)                                               [DOOR_##symbol] = (void *)door_##symbol,
#define CU(base, symbol, since, flags, behaviour, stream, params, args) CU_##behaviour(symbol)
#include "cuda/cuda_api.def"
#undef CU
#undef CU_PASS
#undef CU_SUBMIT
#undef CU_UNIFIED
#undef CU_RETRY
#undef CU_CUSTOM
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
