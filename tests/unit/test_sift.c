/* test_sift.c: large objects of a list leave what is read of them, whatever the pieces. */
#include "unit.h"

#include "base/cleanup.h"
#include "base/macros.h"
#include "kubernetes/api/sift.h"

static const char *const frame[] = {"items", "metadata", "name", "type", "object", NULL};
static const char *const fields[] = {"annotations/", "spec", "containers", NULL};
static char told[4096];
static unsigned left_out;
static bool goes_on;

static bool on_one(const json_t *one, void *userdata)
{
        _cleanup_free_ char *text = json_dumps(one, JSON_COMPACT);

        (void)userdata;
        assert_non_null(text);
        assert_true(strlen(told) + strlen(text) + 2 < sizeof(told));
        (void)strcat(strcat(told, text), "\n");
        return goes_on;
}

static bool on_left_out(const char *text, const char *reason, void *userdata)
{
        (void)userdata;
        assert_non_null(strstr(text, "{\"metadata\":{\"name\":\"large\""));
        assert_true(reason[0]);
        left_out++;
        return true;
}

static struct sift *begin(enum sift_where where)
{
        static const struct sift_told callbacks = {.one = on_one, .left_out = on_left_out};
        struct sift *s = sift_new(frame, fields, &callbacks, NULL);

        assert_non_null(s);
        sift_begin(s, where);
        told[0] = '\0';
        left_out = 0;
        goes_on = true;
        return s;
}

static bool feed(struct sift *s, const char *text)
{
        return sift_feed(s, text, strlen(text));
}

static void a_list_leaves_the_members_that_are_read_of_each_object(void **state)
{
        static const char list[] =
                "{ \"kind\":\"L\\\"}]\", \"metadata\": {\"name\":\"l\",\"x\":[{\"y\":1}]},\n"
                "\"items\" : [ {\"metadata\":{\"name\":\"a\",\"annotations\":{\"k\":\"v,\\\"]\","
                "\"deep\":[1,{\"z\":null}]},\"managed\":{\"f\":{}}},\"spec\":{\"env\":[{}, 2]}},"
                "{\"z\":1,\"spec\":{\"containers\":[{\"image\":\"x\",\"name\":\"c\"},{\"image\":1}]"
                "},"
                "\"y\":[]} ] , \"last\":true}";

        (void)state;
        for (size_t piece = 1; piece <= sizeof(list); piece += sizeof(list) - 1) {
                struct sift *s = begin(SIFT_LIST);
                _cleanup_free_ char *around = NULL;
                json_t *rest;

                for (size_t i = 0; i < sizeof(list) - 1; i += piece) {
                        assert_null(sift_rest(s));
                        assert_true(sift_feed(s, list + i, MIN(piece, sizeof(list) - 1 - i)));
                }
                assert_string_equal(told, "{\"metadata\":{\"name\":\"a\",\"annotations\":{\"k\":"
                                          "\"v,\\\"]\",\"deep\":[1,{\"z\":null}]}},\"spec\":{}}\n"
                                          "{\"spec\":{\"containers\":[{\"name\":\"c\"},{}]}}\n");
                rest = sift_rest(s);
                around = json_dumps(rest, JSON_COMPACT);
                assert_string_equal(around, "{\"metadata\":{\"name\":\"l\"},\"items\":[]}");
                json_decref(rest);
                sift_free(s);
        }
}

static void an_object_that_is_too_large_is_left_out_alone(void **state)
{
        struct sift *s = begin(SIFT_LIST);

        (void)state;
        assert_true(feed(s, "{\"items\":[{\"metadata\":{\"name\":\"a\"}},"));
        for (unsigned round = 0; round < 2; round++) {
                assert_true(feed(s, "{\"metadata\":{\"name\":\"large\",\"annotations\":{"));
                for (unsigned i = 0; i <= SIFT_KEPT_MAX / 16; i++)
                        assert_true(feed(s, "\"0123\":\"012345\","));
                assert_true(feed(s, "\"x\":{}},\"y\":1},\"z\":[{\"name\":2}]},"));
        }
        assert_true(feed(s, "{\"metadata\":{\"name\":\"b\"}}]}"));
        assert_int_equal(left_out, 2);
        assert_string_equal(told,
                            "{\"metadata\":{\"name\":\"a\"}}\n{\"metadata\":{\"name\":\"b\"}}\n");
        sift_free(s);
}

