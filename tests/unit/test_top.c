/* test_top.c: the picture of `sublet top`, without a terminal and without a daemon. */
#include "unit.h"

#include <locale.h>
#include <wchar.h>

#include "base/macros.h"
#include "client/top/top_history.h"
#include "client/top/keys.h"
#include "client/top/layout.h"
#include "client/top/top_table.h"

#define GIB_BYTES 1073741824.0

static struct history *history;
static struct top_view view;
static struct frame frame;
static struct top_rows rows;

static int begin(void **state)
{
        history = history_new();
        view = (struct top_view){.sort = (unsigned)table_column("state"),
                                 .colours = true,
                                 .live = true,
                                 .interval_s = 1};
        frame = (struct frame){0};
        return history ? 0 : -1;
}

static int end(void **state)
{
        history_free(history);
        frame_free(&frame);
        return 0;
}

/* ---- what the daemon says ---- */

static json_t *client(int pid, const char *name, const char *what)
{
        return json_pack("{s:i, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:f, s:f, s:f, "
                         "s:s, s:i, s:[]}",
                         "pid", pid, "user", "ann", "name", name, "state", what, "since_s", 12.0,
                         "allocated", 3 * GIB_BYTES, "backed", 2 * GIB_BYTES, "evicted", GIB_BYTES,
                         "charge", 2 * GIB_BYTES, "gpu_time_s", 0.0, "handoffs", 7, "moved_in", 0.0,
                         "moved_out", 0.0, "weight", 1.0, "memory", "swap", "priority", 0, "flags");
}

/* Returns a status of one card; takes over the list of clients. */
static json_t *status_of(json_t *clients, double uptime_s)
{
        return json_pack("{s:s, s:s, s:s, s:f, s:s, s:s, s:{s:f, s:f}, s:[{s:i, s:s, s:s, s:f, "
                         "s:f, s:f, s:i, s:f, s:o}]}",
                         "time", "2026-11-27T12:00:00Z", "version", "1", "instance", "0123",
                         "uptime_s", uptime_s, "mode", "auto", "quantum", "auto", "host_memory",
                         "committed", GIB_BYTES, "budget", 64 * GIB_BYTES, "gpus", "index", 0,
                         "uuid", "GPU-1", "name", "Card", "total", 16 * GIB_BYTES, "foreign",
                         2 * GIB_BYTES, "charged", 8 * GIB_BYTES, "handoffs", 3, "utilization", 0.5,
                         "clients", clients);
}

static json_t *many(unsigned n)
{
        static const char *const what[] = {"running", "waiting", "idle", "evicting"};
        json_t *list = json_array();

        for (unsigned i = 0; i < n; i++) {
                char name[32];

                (void)snprintf(name, sizeof(name), "job-%u", i);
                (void)json_array_append_new(list, client((int)(1000 + i), name, what[i % 4]));
        }
        return list;
}

static void look(json_t *status)
{
        history_add(history, status);
        json_decref(status);
}

static json_t *first(json_t *status)
{
        return json_array_get(
                json_object_get(json_array_get(json_object_get(status, "gpus"), 0), "clients"), 0);
}

static void look_at(json_t *one)
{
        look(status_of(json_pack("[o]", one), 1));
}

static void set(json_t *object, const char *field, json_t *value)
{
        assert_int_equal(json_object_set_new(object, field, value), 0);
}

static json_t *job(const char *name, const char *what, const char *why)
{
        return json_pack("{s:s?, s:s, s:f, s:f, s:s?}", "name", name, "state", what, "since_s",
                         130.0, "bound", 0.7, "why", why);
}

/* ---- what is shown ---- */

/* Draws, and returns the text; valid until the next call. Checks that no cell can steer a
 * terminal, and that lines are as wide as the terminal takes them to be. */
static const char *shown_as(int width, int height, bool unicode)
{
        static char *text;
        size_t n;
        FILE *out;

        assert_int_equal(frame_begin(&frame, width, height, unicode), 0);
        layout_draw(history, &view, &frame, &rows);
        assert_int_equal(frame.width, width);
        for (int i = 0; i < width * height; i++) {
                const wchar_t c = frame.cells[i].c;
                const bool half = i + 1 < width * height && frame.cells[i + 1].c == 0;

                assert_true(c == 0 || (c >= 0x20 && c != 0x7f && !(c >= 0x80 && c < 0xa0)));
                assert_true(unicode || (c > 0 && c < 0x7f));
                assert_true(c == 0 || wcwidth(c) == (half ? 2 : 1));
                assert_true(STYLE_OF(frame.cells[i].style) < STYLES);
        }
        free(text);
        text = NULL;
        out = open_memstream(&text, &n);
        assert_non_null(out);
        frame_print(&frame, out);
        (void)fclose(out);
        return text;
}

