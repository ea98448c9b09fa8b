/* hooks.h: between the doors (doors.c: how calls reach us) and what is done with them (gate, heap,
 * agent).
 *
 * doors.c generates one exported wrapper for each row of cuda_api.def by its behaviour:
 *
 * SUBMIT: HOOKS_SUBMIT() of the real call.
 *
 * UNIFIED: the same, seen by gate_anybody_looks().
 *
 * RETRY: HOOKS_RETRY() of it: not gated.
 *
 * CUSTOM: hook_<symbol>(args), written by hand in the module that owns the matter.
 *
 * PASS: not exported: known to the table (for our own calls and the simulator), deliberately not
 * caught. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "cuda/cuda_abi.h"
#include "preload/driver/hook.h"
#include "preload/freeze/freeze.h"
#include "preload/state/core.h"

/* A driver call of the program's ran out of memory of the GPU (NULL: a GPU that is not shared), and
 * the driver does not say how much it lacks. Asks for room, each time for four times as much as
 * this call has had so far (*room; 0 at first). True: worth repeating the call. False: there is no
 * more room, and all of it goes back. */
bool hooks_more_room(struct gpu *g, uint64_t *room);

/* The result of a call, repeated while the driver lacks memory and more room can be had. */
#define HOOKS_RETRY_ON(gpu, call)                                       \
        ({                                                              \
                uint64_t room_ = 0;                                     \
                CUresult result_;                                       \
                                                                        \
                do                                                      \
                        result_ = (call);                               \
                while (unlikely(result_ == CUDA_ERROR_OUT_OF_MEMORY) && \
                       hooks_more_room(gpu, &room_));                   \
                result_;                                                \
        })
#define HOOKS_RETRY(call) HOOKS_RETRY_ON(core_current_gpu(), call)
/* The result of a call in which the thread has passed the gate. */
#define HOOKS_PASSED(pass, call)                                 \
        ({                                                       \
                struct gate_thread *pass_ = (pass);              \
                CUresult of_call_ = CUDA_ERROR_OPERATING_SYSTEM; \
                                                                 \
                if (likely(pass_ != &gate_interrupted)) {        \
                        of_call_ = (call);                       \
                        gate_leave(pass_);                       \
                }                                                \
                of_call_;                                        \
        })
/* The result of a call through the gate (gate.h), where the wait may end with an error
 * (interrupt.h). The call is repeated if the program was frozen in the middle of it and its memory
 * moved (freeze.h). */
#define HOOKS_GATED(stream, work, call)                                                         \
        ({                                                                                      \
                bool again_ = false;                                                            \
                CUresult gated_;                                                                \
                                                                                                \
                do                                                                              \
                        gated_ = HOOKS_PASSED(gate_enter_or_end((stream), (work)), call);       \
                while (unlikely(gated_ != CUDA_SUCCESS) && freeze_call_again(gated_, &again_)); \
                gated_;                                                                         \
        })
/* Both. Making room may take long and may need this very thread's work drained, so it happens
 * outside the gate. */
#define HOOKS_SUBMIT(stream, work, call) HOOKS_RETRY(HOOKS_GATED(stream, work, call))
/* quiesce_capture_forbids(), without the lock. */
bool hooks_capture_forbids(void);

/* The wrapper of the driver function at an address that the real resolver returned; the address
 * itself if the function is not caught. */
void *doors_wrap(void *real_address);
