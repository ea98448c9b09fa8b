/* few.h: limits how often the log tells what others can cause at will. Pure. */
#pragma once

#include <stdint.h>

#include "base/clock.h"

#define FEW_NS (60 * NSEC_PER_SEC)

struct few {
        uint64_t since_ns;
        unsigned n;
};

enum few_say { FEW_SAY, FEW_SAY_LAST, FEW_SAY_NOT };

/* Asks whether it may be told now, at most `most` times in a minute. FEW_SAY_LAST: no, but say that
 * more is not told for a while. */
static inline enum few_say few_ask(struct few *f, unsigned most, uint64_t now_ns)
{
        if (f->n == 0 || now_ns - f->since_ns >= FEW_NS)
                *f = (struct few){.since_ns = now_ns};
        if (f->n > most)
                return FEW_SAY_NOT;
        return f->n++ < most ? FEW_SAY : FEW_SAY_LAST;
}