static const char *shown(int width, int height)
{
        return shown_as(width, height, true);
}

static bool shows(int width, int height, const char *text)
{
        return strstr(shown(width, height), text);
}

static enum keys_act press(unsigned key)
{
        struct top_order order;

        return keys_press(&view, &rows, key, &order);
}

static void type(const char *text)
{
        for (; *text; text++)
                (void)press((unsigned char)*text);
}

/* ---- sizes ---- */

static void every_size_of_terminal_is_filled_and_no_more(void **state)
{
        static const struct {
                int width, height;
        } sizes[] = {{80, 24}, {200, 50}, {40, 10}, {20, 5}, {10, 3}, {1, 1}, {300, 2}, {2, 80}};
        static const unsigned counts[] = {0, 1, 4, 40, 200};

        for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
                json_t *status = status_of(many(counts[i]), (double)i);

                if (i % 2)
                        set(status, "jobs",
                            json_pack("[o]", job("\u2014 \x1b", "waiting", "x: y")));
                look(status);
                for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
                        (void)shown(sizes[k].width, sizes[k].height);
                        (void)press(KEYS_DOWN);
                        (void)shown_as(sizes[k].width, sizes[k].height, false);
                        view.help = true;
                        (void)shown(sizes[k].width, sizes[k].height);
                        view.help = false;
                        view.colours = !view.colours;
                }
        }
}

static void four_programs_fit_80_columns_with_what_matters(void **state)
{
        const char *text;

        look(status_of(many(4), 1));
        text = shown(80, 24);
        assert_non_null(strstr(text, "host memory 1.0G promised of 64.0G"));
        assert_non_null(strstr(text, "GPU 0 Card"));
        assert_non_null(strstr(text, "2 run, 1 wait, 1 idle, 3 hand-offs"));
        assert_non_null(strstr(text, "10.0G of 16.0G"));
        assert_non_null(strstr(text, "use     50%"));
        for (unsigned i = 0; i < 4; i++) {
                char name[16];

                (void)snprintf(name, sizeof(name), "job-%u", i);
                assert_non_null(strstr(text, name));
        }
        assert_non_null(strstr(text, "RESID"));
        assert_non_null(strstr(text, "NEXT"));
        assert_null(strstr(text, "MANAGED"));
        assert_non_null(strstr(text, "q quit"));
        assert_non_null(strstr(text, "+ - priority"));
}

static void a_card_that_cannot_be_shared_says_why(void **state)
{
        json_t *status = status_of(many(9), 1);

        set(json_array_get(json_object_get(status, "gpus"), 0), "compute_mode",
            json_string("exclusive_process"));
        look(status);
        assert_true(shows(80, 24, "exclusive compute mode: one program at a time"));
        assert_true(shows(80, 8, "exclusive, 10.0G of 16.0G")); /* one line for the card */
        look(status_of(many(9), 2));
        assert_false(shows(80, 24, "exclusive"));
}

static void jobs_that_wait_have_a_line_that_says_why(void **state)
{
        json_t *status = status_of(many(4), 1);

        set(status, "jobs", json_pack("[o]", job("a", "running", NULL)));
        look(status);
        assert_false(shows(80, 24, "queue"));
        status = status_of(many(4), 2);
        set(status, "jobs",
            json_pack("[o, o, o]", job("a", "running", NULL),
                      job("train", "waiting",
                          "place 1: GPU 0 has a; beside no job would both keep their bounds"),
                      job("late", "waiting", "place 2: GPU 0 has a")));
        look(status);
        assert_true(
                shows(200, 24,
                      "queue: 2 wait, first train for 2m10s, bound 0.70: GPU 0 has a; beside no "
                      "job would both keep their bounds"));
        assert_true(shows(60, 24, "both keep their bounds")); /* in a second line */
        assert_true(shows(60, 12, "queue: 2 wait, first train for 2m10s"));
        assert_false(shows(60, 12, "both keep their bounds"));
        assert_true(shows(60, 12, "job-0"));
        assert_false(shows(60, 6, "queue"));
}

