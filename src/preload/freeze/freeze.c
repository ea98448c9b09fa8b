/* freeze.c: owns whether the program can be frozen, and whether it is. Must never thaw the program
 * while any of its memory is evicted; only the agent knows when all of it is back.
 * Why: docs/decisions.md, "A call that failed while frozen is made once more". */
#include "preload/freeze/freeze.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/freeze_known.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/settings.h"
#include "preload/state/core.h"
#include "preload/freeze/freeze_test.h"
#include "preload/rm/freeze_watch.h"
#include "preload/stream/gate.h"
#include "preload/freeze/mover.h"
#include "preload/stream/quiesce.h"
#include "preload/rm/rm.h"
#include "preload/process/nap.h"
#include "preload/process/require.h"
#include "preload/process/trace.h"

#define CANARY_NS     (20 * NSEC_PER_MSEC) /* limit of the first attempt; doubled each time */
#define CANARY_TRIES  5u
#define CANARY_FAILS  3u                  /* this many failures in a row turn freezing off */
#define OFF_LEAST_NS  (10 * NSEC_PER_SEC) /* least time that freezing is off; doubled each time */
#define OFF_MOST_NS   (640 * NSEC_PER_SEC)
#define LET_PASS_NS   (2 * NSEC_PER_MSEC) /* first pause between attempts; doubled each time */
#define AGAIN_NS      NSEC_PER_SEC /* a failure so soon after a thaw is blamed on the freeze */
#define TEST_EVERY_NS (2 * NSEC_PER_SEC) /* pause after a test for which the GPU was too busy */

static struct {
        enum wire_freeze requested, allowed;
        bool asked;      /* SUBLET_FREEZE names a mode */
        bool tests_only; /* this process serves `sublet doctor` */

        char off[FREEZE_WHY_MAX]; /* why freezing is off, or was off last */
        uint64_t off_until_ns;    /* UINT64_MAX: freezing is off for the rest of this process */
        uint64_t off_ns;          /* how long it was off the last time */

        bool known[GPUS_MAX];  /* freezing is known to work on this GPU */
        bool counts[GPUS_MAX]; /* there RM counts how often a channel was disabled */
        uint64_t test_ns;      /* earliest time of the next test */
        bool stands;
        uint64_t began_ns, times, lost_ns, took_ns;
        unsigned canaries_failed;
        _Atomic uint64_t moved;    /* freezes in which memory could move */
        _Atomic uint64_t ended_ns; /* time of the last thaw */
} freeze = {.requested = WIRE_FREEZE_MOVE, .allowed = WIRE_FREEZE_MOVE};

static bool is_off(void)
{
        return freeze.off_until_ns == UINT64_MAX || clock_now_ns() < freeze.off_until_ns;
}

static void turn_off_until(uint64_t until_ns, const char *why)
{
        const bool is_new = strcmp(freeze.off, why) != 0;

        freeze.off_until_ns = until_ns;
        (void)snprintf(freeze.off, sizeof(freeze.off), "%s", why);
        /* Log the reason only if SUBLET_FREEZE asks for freezing. Otherwise a person sees it in the
         * status, or when asking to pause the program. */
        if (is_new && freeze.asked && freeze.requested == WIRE_FREEZE_MOVE)
                log_notice("this program is not frozen on the GPU, but drained: %s (driver %s)",
                           why, rm_driver()[0] ? rm_driver() : "unknown");
        bell_ring(&core.changed);
}

/* Turn freezing off for the rest of this process. */
static void turn_off(const char *why)
{
        if (freeze.off_until_ns != UINT64_MAX)
                turn_off_until(UINT64_MAX, why);
}

/* Turn freezing off for a while, because the failure may pass. Each further time lasts longer. */
static void turn_off_for_now(const char *why)
{
        if (is_off())
                return;
        freeze.off_ns = MIN(MAX(2 * freeze.off_ns, OFF_LEAST_NS), OFF_MOST_NS);
        turn_off_until(clock_now_ns() + freeze.off_ns, why);
}

/* True if this process serves `sublet doctor`. */
static bool is_doctors(void)
{
        const char *text = setting_text(SETTING_FREEZE);

        return text && strcmp(text, FREEZE_TEST_ONLY) == 0;
}

