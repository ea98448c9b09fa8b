/* preload.h: fakes of the modules of src/preload and of base/host.h, for tests of one module alone.
 *
 * One file for each module (core.c, request.c, …), with its functions in as little code as works.
 * All are weak: a test defines a function itself where it needs other behaviour. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/process/mode.h"
#include "preload/state/core.h"
#include "preload/stream/quiesce.h"

/* core.c: a fake notes a fault, which fails the test. A test whose faults arise in another thread
 * defines this function. */
void is_wrong(const char *what);
/* core.c: check core_lock; give_up_lock() gives it up for a moment, as the real function may. */
void want_lock(void);
void want_no_lock(void);
void give_up_lock(void);
/* core.c: core_wait() releases the lock for a call of this function; NULL: the test expects no
 * wait. Only a ring of the bell ends a wait without a limit, so the function must ring. */
extern void (*meanwhile)(const struct core_wait *w);
/* core.c: number of calls of core_setup(), core_attach() and core_room_changed(). */
extern unsigned core_setups, core_attaches, room_changes;
/* core.c: unshared: core_attach() finds no GPU. current_gpu: the result of core_current_gpu(). */
extern bool unshared;
/* must_share: the program may use no GPU that core_attach() does not find. agent.c: may_start: what
 * agent_may_start() returns. */
extern bool must_share, may_start;
extern struct gpu *current_gpu;

/* agent.c: drains; a drain may freeze the program if and only if `freeze` is set. */
extern struct drains {
        bool freeze;
        unsigned begun, ended;
        uint64_t patience_ns; /* that of the last drain */
} own_drains;
/* front.c: there is a library in front; work in flight waits for another rank. */
extern bool fake_front, fake_front_waits;
/* gate.c: anybody_inside: a thread is in the driver. gates: threads that passed the slow way. */
extern bool anybody_inside;
extern unsigned gates, default_streams;
extern uint64_t submissions;
/* gate.c: the function passed to gate_own(). */
extern void (*fake_gate_owner)(uint64_t work);
/* hooks.c: number of times that there is more room. */
extern unsigned more_rooms;
/* host.c: bytes that the host has free. */
extern uint64_t host_room, host_total;
extern bool no_host_figures;
/* ipc.c: no process can share memory with this one. */
extern bool no_ipc;
/* libc.c: the error of each thread that is to start, and the number of threads that did. */
extern int thread_error;
extern unsigned threads_started;
/* mode.c: the result of mode_memory(). */
extern enum memory_mode fake_mode;
/* quiesce.c: fake_capturing: a capture is in progress; fake_captured: in this stream. */
extern bool fake_capturing;
extern CUstream fake_captured;
/* quiesce.c: number of calls of quiesce_begin(), result of quiesce_poll() outside captures. */
extern unsigned quiesce_begins;
extern enum quiescence quiesce_now;
/* quiesce.c: called in quiesce_wait_all(), with the lock held. */
extern void (*while_it_drains)(void);
/* quiesce.c, throttle.c: the thread whose end was told last. */
extern const struct gate_thread *ended_thread, *_Atomic forgotten_thread;
/* request.c: number of calls of request_kick(), request_released() and request_unevictable(). */
extern _Atomic unsigned request_kicks;
extern unsigned request_releases, unevictable_asks;
/* request.c: bytes that may be unevictable, and what another thread does meanwhile. */
extern uint64_t unevictable_room;
extern void (*while_it_asks)(void);
/* request.c: the answers to request_room(). */
extern uint64_t daemon_room, daemon_host;
/* room.c: bytes that a GPU may take. */
extern uint64_t gpu_room;
/* swap.c: back_answer: result of swap_back_block(). discarded: calls of swap_discard(). */
extern int back_answer;
extern unsigned discarded;
void account_back(struct gpu *g, struct extent *e);
void account_unback(struct gpu *g, struct extent *e);
/* throttle.c: number of times that work is refused, and of calls of throttle_wait(). */
extern unsigned bound_refuses, bound_waits;
/* trace.c: trace_last is the last event, trace_count() the number of events of a name. */
struct trace_seen {
        const char *event;
        uint64_t bytes;
};
extern struct trace_seen trace_last;
unsigned trace_count(const char *event);
void trace_reset(void);
