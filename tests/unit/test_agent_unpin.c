/* test_agent_unpin.c: a program that runs is drained to give host memory back. */
#include "unit.h"

#include "preload/agent/agent_state.h"
#include "preload/agent/agent_unpin.h"
#include "preload/move/swap.h"

struct core core = {.gpu_count = 2};
struct agent_state agent;
static bool asked[2], capturing;
static unsigned begun, ended, steps, pieces;
static enum own_drain other; /* of another part */

void agent_begin_drain(uint64_t patience_ns, bool freezes)
{
        assert_false(freezes);
        agent.revoking = true;
        core.running = false;
        begun++;
}

void agent_end_drain(void)
{
        agent.revoking = false;
        ended++;
}

enum own_drain agent_own_drain(void)
{
        return other;
}

bool quiesce_capturing(void)
{
        return capturing;
}

bool swap_is_to_unpin(const struct gpu *g)
{
        return asked[g - core.gpus];
}

bool swap_unpin_step(struct gpu *g)
{
        assert_int_equal(atomic_load(&core_lock.word), 0);
        steps++;
        if (pieces > 0 && --pieces > 0)
                return true;
        asked[g - core.gpus] = false;
        return false;
}

static int begin(void **state)
{
        begun = ended = steps = 0;
        pieces = 3;
        other = OWN_NONE;
        capturing = asked[0] = agent.revoking = false;
        asked[1] = core.running = true;
        core.lease = 7;
        return 0;
}

/* Returns the time of the next try. */
static uint64_t step(void)
{
        uint64_t next;

        lock_acquire(&core_lock);
        next = agent_unpin_next_ns();
        agent_unpin_step(next);
        lock_release(&core_lock);
        return next;
}

static void a_program_that_runs_is_drained_and_unpins_all(void **state)
{
        (void)step();
        assert_int_equal(begun, 1);
        assert_int_equal(agent_unpin_own(), OWN_MOVES);
        assert_false(agent_unpin_move()); /* the drain goes on */
        assert_int_equal(steps, 0);
        assert_true(agent_unpin_drained());
        lock_acquire(&core_lock);
        assert_int_equal(agent_unpin_next_ns(), 0);
        lock_release(&core_lock);
        while (agent_unpin_move())
                assert_int_equal(ended, 0);
        assert_int_equal(ended, 1);
        assert_false(asked[0] || asked[1]);
        assert_int_equal(agent_unpin_own(), OWN_NONE);
        assert_false(agent_unpin_drained()); /* of another part */
}

static void a_program_that_cannot_be_drained_now_is_looked_at_later(void **state)
{
        bool *const reasons[] = {&capturing, &agent.revoking};
        uint64_t before;

        for (unsigned i = 0; i < 2; i++) {
                *reasons[i] = true;
                before = step();
                assert_int_equal(begun, 0);
                lock_acquire(&core_lock);
                assert_true(agent_unpin_next_ns() > before);
                lock_release(&core_lock);
                *reasons[i] = false;
        }
        other = OWN_DRAINS;
        (void)step();
        other = OWN_NONE;
        core.lease = 0;
        (void)step();
        core.lease = 7;
        core.running = false; /* then it unpins without a drain */
        lock_acquire(&core_lock);
        assert_int_equal(agent_unpin_next_ns(), UINT64_MAX);
        core.running = true;
        asked[1] = false;
        assert_int_equal(agent_unpin_next_ns(), UINT64_MAX);
        lock_release(&core_lock);
        assert_int_equal(begun, 0);
}

static void a_drain_that_fails_is_tried_again_ever_later(void **state)
{
        uint64_t last = clock_now_ns(), wait = NSEC_PER_SEC, spacing = NSEC_PER_SEC;

        for (unsigned i = 0; i < 8; i++) {
                lock_acquire(&core_lock);
                agent_unpin_step(last + wait);
                assert_int_equal(begun, i + 1);
                last = clock_now_ns();
                assert_true(agent_unpin_drain_failed());
                agent_end_drain();
                core.running = true;
                wait = agent_unpin_next_ns() - last;
                assert_in_range(wait, spacing, spacing + NSEC_PER_SEC / 2);
                agent_unpin_step(last + spacing / 2);
                assert_int_equal(begun, i + 1);
                lock_release(&core_lock);
                spacing = spacing < 32 * NSEC_PER_SEC ? 2 * spacing : spacing;
        }
        assert_false(agent_unpin_drain_failed()); /* of another part */
}

static void the_daemons_drain_takes_over(void **state)
{
        lock_acquire(&core_lock);
        agent_unpin_step(UINT64_MAX);
        assert_int_equal(begun, 1);
        agent_unpin_cancel();
        assert_int_equal(ended, 1);
        assert_int_equal(agent_unpin_own(), OWN_NONE);
        agent_unpin_cancel();
        assert_int_equal(ended, 1);
        lock_release(&core_lock);
        assert_false(agent_unpin_move());
        assert_int_equal(steps, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(a_program_that_runs_is_drained_and_unpins_all, begin),
                cmocka_unit_test_setup(a_program_that_cannot_be_drained_now_is_looked_at_later,
                                       begin),
                cmocka_unit_test_setup(the_daemons_drain_takes_over, begin),
                cmocka_unit_test_setup(a_drain_that_fails_is_tried_again_ever_later, begin),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
