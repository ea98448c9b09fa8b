/* giveway.c: owns the times of the backoff. Must never turn round while memory comes or goes. */
#include "preload/giveway.h"

#include "base/clock.h"
#include "base/macros.h"

#define SPAN_NS NSEC_PER_SEC
#define DOUBLES 4u /* who has the room may need it for long: the others try less and less often */

static uint64_t span_ns(const struct giveway *w, uint32_t random)
{
        uint64_t least = SPAN_NS << (w->out ? MIN(w->times - 1, DOUBLES) : 0);

        return least + random % least;
}

bool giveway_step(struct giveway *w, uint64_t backed, uint64_t now_ns, uint32_t random)
{
        bool stuck = w->until_ns && backed == w->backed;

        if (stuck && now_ns < w->until_ns)
                return w->out;
        if (stuck) {
                w->out = !w->out;
                w->times += w->out;
        }
        w->backed = backed;
        w->until_ns = now_ns + span_ns(w, random);
        return w->out;
}
