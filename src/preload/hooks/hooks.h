/* hooks.h: connects the doors (doors.c), through which calls reach us, with the gate, the heap and
 * the agent.
 *
 * doors.c generates one exported wrapper for each row of cuda_api.def, by the row's behaviour:
 *
 * SUBMIT: makes the real call through HOOKS_SUBMIT().
 *
 * UNIFIED: like SUBMIT, but gate_anybody_looks() also sees the call.
 *
 * RETRY: makes the real call through HOOKS_RETRY(), outside the gate.
 *
 * CUSTOM: calls hook_<symbol>(args), written by hand in the module that owns the subject.
 *
 * PASS: no wrapper. The table knows the function (for our own calls and the simulator), but it is
 * deliberately not intercepted. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "cuda/cuda_abi.h"
#include "preload/driver/hook.h"
#include "preload/freeze/freeze.h"
#include "preload/state/core.h"

/* The error for a program that must not run without sharing (require.h) when sharing is impossible.
 * PyTorch prints its text, "OS call failed". After CUDA_ERROR_NO_DEVICE PyTorch would silently
 * compute on the processor. */
#define HOOKS_MUST_SHARE CUDA_ERROR_OPERATING_SYSTEM

/* Requests room after a driver call of the program ran out of GPU memory. The driver does not say
 * how much it lacks, so each request makes the room of this call four times as large. *room: the
 * room that the call has; 0 at first. g: NULL if the GPU is not shared. True: repeat the call.
 * False: there is no more room, and all of it is returned. */
bool hooks_more_room(struct gpu *g, uint64_t *room);

/* The result of a call, which is repeated while the driver lacks memory and more room can be
 * had. */
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
/* The result of a call that is made inside the gate. pass: the result of gate_enter() or
 * gate_enter_or_end(). */
#define HOOKS_PASSED(pass, call)                            \
        ({                                                  \
                struct gate_thread *pass_ = (pass);         \
                CUresult of_call_;                          \
                                                            \
                if (unlikely(pass_ == &gate_interrupted)) { \
                        of_call_ = gate_refusal();          \
                } else {                                    \
                        of_call_ = (call);                  \
                        gate_leave(pass_);                  \
                }                                           \
                of_call_;                                   \
        })
/* The result of a call that passes the gate (gate.h). An interrupt may end its wait at the gate
 * with an error (interrupt.h). The call is repeated if it failed and the program's memory may have
 * moved in the middle of it, during a freeze (freeze.h). */
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
/* HOOKS_RETRY() around HOOKS_GATED(). Making room may take long and may have to wait for this
 * thread's own work, so it happens outside the gate. */
#define HOOKS_SUBMIT(stream, work, call) HOOKS_RETRY(HOOKS_GATED(stream, work, call))
/* Like quiesce_capture_forbids(), for callers that do not hold the lock. */
bool hooks_capture_forbids(void);

/* Returns the bytes of an element of an array; 1 if the driver does not know the array. */
size_t hooks_array_element(CUarray array);

/* Returns the wrapper of the driver function at an address that the real resolver returned; the
 * address itself if the function is not intercepted. */
void *doors_wrap(void *real_address);
