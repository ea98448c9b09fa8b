/* test_daemon_config.c: the keys and values of a configuration, and messages about wrong ones. */
#include "unit.h"

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/setup/config.h"
#include "daemon/setup/sources.h"

static void every_key_takes_what_its_help_says(void **state)
{
        static const char *const good[][2] = {
                {"mode", "exclusive"},
                {"quantum", "auto"},
                {"quantum", "2.5s"},
                {"quantum_min", "100ms"},
                {"quantum_max", "2min"},
                {"handoff_share", "2.5%"},
                {"grace", "10s"},
                {"patience", "500ms"},
                {"idle_release", "auto"},
                {"unevictable_share", "10%"},
                {"capacity", "8GiB"},
                {"capacity", "1=4GiB"},
                {"host_memory", "64GiB"},
                {"clients_max", "16"},
                {"connections_per_user", "3"},
                {"linger", "0"},
                {"kill_overdue", "yes"},
                {"freeze", "move"},
                {"freeze", "off"},
                {"freeze", "park"},
                {"metrics", "127.0.0.1:9871"},
                {"metrics", "127.8.8.8:1"},
                {"metrics", "localhost:65535"},
                {"metrics", "[::1]:9871"},
                {"metrics", "/run/sublet/metrics.sock"},
                {"metrics_names", "yes"},
                {"mps", "yes"},
                {"names", "own"},
        };
        char error[CONFIG_ERROR_MAX];
        struct config c;

        config_default(&c);
        assert_int_equal(c.freeze, WIRE_FREEZE_MOVE);
        assert_false(c.mps); /* the owner has to allow it */
        for (size_t i = 0; i < ARRAY_SIZE(good); i++)
                if (config_set(&c, good[i][0], good[i][1], error) != 0)
                        fail_msg("%s = %s: %s", good[i][0], good[i][1], error);
        assert_int_equal(c.sched.mode, SCHED_MODE_EXCLUSIVE);
        assert_int_equal(c.sched.quantum_ns, 2500 * NSEC_PER_MSEC);
        assert_int_equal(c.sched.handoff_permille, 25);
        assert_int_equal(c.sched.unevictable_permille, 100);
        assert_int_equal(c.sched.idle_release_ns, 0);
        assert_int_equal(c.host_memory_bytes, 64 * GIB);
        assert_true(c.kill_overdue);
        assert_true(c.mps);
        assert_int_equal(c.freeze, WIRE_FREEZE_PARK);
}

static const char *text_of(const struct config *c, const char *key, char text[VALUE_TEXT_MAX])
{
        size_t n;
        const struct value_key *keys = config_keys(&n), *k = values_find(keys, n, key);

        assert_non_null(k);
        return values_text(k, c, text);
}

static void a_value_is_shown_as_it_can_be_written(void **state)
{
        static const char *const same[][2] = {
                {"mode", "exclusive"},       {"quantum", "2500ms"},       {"quantum", "auto"},
                {"quantum_max", "120s"},     {"grace", "1500us"},         {"handoff_share", "2.5%"},
                {"priority_floor", "20%"},   {"host_memory", "1536MiB"},  {"host_memory", "0GiB"},
                {"clients_max", "16"},       {"kill_overdue", "yes"},     {"freeze", "park"},
                {"resource_config", "/a/b"}, {"resource_config", "none"}, {"metrics", "[::1]:80"},
                {"metrics", "/m.sock"},      {"metrics", "none"},
        };
        char error[CONFIG_ERROR_MAX], text[VALUE_TEXT_MAX];
        const struct value_key *keys;
        struct config c;
        size_t n;

        config_default(&c);
        keys = config_keys(&n);
        for (size_t i = 0; i < n; i++)
                assert_string_equal(values_text(&keys[i], &c, text), keys[i].fallback);
        for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
                assert_int_equal(config_set(&c, same[i][0], same[i][1], error), 0);
                assert_string_equal(text_of(&c, same[i][0], text), same[i][1]);
        }
        assert_int_equal(config_set(&c, "quantum", "2min", error), 0);
        assert_string_equal(text_of(&c, "quantum", text), "120s");
        assert_int_equal(config_set(&c, "capacity", "8GiB", error), 0);
        assert_int_equal(config_set(&c, "capacity", "1=512MiB", error), 0);
        assert_string_equal(text_of(&c, "capacity", text), "8GiB, 1=512MiB");
}

