/* test_sched_random.c: random worlds, with every invariant checked after every event. Owns the
 * choice of seeds and the report of a failure: the seed and the shortest sequence with the same
 * fault. SCHED_SEED=N runs one seed. SCHED_FIRST=N begins with another seed than 1. SCHED_WORLDS,
 * SCHED_SHARES and SCHED_STEPS run longer. SCHED_RARE=N fails where a legal transition was seen
 * less often. */
#include "unit.h"

#include "base/macros.h"
#include "sched/sched.h"
#include "sched_shrink.h"
#include "sched_world.h"

#define WORLDS 1500
#define SHARES 500 /* as many more worlds have shares */
#define STEPS  2000

/* Legal changes of a client's state; NONE is the state before it joins and after it leaves.
 * TOLERATED changes are too rare to require, or need a client that breaks the protocol: it claims
 * to run on one GPU while it waits for another. */
#define NONE SCHED_STATES
enum { LEGAL = 1, TOLERATED };
static const unsigned char legal[SCHED_STATES + 1][SCHED_STATES + 1] = {
        [SCHED_IDLE] = {[SCHED_WAITING] = LEGAL,
                        [SCHED_RESTORING] = LEGAL,
                        [SCHED_RUNNING] = LEGAL,
                        [SCHED_DRAINING] = LEGAL, /* reconnects running beside another client */
                        [SCHED_EVICTING] = LEGAL,
                        [NONE] = LEGAL},
        [SCHED_WAITING] = {[SCHED_IDLE] = LEGAL,
                           [SCHED_RESTORING] = LEGAL,
                           [SCHED_RUNNING] = LEGAL,
                           [SCHED_DRAINING] = TOLERATED,
                           [SCHED_EVICTING] = LEGAL,
                           [NONE] = LEGAL},
        [SCHED_RESTORING] = {[SCHED_IDLE] = LEGAL,
                             [SCHED_WAITING] = TOLERATED, /* foreign.c took back its grant */
                             [SCHED_RUNNING] = LEGAL,
                             [SCHED_DRAINING] = TOLERATED,
                             [SCHED_EVICTING] = LEGAL,
                             [NONE] = LEGAL},
        /* A running client may give its lease back unasked, without a drain. */
        [SCHED_RUNNING] = {[SCHED_IDLE] = LEGAL,
                           [SCHED_WAITING] = LEGAL,
                           [SCHED_RESTORING] = LEGAL,
                           [SCHED_DRAINING] = LEGAL,
                           [SCHED_EVICTING] = LEGAL,
                           [NONE] = LEGAL},
        [SCHED_DRAINING] = {[SCHED_IDLE] = LEGAL,
                            [SCHED_WAITING] = LEGAL,
                            [SCHED_RESTORING] = LEGAL,
                            [SCHED_RUNNING] = LEGAL,
                            [SCHED_EVICTING] = LEGAL,
                            [NONE] = LEGAL},
        [SCHED_EVICTING] = {[SCHED_IDLE] = LEGAL,
                            [SCHED_WAITING] = LEGAL,
                            [SCHED_RESTORING] = LEGAL,
                            [SCHED_RUNNING] = LEGAL,
                            [SCHED_DRAINING] =
                                    TOLERATED, /* its turn was over when it got the lease */
                            [NONE] = LEGAL},
        [NONE] = {[SCHED_IDLE] = LEGAL},
};

static const char *state_name(unsigned i)
{
        return i == NONE ? "-" : sched_state_name((enum sched_state)i);
}

static void add_counts(struct world_counts *sum, const struct world_counts *c)
{
#define ADD(f) sum->f += c->f
        ADD(steps);
        ADD(grants);
        ADD(revokes);
        ADD(restores);
        ADD(refusals);
        ADD(deaths);
        ADD(restarts);
        ADD(overdue);
        ADD(shorts);
        ADD(returns);
        ADD(drain_failures);
        ADD(unevictable_growth);
        ADD(spares);
        ADD(exports);
        ADD(stale);
        ADD(given_back);
        ADD(ends);
        ADD(pauses);
        ADD(evictions);
        ADD(stood);
        ADD(held);
        ADD(reloads);
        ADD(preempted);
        for (unsigned i = 0; i < 3; i++)
                ADD(modes[i]);
        for (unsigned i = 0; i <= NONE; i++)
                for (unsigned k = 0; k <= NONE; k++)
                        ADD(transitions.state[i][k]);
        for (unsigned i = 0; i < SCHED_FLAGS; i++) {
                ADD(transitions.set[i]);
                ADD(transitions.cleared[i]);
        }
#undef ADD
        sum->longest_wait_ns = MAX(sum->longest_wait_ns, c->longest_wait_ns);
        sum->longest_stall_ns = MAX(sum->longest_stall_ns, c->longest_stall_ns);
}

static void tell_short(const struct world_options *o, struct world *w, const char *broken)
{
        struct shrunk s;
        unsigned n;
        const struct world_choice *list = world_choices(w, &n);

        if (!shrink(o, list, n, broken, world_now_ns(w), &s)) {
                print_message("it does not happen again with the same choices\n");
                return;
        }
        print_message("shortest found: %s\n", s.text);
        shrink_print(o, &s);
        print_message("%u choices became %u\n", n, s.n);
        free(s.list);
}

