/* test_status_view.c: the table that `sublet status` prints from the daemon's JSON. */
#include "unit.h"

#include "base/macros.h"
#include "client/figures/columns.h"
#include "client/status/status_view.h"

static char *render_in(const char *json, int width)
{
        json_t *status = json_loads(json, 0, NULL);
        char *text = NULL;
        size_t n;
        FILE *out = open_memstream(&text, &n);

        assert_non_null(status);
        assert_non_null(out);
        (void)status_view_print(status, &(struct status_view){.width = width}, out);
        (void)fclose(out);
        json_decref(status);
        return text;
}

static char *render(const char *json)
{
        return render_in(json, 100);
}

#define GPU(clients)                                                                              \
        "{\"version\":\"0.1.0\",\"uptime_s\":3.5,\"mode\":\"auto\",\"quantum\":\"auto\","         \
        "\"host_memory\":{\"budget\":68719476736,\"committed\":1073741824,\"used\":3221225472},"  \
        "\"gpus\":[{"                                                                             \
        "\"index\":0,\"uuid\":\"GPU-1\",\"name\":\"H\",\"total\":150000000000,\"foreign\":0,"     \
        "\"capacity\":149000000000,\"headroom\":536870912,\"unevictable_budget\":7000000000,"     \
        "\"visible\":141000000000,\"charged\":1,\"unevictable\":1,\"committed\":1,\"quantum_s\":" \
        "1.2,"                                                                                    \
        "\"handoffs\":12,\"contested\":true,\"clients\":[" clients "]}]}"

static const char client[] = GPU(
        "{\"pid\":4242,\"uid\":1000,\"user\":\"ada\",\"name\":\"train.py\",\"state\":\"running\","
        "\"idle\":false,\"since_s\":75.0,\"flags\":[\"overdue\"],\"allocated\":45097156608,"
        "\"backed\":45097156608,\"evicted\":0,\"unevictable\":524288000,\"arena\":null,"
        "\"gpu_time_s\":3725,\"handoffs\":7,\"waiting_for\":17}");

static void a_client_is_a_row_in_human_units(void **state)
{
        char *text = render(client);

        assert_non_null(strstr(text, "4242"));
        assert_non_null(strstr(text, "ada"));
        assert_non_null(strstr(text, "train.py"));
        assert_non_null(strstr(text, "running"));
        assert_non_null(strstr(text, "1m15s"));
        assert_non_null(strstr(text, "42.0G"));
        assert_non_null(strstr(text, "500M"));
        assert_non_null(strstr(text, "1h02m"));
        assert_non_null(strstr(text, "overdue, waits for pid 17"));
        assert_non_null(strstr(text, "headroom 512 MiB"));
        assert_non_null(strstr(text, "contested"));
        free(text);
}

static void a_compute_mode_other_than_the_default_is_told(void **state)
{
        static const char *const modes[][2] = {
                {"exclusive_process", "  exclusive compute mode: one program at a time, until "
                                      "nvidia-smi -c DEFAULT\n"},
                {"prohibited", "  prohibited compute mode: no program at all, until "
                               "nvidia-smi -c DEFAULT\n"},
                {"default", NULL}};

        for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
                char *json, *text;

                assert_true(asprintf(&json,
                                     "{\"gpus\":[{\"index\":0,\"name\":\"H\",\"uuid\":\"U\","
                                     "\"compute_mode\":\"%s\"}]}",
                                     modes[i][0]) > 0);
                text = render(json);
                assert_true(modes[i][1] ? strstr(text, modes[i][1]) != NULL
                                        : strstr(text, "compute mode") == NULL);
                free(text);
                free(json);
        }
}

static void priorities_have_a_column_if_there_are_any(void **state)
{
        char *text = render(GPU("{\"pid\":1,\"priority\":0},{\"pid\":2,\"priority\":0}"));

        assert_null(strstr(text, "PRI"));
        free(text);

        text = render_in(GPU("{\"pid\":1,\"name\":\"a\",\"state\":\"idle\",\"priority\":0},"
                             "{\"pid\":2,\"name\":\"b\",\"state\":\"idle\",\"priority\":-20}"),
                         46);
        assert_non_null(strstr(text, "NAME PRI STATE"));
        assert_non_null(strstr(text, "a      0 idle"));
        assert_non_null(strstr(text, "b    -20 idle"));
        assert_null(strstr(text, "priority"));
        free(text);
}