static void another_users_job_that_waits_has_no_name_and_no_reason(void **state)
{
        json_t *status = status_of(many(1), 1);

        set(status, "jobs", json_pack("[o]", job(NULL, "waiting", NULL)));
        look(status);
        assert_true(
                shows(80, 24, "queue: 1 waits, first another user's job for 2m10s, bound 0.70\n"));
}

static void a_wide_terminal_shows_all_columns(void **state)
{
        look(status_of(many(40), 1));
        for (unsigned i = 0; table_column_name(i); i++)
                view.sort = i; /* so many columns are there */
        view.sort = (unsigned)table_column("state");
        assert_true(shows(200, 50, "OVERFLOW  MANAGED  MODE"));
        assert_true(shows(200, 50, "ASKED"));
        assert_true(shows(200, 50, "HAND-OFFS"));
        assert_false(shows(200, 50, "CONTAINER")); /* nobody is in one */
        assert_true(shows(200, 50, "job-0"));
}

static void empty_columns_go_before_a_name_is_cut(void **state)
{
        look(status_of(json_pack("[o]", client(101, "two_notebooks_and.ipynb", "running")), 1));
        assert_true(shows(200, 24, "MANAGED"));
        assert_true(shows(110, 24, "two_notebooks_and.ipynb"));
        assert_false(shows(110, 24, "MANAGED"));
        assert_true(shows(110, 24, "HAND-OFFS"));
}

static void many_programs_leave_the_card_its_lines_and_scroll(void **state)
{
        look(status_of(many(200), 1));
        assert_true(shows(80, 24, "GPU 0"));
        assert_true(shows(80, 24, "of 200"));
        assert_false(shows(80, 24, "job-199 "));
        (void)press(KEYS_END);
        assert_true(shows(80, 24, "-200 of 200"));
        assert_int_equal(view.pid, rows.list[199].pid);
        (void)press(KEYS_HOME);
        assert_true(shows(80, 24, "1-"));
}

static void a_snapshot_has_a_row_for_each_program_and_no_keys(void **state)
{
        view.live = false;
        look(status_of(many(200), 1));
        (void)shown(120, layout_height(history, &view, 120));
        for (unsigned i = 0; i < 200; i++) {
                char name[16];

                (void)snprintf(name, sizeof(name), "job-%u ", i);
                assert_true(shows(120, layout_height(history, &view, 120), name));
        }
        assert_false(shows(120, layout_height(history, &view, 120), "quit"));
        assert_null(strstr(shown(120, 300), " \n"));
}

static void two_cards_have_a_panel_and_a_column(void **state)
{
        json_t *status = status_of(many(2), 1), *other = status_of(many(1), 1);
        json_t *gpu = json_array_get(json_object_get(other, "gpus"), 0);

        set(gpu, "index", json_integer(1));
        set(gpu, "uuid", json_string("GPU-2"));
        (void)json_array_append(json_object_get(status, "gpus"), gpu);
        json_decref(other);
        look(status);
        assert_true(shows(80, 24, "GPU 1 Card"));
        assert_true(shows(80, 24, " GPU     PID"));
        assert_true(rows.n == 3);
}

/* ---- names ---- */

static void no_name_steers_the_terminal(void **state)
{
        static const char *const names[] = {
                "\033[2Jx",
                "\302\2332Jx",
                "a\nb\tc\rd\ae",
                "\342\200\256gnp.exe",
                "\357\277\277\357\277\275",
                "e\314\201\314\201\314\201x",
                "\343\203\207\343\203\274\343\202\277\345\207\246\347\220\206",
                "\360\237\230\200x",
        };
        json_t *list = json_array();

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                json_t *one = client((int)i + 1, "x", "running");

                set(one, "name", json_stringn_nocheck(names[i], strlen(names[i])));
                set(one, "user", json_stringn_nocheck(names[i], strlen(names[i])));
                set(one, "container", json_stringn_nocheck(names[i], strlen(names[i])));
                (void)json_array_append_new(list, one);
        }
        look(status_of(list, 1));
        view.pid = 1;
        (void)shown_as(80, 24, false);
        (void)shown(40, 20);
        assert_true(shows(200, 50, "?[2Jx"));
        assert_true(shows(200, 50, "?2Jx"));
        assert_true(shows(200, 50, "\343\203\207\343\203\274\343\202\277"));
}

