/* agent_state.h: shared by agent.c (the thread, the course of a drain, idleness), agent_talk.c (the
 * conversation with the daemon), agent_hello.c, agent_holder.c, agent_freeze.c, agent_self.c,
 * agent_slice.c, and parts that begin drains of their own (part.h). core_lock is held in all
 * functions. */
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

#define TICK_NS        (50 * NSEC_PER_MSEC) /* how often an active client is checked for idleness */
#define PROMPT_TICK_NS NSEC_PER_MSEC        /* the same while others wait for the GPU's time */
#define RANK_TICK_NS   (10 * NSEC_PER_MSEC) /* how often a rank is checked for idleness */
/* A rank whose work waits for others is idle when nothing has happened for so long: longer than
 * most kernels take, and not longer than most hand-offs. */
#define WAITS_NS      (2 * RANK_TICK_NS)
#define WAITS_MOST_NS (64 * WAITS_NS)
#define WAITS_AWAY    25u /* the rank stays away for this many times waits_ns */

struct agent_state {
        _Atomic bool started;
        char where[128]; /* where the daemon listens */
        uint64_t retry_ns, backoff_ns, down_since_ns;
        bool tried, refusal_said;
        bool refused; /* a system call was refused, and the program must not run without sharing */
        enum wire_freeze freeze_most; /* the most that the daemon allows */
        uint64_t bound_ns;            /* the throttle's limit, from the last ATTACHED */
        bool prompt;                  /* others stand still while this program works */
        uint64_t contested_ns, /* the throttle's limit while clients wait; 0: no client waits */
                throttle_ns;   /* the throttle's limit now */

        bool revoking;     /* a drain is in progress */
        bool freezes;      /* in this drain, freeze the program instead if possible */
        bool paused;       /* the owner has paused the program */
        bool in_use;       /* the program has run since its last drain */
        uint64_t stood_ns; /* when the pause took effect on the GPU; 0: not yet */
        bool unfinished;   /* the program is stopped with work in flight */
        uint64_t revoked_ns, patience_ns, progress_ns;
        uint64_t freeze_ns; /* the earliest time of the next try to freeze the program */
        bool drain_begun;
        struct quiesce_wait drain;
        uint64_t drain_progress, last_drain_ns;

        bool idle,          /* no work is in flight */
                idle_said;  /* the daemon knows that no work is in flight */
        bool idle_probe_on; /* a wait for quiescence is in progress */
        struct quiesce_wait probe;
        uint64_t seen_submissions; /* gate_submissions() at the last tick */
        uint64_t seen_progress;    /* probe.progress at the last tick */
        unsigned seen_wait;        /* front_waits() at the last tick */
        uint64_t tick_ns;

        bool waits;        /* idle or away, because the program's work waits for other ranks */
        uint64_t still_ns, /* since when nothing has happened */
                waits_ns,  /* how long nothing must happen before the rank counts as idle */
                return_ns; /* when the rank asks for a turn although the wait goes on */
        bool takes_turns;  /* this rank can be frozen, so it need not fit beside the others */

        uint64_t tell_ns;       /* when the next report is due; UINT64_MAX: none is due */
        uint64_t frozen_said;   /* the last FROZEN message, as a number; 0: none */
        uint64_t ran_ns,        /* how long the process was busy in its turns */
                busy_since_ns;  /* begin of the present busy time; 0: not busy */
        uint64_t ran_before_ns; /* ran_ns when the client connected */
        uint64_t host_held_said, host_requested_said;
        uint32_t host_sequence; /* sequence number of the last HOST */
};

extern struct agent_state agent;

/* Returns the time until an active client is checked for idleness. */
uint64_t agent_tick(void);
/* Send a message about the lease: IDLE, ACTIVE or DRAINED. */
void agent_send_lease(unsigned type) REQUIRES(core_lock);
void agent_send_attach(struct gpu *g) REQUIRES(core_lock);
/* There is no daemon for this GPU: the library sets no limit, as on the plain driver. */
void agent_gpu_alone(struct gpu *g) REQUIRES(core_lock);

/* Calls agent_begin() with the function of the agent's own thread. */
bool agent_start(void);

/* ---- agent_start.c ---- */
/* Start the agent's thread, once. False: a system call was refused, and a message has said so. The
 * library is then passive, unless the program must not run without sharing (require.h). */
bool agent_begin(void *(*thread)(void *));
/* link_connect() has failed with this -errno. True: this process may not make a system call that
 * connecting needs, no daemon has answered yet, and the program must not run without sharing. A
 * message has said so, and threads in agent_attach() return. */
bool agent_refused(int error) REQUIRES(core_lock);
/* No daemon answers, for this reason, and the program must not run without sharing. It waits for a
 * daemon if it had one, or if require_daemon() is true. Otherwise it has a memory cap, which only a
 * daemon keeps: the calls that make contexts fail. */
void agent_refuse_alone(const char *why) REQUIRES(core_lock);

