/* giveway.c: owns the times of the backoff. Must never evict while a restore makes progress. */
#include "preload/state/giveway.h"

#include "base/clock.h"
#include "base/macros.h"

#define SPAN_NS NSEC_PER_SEC
/* The process that has the room may need it for long, so the others retry less and less often. */
#define DOUBLES 4u

static uint64_t span_ns(const struct giveway *w, uint32_t random)
{
        uint64_t least = SPAN_NS << (w->out ? MIN(w->times, DOUBLES) : 0);

        return least +
               (random % (least >> 10) << 10); /* in steps of 1,024 ns, as random has 32 bits */
}

bool giveway_step(struct giveway *w, bool waits, uint64_t bytes, uint64_t now_ns, uint32_t random)
{
        bool stuck;

        if (waits && !w->waits)
                *w = (struct giveway){0};
        w->waits = waits;
        stuck = w->until_ns && bytes == w->bytes;
        if (stuck && now_ns < w->until_ns)
                return w->out;
        if (stuck && (waits || !w->out)) {
                w->out = !w->out;
                w->times += !w->out;
        }
        w->bytes = bytes;
        w->until_ns = now_ns + span_ns(w, random);
        return w->out;
}