void freeze_setup(void)
{
        const char *text = setting_text(SETTING_FREEZE),
                   *profiler = getenv("CUDA_INJECTION64_PATH");

        freeze.tests_only = is_doctors();
        if (freeze.tests_only)
                freeze.requested = WIRE_FREEZE_OFF;
        else
                freeze.requested =
                        WIRE_FREEZE_OFF + (enum wire_freeze)setting_choice(SETTING_FREEZE);
        freeze.asked = text && setting_place(SETTING_FREEZE, text) >= 0;
        if (profiler && *profiler)
                turn_off("a profiler is attached to it (CUDA_INJECTION64_PATH)");
}

void freeze_allow(enum wire_freeze most)
{
        freeze.allowed = most;
}

enum wire_freeze freeze_mode(void)
{
        return is_off() ? WIRE_FREEZE_OFF : MIN(freeze.requested, freeze.allowed);
}

const char *freeze_off(void)
{
        if (is_off())
                return freeze.off;
        if (freeze.allowed == WIRE_FREEZE_OFF && freeze.requested != WIRE_FREEZE_OFF)
                return "the daemon's configuration says freeze = off";
        return "";
}

static const char *reason_of(int r)
{
        switch (r) {
        case -EPROTO:
                return "this release of sublet does not know the driver's calls";
        case -EOVERFLOW:
                return "the program has more channels than sublet keeps track of";
        case -EPERM:
                return "the kernel driver or a sandbox does not allow it";
        case -EOPNOTSUPP:
                return "the kernel driver does not offer it";
        case -ETIMEDOUT:
                return "the GPU did not let go of the program in time";
        default:
                return "the kernel driver refused it";
        }
}

/* True if the failure says nothing about the next try: the GPU was busy, or memory was short. */
static bool may_pass(int r)
{
        return r == -ETIMEDOUT || r == -ENOEXEC;
}

/* ---- the test ---- */

bool freeze_is_ready(void)
{
        if (freeze_mode() == WIRE_FREEZE_OFF || !freeze_watch_runs())
                return false;
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].context && !freeze.known[i])
                        return false;
        return true;
}

bool freeze_is_shared(void)
{
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].context && !freeze.counts[i])
                        return false;
        return freeze_is_ready();
}

/* Returns a test's result as 0 or -errno, and the reason as a sentence. */
static int verdict(enum freeze_result result, int refusal, const char **ret_why)
{
        switch (result) {
        case FREEZE_TEST_PASSED:
                *ret_why = "";
                return 0;
        case FREEZE_TEST_BUSY:
                *ret_why = "the GPU is too busy to tell";
                return -EBUSY;
        case FREEZE_TEST_REFUSED:
                *ret_why = reason_of(refusal);
                return refusal;
        case FREEZE_TEST_NO_KERNEL:
                *ret_why = "the kernel of the self-test could not be run";
                return -ENOEXEC;
        case FREEZE_TEST_NO_CHANNEL:
                *ret_why = "it has no channels of its own, as under MPS or in WSL";
                return -ENODEV;
        case FREEZE_TEST_RAN_ON:
                *ret_why = "a kernel ran on although the kernel driver had stopped it";
                return -EIO;
        case FREEZE_TEST_STOOD_STILL:
                *ret_why = "a kernel that was frozen did not go on";
                return -EIO;
        }
        return -EIO;
}

/* Under MPS a program has no channels of its own, so no result for the GPU applies to it. */
void freeze_look(struct gpu *g)
{
        const char *why;

        if (!g->mps)
                return;
        (void)verdict(FREEZE_TEST_NO_CHANNEL, 0, &why);
        turn_off(why);
}

/* Runs the test. 0 or -errno; -EBUSY: no result now. Only results that show how the GPU behaves are
 * kept for other processes. */
