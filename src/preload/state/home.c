/* home.c: owns the test of whether managed memory leaves the card when it is sent to the host. Must
 * never mistake other processes' changes for an answer, nor use more memory than is free.
 * Why: docs/decisions.md, "Managed memory makes room only where a test has shown it". */
#include "preload/state/home.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/state/core.h"

#define HOME_TRIES   12u
#define HOME_LEAD    3
#define HOME_NOES    3 /* HOME_STAYS is the answer after this many rounds with that result */
#define HOME_STEP    (64 * KIB)
#define REST_NS      (10 * NSEC_PER_MSEC) /* the first pause after tests without an answer */
#define REST_DOUBLES 7u                   /* how often the pause is doubled */

static bool card_free(uint64_t *ret)
{
        size_t free_bytes, total;

        if (real.cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS)
                return false;
        *ret = free_bytes;
        return true;
}

/* Returns a random size that no extent has: programs that test at the same time must not mistake
 * each other's piece for their own. */
static uint64_t probe_bytes(const struct gpu *g)
{
        uint64_t most = MIN(g->total / 128 & ~(HOME_STEP - 1), 34 * MIB);
        uint64_t step = MAX(most / 17 & ~(HOME_STEP - 1), HOME_STEP);
        uint64_t drawn = clock_now_ns() * UINT64_C(0x9e3779b97f4a7c15) >> 62;

        return sub_sat(most, 2 * step * drawn);
}

static bool is_about(uint64_t more, uint64_t less, uint64_t bytes, uint64_t error)
{
        return more + error >= less + bytes && more <= less + bytes + error;
}

/* Touch the piece on the card, send it to the host, and read the card's free memory each time. */
static enum home_answer try_once(CUdeviceptr probe, uint64_t bytes, CUstream s)
{
        uint64_t before, there, after, error = bytes / 16;
        CUresult r;

        if (!card_free(&before) || real.cuMemsetD8Async(probe, 1, bytes, s) != CUDA_SUCCESS ||
            real.cuStreamSynchronize(s) != CUDA_SUCCESS || !card_free(&there))
                return HOME_NOT_KNOWN;
        r = real.cuMemPrefetchAsync(probe, bytes, CU_DEVICE_CPU, s);
        if (r == CUDA_ERROR_NOT_SUPPORTED)
                return HOME_STAYS;
        if (r != CUDA_SUCCESS || real.cuStreamSynchronize(s) != CUDA_SUCCESS || !card_free(&after))
                return HOME_NOT_KNOWN;
        if (is_about(before, there, bytes, error) && is_about(after, there, bytes, error))
                return HOME_LEAVES;
        return is_about(after, there, 0, error) ? HOME_STAYS : HOME_NOT_KNOWN;
}

static void conclude(struct gpu *g, enum home_answer answer)
{
        log_debug("GPU %u: managed memory that is sent to the host %s", g->index,
                  answer == HOME_LEAVES ? "leaves the card" : "keeps its pages: it is not moved");
        __atomic_store_n(&g->home.answer, answer, __ATOMIC_RELEASE);
}

/* Counts one test. True: this round of tests is over. One round is not enough for HOME_STAYS: if
 * two processes test at the same pace, each sees the other's piece arrive when its own piece
 * leaves. */
static bool weigh(struct gpu *g, enum home_answer seen)
{
        struct home *h = &g->home;

        h->lead += seen == HOME_LEAVES ? 1 : seen == HOME_STAYS ? -1 : 0;
        if (h->lead == HOME_LEAD) {
                conclude(g, HOME_LEAVES);
                return true;
        }
        if (h->lead != -HOME_LEAD)
                return false;
        h->lead = 0;
        if (++h->noes == HOME_NOES)
                conclude(g, HOME_STAYS);
        return true;
}

static void try_some(struct gpu *g)
{
        uint64_t bytes = probe_bytes(g), room;
        CUdeviceptr probe;
        CUstream s;

        if (!card_free(&room) || room < bytes + bytes / 2 ||
            real.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
                return;
        if (real.cuMemAllocManaged(&probe, bytes, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS) {
                for (unsigned i = 0; i < HOME_TRIES && !weigh(g, try_once(probe, bytes, s)); i++)
                        ;
                (void)real.cuMemFree_v2(probe);
        }
        (void)real.cuStreamDestroy_v2(s);
}

void home_find_out(struct gpu *g)
{
        struct home *h = &g->home;
        CUstreamCaptureMode mode;

        /* core_lock is not held: the agent must not wait for a thread of the program that is in the
         * driver. */
        if (home_answer(&g->home) != HOME_NOT_KNOWN || atomic_exchange(&h->trying, true))
                return;
        if (home_answer(&g->home) == HOME_NOT_KNOWN && clock_now_ns() >= h->again_ns) {
                mode = core_relax();
                try_some(g);
                core_unrelax(mode);
                h->again_ns = clock_now_ns() + (REST_NS << h->rests);
                h->rests += h->rests < REST_DOUBLES;
        }
        atomic_store(&h->trying, false);
}