/* The note gives the share of all moved bytes, in both directions, that needed no copy. */
static void classes_and_what_a_program_has_of_its_own_are_shown(void **state)
{
        char *text = render(GPU(
                "{\"pid\":7,\"name\":\"x\",\"state\":\"waiting\",\"flags\":[],\"class\":\"night\","
                "\"weight\":2.5,\"minimum\":0.2,\"maximum\":0.8,\"memory_cap\":21474836480,"
                "\"held\":true}"));

        assert_non_null(strstr(text, "CLASS"));
        assert_non_null(strstr(text, "night"));
        assert_non_null(strstr(text, "weight 2.5, minimum 20%, maximum 80%, memory cap 20.0G,\n"
                                     "        waits because it has used its maximum"));
        free(text);
        text = render(
                GPU("{\"pid\":7,\"name\":\"x\",\"state\":\"waiting\",\"flags\":[],\"class\":null,"
                    "\"weight\":1.0,\"minimum\":null,\"maximum\":null,\"memory_cap\":null,"
                    "\"held\":false}"));
        assert_null(strstr(text, "CLASS"));
        assert_null(strstr(text, "weight"));
        assert_null(strstr(text, "m cap"));
        assert_null(strstr(text, "maximum"));
        free(text);
}

static void rows_are_sorted_and_summed_up(void **state)
{
#define ROW(pid, state, since) \
        "{\"pid\":" pid ",\"state\":\"" state "\",\"since_s\":" since ",\"moved_in\":" pid "000}"
        static const char rows[] = GPU(ROW("1", "idle", "9") "," ROW("2", "waiting", "3") "," ROW(
                "3", "running", "1") "," ROW("4", "waiting", "8") "," ROW("5", "restoring", "1"));
        json_t *status = json_loads(rows, 0, NULL), *before = json_loads(rows, 0, NULL);
        static const char *const order[] = {"\n    3", "\n    5", "\n    4", "\n    2", "\n    1"};
        const struct status_view views[] = {
                {.before = before, .passed_s = 2}, {.pid = 4}, {.pid = 6}};
        json_t *gpu = json_array_get(json_object_get(before, "gpus"), 0);
        const unsigned counts[] = {5, 1, 0};
        char *text = NULL, *at;
        size_t n;
        FILE *out;

        (void)json_object_set_new(json_array_get(json_object_get(gpu, "clients"), 4), "moved_in",
                                  json_integer(3000));
        for (unsigned i = 0; i < 3; i++) {
                out = open_memstream(&text, &n);
                assert_int_equal(status_view_print(status, &views[i], out), counts[i]);
                (void)fclose(out);
                at = text;
                for (unsigned k = 0; k < 5 && i == 0; k++) {
                        at = strstr(at, order[k]);
                        assert_non_null(at);
                }
                assert_true((strstr(text, "\n  1 run, 3 wait, 1 idle, 1000B/s moved\n") != NULL) ==
                            (i == 0));
                assert_true(i != 2 || *text == '\0');
                free(text);
        }
        json_decref(status);
        json_decref(before);
}

static void bytes_not_copied_are_noted_if_there_are_any(void **state)
{
        char *text = render(
                GPU("{\"pid\":1,\"idle\":true,\"moved_out\":6442450944,\"moved_in\":4294967296,"
                    "\"spared_out\":32212254720,\"spared_in\":1073741824}"));

        assert_non_null(strstr(text, "        idle, 31.0G of 41.0G not copied\n"));
        free(text);

        text = render(
                GPU("{\"pid\":1,\"moved_out\":6442450944,\"spared_out\":0,\"spared_in\":0},"
                    "{\"pid\":2,\"moved_out\":6442450944,\"spared_out\":null,\"spared_in\":null}"));
        assert_null(strstr(text, "copied"));
        free(text);
}

static void unknown_values_are_never_shown_as_zero(void **state)
{
        char *text = render("{\"gpus\":[{\"clients\":[{\"pid\":1,\"allocated\":null}]}]}");
        char *row = strstr(text, "PID");

        assert_non_null(strstr(text, "capacity N/A of N/A"));
        assert_non_null(row);
        row = strchr(row, '\n');
        assert_non_null(row);
        assert_null(strchr(row, '0'));
        free(text);

        text = render(client);
        assert_non_null(strstr(text, "N/A")); /* in the arena's column */
        free(text);
}

