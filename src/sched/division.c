/* division.c: owns the arithmetic of one division of a card's time among shares with weights and
 * minima. Must never know whose shares they are.
 *
 * The virtual time is the weighted mean of what the active shares have received, each divided by
 * its weight. A share's debt is what it has received beyond its weight's part, in real time. A
 * share whose weight would give it less than its minimum counts for more, so that it gets just its
 * minimum. The others divide the rest by their weights. */
#include "sched/internal.h"

#define ONE UINT64_C(1000) /* a weight of 1 */

static uint64_t parts(const struct share *m)
{
        return m->parts ? m->parts : weight_of(m);
}

/* Returns ns * by / of. The result fits 64 bits, although ns * by may not. */
static int64_t scaled(int64_t ns, uint64_t by, uint64_t of)
{
        int64_t product;

        if (!__builtin_mul_overflow(ns, (int64_t)by, &product))
                return product / (int64_t)of;
        return (int64_t)((__int128)ns * (__int128)by / (__int128)of);
}

int64_t division_mean(const struct division *d)
{
        return d->base_ns + (d->parts ? scaled(d->sum_ns, ONE, d->parts) : 0);
}

/* Returns virtual time above the base as real time. The next function does the reverse. */
static int64_t real(const struct share *m, int64_t virtual_ns)
{
        return scaled(virtual_ns, parts(m), ONE);
}

static int64_t virtual(const struct share *m, int64_t real_ns)
{
        return scaled(real_ns, ONE, parts(m));
}

/* ---- minima ---- */

/* Changes the parts of a share. Neither its debt nor the virtual time changes. */
static void set_parts(struct division *d, struct share *m, uint64_t new_parts)
{
        const __int128 more = (__int128)new_parts - (__int128)m->parts;
        int64_t ns;

        if (!m->active) { /* it is about to join */
                m->parts = new_parts;
                return;
        }
        ns = (int64_t)(more * d->sum_ns / (__int128)d->parts);
        m->service_ns += ns;
        d->sum_ns += ns;
        d->parts = (uint64_t)((__int128)d->parts + more);
        m->parts = new_parts;
}

/* Finds the shares whose weight gives them less than their minimum. Each of them leaves less to the
 * others, which may then fall below their minimum, too. */
static void raise_to_minima(struct division *d)
{
        uint64_t others = d->weights, left = ONE;
        bool more = true;

        for (struct share *m = d->with_minimum; m; m = m->next)
                m->raised = false;
        while (more) {
                more = false;
                for (struct share *m = d->with_minimum; m; m = m->next) {
                        if (m->raised || m->minimum >= left || others <= weight_of(m) ||
                            m->minimum * others <= weight_of(m) * left)
                                continue;
                        m->raised = more = true;
                        others -= weight_of(m);
                        left -= m->minimum;
                }
        }
        for (struct share *m = d->with_minimum; m; m = m->next)
                set_parts(d, m,
                          m->raised ? MAX(m->minimum * others / left, UINT64_C(1)) : weight_of(m));
}

static void forget_minimum(struct division *d, struct share *m)
{
        struct share **link = &d->with_minimum;

        while (*link && *link != m)
                link = &(*link)->next;
        if (*link)
                *link = m->next;
        m->next = NULL;
}

/* ---- who takes part ---- */

void division_join(struct division *d, struct share *m)
{
        if (m->active)
                return;
        m->parts = weight_of(m);
        d->weights += weight_of(m);
        if (m->minimum && !PLANTED(NO_MINIMUM)) {
                m->next = d->with_minimum;
                d->with_minimum = m;
        }
        if (d->with_minimum)
                raise_to_minima(d);
        m->service_ns = real(m, MAX(m->service_ns, division_mean(d)) - d->base_ns);
        m->active = true;
        d->sum_ns += m->service_ns;
        d->parts += m->parts;
        d->active++;
}

void division_leave(struct division *d, struct share *m)
{
        if (!m->active)
                return;
        forget_minimum(d, m);
        d->sum_ns -= m->service_ns;
        d->parts -= m->parts;
        d->weights -= weight_of(m);
        d->active--;
        m->service_ns = d->base_ns + virtual(m, m->service_ns);
        m->active = false;
        m->parts = 0;
        if (!d->active)
                d->base_ns = MAX(d->base_ns, m->service_ns);
        if (d->with_minimum)
                raise_to_minima(d);
}

void division_charge(struct division *d, struct share *m, uint64_t ns)
{
        if (!m->active) {
                m->service_ns += virtual(m, (int64_t)ns);
                return;
        }
        m->service_ns += (int64_t)ns;
        d->sum_ns += (int64_t)ns;
}

void division_pass(struct division *d, int64_t ns)
{
        const int64_t each = scaled(ns, ONE, MAX(d->parts, ONE));

        d->base_ns += each;
        d->uncontested_ns += each;
}

/* Returns m's debt times the parts of all active shares, divided by by_parts. Multiplying first
 * keeps it exact. The product fits 64 bits unless somebody was served for years. */
static int64_t excess(const struct division *d, const struct share *m, uint64_t by_parts)
{
        const int64_t ns = m->active ? m->service_ns
                                     : real(m, MAX(m->service_ns, division_mean(d)) - d->base_ns);
        int64_t got, due, more;

        if (!d->active)
                return ns;
        if (!__builtin_mul_overflow(ns, (int64_t)d->parts, &got) &&
            !__builtin_mul_overflow(d->sum_ns, (int64_t)parts(m), &due) &&
            !__builtin_sub_overflow(got, due, &more))
                return more / (int64_t)by_parts;
        return (int64_t)(((__int128)ns * d->parts - (__int128)parts(m) * d->sum_ns) /
                         (__int128)by_parts);
}

int64_t division_debt(const struct division *d, const struct share *m)
{
        return excess(d, m, MAX(d->parts, UINT64_C(1)));
}

int64_t division_wait(const struct division *d, const struct share *m)
{
        return excess(d, m, parts(m));
}

double division_slowness(const struct division *d, const struct share *m)
{
        const uint64_t all = d->parts + (m->active ? 0 : parts(m));
        const unsigned n = d->active + !m->active;

        return (double)all / ((double)n * (double)parts(m));
}

void division_set(struct division *d, struct share *m, unsigned weight, unsigned minimum)
{
        const bool active = m->active;

        if (m->weight == weight && m->minimum == minimum)
                return;
        if (active)
                division_leave(d, m);
        m->weight = weight;
        m->minimum = minimum;
        if (active)
                division_join(d, m);
}
