/* test_text.c: text that may be shown, and how it is cut. */
#include "unit.h"

#include "base/text.h"

static const char *copy(const char *text, size_t n)
{
        static char got[64];

        assert_true(n <= sizeof(got));
        return text_copy(got, n, text);
}

static void text_in_any_script_is_kept(void **state)
{
        static const char *const texts[] = {"train.py", "Übung.py", "trainé",
                                            "学習.py",  "обучение", "train\xf0\x9f\x9a\x80"};

        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
                assert_true(text_is_clean(texts[i]));
                assert_string_equal(copy(texts[i], 64), texts[i]);
        }
}

static void a_cut_leaves_whole_characters(void **state)
{
        assert_string_equal(copy("abcé", 5), "abc");
        assert_string_equal(copy("abcé", 6), "abcé");
        assert_string_equal(copy("学習", 6), "学");
        assert_string_equal(copy("x", 1), "");
        assert_int_equal(text_fit("é学", 1), 0);
        assert_int_equal(text_fit("é学", 4), 2);
        assert_int_equal(text_fit("é学", 5), 5);
        assert_int_equal(text_fit("é学", 99), 5);
}

static void what_a_terminal_would_obey_is_replaced(void **state)
{
        static const struct {
                const char *text, *shown;
        } rows[] = {
                {"a\033[2Jb", "a?[2Jb"},
                {"a\nb\177", "a?b?"},
                {"\xc2\x9b"
                 "31m",
                 "?31m"}, /* C1: the 8-bit form of ESC [ */
                {"a\xe2\x80\xae"
                 "b",
                 "a?b"}, /* U+202E writes from the right */
                {"a\xe2\x81\xa6"
                 "b\xe2\x81\xa9",
                 "a?b?"}, /* U+2066, U+2069 */
                {"a\xe2\x80\xa8"
                 "b",
                 "a?b"}, /* U+2028, a new line */
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                assert_false(text_is_clean(rows[i].text));
                assert_string_equal(copy(rows[i].text, 64), rows[i].shown);
        }
}

static void invalid_bytes_are_replaced(void **state)
{
        static const struct {
                const char *text, *shown;
        } rows[] = {
                {"\xdc"
                 "bung",
                 "?bung"},          /* Latin-1 */
                {"a\xc3", "a?"},    /* ends within a character */
                {"\xc0\xaf", "??"}, /* overlong */
                {"\xe0\x80\x80"
                 "x",
                 "???x"},                     /* overlong */
                {"\xed\xa0\x80", "???"},      /* a surrogate */
                {"\xf4\x90\x80\x80", "????"}, /* past U+10FFFF */
                {"\xff\xfe", "??"},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                assert_false(text_is_clean(rows[i].text));
                assert_string_equal(copy(rows[i].text, 64), rows[i].shown);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(text_in_any_script_is_kept),
                cmocka_unit_test(a_cut_leaves_whole_characters),
                cmocka_unit_test(what_a_terminal_would_obey_is_replaced),
                cmocka_unit_test(invalid_bytes_are_replaced),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
