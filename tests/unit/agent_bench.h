/* agent_bench.h: runs the agent one round of its loop at a time, with a list of messages as the
 * daemon and a number as the clock. The agent's thread runs only during rounds(). */
#pragma once

#include "fakes/preload.h"
#include "preload/agent/agent_state.h"
#include "preload/state/core.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "wire/wire.h"

#define SENT_MOST 256u
#define BOX_MOST  32u
#define LEASE     UINT64_C(77)
#define INSTANCE  UINT64_C(4711)
#define FOR_EVER  (UINT64_MAX / 2)

static struct gpu *const gpu = &core.gpus[0];
extern struct extent *extent; /* first extent of the heap's only block */

extern uint64_t now_ns, slept_ns; /* slept_ns: timeout of the agent's last sleep */
extern struct wire_message sent[SENT_MOST], box[BOX_MOST]; /* messages to and from the daemon */
extern int box_fds[BOX_MOST];
extern unsigned sent_count, sent_fds, box_first, box_count;
extern int connects, sends; /* results of the next connection attempts and of the next sends */
extern const char *refuses; /* link_refused() */
extern unsigned send_tries; /* failing sends before one succeeds; 0: all fail */
extern bool breaks;         /* the next read finds the connection lost */

/* The state of the program that the agent finds, and the steps that it asked for. */
extern bool submits_at_last, steps_evict, steps_restore;
extern uint64_t bound_now;
extern enum swap_progress step_now;
extern enum swap_progress (*steps)(bool may_evict, bool restore); /* NULL: returns step_now */
extern void (*while_it_begins)(void); /* called once, in the next quiesce_begin() */
extern struct quiesce_wait *last_wait;

/* Answers of the fake modules, and counts of the calls that they got. */
extern struct beside {
        enum own_drain torture;
        bool torture_drains; /* torture began the drain */
        bool overflow_holds, overflow_moves, overflow_drains;
        bool poisoned, others_speak, caches_hold, transfers;
        uint64_t pool_ns, unevictable_ns, torture_ns, overflow_ns; /* when due; UINT64_MAX: never */
        const char *hidden;
        int thread_fails;

        unsigned ipc_told, ipc_forgotten, torture_evicted, torture_restored, torture_cancelled;
        unsigned overflow_cancelled, steps, rests, pins, unpins, let_go, unpinned, audit_last;
        unsigned ipc_connected, ipc_disconnected, ipc_refused;
        uint64_t arena;
        bool may_evict; /* argument of the last call of caches_hold() */
} beside;

void rounds(unsigned n);
bool is_kicked(void);
/* Plays one round; fails if nothing has woken the agent. */
void woken(void);
void one_round(const struct core_wait *w);
struct wire_message *tell(unsigned type);
/* Returns the last message of a type that was sent since forget_sent(); NULL: there was none. */
const struct wire_message *said(unsigned type);
unsigned times_said(unsigned type);
void forget_sent(void);
void wake(void);
/* Lets a thread pass the gate of a client that was reported idle. */
void submits(void);
/* Asks which process is in the way, as a thread does that has waited long. */
void ask_holder(void);
void put(enum extent_state state);
void want_to_run(unsigned waiters);
void limit(uint64_t commit, uint64_t backed, uint64_t unevictable, uint32_t sequence);
void grant(void);
void end_turn(uint64_t lease);
void welcome(void);
void attached(void);
/* Begins with a program that waits for a turn: none of its 32 MiB is on the card. */
void begin_attached(void);
void begin_running(void);
int begin_agent(void **state);
int end_agent(void **state);

#define AGENT_TEST(name) cmocka_unit_test_setup_teardown(name, begin_agent, end_agent)
