/* trouble.c: owns the decision when a driver call of ours is tried again, and when a GPU is given
 * up. Must never give up a GPU that still does what moving memory needs.
 * Why: docs/decisions.md, "A failed driver call of our own is made again, and a GPU is given up
 * only after a test". */
#include "preload/move/trouble.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/driver/real.h"
#include "preload/move/extent.h"
#include "preload/move/swap_state.h"
#include "preload/process/nap.h"
#include "preload/state/core.h"
#include "preload/state/poison.h"
#include "preload/state/request.h"
#include "preload/stream/gate.h"

#define FIRST_NS  (10 * NSEC_PER_MSEC) /* pause before the second attempt; doubled each time */
#define MOST_NS   (2 * NSEC_PER_SEC)
#define TEST_NS   (30 * NSEC_PER_SEC) /* after failures for this long the GPU is tested */
#define TRIES     20u                 /* attempts to learn whether a copy has ended */
#define FORGET_NS (5 * NSEC_PER_SEC)  /* trouble is forgotten after so long without an attempt */

void trouble_note(struct gpu *g, CUresult why)
{
        struct trouble *t = &g->trouble;
        uint64_t now = clock_now_ns();

        if (why == CUDA_ERROR_OUT_OF_MEMORY || g->error || poison_note(g, why))
                return;
        if (now < t->next_ns)
                return; /* this call began before the last known failure */
        if (!t->since_ns)
                *t = (struct trouble){.since_ns = now, .told = t->told};
        t->wait_ns = MIN(MAX(2 * t->wait_ns, FIRST_NS), MOST_NS);
        t->next_ns = now + t->wait_ns;
        t->why = why;
        t->look = true;
        log_debug("GPU %u: CUDA error %d from a call of ours: it is tried again in %llu ms",
                  g->index, (int)why, (unsigned long long)(t->wait_ns / NSEC_PER_MSEC));
        request_kick();
}

void trouble_end(struct gpu *g)
{
        if (!g->trouble.since_ns)
                return;
        if (g->trouble.told)
                log_notice("GPU %u: its memory moves again", g->index);
        g->trouble = (struct trouble){0};
}

bool trouble_waits(const struct gpu *g)
{
        return g->trouble.since_ns && clock_now_ns() < g->trouble.next_ns;
}

bool trouble_stands(struct gpu *g)
{
        struct trouble *t = &g->trouble;

        if (t->since_ns && clock_now_ns() >= t->next_ns + FORGET_NS)
                *t = (struct trouble){.told = t->told};
        return t->since_ns != 0;
}

void trouble_give_up(struct gpu *g, CUresult why)
{
        poison_give_up(g, why);
        gate_shut(GATE_FAILED);
        g->trouble = (struct trouble){0};
}

CUresult trouble_await(CUstream stream)
{
        CUresult r = real.cuStreamSynchronize(stream);

        for (unsigned tries = 0; r != CUDA_SUCCESS && !poison_sticks(r) && tries < TRIES; tries++) {
                if (tries > 0)
                        (void)nap(NSEC_PER_MSEC);
                do
                        r = real.cuStreamQuery(stream);
                while (r == CUDA_ERROR_NOT_READY && nap(NSEC_PER_MSEC) == 0);
        }
        return r;
}

/* The GPU was tested after a long trouble. */
static void judge(struct gpu *g, CUresult test) REQUIRES(core_lock)
{
        struct trouble *t = &g->trouble;
        const unsigned long long seconds = TEST_NS / NSEC_PER_SEC;

        if (test != CUDA_SUCCESS && heap_missing(&g->heap) > 0) {
                log_warning("GPU %u has failed every attempt for %llu s to bring back memory of "
                            "this program (CUDA error %d): all its further work on this GPU gets "
                            "that error",
                            g->index, seconds, (int)t->why);
                trouble_give_up(g, t->why);
                return;
        }
        if (!t->told)
                log_warning("GPU %u has failed every attempt for %llu s to move memory of this "
                            "program (CUDA error %d): the attempts go on",
                            g->index, seconds, (int)t->why);
        t->told = true;
        t->since_ns = clock_now_ns();
}

void trouble_look(struct gpu *g, CUresult prepared)
{
        CUresult r = prepared;
        bool look, test, ended;

        lock_acquire(&core_lock);
        look = g->trouble.look;
        ended = look && g->trouble.why == CUDA_ERROR_DEINITIALIZED;
        test = g->trouble.since_ns && clock_now_ns() - g->trouble.since_ns >= TEST_NS;
        g->trouble.look = false;
        lock_release(&core_lock);
        if (ended)
                core_look_for_shutdown();
        if (!look && !test)
                return;
        if (r == CUDA_SUCCESS)
                r = real.cuStreamQuery(g->swap->out);
        if (r == CUDA_ERROR_NOT_READY)
                r = CUDA_SUCCESS;
        if (r == CUDA_SUCCESS && test)
                r = extent_probe(g, g->swap->out);
        lock_acquire(&core_lock);
        if (!poison_note(g, r) && test)
                judge(g, r);
        lock_release(&core_lock);
}