static void columns_line_up(void **state)
{
        char *text = render(GPU("{\"pid\":1,\"user\":\"a\",\"name\":\"x\",\"handoffs\":1},"
                                "{\"pid\":123456,\"user\":\"somebody\",\"name\":\"long-name\","
                                "\"handoffs\":123456789012}"));
        char *line = strstr(text, "PID");
        size_t length = 0;

        assert_non_null(line);
        while (line != text && line[-1] != '\n')
                line--;
        for (int rows = 0; rows < 3; rows++) {
                char *end = strchr(line, '\n');

                assert_non_null(end);
                if (rows == 0)
                        length = (size_t)(end - line);
                assert_int_equal(end - line, length);
                line = end + 1;
        }
        free(text);
}

#define WIDEST                                                                              \
        "\"pid\":4194304,\"user\":\"a-very-long-user-name-indeed\",\"name\":"               \
        "\"a-program-whose-name-is-as-long-as-names-may-be-and-no-longer-xx\","             \
        "\"state\":\"restoring\",\"since_s\":86400,\"allocated\":1099511627775,"            \
        "\"backed\":1099511627775,\"evicted\":1099511627775,\"unevictable\":1099511627775," \
        "\"arena\":1099511627775,\"gpu_time_s\":863999,\"handoffs\":123456"

static const char widest[] = GPU("{" WIDEST "}");

/* This client has, besides, every value that most clients lack. */
static const char fullest[] =
        GPU("{" WIDEST ",\"priority\":-20,\"overflow\":1099511627775,\"managed\":1099511627775,"
            "\"idle\":true,\"memory\":\"overflow\",\"keep\":1099511627775,"
            "\"frozen\":{\"for_s\":86400,\"why\":[\"away\"]},\"paused\":true,"
            "\"flags\":[\"unpreemptible\",\"detached\",\"poisoned\"],\"waiting_for\":4194303,"
            "\"moved_in\":1099511627775,\"spared_in\":1099511627775}");

/* Finds the column of the state in the row of a name. */
static int state_column(const char *text, const char *name)
{
        const char *row = strstr(text, name), *state, *begin;

        assert_non_null(row);
        state = strstr(row, "idle");
        for (begin = row; begin > text && begin[-1] != '\n';)
                begin--;
        assert_non_null(state);
        return columns_of(begin) - columns_of(state);
}

static void names_of_any_script_line_up(void **state)
{
        static const char json[] =
                GPU("{\"pid\":1,\"name\":\"train.py\",\"state\":\"idle\"},"
                    "{\"pid\":2,\"name\":\"Übung.py\",\"state\":\"idle\"},"
                    "{\"pid\":3,\"name\":\"学習データの準備.py\",\"state\":\"idle\"}");

        for (int width = 40; width <= 100; width += 60) {
                char *text = render_in(json, width);

                assert_int_equal(state_column(text, "Übung.py"), state_column(text, "train.py"));
                assert_int_equal(state_column(text, "学習"), state_column(text, "train.py"));
                free(text);
        }
}

static void the_widest_client_fits_every_terminal(void **state)
{
        for (int width = 40; width <= 200; width++) {
                char *text = render_in(fullest, width), *row = strstr(text, "PID");

                assert_non_null(row);
                for (char *line = row, *end; (end = strchr(line, '\n')); line = end + 1)
                        assert_in_range(end - line, 1, width);
                assert_non_null(strstr(row, "4194304"));
                assert_non_null(strstr(row, "a-progr"));
                assert_non_null(strstr(row, "restoring"));
                assert_non_null(strstr(row, "BACKED"));
                assert_true(width < 48 || strstr(row, "EVICTED"));
                free(text);
        }
}

/* OVERFLOW shows memory that the program uses over the bus, in host memory. MANAGED shows managed
 * memory. */