static int test_now(struct gpu *g, const char **ret_why) UNLOCKS(core_lock)
{
        enum freeze_result result = FREEZE_TEST_BUSY;
        bool counts = false;
        int refusal = 0, r;

        if (core_keep_context(g)) {
                CUcontext context = g->context->handle;

                lock_release(&core_lock);
                result = freeze_test(context, &refusal, &counts);
                lock_acquire(&core_lock);
                core_let_context(g);
                trace_event("freeze_test", g->index, (uint64_t)result);
        }
        r = verdict(result, refusal, ret_why);
        freeze.counts[g->index] = counts;
        if (result == FREEZE_TEST_PASSED)
                freeze_learn(rm_driver(), g->uuid, counts ? FREEZE_WORKS : FREEZE_WORKS_ALONE, "");
        else if (result == FREEZE_TEST_RAN_ON || result == FREEZE_TEST_STOOD_STILL)
                freeze_learn(rm_driver(), g->uuid, FREEZE_FAILS, *ret_why);
        return r;
}

/* Uses the kept result for this GPU, or runs the test. False: no result now. */
static bool test_gpu(struct gpu *g) UNLOCKS(core_lock)
{
        char known[FREEZE_WHY_MAX];
        const char *why = known;
        int r = 0;

        switch (freeze_known(rm_driver(), g->uuid, known)) {
        case FREEZE_WORKS:
                freeze.counts[g->index] = true;
                break;
        case FREEZE_WORKS_ALONE:
                break;
        case FREEZE_FAILS:
                r = -EIO;
                break;
        case FREEZE_NOT_KNOWN:
                r = test_now(g, &why);
                break;
        }
        if (r == -EBUSY)
                return false;
        freeze.known[g->index] = r == 0;
        if (r < 0)
                (may_pass(r) ? turn_off_for_now : turn_off)(why);
        return true;
}

int sublet_freeze_test(unsigned gpu, struct freeze_answer *ret)
{
        struct gpu *g = gpu < GPUS_MAX ? &core.gpus[gpu] : NULL;
        const char *why;
        int r = -ENXIO;

        *ret = (struct freeze_answer){0};
        if (gpu == FREEZE_TEST_BEGIN && is_doctors()) {
                require_nothing();
                return 0;
        }
        if (!freeze.tests_only)
                return -EPERM;
        lock_acquire(&core_lock);
        if (g && g->context) {
                ret->known = freeze_known(rm_driver(), g->uuid, ret->known_why);
                r = test_now(g, &why);
                ret->counts = r == 0 && freeze.counts[g->index];
                (void)snprintf(ret->driver, sizeof(ret->driver), "%s", rm_driver());
                (void)snprintf(ret->why, sizeof(ret->why), "%s", why);
        }
        lock_release(&core_lock);
        return r;
}

bool freeze_prepare(bool needed)
{
        uint64_t now = clock_now_ns();

        if (freeze_mode() == WIRE_FREEZE_OFF || freeze.stands || freeze_is_ready() ||
            (freeze_mode() == WIRE_FREEZE_PARK && !needed))
                return false;
        if (!freeze_watch_start()) {
                turn_off_for_now("its watchdog thread cannot be started");
                return false;
        }
        if (now < freeze.test_ns)
                return true;
        for (unsigned i = 0; i < core.gpu_count; i++) {
                struct gpu *g = &core.gpus[i];

                if (g->context && !freeze.known[i] && freeze_mode() != WIRE_FREEZE_OFF &&
                    !test_gpu(g)) {
                        freeze.test_ns = now + TEST_EVERY_NS;
                        return true;
                }
        }
        return false;
}

/* ---- freeze and thaw ---- */

/* Freezes the program. True: it is frozen. The lock is held by the caller, and released during the
 * freeze. */
static bool stop(void) UNLOCKS(core_lock)
{
        uint64_t began = clock_now_ns();
        int r;

        freeze.stands = false;
        lock_release(&core_lock);
        r = rm_freeze();
        if (r < 0)
                (void)rm_thaw(); /* some channels may have stopped */
        lock_acquire(&core_lock);
        freeze.took_ns = clock_now_ns() - began;
        if (r < 0)
                (may_pass(r) || r == -EIO ? turn_off_for_now : turn_off)(reason_of(r));
        freeze.stands = r == 0;
        return freeze.stands;
}

bool freeze_begin(void)
{
        if (freeze.stands)
                return true;
        if (!freeze_is_ready() || !stop())
                return false;
        freeze.began_ns = clock_now_ns();
        trace_event("frozen", 0, freeze.took_ns);
        return true;
}