static void an_order_holds_until_the_files_change_the_same_key(void **state)
{
        char error[CONFIG_ERROR_MAX];
        struct config files, now, next;

        config_default(&files);
        now = next = files;
        assert_int_equal(config_set(&now, "quantum", "7s", error), 0);
        assert_int_equal(config_set(&now, "grace", "7s", error), 0);
        assert_int_equal(config_set(&next, "grace", "9s", error), 0);
        config_keep_orders(&next, &now, &files);
        assert_int_equal(next.sched.quantum_ns, 7 * NSEC_PER_SEC);
        assert_int_equal(next.sched.grace_ns, 9 * NSEC_PER_SEC);
}

static void a_malformed_value_changes_nothing_and_is_quoted(void **state)
{
        static const char *const bad[][2] = {
                {"idle_release", "0s"},
                {"idle_release", "5"},
                {"mode", "fast"},
                {"quantum", "5"},
                {"quantum", "0s"},
                {"handoff_share", "5"},
                {"handoff_share", "0%"},
                {"handoff_share", "100%"},
                {"handoff_share", "nan%"},
                {"grace", "-5s"},
                {"capacity", "=5g"},
                {"capacity", "0"},
                {"capacity", "a=b=5g"},
                {"host_memory", ""},
                {"clients_max", "0"},
                {"clients_max", "1e3"},
                {"clients_max", "9999999999"},
                {"kill_overdue", "1"},
                {"freeze", "on"},
                {"freeze", ""},
                {"quantum", "999us"},
                {"quantum", "61min"},
                {"quantum_min", "10us"},
                {"quantum_max", "auto"},
                {"metrics", "0.0.0.0:9871"},
                {"metrics", "10.0.0.1:9871"},
                {"metrics", "[::]:9871"},
                {"metrics", "[::ffff:127.0.0.1]:9871"},
                {"metrics", "::1:9871"},
                {"metrics", "example.org:9871"},
                {"metrics", "127.0.0.1"},
                {"metrics", "127.0.0.1:0"},
                {"metrics", "127.0.0.1:65536"},
                {"metrics", ":9871"},
                {"metrics", "m.sock"},
                {"metrics",
                 "/a234567890123456789012345678901234567890123456789012345678901234567890"
                 "1234567890123456789012345678901234567"},
        };
        char error[CONFIG_ERROR_MAX], quoted[64];
        struct config c, before;

        config_default(&c);
        before = c;
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                assert_int_equal(config_set(&c, bad[i][0], bad[i][1], error), -EINVAL);
                (void)snprintf(quoted, sizeof(quoted), "\"%s\"", bad[i][1]);
                if (!strstr(error, quoted))
                        fail_msg("%s = %s: %s", bad[i][0], bad[i][1], error);
        }
        assert_int_equal(c.sched.quantum_ns, before.sched.quantum_ns);
        assert_int_equal(c.sched.handoff_permille, before.sched.handoff_permille);
        assert_int_equal(c.n_capacities, 0);
        assert_int_equal(config_set(&c, "colour", "red", error), -ENOENT);
        assert_non_null(strstr(error, "\"colour\""));
        assert_int_equal(config_set(&c, "host_memory", "99999999999TiB", error), -EINVAL);
        assert_non_null(strstr(error, "too large"));
}

static void the_last_capacity_that_matches_a_gpu_counts(void **state)
{
        char error[CONFIG_ERROR_MAX];
        struct config c;

        config_default(&c);
        assert_int_equal(config_capacity(&c, 0, "GPU-x"), 0);
        assert_int_equal(config_set(&c, "capacity", "8g", error), 0);
        assert_int_equal(config_set(&c, "capacity", "1=4g", error), 0);
        assert_int_equal(config_set(&c, "capacity", "GPU-x=2g", error), 0);
        assert_int_equal(config_capacity(&c, 0, "GPU-y"), 8 * GIB);
        assert_int_equal(config_capacity(&c, 1, "GPU-y"), 4 * GIB);
        assert_int_equal(config_capacity(&c, 1, "GPU-x"), 2 * GIB);
        for (unsigned i = 3; i < CONFIG_CAPACITIES; i++)
                assert_int_equal(config_set(&c, "capacity", "1g", error), 0);
        assert_int_equal(config_set(&c, "capacity", "1g", error), -EINVAL);
}