static void rows_line_up_after_wide_and_combining_characters(void **state)
{
        json_t *list = json_array();
        int column[3], n = 0;

        (void)json_array_append_new(list,
                                    client(1, "\343\203\207\343\203\274\343\202\277", "running"));
        (void)json_array_append_new(list, client(2, "U\314\210bung", "running"));
        (void)json_array_append_new(list, client(3, "plain", "running"));
        look(status_of(list, 1));
        (void)shown(80, 24);
        for (int i = 0; i + 7 < 80 * 24; i++) {
                static const char word[] = "running";
                int k = 0;

                while (word[k] && frame.cells[i + k].c == (wchar_t)word[k])
                        k++;
                if (!word[k] && n < 3)
                        column[n++] = i % 80;
        }
        assert_int_equal(n, 3);
        assert_int_equal(column[0], column[1]);
        assert_int_equal(column[0], column[2]);
}

static void a_long_name_is_cut_with_a_plus(void **state)
{
        look_at(client(1, "a-program-whose-name-is-longer-than-any-column-of-a-terminal",
                       "running"));
        assert_true(shows(60, 24, "+ running"));
}

/* ---- figures ---- */

static void what_is_not_known_is_never_zero(void **state)
{
        json_t *one = client(1, "x", "waiting");

        set(one, "backed", json_null());
        set(one, "memory", json_null());
        look_at(one);
        assert_true(shows(80, 24, "3.0G    N/A   1.0G"));
        assert_true(shows(80, 24, "bus     N/A"));
        view.pid = 1;
        assert_true(shows(80, 24, "mode N/A"));
        assert_true(shows(80, 24, "next turn N/A")); /* the field is not there */
        assert_true(shows(80, 24, "got N/A"));
}

static void the_expected_turn_is_shown_if_the_daemon_says_it(void **state)
{
        json_t *one = client(1, "x", "waiting");

        set(one, "expected_s", json_real(3.25));
        look_at(one);
        assert_true(shows(80, 24, " 3.2s\n"));
        look_at(client(1, "x", "running"));
        assert_true(shows(80, 24, " now\n"));
        look_at(client(1, "x", "idle"));
        assert_true(shows(80, 24, " -\n"));
}

static void shares_containers_and_modes_are_shown(void **state)
{
        json_t *one = client(1, "x", "running");

        set(one, "minimum", json_real(0.2));
        set(one, "maximum", json_real(0.8));
        set(one, "weight", json_real(2));
        set(one, "memory", json_string("overflow"));
        set(one, "overflow", json_real(5 * GIB_BYTES));
        set(one, "container", json_string("0123456789abcdef0123456789abcdef"));
        set(one, "tenant", json_string("research/notebook-0"));
        look_at(one);
        assert_true(shows(200, 50, "20-80% x2"));
        assert_true(shows(200, 50, "overflow"));
        assert_true(shows(200, 50, "5.0G"));
        assert_true(shows(200, 50, " 0123456789ab "));
        assert_true(shows(200, 50, " research/notebook-0 "));
}

static void trouble_and_pauses_stand_in_the_state(void **state)
{
        json_t *one = client(1, "x", "running");

        set(one, "flags", json_pack("[s]", "overdue"));
        look_at(one);
        assert_true(shows(80, 24, " overdue "));
        one = client(1, "x", "running");
        set(one, "frozen", json_pack("{s:f, s:[s]}", "for_s", 75.0, "why", "paused"));
        look_at(one);
        assert_true(shows(80, 24, " paused    1m15s "));
}

static void rates_follow_from_two_looks(void **state)
{
        json_t *one = client(1, "x", "running"), *two = json_deep_copy(one);

        look(status_of(json_pack("[o]", one), 10));
        set(two, "gpu_time_s", json_real(1.0));
        set(two, "moved_in", json_real(GIB_BYTES));
        set(two, "moved_out", json_real(3 * GIB_BYTES));
        look(status_of(json_pack("[o]", two), 12));
        assert_true(shows(80, 24, " 50%"));
        assert_true(shows(80, 24, " 2.0G/s"));
        assert_true(shows(80, 24, "bus  2.0G/s"));
}

static void a_new_daemon_is_not_compared_with_the_old_one(void **state)
{
        json_t *status = status_of(many(1), 100), *next = status_of(many(1), 1);

        set(first(status), "moved_in", json_real(GIB_BYTES));
        look(status);
        set(next, "instance", json_string("4567"));
        set(first(next), "moved_in", json_real(9 * GIB_BYTES));
        look(next);
        assert_true(shows(80, 24, "bus     N/A"));
}

