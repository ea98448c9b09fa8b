/* work_steps.c: owns the figures of each kind of work. Must never take two steps for one if a kind
 * of work occurs once in each. */
#include "preload/extra/work_steps.h"

#include <string.h>

#include "base/macros.h"

#define STABLE   4u  /* the same distance so many times in a row is no accident */
#define LEAST    32u /* submissions before anything is concluded */
#define LOST     8u  /* lengths of a step without the work that begins one */
#define LOST_MIN 1024u

void steps_reset(struct steps *s)
{
        memset(s, 0, sizeof(*s));
}

/* Returns the record of a kind of work; NULL: there are too many kinds. */
static struct steps_kind *kind_of(struct steps *s, uint64_t work)
{
        uint64_t i = work * UINT64_C(0x9e3779b97f4a7c15) >> 32;

        for (;; i++) {
                struct steps_kind *k = &s->kind[i % STEPS_KINDS];

                if (k->last && k->work == work)
                        return k;
                if (k->last)
                        continue;
                if (s->used == STEPS_KINDS / 2)
                        return NULL;
                s->used++;
                *k = (struct steps_kind){.work = work};
                return k;
        }
}

/* True if the numbers differ by at most an eighth: programs do some extra work only now and
 * then. */
static bool is_about(uint64_t a, uint64_t b)
{
        return MAX(a, b) - MIN(a, b) <= MIN(a, b) / 8;
}

static void kind_comes(struct steps_kind *k, uint64_t now)
{
        uint64_t gap = now - k->last;

        k->seen++;
        if (k->last && k->gap && is_about(gap, k->gap)) {
                k->stable++;
                k->gap = (k->gap * 7 + gap + 4) / 8;
        } else if (k->last) {
                k->stable = 0;
                k->gap = gap;
        }
        k->last = now;
}

/* True if this kind of work may begin a step: it has come lately, and its gap is stable or it has
 * not come often enough to tell. */
static bool may_begin_steps(const struct steps *s, const struct steps_kind *k)
{
        return k->gap && s->submissions - k->last <= 2 * k->gap &&
               (k->stable >= STABLE || k->seen <= STABLE + 1);
}

bool steps_look(struct steps *s, uint64_t work)
{
        struct steps_kind *k = kind_of(s, work);
        uint64_t now = ++s->submissions;

        if (!k)
                return false;
        kind_comes(k, now);
        if (now < LEAST || k->stable < STABLE)
                return false;
        /* Take a rarer kind than the known one only if it is clearly rarer: another kind of the
         * same step may be slightly rarer. */
        if (s->gap && (k->gap <= s->gap || is_about(k->gap, s->gap)))
                return false;
        for (const struct steps_kind *o = s->kind; o < s->kind + STEPS_KINDS; o++)
                if (o->last && may_begin_steps(s, o) && o->gap > k->gap &&
                    !is_about(o->gap, k->gap))
                        return false;
        s->begin = work;
        s->gap = k->gap;
        return true;
}

bool steps_lost(const struct steps *s)
{
        uint64_t i = s->begin * UINT64_C(0x9e3779b97f4a7c15) >> 32;

        if (!s->gap)
                return false;
        for (;; i++) {
                const struct steps_kind *k = &s->kind[i % STEPS_KINDS];

                if (!k->last)
                        return true;
                if (k->work == s->begin)
                        return s->submissions - k->last > MAX(LOST * s->gap, (uint64_t)LOST_MIN);
        }
}