static int load(const char *text, struct config *c, char error[static CONFIG_ERROR_MAX],
                char ret_path[static 64])
{
        struct sources s = {0};
        int fd, r;

        (void)snprintf(ret_path, 64, "/tmp/sublet-config-XXXXXX");
        fd = mkstemp(ret_path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
        assert_int_equal(close(fd), 0);
        r = sources_choose(&s, ret_path, SOURCES_NONE, error);
        if (r == 0)
                r = sources_read(&s, c);
        (void)snprintf(error, CONFIG_ERROR_MAX, "%s", s.error);
        texts_free(&s.good);
        assert_int_equal(unlink(ret_path), 0);
        return r;
}

static void a_file_is_read_whole(void **state)
{
        char error[CONFIG_ERROR_MAX], path[64];
        struct config c;

        config_default(&c);
        assert_int_equal(load("# sublet\n\n[daemon]\nquantum = 3s ; as text\nhost_memory=1g\n", &c,
                              error, path),
                         0);
        assert_int_equal(c.sched.quantum_ns, 3 * NSEC_PER_SEC);
        assert_int_equal(c.host_memory_bytes, GIB);
        config_free(&c);
        assert_int_equal(load("", &c, error, path), 0);
        config_free(&c);
}

static void an_empty_range_is_refused(void **state)
{
        static const char *const bad[] = {
                "[daemon]\nquantum_min = 5s\nquantum_max = 1s\n",
                "[daemon]\nquantum_max = 1ms\n", /* below the initial value of quantum_min */
        };
        char error[CONFIG_ERROR_MAX], path[64];

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct config c;

                config_default(&c);
                assert_int_equal(load(bad[i], &c, error, path), -EINVAL);
                assert_non_null(strstr(error, "quantum_min is above quantum_max"));
                assert_int_equal(c.sched.quantum_max_ns, 60 * NSEC_PER_SEC);
        }
}

static void a_wrong_file_is_named_with_its_first_wrong_line_and_not_applied(void **state)
{
        static const struct {
                const char *text;
                int line;
                const char *says;
        } bad[] = {
                {"[daemon]\nquantum = 3s\nspeed = 1\nmode = x\n", 3, "\"speed\""},
                {"[daemon]\n\n\nquantum = 3\n", 4,
                 "malformed quantum \"3\": write auto, or a duration such as 250ms, 5s or 2min"},
                {"[daemon]\nhost_memory = 90%\n", 2,
                 "malformed size \"90%\": write a size such as 512MiB or 20GiB"},
                {"[daemon]\nquantum\n", 2, "key = value"},
                {"[daemon]\nquantum\nspeed = 1\n", 2, "key = value"},
                {"quantum = 3s\n", 1, "under [daemon]"},
                {"[gpu]\na = b\n", 2, "\"gpu\""},
        };
        char error[CONFIG_ERROR_MAX], path[64], where[80];

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct config c;

                config_default(&c);
                assert_int_equal(load(bad[i].text, &c, error, path), -EINVAL);
                (void)snprintf(where, sizeof(where), "%s:%d: ", path, bad[i].line);
                if (strncmp(error, where, strlen(where)) != 0 || !strstr(error, bad[i].says))
                        fail_msg("case %zu: %s", i, error);
                assert_int_equal(c.sched.quantum_ns, 0);
        }
}

static void a_missing_file_is_an_error(void **state)
{
        char error[CONFIG_ERROR_MAX];
        struct config c;

        struct sources s = {0};

        assert_int_equal(sources_choose(&s, "/no/such/file", SOURCES_NONE, error), 0);
        assert_int_equal(sources_read(&s, &c), -ENOENT);
        assert_int_equal(s.found, SOURCES_NOTHING);
        assert_non_null(strstr(s.error, "/no/such/file"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_empty_range_is_refused),
                cmocka_unit_test(every_key_takes_what_its_help_says),
                cmocka_unit_test(a_value_is_shown_as_it_can_be_written),
                cmocka_unit_test(an_order_holds_until_the_files_change_the_same_key),
                cmocka_unit_test(a_malformed_value_changes_nothing_and_is_quoted),
                cmocka_unit_test(the_last_capacity_that_matches_a_gpu_counts),
                cmocka_unit_test(a_file_is_read_whole),
                cmocka_unit_test(a_wrong_file_is_named_with_its_first_wrong_line_and_not_applied),
                cmocka_unit_test(a_missing_file_is_an_error),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