static void a_program_keeps_its_colour_and_gives_it_back(void **state)
{
        json_t *status = status_of(many(3), 1);

        look(json_incref(status));
        assert_int_equal(json_integer_value(json_object_get(first(status), "hue")), 0);
        json_decref(status);
        status = status_of(
                json_pack("[o, o]", client(1002, "job-2", "idle"), client(7, "new", "idle")), 2);
        look(json_incref(status));
        assert_int_equal(json_integer_value(json_object_get(first(status), "hue")), 2);
        json_decref(status);
}

/* Counts the cells of a style in a line. */
static int cells(int y, unsigned style)
{
        int n = 0;

        for (int x = 0; x < frame.width; x++)
                n += STYLE_OF(frame.cells[y * frame.width + x].style) == style;
        return n;
}

static void the_memory_bar_is_split_in_proportion(void **state)
{
        look(status_of(many(2), 1)); /* 2 and 2 of 16 GiB, 2 others */
        (void)shown(12 + 64 + 1 + (int)strlen("10.0G of 16.0G"), 24);
        assert_int_equal(cells(2, STYLE_BAR), 8);
        assert_int_equal(cells(2, STYLE_BAR + 1), 8);
        assert_int_equal(cells(2, STYLE_OTHERS), 8);
        assert_true(strstr(shown(200, 24), "job-0 2.0G"));
        view.colours = false;
        assert_true(strstr(shown(200, 24), "|job-0"));
        assert_true(strstr(shown_as(200, 24, false), "|others"));
}

static void old_figures_are_pale_and_the_reason_is_said(void **state)
{
        look(status_of(many(2), 1));
        (void)snprintf(view.absent, sizeof(view.absent), "no subletd is running at /x");
        assert_true(shows(80, 24, "no subletd is running at /x"));
        assert_int_equal(cells(1, STYLE_DIM), 80);
        history_free(history);
        history = history_new();
        assert_true(shows(80, 24, "no subletd is running at /x"));
}

static void a_long_message_takes_more_lines_and_is_not_cut(void **state)
{
        look(status_of(many(40), 1));
        (void)snprintf(view.message, sizeof(view.message), "%s",
                       "refused: process 12345 has work on the GPU, and would come back at once: "
                       "pause it first, with sublet pause 12345");
        assert_true(shows(80, 24, "pause 12345"));
        assert_true(shows(80, 24, "q quit"));
        assert_true(shows(60, 24, "pause 12345"));
}

/* ---- keys ---- */

static void rows_are_sorted_as_keys_say(void **state)
{
        json_t *list = json_array(), *big = client(7, "big", "idle");

        (void)json_array_append_new(list, client(5, "b", "running"));
        set(big, "allocated", json_real(9 * GIB_BYTES));
        (void)json_array_append_new(list, big);
        (void)json_array_append_new(list, client(6, "A", "waiting"));
        look(status_of(list, 1));
        (void)shown(80, 24);
        assert_int_equal(rows.list[0].pid, 5); /* those that run come first */
        view.sort = (unsigned)table_column("name");
        (void)shown(80, 24);
        assert_int_equal(rows.list[0].pid, 6);
        (void)press('i');
        (void)shown(80, 24);
        assert_int_equal(rows.list[0].pid, 7);
        (void)press('i');
        view.sort = (unsigned)table_column("for");
        (void)press('>');
        assert_int_equal(view.sort, table_column("allocated"));
        (void)shown(80, 24);
        assert_int_equal(rows.list[0].pid, 7);
        for (unsigned i = 0; table_column_name(i); i++)
                (void)press('<');
        (void)shown(80, 24);
}

static void the_filter_is_typed_and_shows_what_contains_it(void **state)
{
        json_t *list = json_array();

        (void)json_array_append_new(list, client(5, "\303\234bung.py", "running"));
        (void)json_array_append_new(list, client(6, "Train.py", "waiting"));
        look(status_of(list, 1));
        (void)press('/');
        type("trax");
        (void)press(KEYS_BACKSPACE);
        assert_true(shows(80, 24, "filter: tra_"));
        assert_int_equal(rows.n, 1);
        (void)press('\r');
        assert_true(shows(80, 24, "1-1 of 1"));
        (void)press(0x1b);
        (void)shown(80, 24);
        assert_int_equal(rows.n, 2);
        (void)press('/');
        (void)press(0xdc); /* U with two dots */
        (void)shown(80, 24);
        assert_int_equal(rows.n, 1);
        assert_int_equal(rows.list[0].pid, 5);
        (void)press(KEYS_BACKSPACE);
        assert_string_equal(view.filter, "");
        type("q no match");
        assert_true(shows(80, 24, "no program matches the filter"));
        for (unsigned i = 0; i < 200; i++)
                type("x");
        (void)shown(80, 24);
}

