/* notice.c: owns the decision when to tell of a wait. Must never print. */
#include "preload/state/notice.h"

#include "base/clock.h"
#include "base/macros.h"

#define AFTER_NS        (5 * NSEC_PER_SEC)
#define ANSWER_NS       (2 * NSEC_PER_SEC) /* the longest wait for the daemon's answer */
#define REST_NS         NSEC_PER_SEC       /* the least rest between two cells of a notebook */
#define SPACING_NS      (30 * NSEC_PER_SEC)
#define BUSY_SPACING_NS (600 * NSEC_PER_SEC) /* SPACING_NS, if the program has not rested */

static uint64_t due_ns(const struct notice *n)
{
        uint64_t spacing = n->rested ? SPACING_NS : BUSY_SPACING_NS;

        return MAX(n->waits_since_ns + AFTER_NS, n->told_ns ? n->told_ns + spacing : 0);
}

static enum notice_act wait_step(struct notice *n, bool known, uint64_t now, uint64_t *ret_next_ns)
{
        if (n->told)
                return NOTICE_NOTHING;
        if (now < due_ns(n)) {
                *ret_next_ns = due_ns(n);
                return NOTICE_NOTHING;
        }
        if (!n->asked_ns) {
                n->asked_ns = now;
                *ret_next_ns = now + ANSWER_NS;
                return NOTICE_ASK;
        }
        if (!known && now < n->asked_ns + ANSWER_NS) {
                *ret_next_ns = n->asked_ns + ANSWER_NS;
                return NOTICE_NOTHING;
        }
        n->told = true;
        n->told_ns = now;
        n->rested = false;
        return NOTICE_TELL;
}

enum notice_act notice_step(struct notice *n, enum notice_doing doing, bool known, uint64_t now_ns,
                            uint64_t *ret_waited_ns, uint64_t *ret_next_ns)
{
        enum notice_act act = NOTICE_NOTHING;

        *ret_next_ns = UINT64_MAX;
        if (doing == NOTICE_RESTS && !n->rests_since_ns)
                n->rests_since_ns = now_ns;
        if (doing != NOTICE_RESTS && n->rests_since_ns) {
                n->rested = n->rested || now_ns - n->rests_since_ns >= REST_NS;
                n->rests_since_ns = 0;
        }
        if (doing == NOTICE_WAITS && !n->waits_since_ns)
                n->waits_since_ns = now_ns;
        *ret_waited_ns = n->waits_since_ns ? now_ns - n->waits_since_ns : 0;
        if (doing == NOTICE_WAITS)
                return wait_step(n, known, now_ns, ret_next_ns);
        if (n->told && doing == NOTICE_RUNS)
                act = NOTICE_OVER;
        n->waits_since_ns = n->asked_ns = 0;
        n->told = false;
        return act;
}