void freeze_end(void)
{
        uint64_t now;
        int r;

        if (!freeze.stands)
                return;
        r = rm_thaw();
        if (r < 0)
                log_warning("this program was frozen on the GPU and cannot go on: %s (driver %s); "
                            "start it again with SUBLET_FREEZE=off",
                            reason_of(r), rm_driver());
        now = clock_now_ns();
        freeze.stands = false;
        freeze.times++;
        freeze.lost_ns += now - freeze.began_ns;
        atomic_store(&freeze.ended_ns, now);
        trace_event("thawed", 0, now - freeze.began_ns);
}

bool freeze_stands(void)
{
        return freeze.stands;
}

/* Calls mover_canary() for each GPU that has a mover. Lock not held. */
static CUresult canaries(void)
{
        CUresult r = CUDA_SUCCESS;

        rm_make_for(CHANNELS_MOVER);
        for (unsigned i = 0; i < core.gpu_count && r == CUDA_SUCCESS; i++)
                if (core.gpus[i].mover)
                        r = mover_canary(core.gpus[i].mover, freeze_watch_call);
        rm_make_for(CHANNELS_PROGRAM);
        return r;
}

bool freeze_confirm(void)
{
        bool again = true;
        CUresult r = CUDA_SUCCESS;

        for (unsigned i = 0; i < CANARY_TRIES && again && freeze.stands; i++) {
                lock_release(&core_lock);
                freeze_watch_begin(CANARY_NS << i, true);
                r = canaries();
                again = freeze_watch_end();
                if (!again && (r != CUDA_SUCCESS || gate_anybody_looks())) {
                        (void)rm_thaw();
                        again = true;
                }
                if (again)
                        (void)nap(LET_PASS_NS << i);
                lock_acquire(&core_lock);
                if (again && freeze.stands) { /* the program was thawed, so freeze it again */
                        trace_event("freeze_late", 0, CANARY_NS << i);
                        (void)stop();
                }
        }
        if (!freeze.stands) /* thawed by another thread, or RM has refused */
                return false;
        if (!again) {
                freeze.canaries_failed = 0;
                freeze.off_ns = 0;
                atomic_fetch_add(&freeze.moved, 1);
                return true;
        }
        /* After a while in which freezing was off, a single failure turns it off again. */
        if (++freeze.canaries_failed >= CANARY_FAILS)
                turn_off_for_now(r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY
                                         ? "calls of the program keep its memory from being moved"
                                         : "its memory could not be moved by a second context");
        freeze_end();
        return false;
}

/* True if the program is frozen, or was thawed so recently that a failure may come from the freeze.
 */
static bool was_just_frozen(void)
{
        return rm_is_frozen() || (atomic_load(&freeze.ended_ns) &&
                                  clock_now_ns() - atomic_load(&freeze.ended_ns) <= AGAIN_NS);
}

void freeze_blame(const struct gpu *g, CUresult why)
{
        if (freeze.off_until_ns == UINT64_MAX || !was_just_frozen())
                return;
        log_warning("GPU %u failed (CUDA error %d) right after this program had been frozen: with "
                    "driver %s no program of yours is frozen any more until `sublet doctor` has "
                    "tried again. If the program is not to blame, please report it, with the lines "
                    "about Xid that dmesg shows",
                    g->index, (int)why, rm_driver());
        turn_off("a program failed right after it had been frozen");
        freeze_learn(rm_driver(), g->uuid, FREEZE_FAILS, freeze.off);
}

bool freeze_call_again(CUresult r, bool *again)
{
        if (r != CUDA_ERROR_INVALID_VALUE && r != CUDA_ERROR_INVALID_HANDLE &&
            r != CUDA_ERROR_NOT_MAPPED)
                return false;
        if (*again || atomic_load(&freeze.moved) == 0 || !was_just_frozen())
                return false;
        *again = true;
        return true;
}

struct freeze_figures freeze_figures(void)
{
        return (struct freeze_figures){.for_ns =
                                               freeze.stands ? clock_now_ns() - freeze.began_ns : 0,
                                       .times = freeze.times,
                                       .lost_ns = freeze.lost_ns,
                                       .took_ns = freeze.took_ns};
}
