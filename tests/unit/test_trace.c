/* test_trace.c: the daemon's records become times in which each program did one thing, a table and
 * a JSON file. Records may be missing, or lie. */
#include "unit.h"

#include "base/clock.h"
#include "base/macros.h"
#include "client/trace/trace_view.h"
#include "wire/wire.h"

#define MS     NSEC_PER_MSEC
#define ROWS   4u
#define MOST   64u
#define RANDOM 3000u
#define DAEMON HISTORY_NO_PROGRAM
#define NOW    (1000 * MS)
#define ANSWER \
        "{\"version\":\"9\",\"time_ns\":1000000000,\"gpus\":[{\"index\":0,\"name\":\"H200\"}]}"

static struct history_program programs[ROWS];
static struct history_record records[MOST];
static struct trace_input in;
static struct trace trace;
static json_t *answer;

static int begin(void **state)
{
        memset(programs, 0, sizeof(programs));
        programs[0] = (struct history_program){.began_ns = MS, .pid = 10, .name = "a"};
        programs[1] = (struct history_program){.began_ns = MS, .pid = 11, .name = "b"};
        in = (struct trace_input){
                .programs = programs, .records = records, .n_programs = 2, .now_ns = NOW};
        answer = json_loads(ANSWER, 0, NULL);
        assert_non_null(answer);
        trace = (struct trace){0};
        return 0;
}

static int end(void **state)
{
        free(trace.events);
        json_decref(answer);
        return 0;
}

static void record(uint64_t ms, uint16_t program, struct history_record r)
{
        assert_true(in.n_records < MOST);
        r.time_ns = ms * MS;
        r.program = program;
        records[in.n_records++] = r;
}

static void state_of(uint64_t ms, uint16_t program, uint8_t before, uint8_t now, uint64_t backed)
{
        record(ms, program,
               (struct history_record){
                       .kind = HISTORY_STATE, .before = before, .state = now, .value = backed});
}

static void moved(uint64_t ms, uint16_t program, uint8_t kind, uint64_t bytes, uint64_t backed)
{
        record(ms, program, (struct history_record){.kind = kind, .value = bytes, .more = backed});
}

static void read_all(void)
{
        free(trace.events);
        assert_int_equal(trace_read(&in, &trace), 0);
}

/* Returns the n-th event of this kind of a program; it must be there. */
static const struct trace_event *event(enum trace_what what, uint16_t track, unsigned n)
{
        for (size_t i = 0; i < trace.n; i++)
                if (trace.events[i].what == what && trace.events[i].track == track && n-- == 0)
                        return &trace.events[i];
        fail_msg("no such event: %s of %u", trace_what_text(what), track);
        return NULL;
}

static unsigned count(enum trace_what what)
{
        unsigned n = 0;

        for (size_t i = 0; i < trace.n; i++)
                n += trace.events[i].what == what;
        return n;
}

static void is_at(const struct trace_event *e, uint64_t begin_ms, uint64_t end_ms)
{
        assert_int_equal(e->begin_ns, begin_ms * MS);
        assert_int_equal(e->end_ns, end_ms * MS);
}

/* Program 0 runs, gives way to program 1 and moves out 5 bytes; program 1 moves in 7. */
static void hand_off(void)
{
        state_of(100, 0, HISTORY_ABSENT, HISTORY_RUNNING, 9);
        state_of(200, 1, HISTORY_ABSENT, HISTORY_WAITING, 0);
        records[in.n_records - 1].more = 7;
        state_of(300, 0, HISTORY_RUNNING, HISTORY_DRAINING, 9);
        state_of(310, 0, HISTORY_DRAINING, HISTORY_EVICTING, 9);
        moved(350, 0, HISTORY_OUT, 2, 7);
        state_of(360, 1, HISTORY_WAITING, HISTORY_RESTORING, 0);
        moved(400, 0, HISTORY_OUT, 3, 4);
        state_of(400, 0, HISTORY_EVICTING, HISTORY_WAITING, 4);
        moved(500, 1, HISTORY_IN, 7, 7);
        state_of(500, 1, HISTORY_RESTORING, HISTORY_RUNNING, 7);
}