static void run_world(uint64_t seed, unsigned steps, struct world_counts *sum)
{
        struct world_options o;
        struct world_counts c;
        struct world *w;

        world_options_random(seed, &o);
        w = world_new(&o);
        assert_non_null(w);
        for (unsigned i = 0; i < (o.liars ? 4 * steps : steps); i++) {
                const char *broken = world_step(w);

                if (broken) {
                        print_message("seed %llu, step %u: %s\n", (unsigned long long)seed, i,
                                      broken);
                        tell_short(&o, w, broken);
                        fail_msg("%s", broken);
                }
        }
        world_counts(w, &c);
        world_free(w);
        add_counts(sum, &c);
}

static unsigned number_from(const char *name, unsigned otherwise)
{
        const char *text = getenv(name);

        return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static void print_counts(const struct world_counts *c)
{
#define LINE(f) print_message("  %12llu %s\n", (unsigned long long)c->f, #f)
        LINE(steps);
        LINE(grants);
        LINE(revokes);
        LINE(restores);
        LINE(refusals);
        LINE(deaths);
        LINE(restarts);
        LINE(returns);
        LINE(overdue);
        LINE(shorts);
        LINE(drain_failures);
        LINE(unevictable_growth);
        LINE(spares);
        LINE(exports);
        LINE(stale);
        LINE(given_back);
        LINE(ends);
        LINE(pauses);
        LINE(evictions);
        LINE(stood);
        LINE(preempted);
#undef LINE
        print_message("  longest wait %.1f s, of it while nothing moved %.1f s\n",
                      (double)c->longest_wait_ns / 1e9, (double)c->longest_stall_ns / 1e9);
}

static void check_transitions(const struct sched_transitions *t, unsigned rare)
{
        static const char *const flags[SCHED_FLAGS] = {"overdue", "lost", "detached", "poisoned",
                                                       "unpreemptible"};
        unsigned wrong = 0, seldom = 0;

        print_message("%-10s", "from \\ to");
        for (unsigned k = 0; k <= NONE; k++)
                print_message("%12s", state_name(k));
        print_message("\n");
        for (unsigned i = 0; i <= NONE; i++) {
                print_message("%-10s", state_name(i));
                for (unsigned k = 0; k <= NONE; k++) {
                        print_message("%12llu", (unsigned long long)t->state[i][k]);
                        wrong += t->state[i][k] && !legal[i][k];
                        seldom += legal[i][k] == LEGAL && t->state[i][k] < rare;
                }
                print_message("\n");
        }
        for (unsigned i = 0; i < SCHED_FLAGS; i++)
                print_message("%-14s set %llu, cleared %llu\n", flags[i],
                              (unsigned long long)t->set[i], (unsigned long long)t->cleared[i]);
        if (wrong)
                fail_msg("%u transitions that there are not", wrong);
        if (seldom)
                fail_msg("%u legal transitions seen less than %u times", seldom, rare);
}

static void every_invariant_holds_after_every_event(void **state)
{
        const char *one = getenv("SCHED_SEED");
        const uint64_t first = number_from("SCHED_FIRST", 1);
        unsigned worlds = number_from("SCHED_WORLDS", WORLDS);
        unsigned steps = number_from("SCHED_STEPS", STEPS);
        struct world_counts sum = {0};

        (void)state;
        if (one)
                run_world(strtoull(one, NULL, 10), steps, &sum);
        else
                for (uint64_t seed = first; seed < first + worlds; seed++)
                        run_world(seed, steps, &sum);
        print_counts(&sum);
        if (one || worlds == 0)
                return;
        /* A world in which nothing happens proves nothing. */
        assert_true(sum.exports > 0 && sum.spares > 0);
        assert_true(sum.pauses > 0 && sum.stood > 0 && sum.evictions > 0 && sum.preempted > 0);
        check_transitions(&sum.transitions, number_from("SCHED_RARE", 1));
}

static void every_invariant_holds_with_weights_minima_and_maxima(void **state)
{
        const uint64_t first = WORLD_SHARES_FROM + number_from("SCHED_FIRST", 1) - 1;
        const unsigned worlds = number_from("SCHED_SHARES", SHARES);
        const unsigned steps = number_from("SCHED_STEPS", STEPS);
        struct world_counts sum = {0};

        (void)state;
        if (getenv("SCHED_SEED"))
                return;
        for (uint64_t i = 0; i < worlds; i++)
                run_world(first + i, steps, &sum);
        print_counts(&sum);
        print_message("  %12llu held\n  %12llu reloads\n", (unsigned long long)sum.held,
                      (unsigned long long)sum.reloads);
        if (worlds) {
                assert_true(sum.held > 0);
                assert_true(sum.reloads > 0);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_invariant_holds_after_every_event),
                cmocka_unit_test(every_invariant_holds_with_weights_minima_and_maxima),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
