/* test_sim_facts.c: the simulated driver gives the answers of a real one (driver_facts.txt,
 * ipc_facts.txt and pool_facts.txt, recorded on an H200, driver 580.159.04, CUDA 13.0). To record
 * again: LD_LIBRARY_PATH= driver_facts > driver_facts.txt. */
#include "sim_unit.h"

#include <unistd.h>

#define LINE 512

static void compare(const char *name, unsigned at_least)
{
        const char *build = getenv("SUBLET_BUILD"), *source = getenv("SUBLET_SOURCE");
        char path[4096], want[LINE], got[LINE], session[SESSION_NAME_MAX];
        unsigned line = 0, wrong = 0;
        FILE *facts, *answers;

        if (!build || !source) {
                (void)fprintf(stderr, "started by hand: set SUBLET_BUILD and SUBLET_SOURCE\n");
                skip();
        }
        (void)snprintf(session, sizeof(session), "%s-%d", name, (int)getpid());
        (void)setenv("SIMCUDA_SESSION", session, 1);
        (void)setenv("SIMCUDA_MEMORY", "1GiB", 1);
        (void)snprintf(path, sizeof(path), "%s/tests/unit/sim/%s.txt", source, name);
        facts = fopen(path, "re");
        assert_non_null(facts);
        (void)snprintf(path, sizeof(path), "'%s/tests/unit/%s' 2>/dev/null", build, name);
        answers = popen(path, "re");
        assert_non_null(answers);
        while (fgets(want, LINE, facts)) {
                line++;
                if (!fgets(got, LINE, answers))
                        strcpy(got, "(nothing)\n");
                if (strcmp(want, got) != 0) {
                        (void)fprintf(stderr, "line %u: a card: %s         here: %s", line, want,
                                      got);
                        wrong++;
                }
        }
        assert_null(fgets(got, LINE, answers));
        (void)fclose(facts);
        assert_int_equal(pclose(answers), 0);
        (void)session_remove(session, true);
        assert_true(line > at_least);
        assert_int_equal(wrong, 0);
}

static void the_driver_answers_like_a_real_card(void **state)
{
        compare("driver_facts", 500);
}

static void two_processes_get_the_answers_of_a_real_card(void **state)
{
        compare("ipc_facts", 200);
}

static void pools_green_contexts_and_host_memory_answer_like_a_real_card(void **state)
{
        compare("pool_facts", 1000);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_driver_answers_like_a_real_card),
                cmocka_unit_test(two_processes_get_the_answers_of_a_real_card),
                cmocka_unit_test(pools_green_contexts_and_host_memory_answer_like_a_real_card)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