static void a_hand_off_is_told_with_its_bytes(void **state)
{
        const struct trace_event *e;

        hand_off();
        read_all();
        is_at(event(TRACE_RUNS, 0, 0), 100, 300);
        is_at(event(TRACE_GIVES_WAY, 0, 0), 300, 310);
        e = event(TRACE_EVICTS, 0, 0);
        is_at(e, 310, 400);
        assert_int_equal(e->out, 5);
        e = event(TRACE_WAITS, 1, 0);
        is_at(e, 200, 360);
        assert_int_equal(e->lacks, 7);
        e = event(TRACE_RESTORES, 1, 0);
        is_at(e, 360, 500);
        assert_int_equal(e->in, 7);
        e = event(TRACE_RUNS, 1, 0);
        is_at(e, 500, 1000);
        assert_true(e->going_on);
        assert_ptr_equal(&trace.events[e->made_way - 1], event(TRACE_GIVES_WAY, 0, 0));
        assert_int_equal(event(TRACE_MEMORY, 0, 1)->value, 7);
        assert_int_equal(event(TRACE_MEMORY, 0, 2)->value, 4);
        assert_int_equal(count(TRACE_COMES), 2);
        assert_int_equal(count(TRACE_LEAVES), 0);
}

static void a_state_that_began_before_the_first_record_is_shown(void **state)
{
        record(100, DAEMON, (struct history_record){.kind = HISTORY_SETTINGS});
        state_of(300, 0, HISTORY_RUNNING, HISTORY_DRAINING, 9);
        read_all();
        is_at(event(TRACE_RUNS, 0, 0), 100, 300);
        assert_int_equal(count(TRACE_COMES), 0);
}

static void what_ended_before_the_last_minutes_is_left_out(void **state)
{
        hand_off();
        in.from_ns = 350 * MS;
        read_all();
        assert_int_equal(count(TRACE_GIVES_WAY), 0);
        is_at(event(TRACE_EVICTS, 0, 0), 350, 400);
        is_at(event(TRACE_MEMORY, 0, 0), 350, 350); /* what it had, and has then */
        is_at(event(TRACE_MEMORY, 0, 1), 350, 400);
        is_at(event(TRACE_WAITS, 1, 0), 350, 360);
}

static void a_program_that_was_killed_leaves(void **state)
{
        hand_off();
        programs[1].ended_ns = 600 * MS; /* without a record */
        read_all();
        is_at(event(TRACE_RUNS, 1, 0), 500, 600);
        is_at(event(TRACE_LEAVES, 1, 0), 600, 600);
        assert_int_equal(event(TRACE_MEMORY, 1, 1)->value, 0);
}

static void a_program_keeps_its_line_across_a_crash_of_the_daemon(void **state)
{
        hand_off();
        record(600, DAEMON, (struct history_record){.kind = HISTORY_START});
        programs[0].ended_ns = programs[1].ended_ns = 600 * MS;
        programs[2] = (struct history_program){.began_ns = 700 * MS, .pid = 11, .name = "b"};
        in.n_programs = 3;
        state_of(700, 2, HISTORY_ABSENT, HISTORY_RUNNING, 7);
        read_all();
        is_at(event(TRACE_RUNS, 1, 0), 500, 600);
        is_at(event(TRACE_RUNS, 1, 1), 700, 1000);
        assert_int_equal(count(TRACE_LEAVES), 0);
        assert_int_equal(count(TRACE_STARTS), 1);
}

static void records_of_an_earlier_program_of_the_row_are_left_out(void **state)
{
        hand_off();
        programs[0].began_ns = 450 * MS;
        read_all();
        for (size_t i = 0; i < trace.n; i++)
                assert_int_not_equal(trace.events[i].track, 0);
}