static void overflow_columns_appear_only_with_overflow(void **state)
{
        char *text = render_in(
                GPU("{\"pid\":1,\"allocated\":32212254720,\"backed\":21474836480,\"evicted\":0,"
                    "\"overflow\":10737418240,\"managed\":0,\"memory\":\"overflow\","
                    "\"keep\":21474836480},"
                    "{\"pid\":2,\"allocated\":1,\"backed\":1,\"evicted\":0,\"overflow\":0,"
                    "\"managed\":0,\"memory\":\"swap\",\"keep\":null}"),
                0);

        assert_non_null(strstr(text, "ALLOCATED  BACKED  EVICTED  OVERFLOW"));
        assert_non_null(strstr(text, "    30.0G   20.0G        0     10.0G"));
        assert_null(strstr(text, "MANAGED"));
        assert_non_null(strstr(text, "        memory overflow, keeps to 20.0G\n"));
        assert_null(strstr(text, "memory swap"));
        free(text);

        text = render_in(GPU("{\"pid\":1,\"overflow\":0,\"managed\":10737418240,"
                             "\"memory\":\"managed\",\"keep\":null}"),
                         0);
        assert_null(strstr(text, "OVERFLOW"));
        assert_non_null(strstr(text, "EVICTED  MANAGED"));
        assert_non_null(strstr(text, "10.0G"));
        assert_non_null(strstr(text, "        memory managed\n"));
        free(text);
}

/* Every line of the notes has the indent of the first, and none is wider than the terminal. */
static void long_notes_continue_on_the_next_line(void **state)
{
        char *text = render_in(fullest, 60);

        assert_non_null(strstr(text, "\n        idle, unpreemptible, detached, poisoned,\n"
                                     "        waits for pid 4194303, frozen for 1d00h,\n"
                                     "        without its memory, told to pause, memory overflow,\n"
                                     "        keeps to 1.0T, 1.0T of 2.0T not copied\n"));
        free(text);
        text = render_in(fullest, 0);
        assert_non_null(strstr(text,
                               "poisoned, waits for pid 4194303, frozen for 1d00h, without its "
                               "memory, told to pause, memory overflow, keeps"));
        free(text);
}

#define FROZEN(state, paused, for_s, why)                \
        "{\"pid\":1,\"name\":\"a\",\"state\":\"" state   \
        "\",\"since_s\":900,\"idle\":true,\"flags\":[]," \
        "\"paused\":" paused ",\"frozen\":{\"for_s\":" for_s ",\"why\":[" why "]}}"

static void a_paused_client_is_shown_with_the_time_of_its_pause(void **state)
{
        char *text = render(GPU(FROZEN("running", "true", "75.0", "\"paused\"")));

        assert_non_null(strstr(text, "paused  1m15s"));
        assert_null(strstr(text, "running"));
        assert_null(strstr(text, "idle"));
        assert_null(strstr(text, "frozen"));
        free(text);

        text = render(GPU(FROZEN("idle", "true", "75.0", "\"paused\",\"away\"")));
        assert_non_null(strstr(text, "paused  1m15s"));
        assert_non_null(strstr(text, "\n        without its memory\n"));
        free(text);
}

/* It may have its turn still: it does not run. */
static void a_paused_client_stands_and_counts_between_those_that_wait_and_idle_ones(void **state)
{
        static const char waits[] = "{\"pid\":2,\"name\":\"b\",\"state\":\"waiting\"}",
                          idles[] = "{\"pid\":3,\"name\":\"c\",\"state\":\"idle\"}";
        char all[4096], *text;
        const char *paused, *waiting, *idle;

        (void)snprintf(all, sizeof(all), GPU("%s,%s,%s"), idles,
                       FROZEN("running", "true", "75.0", "\"paused\""), waits);
        text = render(all);
        assert_non_null(strstr(text, "\n  1 wait, 1 paused, 1 idle\n"));
        waiting = strstr(text, "waiting");
        paused = strstr(text, "paused ");
        idle = strstr(text, "idle");
        assert_true(waiting && paused && idle && waiting < paused && paused < idle);
        free(text);
}

static void the_first_line_tells_promised_and_used_host_memory_apart(void **state)
{
        char *text = render(GPU(""));

        assert_non_null(strstr(text, "host memory 1 GiB promised of 64 GiB, 3 GiB used\n"));
        free(text);
}

static void a_client_that_is_not_paused_yet_keeps_its_state(void **state)
{
        char *text = render(GPU(FROZEN("running", "true", "0.0", "\"paused\"")));

        assert_non_null(strstr(text, "running  15m00s"));
        assert_non_null(strstr(text, "\n        idle, told to pause\n"));
        free(text);

        text = render(GPU("{\"pid\":1,\"state\":\"running\",\"paused\":true,\"frozen\":null}"));
        assert_non_null(strstr(text, "running"));
        assert_non_null(strstr(text, "\n        told to pause\n"));
        free(text);
}

