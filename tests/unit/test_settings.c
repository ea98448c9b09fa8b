/* test_settings.c: reads settings from environment variables, and reports unknown values. */
#include "unit.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "base/settings.h"

static char said[256];
static unsigned times;

void log_write(enum log_level level, const char *format, ...)
{
        va_list list;

        va_start(list, format);
        (void)vsnprintf(said, sizeof(said), format, list);
        va_end(list);
        times++;
}

static void unset_and_empty_are_the_same(void **state)
{
        assert_null(setting_text(SETTING_NAME));
        assert_int_equal(setenv("SUBLET_NAME", "", 1), 0);
        assert_null(setting_text(SETTING_NAME));
        assert_int_equal(setenv("SUBLET_NAME", "train", 1), 0);
        assert_string_equal(setting_text(SETTING_NAME), "train");
        assert_int_equal(unsetenv("SUBLET_NAME"), 0);
}

static void a_switch_is_on_if_it_is_1(void **state)
{
        static const char *const off[] = {"", "0", "yes", "11"};

        assert_false(setting_is_on(SETTING_QUIET));
        for (unsigned i = 0; i < sizeof(off) / sizeof(*off); i++) {
                assert_int_equal(setenv("SUBLET_QUIET", off[i], 1), 0);
                assert_false(setting_is_on(SETTING_QUIET));
        }
        assert_int_equal(setenv("SUBLET_QUIET", "1", 1), 0);
        assert_true(setting_is_on(SETTING_QUIET));
        assert_int_equal(unsetenv("SUBLET_QUIET"), 0);
}

static void a_choice_is_one_of_its_words(void **state)
{
        assert_int_equal(setting_place(SETTING_FREEZE, "off"), 0);
        assert_int_equal(setting_place(SETTING_FREEZE, "park"), 1);
        assert_int_equal(setting_place(SETTING_FREEZE, "move"), 2);
        assert_int_equal(setting_place(SETTING_FREEZE, "mov"), -EINVAL);
        assert_int_equal(setting_place(SETTING_FREEZE, "moves"), -EINVAL);
        assert_int_equal(setting_place(SETTING_FREEZE, "off park"), -EINVAL);
        assert_int_equal(setting_place(SETTING_FREEZE, ""), -EINVAL);
        assert_int_equal(setting_choice(SETTING_FREEZE), 2); /* the default of an unset variable */
        assert_int_equal(setenv("SUBLET_FREEZE", "park", 1), 0);
        assert_int_equal(setting_choice(SETTING_FREEZE), 1);
        assert_int_equal(times, 0);
}

static void an_unknown_word_is_reported_once_and_the_default_holds(void **state)
{
        assert_int_equal(setenv("SUBLET_FREEZE", "Park", 1), 0);
        assert_int_equal(setting_choice(SETTING_FREEZE), 2);
        assert_string_equal(said, "SUBLET_FREEZE is off, park or move, not 'Park': move applies");
        assert_int_equal(setting_choice(SETTING_FREEZE), 2);
        assert_int_equal(times, 1);
        setting_refuse(SETTING_KEEP, "much");
        assert_string_equal(said,
                            "SUBLET_KEEP is a size such as 20GiB, not 'much': it has no effect");
        setting_refuse(SETTING_KEEP, "more");
        assert_int_equal(times, 2);
        assert_int_equal(unsetenv("SUBLET_FREEZE"), 0);
}

static void every_row_of_the_table_is_complete(void **state)
{
        char form[SETTING_FORM_MAX];

        for (unsigned s = 0; s < SETTING_COUNT; s++) {
                assert_int_equal(setting_find(settings[s].name), s);
                assert_true(strlen(setting_form((enum setting)s, form)) < SETTING_FORM_MAX - 1);
                assert_true(*form && *settings[s].help);
                if (settings[s].kind == SETTING_CHOICE)
                        assert_true(setting_place((enum setting)s, settings[s].initial) >= 0);
        }
        assert_string_equal(setting_form(SETTING_CACHES, form), "give or keep");
        assert_string_equal(setting_form(SETTING_DIR, form), "a folder");
        assert_int_equal(setting_find("SUBLET_FREZE"), SETTING_COUNT);
}

static void the_closest_name_may_leave_out_first_words(void **state)
{
        static const struct {
                const char *name;
                enum setting meant;
                unsigned away;
        } cases[] = {{"SUBLET_CAP", SETTING_MEMORY_CAP, 1},
                     {"SUBLET_FREZE", SETTING_FREEZE, 1},
                     {"SUBLET_PRIORTY", SETTING_PRIORITY, 1},
                     {"SUBLET_WIEGHT", SETTING_WEIGHT, 1},
                     {"SUBLET_NEIGH", SETTING_WEIGHT, 2}};
        unsigned away;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                assert_int_equal(setting_closest(cases[i].name, &away), cases[i].meant);
                assert_int_equal(away, cases[i].away);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(unset_and_empty_are_the_same),
                cmocka_unit_test(a_switch_is_on_if_it_is_1),
                cmocka_unit_test(a_choice_is_one_of_its_words),
                cmocka_unit_test(an_unknown_word_is_reported_once_and_the_default_holds),
                cmocka_unit_test(the_closest_name_may_leave_out_first_words),
                cmocka_unit_test(every_row_of_the_table_is_complete),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