static void an_allocation_that_waits_and_an_unused_turn_are_told(void **state)
{
        const uint8_t marks[] = {0, HISTORY_GROWS, HISTORY_UNUSED, HISTORY_PAUSED | HISTORY_FROZEN,
                                 0};

        for (unsigned i = 0; i < ARRAY_SIZE(marks); i++) {
                state_of(100 + i * 100, 0, i ? HISTORY_RUNNING : HISTORY_ABSENT, HISTORY_RUNNING,
                         1);
                records[i].marks = marks[i];
                records[i].more = i == 1 ? 3 : 0;
        }
        read_all();
        is_at(event(TRACE_RUNS, 0, 0), 100, 200);
        is_at(event(TRACE_GROWS, 0, 0), 200, 300);
        assert_int_equal(event(TRACE_GROWS, 0, 0)->lacks, 3);
        is_at(event(TRACE_UNUSED, 0, 0), 300, 400);
        is_at(event(TRACE_PAUSED, 0, 0), 400, 500);
        is_at(event(TRACE_RUNS, 0, 1), 500, 1000);
}

static char *printed(void)
{
        const struct trace_view v = {&in, &trace, answer};
        char *text = NULL;
        size_t n;
        FILE *out = open_memstream(&text, &n);

        assert_non_null(out);
        trace_print(&v, out);
        (void)fclose(out);
        return text;
}

static void a_line_tells_when_who_what_and_how_much(void **state)
{
        char *text;

        hand_off();
        record(600, 0,
               (struct history_record){.kind = HISTORY_REFUSED, .state = WIRE_REFUSED_COMMIT});
        read_all();
        (void)setenv("TZ", "UTC", 1);
        text = printed();
        assert_non_null(strstr(text, "1970-01-01\n"));
        assert_non_null(strstr(text, "00:00:00.310   0 a (10)              evicts            0.090"
                                     "  5 B out\n"));
        assert_non_null(strstr(text, "00:00:00.600   0 a (10)              is refused: out of "
                                     "memory\n"));
        assert_non_null(strstr(text, " 0.500+\n"));
        assert_null(strstr(text, " \n"));
        free(text);
}

static void a_long_name_is_cut_and_its_number_is_not(void **state)
{
        char *text;

        (void)strcpy(programs[0].name, "a-name-\xc2\x9b\x1b[31m-which-is-long");
        hand_off();
        read_all();
        text = printed();
        assert_non_null(strstr(text, " a-name-??[31m- (10) "));
        free(text);
}

static void names_in_any_script_are_kept_and_take_their_columns(void **state)
{
        char *text;

        (void)strcpy(programs[0].name, "学習.py");
        (void)strcpy(programs[1].name, "学習学習学習学習学習学習");
        hand_off();
        read_all();
        text = printed();
        assert_non_null(strstr(text, " 学習.py (10)        evicts "));
        assert_non_null(strstr(text, " 学習学習学習学 (11) restores "));
        free(text);
}

static void pods_and_jobs_have_a_column_if_there_are_any(void **state)
{
        char *text;

        hand_off();
        read_all();
        (void)json_object_set_new(answer, "tenants", json_pack("{s:s}", "3", "lab/elsewhere"));
        text = printed();
        assert_null(strstr(text, "POD"));
        free(text);
        (void)json_object_set_new(answer, "tenants", json_pack("{s:s}", "1", "lab/trainer-0"));
        text = printed();
        assert_non_null(strstr(text, "PROGRAM             POD           WHAT "));
        assert_non_null(strstr(text, " a (10)                            evicts "));
        assert_non_null(strstr(text, " b (11)              lab/trainer-0 restores "));
        free(text);
}

static void an_unknown_name_is_not_shown(void **state)
{
        char *text;

        memset(programs[1].name, 0, sizeof(programs[1].name));
        hand_off();
        read_all();
        text = printed();
        assert_non_null(strstr(text, "other user (11)"));
        free(text);
}