static void orders_are_for_the_selected_program(void **state)
{
        struct top_order order = {0};

        look(status_of(many(4), 1));
        (void)shown(80, 24);
        assert_int_equal(keys_press(&view, &rows, 'p', &order), KEYS_NOTHING);
        assert_true(shows(80, 24, "select a program first"));
        (void)press(KEYS_DOWN);
        (void)press(KEYS_DOWN);
        (void)shown(80, 24);
        assert_int_equal(view.pid, rows.list[1].pid);
        assert_int_equal(keys_press(&view, &rows, 'p', &order), KEYS_ORDER);
        assert_string_equal(order.name, "pause");
        assert_int_equal(order.pid, rows.list[1].pid);
        assert_int_equal(keys_press(&view, &rows, 'e', &order), KEYS_ORDER);
        assert_string_equal(order.name, "evict");
        assert_int_equal(keys_press(&view, &rows, 'r', &order), KEYS_ORDER);
        assert_string_equal(order.name, "resume");
        assert_int_equal(keys_press(&view, &rows, '-', &order), KEYS_ORDER);
        assert_string_equal(order.name, "priority");
        assert_int_equal(order.by, -1);
        assert_int_equal(press('q'), KEYS_QUIT);
}

/* The next key must not hit another program. */
static void a_selection_ends_with_its_program(void **state)
{
        struct top_order order;

        look(status_of(many(4), 1));
        (void)shown(80, 24);
        (void)press(KEYS_DOWN);
        look_at(client(1, "other", "running"));
        (void)shown(80, 24);
        assert_int_equal(view.pid, 0);
        assert_int_equal(keys_press(&view, &rows, 'p', &order), KEYS_NOTHING);
}

static void help_explains_each_key(void **state)
{
        (void)press('h');
        for (const struct key_help *k = keys_help; k->keys; k++)
                assert_true(shows(80, 24, k->help));
        assert_int_equal(press('x'), KEYS_NOTHING);
        assert_false(view.help);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(every_size_of_terminal_is_filled_and_no_more),
                TEST(four_programs_fit_80_columns_with_what_matters),
                TEST(a_card_that_cannot_be_shared_says_why),
                TEST(jobs_that_wait_have_a_line_that_says_why),
                TEST(another_users_job_that_waits_has_no_name_and_no_reason),
                TEST(a_wide_terminal_shows_all_columns),
                TEST(empty_columns_go_before_a_name_is_cut),
                TEST(many_programs_leave_the_card_its_lines_and_scroll),
                TEST(a_snapshot_has_a_row_for_each_program_and_no_keys),
                TEST(two_cards_have_a_panel_and_a_column),
                TEST(no_name_steers_the_terminal),
                TEST(rows_line_up_after_wide_and_combining_characters),
                TEST(a_long_name_is_cut_with_a_plus),
                TEST(what_is_not_known_is_never_zero),
                TEST(the_expected_turn_is_shown_if_the_daemon_says_it),
                TEST(shares_containers_and_modes_are_shown),
                TEST(trouble_and_pauses_stand_in_the_state),
                TEST(rates_follow_from_two_looks),
                TEST(a_new_daemon_is_not_compared_with_the_old_one),
                TEST(a_program_keeps_its_colour_and_gives_it_back),
                TEST(the_memory_bar_is_split_in_proportion),
                TEST(old_figures_are_pale_and_the_reason_is_said),
                TEST(a_long_message_takes_more_lines_and_is_not_cut),
                TEST(rows_are_sorted_as_keys_say),
                TEST(the_filter_is_typed_and_shows_what_contains_it),
                TEST(orders_are_for_the_selected_program),
                TEST(a_selection_ends_with_its_program),
                TEST(help_explains_each_key),
        };

        (void)setlocale(LC_CTYPE, "C.UTF-8");
        return cmocka_run_group_tests(tests, NULL, NULL);
}
