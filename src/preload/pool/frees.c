/* frees.c: owns the numbers of frees in stream order. Must never take a lock: each call of the
 * program that waits asks for the last number. */
#include "preload/pool/frees.h"

#include <stdatomic.h>

static _Atomic uint64_t last, settled;

uint64_t frees_next(void)
{
        return atomic_fetch_add(&last, 1) + 1;
}

uint64_t frees_open(void)
{
        uint64_t number = atomic_load_explicit(&last, memory_order_acquire);

        return number == atomic_load_explicit(&settled, memory_order_relaxed) ? 0 : number;
}

void frees_settled(uint64_t number)
{
        atomic_store_explicit(&settled, number, memory_order_relaxed);
}
