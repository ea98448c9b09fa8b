/* agent_state.h: what agent.c (the thread, the course of a drain, idleness), agent_talk.c (the
 * conversation with the daemon), agent_freeze.c, agent_self.c, and parts that begin drains of their
 * own (part.h) share. core_lock is held for all of it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "preload/state/core.h"
#include "preload/state/daemon.h"
#include "preload/state/part.h"
#include "preload/state/request.h"
#include "preload/stream/quiesce.h"
#include "wire/wire.h"

#define TICK_NS (50 * NSEC_PER_MSEC) /* how often an active client is checked for idleness */

struct agent_state {
        _Atomic bool started;
        char where[128]; /* the daemon */
        uint64_t retry_ns, backoff_ns, down_since_ns;
        bool tried, refusal_said;
        enum wire_freeze freeze_most;       /* the daemon allows no more */
        uint64_t bound_ns;                  /* from the last ATTACHED: one value for all GPUs */
        uint64_t contested_ns, throttle_ns; /* of work in flight: the bound that waiting clients
                                               allow, and the one in force */

        bool revoking; /* a drain is on */
        bool freezes;  /* ... for which the program is frozen instead of drained, if possible */
        bool paused;   /* the owner has said so */
        bool in_use; /* it has run since its work was last seen to end, or to be blocked for good */
        uint64_t stood_ns; /* since when it stands still on the GPU because of that; 0: not yet */
        bool unfinished;   /* it stands still with work of its own in flight */
        uint64_t revoked_ns, patience_ns, progress_ns;
        bool drain_begun;
        struct quiesce_wait drain;
        uint64_t drain_progress, last_drain_ns;

        bool idle, idle_said; /* nothing in flight; the daemon knows it */
        bool idle_probe_on;   /* a wait for quiescence is in progress */
        struct quiesce_wait probe;
        uint64_t seen_submissions; /* at the last tick */
        uint64_t tick_ns;

        uint64_t need_said[GPUS_MAX];
        uint64_t request_ns[GPUS_MAX];    /* when a REQUEST was last sent */
        uint64_t usage_ns[GPUS_MAX];      /* when figures were last sent, */
        uint32_t sequence_said[GPUS_MAX]; /* and which LIMIT they acknowledged */
        uint64_t tell_ns; /* when the next report is due; UINT64_MAX: no report is */
        bool run_said[GPUS_MAX];
        uint64_t managed_said[GPUS_MAX];
        uint64_t spared_said[GPUS_MAX]; /* both ways together */
        uint64_t overflow_said[GPUS_MAX];
        uint32_t mode_said[GPUS_MAX];   /* 0: not on this connection */
        uint64_t frozen_said;           /* the last FROZEN message, in short; 0: none */
        uint64_t ran_ns, busy_since_ns; /* had a turn and was busy; 0: is not busy now */
        uint64_t ran_before_ns;         /* when it connected */
        uint64_t host_held_said, host_requested_said;
        uint32_t host_sequence; /* of the last HOST */
        uint64_t short_ns[GPUS_MAX];
};

extern struct agent_state agent;

/* IDLE, ACTIVE, DRAINED: about the lease. */
void agent_send_lease(unsigned type) REQUIRES(core_lock);
void agent_send_attach(struct gpu *g) REQUIRES(core_lock);
/* There is no daemon for this GPU: all of it is the limit, as on the plain driver. */
void agent_gpu_alone(struct gpu *g) REQUIRES(core_lock);

/* The thread, once. 0, or -errno: none; the library then stays passive. */
int agent_start(void);

/* agent_self.c */
void agent_self_count(uint64_t now) REQUIRES(core_lock); /* the time since the last call */
void agent_self_connected(void);
void agent_self_attached(const struct gpu *g);
void agent_self_spared(const struct gpu *g)
        REQUIRES(core_lock); /* before the USAGE of the same moment */
void agent_self_tell(const struct gpu *g);
void agent_self_frozen(void) REQUIRES(core_lock);

/* For spans of time that must differ between processes. */
uint32_t agent_random(void);

/* Look for the daemon. */
void agent_connect(void) UNLOCKS(core_lock);
/* Handle all messages that the daemon has sent. */
void agent_listen(void) REQUIRES(core_lock);
/* Report all changes since the last report. */
void agent_tell(void) REQUIRES(core_lock);
/* Shut the gate and wait for the work in flight, but no longer than patience_ns without progress.
 * freezes: freeze the program instead, if possible. */
void agent_begin_drain(uint64_t patience_ns, bool freezes) REQUIRES(core_lock);
/* Call it off: open the gate again. */
void agent_end_drain(void) REQUIRES(core_lock);
/* The only way on for a program that was stopped, whether drained or frozen: all its memory is
 * back. */
void agent_go_on(void) REQUIRES(core_lock);
/* The part of the library that has begun a drain of its own (part.h), or none. */
enum own_drain agent_own_drain(void);
/* The daemon has taken over: its orders hold. */
void agent_cancel_own(void);
/* It waits for a lease, or is frozen in the middle of its work. */
bool agent_wants_to_run(void) REQUIRES(core_lock);

/* ---- agent_freeze.c ---- */
/* Freeze the program for a drain. True: it is frozen, and its memory may leave. False: it has to be
 * drained, or the drain was called off. */
bool agent_stand_still(void) UNLOCKS(core_lock);
/* No memory will leave under the program any more, or all is back: calls in captures may pass, and
 * memory that it freed in stream order need not be kept. */
void agent_memory_stays(void) REQUIRES(core_lock);
/* An order of the owner. */
void agent_pause(bool paused) REQUIRES(core_lock);
/* A paused program is held at the gate. If it ran, its work in flight is frozen as soon as
 * possible. Otherwise nothing is in flight, and its memory may have to be moved by its own context.
 * True: call again soon. */
bool agent_pause_step(void) UNLOCKS(core_lock);
/* Prepares freezing while the program runs. True: call again soon. */
bool agent_freeze_step(void) UNLOCKS(core_lock);
/* Whether some of its unevictable bytes are the mover's, or requested for it. */
bool agent_holds_spare(const struct gpu *g) REQUIRES(core_lock);
bool agent_wants_spare(const struct gpu *g) REQUIRES(core_lock);
void agent_mover_unwanted(struct gpu *g) REQUIRES(core_lock); /* others need its room */
/* Set how much work may be in flight. */
void agent_throttle(void);
/* No memory is evicted or on its way. */
bool agent_all_is_back(void);