static void what_is_left_out_of_an_object_may_be_of_any_size(void **state)
{
        struct sift *s = begin(SIFT_LIST);

        (void)state;
        assert_true(feed(s, "{\"items\":[{\"metadata\":{\"name\":\"a\"},\"env\":["));
        for (unsigned i = 0; i <= SIFT_KEPT_MAX / 8; i++)
                assert_true(feed(s, "{\"x\":[]},"));
        assert_true(feed(s, "0]}]}"));
        assert_string_equal(told, "{\"metadata\":{\"name\":\"a\"}}\n");
        sift_free(s);
}

static void odd_texts_hide_no_other_object(void **state)
{
        struct sift *s = begin(SIFT_LIST);

        (void)state;
        assert_true(feed(s,
                         "{\"items\":[{\"metadata\":{\"name\":\"a\",\"annotations\":{\"k\":"
                         "\"30\\u0000\"}}},{\"metadata\":{\"name\":\"large\",\"annotations\":"
                         "{\"k\":\"\xff\"}}},{\"metadata\":{\"name\":\"large\",\"annotations\":"));
        for (unsigned i = 0; i < 100; i++)
                assert_true(feed(s, "[{\"x\":"));
        assert_true(feed(s, "0"));
        for (unsigned i = 0; i < 100; i++)
                assert_true(feed(s, "}]"));
        assert_true(feed(s, "}},{\"metadata\":{\"name\":\"b\"}}]}"));
        assert_int_equal(left_out, 2);
        assert_non_null(strstr(told, "\"a\""));
        assert_non_null(strstr(told, "\"b\""));
        sift_free(s);
}

static void a_stream_is_objects_without_an_end(void **state)
{
        struct sift *s = begin(SIFT_STREAM);

        (void)state;
        assert_true(feed(s, "{\"type\":\"ADDED\",\"object\":{\"env\":[1]}}\n{\"type\":"));
        assert_string_equal(told, "{\"type\":\"ADDED\",\"object\":{}}\n");
        assert_true(feed(s, "\"DELETED\"}\n"));
        assert_string_equal(told, "{\"type\":\"ADDED\",\"object\":{}}\n{\"type\":\"DELETED\"}\n");
        goes_on = false;
        assert_false(feed(s, "{\"type\":\"ADDED\"}{\"type\":\"ADDED\"}"));
        assert_false(feed(s, "{\"type\":\"ADDED\"}"));
        assert_int_equal(strlen(told),
                         strlen("{\"type\":\"ADDED\",\"object\":{}}\n") +
                                 strlen("{\"type\":\"DELETED\"}\n{\"type\":\"ADDED\"}\n"));
        sift_free(s);
}

static void what_is_no_such_json_is_refused(void **state)
{
        static const char *const wrong[] = {"<html>", "[",  "5",  "\"x\"",         "}",
                                            ",",      "{]", "{5", "{\"items\":[}", "{{"};

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                for (unsigned where = SIFT_STREAM; where <= SIFT_LIST; where++) {
                        struct sift *s = begin(where);

                        assert_false(feed(s, wrong[i]));
                        assert_null(sift_rest(s));
                        sift_free(s);
                }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_list_leaves_the_members_that_are_read_of_each_object),
                cmocka_unit_test(an_object_that_is_too_large_is_left_out_alone),
                cmocka_unit_test(what_is_left_out_of_an_object_may_be_of_any_size),
                cmocka_unit_test(odd_texts_hide_no_other_object),
                cmocka_unit_test(a_stream_is_objects_without_an_end),
                cmocka_unit_test(what_is_no_such_json_is_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
