/* sched_bench.h: drives the scheduler one event at a time and records its actions.
 *
 * A card has 1000 MiB: 30 MiB headroom, 50 MiB budget for unevictable bytes, 920 MiB visible, 970
 * MiB usable. No client answers on its own: the test makes each client act. */
#pragma once

#include "unit.h"

#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"
#include "sched/sched.h"

#define BENCH_CLIENTS 8

/* A client: the state that it reports, and the last messages that it received. */
struct tenant {
        sched_client id;
        uint64_t allocated[2], backed[2], unevictable[2];
        uint64_t commit[2], limit[2], unevictable_allowed[2], exported[2];
        uint64_t moved_out, arena; /* on each card that the client reports */
        uint32_t sequence[2];
        uint64_t lease;
        bool revoked, overdue;
        bool spare_asked; /* the client has received SPARE */
        enum sched_throttle throttle;
        uint64_t slice_ns;
        bool prompt; /* the last PROMPT */
        bool preempted;
        bool waits; /* the client gave way because its work waits for others */
        bool stays; /* the client reports that none of its memory can be evicted */
        uint64_t patience_ns;
        int refused; /* code of the last refusal */
        uint32_t refused_of;
};

struct bench {
        struct sched *s;
        uint64_t now_ns;
        unsigned gpus;
        struct tenant t[BENCH_CLIENTS];
        unsigned tenants;
        unsigned actions; /* number of actions of the last event */
};

#define FIXED_QUANTUM_NS NSEC_PER_SEC

/* Create a bench with mode auto, a quantum of a second, and room in host memory. change, if not
 * NULL, adapts the configuration. */
struct bench *bench_new(void (*change)(struct sched_config *c));
struct bench *bench_of(uint64_t card_bytes, void (*change)(struct sched_config *c));
void bench_free(struct bench *b);

/* Each of these functions is one event; the tenants record the actions that follow. */
struct tenant *join(struct bench *b, int priority);
void attach(struct bench *b, struct tenant *t, unsigned gpu, const struct sched_attach *a);
void usage_as_of(struct bench *b, struct tenant *t, unsigned gpu, uint32_t limit_sequence);
void usage(struct bench *b, struct tenant *t); /* for GPU 0, acknowledging the last limit */
void want(struct bench *b, struct tenant *t, const struct sched_request *w);
void want_run(struct bench *b, struct tenant *t, uint64_t need);
void request_commit_of(struct bench *b, struct tenant *t, uint64_t commit);
void request_unevictable_of(struct bench *b, struct tenant *t, uint64_t unevictable);
void export(struct bench *b, struct tenant *t, uint64_t bytes); /* as message number 77 */
void idle(struct bench *b, struct tenant *t, bool idle_now);
void drained(struct bench *b, struct tenant *t);
void drain_failed(struct bench *b, struct tenant *t);
void stands(struct bench *b, struct tenant *t, bool stands_now);
int evict(struct bench *b, struct tenant *t); /* returns what the scheduler does */
int set_alone(struct bench *b, struct tenant *t, bool alone_now);
void set_mps(struct bench *b, struct tenant *t, bool mps);
void set_preemptible(struct bench *b, struct tenant *t, bool yes);
void lost(struct bench *b, struct tenant *t);
void gone(struct bench *b, struct tenant *t);
void foreign(struct bench *b, uint64_t bytes);
void yield_to(struct bench *b, uint64_t bytes);
void tick_at(struct bench *b, uint64_t now_ns);
void pass(struct bench *b, uint64_t ns); /* lets time pass, with every tick that is due */
/* Lets time pass until t is asked to give way, at most 100 s. */
void await_revoke(struct bench *b, struct tenant *t);

/* Each of these functions is several events, as an ordinary client sends them. */
void evict_to(struct bench *b, struct tenant *t, uint64_t backed); /* acknowledges, then reports */
void restore(struct bench *b, struct tenant *t); /* backs all that the limit allows, then reports */
/* Adds a running tenant with so many bytes, all resident. The card must have the room. */
struct tenant *runner(struct bench *b, int priority, uint64_t bytes);
/* Adds a tenant with so many bytes, none of them resident, that asks to run. */
struct tenant *asks_to_run(struct bench *b, uint64_t bytes);
/* Adds a tenant that attaches with so many bytes, none of them resident, and asks to run. */
struct tenant *comes_to_run(struct bench *b, struct sched_origin origin, int priority,
                            uint64_t bytes);

enum sched_state state_of(struct bench *b, const struct tenant *t);
unsigned flags_of(struct bench *b, const struct tenant *t);
uint64_t charged(struct bench *b);
