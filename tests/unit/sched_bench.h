/* sched_bench.h: the scheduler on a bench: one event at a time, and what it asked for.
 *
 * Cards of 1000 MiB: 30 MiB headroom, 50 MiB budget for unevictable bytes, 920 MiB visible, 970 MiB
 * usable. Nobody answers by himself: a test says what each client does. */
#pragma once

#include "unit.h"

#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"
#include "sched/sched.h"

#define BENCH_CLIENTS 8

/* What a client was told last, and what it says of itself. */
struct tenant {
        sched_client id;
        uint64_t allocated[2], backed[2], unevictable[2];
        uint64_t commit[2], limit[2], unevictable_allowed[2], exported[2];
        uint32_t sequence[2];
        uint64_t lease;
        bool revoked, overdue;
        bool spare_asked; /* it was asked for what it can do without */
        enum sched_bound bound;
        bool stays; /* it says that nothing of it can leave */
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
        unsigned actions; /* of the last event */
};

#define FIXED_QUANTUM_NS NSEC_PER_SEC

/* Mode auto, a quantum of a second, room in host memory. change may adapt it; NULL. */
struct bench *bench_new(void (*change)(struct sched_config *c));
struct bench *bench_of(uint64_t card_bytes, void (*change)(struct sched_config *c));
void bench_free(struct bench *b);

/* Each of these is one event; what follows from it is noted at the tenants. */
struct tenant *join(struct bench *b, int priority);
void attach(struct bench *b, struct tenant *t, unsigned gpu, const struct sched_attach *a);
void usage_as_of(struct bench *b, struct tenant *t, unsigned gpu, uint32_t limit_sequence);
void usage(struct bench *b, struct tenant *t); /* of GPU 0, with the acknowledgement */
void want(struct bench *b, struct tenant *t, const struct sched_request *w);
void want_run(struct bench *b, struct tenant *t, uint64_t need);
void request_commit_of(struct bench *b, struct tenant *t, uint64_t commit);
void request_unevictable_of(struct bench *b, struct tenant *t, uint64_t unevictable);
void export(struct bench *b, struct tenant *t, uint64_t bytes); /* as message number 77 */
void idle(struct bench *b, struct tenant *t, bool idle_now);
void drained(struct bench *b, struct tenant *t);
void drain_failed(struct bench *b, struct tenant *t);
void stands(struct bench *b, struct tenant *t, bool stands_now);
void lost(struct bench *b, struct tenant *t);
void gone(struct bench *b, struct tenant *t);
void foreign(struct bench *b, uint64_t bytes);
void yield_to(struct bench *b, uint64_t bytes);
void tick_at(struct bench *b, uint64_t now_ns);
void pass(struct bench *b, uint64_t ns); /* let time go by, with every tick that is due */

/* Several of them, done the ordinary way. */
void evict_to(struct bench *b, struct tenant *t, uint64_t backed); /* acknowledge, then report */
void restore(struct bench *b, struct tenant *t); /* back all that the limit allows, and report */
/* A tenant that holds so many bytes, all resident, and runs. The card must have the room. */
struct tenant *runner(struct bench *b, int priority, uint64_t bytes);

enum sched_state state_of(struct bench *b, const struct tenant *t);
unsigned flags_of(struct bench *b, const struct tenant *t);
uint64_t charged(struct bench *b);