/* Functions of agent_slice.c. */
/* ns: how long the GPU is to run the program before another one; 0: as long as the driver says. */
void agent_set_slice(uint64_t ns) REQUIRES(core_lock);
void agent_on_slice(const struct wire_message *m, struct gpu *g, struct passed *came)
        REQUIRES(core_lock);
void agent_on_hand(const struct wire_message *m, struct gpu *g, struct passed *came)
        REQUIRES(core_lock);
void agent_on_prompt(const struct wire_message *m, struct gpu *g, struct passed *came)
        REQUIRES(core_lock);
void agent_look_at_slice(uint64_t now) REQUIRES(core_lock);

/* Functions of agent_hello.c. */
void agent_hello(void);
/* Sends what the user has set for this program, before the first ATTACH. */
void agent_claim(void);

/* Functions of agent_holder.c: what is in the way. */
/* Asks the daemon what is in the way of a thread that has waited long. */
void agent_ask_holder(void) REQUIRES(core_lock);
/* Turns the answer into core.holder.text. */
void agent_on_holder(const struct wire_message *m, struct gpu *g, struct passed *came)
        REQUIRES(core_lock);

/* Functions of agent_self.c. */
void agent_self_count(uint64_t now) REQUIRES(core_lock); /* counts the time since the last call */
void agent_self_connected(void);
void agent_self_spared(struct gpu *g)
        REQUIRES(core_lock); /* call it before the USAGE of the same moment */
void agent_self_tell(struct gpu *g) REQUIRES(core_lock);
void agent_self_frozen(void) REQUIRES(core_lock);

/* Returns a random number, for times that must differ between processes. */
uint32_t agent_random(void);

/* Try to connect to the daemon. */
void agent_connect(void) UNLOCKS(core_lock);
/* Handle all messages that the daemon has sent. */
void agent_listen(void) REQUIRES(core_lock);
/* Report all changes since the last report. */
void agent_tell(void) REQUIRES(core_lock);
/* Shut the gate and wait for the work in flight, but no longer than patience_ns without progress.
 * freezes: freeze the program instead, if possible. */
void agent_begin_drain(uint64_t patience_ns, bool freezes) REQUIRES(core_lock);
/* Call the drain off, and open the gate again unless the program is paused. */
void agent_end_drain(void) REQUIRES(core_lock);
/* Let a drained or frozen program go on; no other function does. All its memory must be back. */
void agent_go_on(void) REQUIRES(core_lock);
/* Returns the kind of drain that a part of the library has begun (part.h), or OWN_NONE. */
enum own_drain agent_own_drain(void);
/* End the drains that parts of the library have begun: the daemon decides from now on. */
void agent_cancel_own(void);
/* True if the program waits for a lease, or is frozen in the middle of its work. False while it is
 * away and its work waits for other ranks. */
bool agent_wants_to_run(void) REQUIRES(core_lock);

/* agent_notice.c: tells the program's user of a long wait for its turn, and of the wait's end.
 * Returns when to call again if nothing changes. */
uint64_t agent_notice(uint64_t now_ns) REQUIRES(core_lock);
/* True if a new program that cannot connect, with this -errno, waits nevertheless: the machine's
 * daemon is gone, and may be starting again. */
bool agent_awaits(int r) REQUIRES(core_lock);
/* Log once that the program runs without sharing, because of this error. */
void agent_tell_alone(const char *why) REQUIRES(core_lock);

/* ---- agent_freeze.c ---- */
/* Freeze the program for a drain. True: it is frozen, and its memory may leave. False: it has to be
 * drained, or the drain was called off. */
bool agent_stand_still(void) UNLOCKS(core_lock);
/* Call it when no memory will leave while the program is frozen, or when all is back: calls in
 * captures may pass, and memory that was freed in stream order need not be kept. */
void agent_memory_stays(void) REQUIRES(core_lock);
/* The owner has paused or resumed the program. */
void agent_pause(bool paused) REQUIRES(core_lock);
/* A paused program is held at the gate. If it ran, its work in flight is frozen as soon as
 * possible. Otherwise nothing is in flight, and the program's own context may have to move its
 * memory. True: call again soon. */
bool agent_pause_step(void) UNLOCKS(core_lock);
/* Prepares freezing while the program runs. True: call again soon. */
bool agent_freeze_step(void) UNLOCKS(core_lock);
/* agent_holds_spare(): some of our unevictable bytes are the mover's. agent_wants_spare(): bytes
 * are being requested for it. */
bool agent_holds_spare(const struct gpu *g) REQUIRES(core_lock);
bool agent_wants_spare(const struct gpu *g) REQUIRES(core_lock);
void agent_mover_unwanted(struct gpu *g)
        REQUIRES(core_lock); /* other programs need the mover's room */
/* True if a turn ends by freezing, not by a drain. */
bool agent_freezes(void);
/* Set the throttle's limit: the limit for a contested GPU, or none if the program can be frozen. */
void agent_throttle(void);
/* True if no memory is evicted or on its way. */
bool agent_all_is_back(void);