/* What Perfetto requires of each event, and that no two times of a thread overlap. */
static void check_json(void)
{
        const struct trace_view v = {&in, &trace, answer};
        static double until[TRACE_GPUS_MAX + 2][ROWS + 1];
        json_t *whole = trace_json(&v), *e;
        size_t i;

        assert_non_null(whole);
        memset(until, 0, sizeof(until));
        json_array_foreach (json_object_get(whole, "traceEvents"), i, e) {
                const char *phase = json_string_value(json_object_get(e, "ph"));
                const json_int_t pid = json_integer_value(json_object_get(e, "pid")),
                                 tid = json_integer_value(json_object_get(e, "tid"));
                const double ts = json_number_value(json_object_get(e, "ts")),
                             dur = json_number_value(json_object_get(e, "dur"));

                assert_non_null(phase);
                assert_non_null(strstr("M X C i s f", phase));
                assert_true(json_is_string(json_object_get(e, "name")));
                assert_true(pid > 0 && pid < TRACE_GPUS_MAX + 2);
                assert_true(tid >= 0 && tid <= (json_int_t)ROWS);
                if (phase[0] == 'M')
                        continue;
                assert_true(json_is_number(json_object_get(e, "ts")) && ts >= 0);
                if (phase[0] != 'X')
                        continue;
                assert_true(json_is_number(json_object_get(e, "dur")) && dur >= 0);
                assert_true(ts >= until[pid][tid] - 0.001);
                until[pid][tid] = ts + dur;
        }
        json_decref(whole);
}

static void the_json_is_what_perfetto_reads(void **state)
{
        hand_off();
        read_all();
        check_json();
}

static void a_daemon_that_crashed_may_have_written_anything(void **state)
{
        uint64_t x = 88172645463325252u;

        in.n_programs = ROWS;
        for (unsigned round = 0; round < RANDOM; round++) {
                uint8_t *bytes = (uint8_t *)records;

                in.n_records = MOST;
                for (size_t i = 0; i < sizeof(records); i++) {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        bytes[i] = (uint8_t)(x >> 24);
                }
                for (unsigned i = 0; i < MOST; i++) { /* most are nearly right */
                        struct history_record *r = &records[i];

                        r->time_ns = i % 8 ? r->time_ns % NOW : r->time_ns;
                        r->program = i % 9 ? r->program % ROWS : r->program;
                        r->kind = i % 7 ? 1 + r->kind % HISTORY_REFUSED : r->kind;
                        r->gpu = i % 6 ? r->gpu % 2 : r->gpu;
                        r->state = i % 5 ? r->state % (HISTORY_ABSENT + 1) : r->state;
                        r->before = i % 4 ? HISTORY_ABSENT : r->before;
                }
                for (unsigned i = 0; i < ROWS; i++) {
                        memset(programs[i].name, (int)(x >> i) & 0x7f, sizeof(programs[i].name));
                        programs[i].pid = (int32_t)(x >> (8 * i) & 1);
                        programs[i].began_ns = 1 + (x >> i) % NOW;
                        programs[i].ended_ns = x >> i & 1 ? (x >> (i + 1)) % (2 * NOW) : 0;
                }
                read_all();
                if (trace.n)
                        check_json();
                free(printed());
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_hand_off_is_told_with_its_bytes),
                TEST(a_state_that_began_before_the_first_record_is_shown),
                TEST(what_ended_before_the_last_minutes_is_left_out),
                TEST(a_program_that_was_killed_leaves),
                TEST(a_program_keeps_its_line_across_a_crash_of_the_daemon),
                TEST(records_of_an_earlier_program_of_the_row_are_left_out),
                TEST(an_allocation_that_waits_and_an_unused_turn_are_told),
                TEST(a_line_tells_when_who_what_and_how_much),
                TEST(a_long_name_is_cut_and_its_number_is_not),
                TEST(names_in_any_script_are_kept_and_take_their_columns),
                TEST(pods_and_jobs_have_a_column_if_there_are_any),
                TEST(an_unknown_name_is_not_shown),
                TEST(the_json_is_what_perfetto_reads),
                TEST(a_daemon_that_crashed_may_have_written_anything),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