static void a_client_frozen_without_its_memory_keeps_its_state(void **state)
{
        char *text = render(GPU(FROZEN("waiting", "false", "3.1", "\"away\"")));

        assert_non_null(strstr(text, "waiting  15m00s"));
        assert_non_null(strstr(text, "\n        idle, frozen for 3.1s, without its memory\n"));
        assert_null(strstr(text, "pause"));
        free(text);

        text = render(GPU(FROZEN("waiting", "false", "0.0", "")));
        assert_null(strstr(text, "frozen"));
        free(text);
}

static void a_client_that_is_drained_is_shown_with_the_reason(void **state)
{
        static const char drained[] = GPU("{\"pid\":1,\"way\":\"own\",\"freeze\":\"off\","
                                          "\"freeze_off\":\"the GPU is tired\"}"),
                          mps[] = GPU("{\"pid\":1,\"way\":\"shared\",\"freeze\":\"off\","
                                      "\"freeze_off\":\"the GPU is tired\"}");
        char *text = render(drained), of_an_owner[2 * sizeof(drained)];

        assert_non_null(strstr(text, "\n        not frozen: the GPU is tired\n"));
        free(text);
        text = render(mps);
        assert_non_null(strstr(text, "\n        way shared (MPS)\n"));
        free(text);
        (void)snprintf(of_an_owner, sizeof(of_an_owner), "{\"freeze\":\"off\",%s", drained + 1);
        text = render(of_an_owner); /* the owner need not be told of each program */
        assert_null(strstr(text, "tired"));
        free(text);
}

static void the_table_fits_100_columns_and_80_without_the_arena(void **state)
{
        char *text = render_in(widest, 100);

        assert_non_null(strstr(text, "ARENA"));
        assert_non_null(strstr(text, "HAND-OFFS"));
        assert_non_null(strstr(text, "a-ver+ a-program+ ")); /* a plus sign marks cut text */
        free(text);

        text = render_in(client, 80);
        assert_null(strstr(text, "ARENA"));
        assert_non_null(strstr(text, "ALLOCATED"));
        assert_non_null(strstr(text, "GPU TIME"));
        free(text);
}

static void no_text_is_cut_without_a_width(void **state)
{
        char *text = render_in(widest, 0);

        assert_non_null(strstr(text, "a-very-long-user-name-indeed  "));
        assert_non_null(strstr(text, "and-no-longer-xx  restoring"));
        free(text);
}

static void a_name_cannot_steer_the_terminal(void **state)
{
        char *text = render(GPU("{\"pid\":1,\"name\":\"\\u001b[2Jx\"}"));

        assert_null(strchr(text, 0x1b));
        assert_non_null(strstr(text, "?[2Jx"));
        free(text);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_client_is_a_row_in_human_units),
                cmocka_unit_test(a_compute_mode_other_than_the_default_is_told),
                cmocka_unit_test(priorities_have_a_column_if_there_are_any),
                cmocka_unit_test(classes_and_what_a_program_has_of_its_own_are_shown),
                cmocka_unit_test(rows_are_sorted_and_summed_up),
                cmocka_unit_test(bytes_not_copied_are_noted_if_there_are_any),
                cmocka_unit_test(unknown_values_are_never_shown_as_zero),
                cmocka_unit_test(columns_line_up),
                cmocka_unit_test(names_of_any_script_line_up),
                cmocka_unit_test(the_widest_client_fits_every_terminal),
                cmocka_unit_test(overflow_columns_appear_only_with_overflow),
                cmocka_unit_test(a_paused_client_is_shown_with_the_time_of_its_pause),
                cmocka_unit_test(
                        a_paused_client_stands_and_counts_between_those_that_wait_and_idle_ones),
                cmocka_unit_test(the_first_line_tells_promised_and_used_host_memory_apart),
                cmocka_unit_test(a_client_that_is_not_paused_yet_keeps_its_state),
                cmocka_unit_test(a_client_frozen_without_its_memory_keeps_its_state),
                cmocka_unit_test(a_client_that_is_drained_is_shown_with_the_reason),
                cmocka_unit_test(long_notes_continue_on_the_next_line),
                cmocka_unit_test(the_table_fits_100_columns_and_80_without_the_arena),
                cmocka_unit_test(no_text_is_cut_without_a_width),
                cmocka_unit_test(a_name_cannot_steer_the_terminal),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
