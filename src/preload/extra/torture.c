/* torture.c: owns the choice of when to torture and the course of it. Must never move memory by
 * itself: drain, eviction and restore are the agent's own.
 * Why: docs/decisions.md, "Torture uses the paths of hand-offs". */
#include "preload/extra/torture.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/splitmix.h"
#include "base/units.h"
#include "base/settings.h"
#include "preload/agent/agent_state.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"
#include "preload/stream/quiesce.h"
#include "preload/process/trace.h"
#include "preload/state/request.h"
#include "preload/state/daemon.h"

#define CALLS     100u
#define EVERY_NS  (20 * NSEC_PER_MSEC)
#define DRAIN_MIN (20 * NSEC_PER_MSEC) /* least patience of our drains */
#define DRAIN_VAR (80 * NSEC_PER_MSEC) /* random part of the patience */

enum phase { REST, DRAINS, EVICTS, RESTORES };

static struct {
        uint64_t seed, calls, every_ns;
        _Atomic uint64_t threads;

        /* under core_lock */
        uint64_t random; /* the agent's random state */
        bool asked;      /* a thread waits for torture */
        enum phase phase;
        uint64_t began_ns, next_ns;
        uint64_t taken; /* backed bytes at the beginning, then the bytes that were evicted */
        uint64_t ended; /* number of ended tortures; a waiting thread goes on when it grows */
        uint64_t times, drains_failed;
} torture = {.next_ns = UINT64_MAX};

static __thread uint64_t thread_random __attribute__((tls_model("initial-exec")));

static bool read_option(const char *word)
{
        if (strncmp(word, "calls=", 6) == 0)
                return units_parse_count(word + 6, &torture.calls) == 0;
        if (strncmp(word, "every=", 6) == 0)
                return strcmp(word + 6, "0") == 0
                               ? (torture.every_ns = 0, true)
                               : units_parse_duration(word + 6, &torture.every_ns) == 0;
        return false;
}

/* ---- the program's threads ---- */

static bool due(void)
{
        if (!thread_random)
                thread_random =
                        splitmix(torture.seed + 1 + atomic_fetch_add(&torture.threads, 1)) | 1;
        return torture.calls && splitmix_next(&thread_random) % torture.calls == 0;
}

/* A thread of the program is about to make a call. */
static void torture_call(uint64_t work)
{
        struct core_wait w = {.what = "a transfer of its own memory"};
        uint64_t ended;

        if (core_passive() || !due())
                return;
        if (gate_self && atomic_load_explicit(&gate_self->inside, memory_order_relaxed) > 0)
                return;
        lock_acquire(&core_lock);
        if (!core.running || !agent.started) {
                lock_release(&core_lock);
                return;
        }
        torture.asked = true;
        ended = torture.ended;
        core.waiters++;
        request_kick();
        /* Stop waiting if a capture begins: the drain cannot end before the capture does. */
        while (torture.ended == ended && !quiesce_capturing() && !core_passive())
                core_wait(&w, UINT64_MAX);
        core.waiters--;
        lock_release(&core_lock);
}

/* ---- set-up ---- */

void torture_setup(void)
{
        const char *text = setting_text(SETTING_TORTURE);
        char words[80], *rest = words, *word;
        bool good;

        if (!text)
                return;
        torture.calls = CALLS;
        torture.every_ns = EVERY_NS;
        good = strlen(text) < sizeof(words);
        if (good) {
                memcpy(words, text, strlen(text) + 1);
                good = units_parse_count(strsep(&rest, ","), &torture.seed) == 0;
        }
        while (good && (word = strsep(&rest, ",")))
                good = read_option(word);
        if (!good) {
                setting_refuse(SETTING_TORTURE, text);
                return;
        }
        torture.random = splitmix(torture.seed);
        torture.next_ns = torture.every_ns ? 0 : UINT64_MAX;
        gate_own(GATE_TORTURE, torture_call);
        gate_shut(GATE_TORTURE);
}

/* ---- the course; core_lock held ---- */

static uint64_t backed(void)
{
        uint64_t sum = 0;

        for (unsigned i = 0; i < core.gpu_count; i++)
                sum += core.gpus[i].heap.backed;
        return sum;
}

static void end(void) REQUIRES(core_lock)
{
        uint64_t now = clock_now_ns();

        for (unsigned i = 0; i < core.gpu_count; i++)
                core.gpus[i].own_limit = UINT64_MAX;
        torture.asked = false;
        torture.phase = REST;
        torture.ended++;
        torture.next_ns = UINT64_MAX;
        if (torture.every_ns)
                torture.next_ns = now + (now - torture.began_ns) +
                                  splitmix_next(&torture.random) % (2 * torture.every_ns);
        bell_ring(&core.changed);
}

void torture_step(uint64_t now)
{
        bool settled =
                daemon_line.link == LINK_UP ? core.lease != 0 : daemon_line.link != LINK_HELLO;

        if (torture.phase != REST || (!torture.asked && now < torture.next_ns) ||
            !(atomic_load_explicit(&gate_bits, memory_order_relaxed) & GATE_TORTURE))
                return;
        torture.began_ns = now;
        if (!core.running || agent.revoking || !settled || backed() == 0) {
                end();
                return;
        }
        torture.phase = DRAINS;
        agent_begin_drain(DRAIN_MIN + splitmix_next(&torture.random) % DRAIN_VAR, true);
}

bool torture_drained(void)
{
        bool all;

        if (torture.phase != DRAINS)
                return false;
        all = splitmix_next(&torture.random) & 1;
        torture.phase = EVICTS;
        torture.taken = backed();
        for (unsigned i = 0; i < core.gpu_count; i++) {
                struct gpu *g = &core.gpus[i];

                g->own_limit =
                        all ? 0 : (g->heap.backed >> 8) * (splitmix_next(&torture.random) & 0xff);
        }
        return true;
}

bool torture_drain_failed(void)
{
        if (torture.phase != DRAINS)
                return false;
        torture.drains_failed++;
        end();
        return true;
}

void torture_cancel(void)
{
        if (torture.phase == REST)
                return;
        if (torture.phase == DRAINS)
                agent_end_drain();
        end();
}

enum own_drain torture_own(void)
{
        static const enum own_drain own[] = {
                [REST] = OWN_NONE,
                [DRAINS] = OWN_DRAINS,
                [EVICTS] = OWN_EVICTS,
                [RESTORES] = OWN_RESTORES,
        };

        return own[torture.phase];
}

void torture_evicted(void)
{
        if (torture.phase != EVICTS)
                return;
        torture.phase = RESTORES;
        torture.taken = sub_sat(torture.taken, backed());
        for (unsigned i = 0; i < core.gpu_count; i++)
                core.gpus[i].own_limit = UINT64_MAX;
}

void torture_restored(void)
{
        if (torture.phase == REST)
                return;
        torture.times++;
        trace_event("torture", 0, torture.taken);
        log_info("torture: %llu KiB evicted and restored; %llu times so far, %llu drains given up",
                 (unsigned long long)(torture.taken >> 10), (unsigned long long)torture.times,
                 (unsigned long long)torture.drains_failed);
        end();
}

uint64_t torture_next_ns(void)
{
        return torture.phase == REST && core.running ? torture.next_ns : UINT64_MAX;
}
