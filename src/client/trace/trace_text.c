/* trace_text.c: owns the table of what happened. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "client/figures/columns.h"
#include "client/trace/trace_view.h"
#include "client/figures/user_names.h"

#define NOTES_MAX   128
#define PROGRAM_MAX 19   /* columns of a program: then most lines have 80 */
#define WHOLE_MAX   1024 /* bytes of a line */

/* Writes the local time of day, as 14:03:07.125, and the day. */
static void put_time(const struct trace_view *v, uint64_t time_ns, char ret[static 32],
                     char ret_day[static 16])
{
        const uint64_t now = (uint64_t)json_integer_value(json_object_get(v->answer, "time_ns")),
                       at = sub_sat(now, sub_sat(v->in->now_ns, time_ns));
        const time_t seconds = (time_t)(at / NSEC_PER_SEC);
        char text[16];
        struct tm parts;

        (void)localtime_r(&seconds, &parts);
        (void)strftime(text, sizeof(text), "%H:%M:%S", &parts);
        (void)strftime(ret_day, 16, "%F", &parts);
        (void)snprintf(ret, 32, "%s.%03u", text, (unsigned)(at % NSEC_PER_SEC / NSEC_PER_MSEC));
}

static const char *mode_name(uint8_t mode)
{
        static const char *const names[] = {"auto", "exclusive", "off"}; /* enum sched_mode */

        return mode < ARRAY_SIZE(names) ? names[mode] : "unknown";
}

static void add_note(char notes[static NOTES_MAX], bool wanted, const char *text)
{
        const size_t used = strlen(notes);

        if (wanted)
                (void)snprintf(notes + used, NOTES_MAX - used, "%s%s", used ? ", " : "", text);
}

static void add_size(char notes[static NOTES_MAX], uint64_t bytes, const char *text)
{
        char size[UNITS_TEXT_MAX], note[UNITS_TEXT_MAX + 16];

        (void)snprintf(note, sizeof(note), "%s %s", units_format_size(bytes, size), text);
        add_note(notes, bytes > 0, note);
}

static void put_notes(const struct trace_event *e, char ret[static NOTES_MAX])
{
        const bool gives = e->what == TRACE_GIVES_WAY || e->what == TRACE_EVICTS;
        char text[UNITS_TEXT_MAX], note[96];

        ret[0] = 0;
        add_size(ret, e->out, "out");
        add_size(ret, e->in, "in");
        (void)snprintf(note, sizeof(note), "lacks %s", units_format_size(e->lacks, text));
        add_note(ret, e->lacks > 0, note);
        add_note(ret, gives && e->marks & HISTORY_FROZEN, "frozen");
        add_note(ret, e->marks & HISTORY_OVERDUE, "overdue");
        add_note(ret, e->marks & HISTORY_LOST, "no connection");
        add_note(ret, e->what == TRACE_REFUSED, trace_refusal_text(e->detail));
        (void)snprintf(note, sizeof(note), "mode %s, quantum %s", mode_name(e->detail),
                       e->value ? units_format_duration(e->value, text) : "auto");
        add_note(ret, e->what == TRACE_STARTS || e->what == TRACE_SETTINGS, note);
        add_note(ret, e->what == TRACE_ORDERED, trace_order_text(e->detail));
        (void)snprintf(note, sizeof(note), "by %s", users_text(e->value));
        add_note(ret, e->what == TRACE_ORDERED, note);
}

const char *trace_tenant(const struct trace_view *v, uint16_t track)
{
        char row[8];

        (void)snprintf(row, sizeof(row), "%u", track);
        return json_string_value(json_object_get(json_object_get(v->answer, "tenants"), row));
}

/* Returns how wide the column of pods must be; 0: no program runs in one, so there is none. */
static int tenant_width(const struct trace_view *v)
{
        size_t width = 0;

        for (size_t i = 0; i < v->trace->n; i++) {
                const uint16_t track = v->trace->events[i].track;
                const char *tenant = track == TRACE_NO_TRACK ? NULL : trace_tenant(v, track);

                width = MAX(width, tenant ? strlen(tenant) : 0);
        }
        return (int)width;
}

struct line {
        const char *time, *gpu, *program, *tenant, *what, *seconds, *notes;
};

/* Prints a line without blanks at its end. */
static void print_line(const struct line *l, int width, FILE *out)
{
        char line[WHOLE_MAX];
        size_t n;

        (void)snprintf(line, sizeof(line), "%-12s %3s %s%*s %-*s%s%-14s %8s  %s", l->time, l->gpu,
                       l->program, MAX(PROGRAM_MAX - columns_of(l->program), 0), "", width,
                       l->tenant, width ? " " : "", l->what, l->seconds, l->notes);
        n = strlen(line);
        while (n > 0 && line[n - 1] == ' ')
                n--;
        (void)fprintf(out, "%.*s\n", (int)n, line);
}

/* Writes the program's name and pid; a long name is cut. */
static void put_program(const struct trace_view *v, uint16_t track,
                        char ret[static TRACE_LABEL_MAX])
{
        const char *pid;
        size_t n;
        int used;

        if (track == TRACE_NO_TRACK) {
                (void)strcpy(ret, "subletd");
                return;
        }
        trace_label(v->in, track, ret);
        pid = strrchr(ret, ' ');
        if (columns_of(ret) <= PROGRAM_MAX || !pid || v->in->programs[track].pid == 0)
                return;
        n = columns_fit(ret, PROGRAM_MAX - (int)strlen(pid), &used);
        memmove(ret + n, pid, strlen(pid) + 1);
}

/* day: the day of the event before, which is printed when it changes. */
static void print_event(const struct trace_view *v, const struct trace_event *e,
                        char day[static 16], int width, FILE *out)
{
        const char *tenant = e->track == TRACE_NO_TRACK ? NULL : trace_tenant(v, e->track);
        const bool lasts = e->what < TRACE_SPANS;
        char time[32], today[16], gpu[8] = "", program[TRACE_LABEL_MAX], what[192], length[24] = "",
                                  notes[NOTES_MAX];

        put_time(v, e->begin_ns, time, today);
        if (strcmp(day, today) != 0)
                (void)fprintf(out, "%s\n", strcpy(day, today));
        if (e->track != TRACE_NO_TRACK)
                (void)snprintf(gpu, sizeof(gpu), "%u", e->gpu);
        put_program(v, e->track, program);
        put_notes(e, notes);
        (void)snprintf(what, sizeof(what), "%s%s%s", trace_what_text(e->what),
                       !lasts && notes[0] ? ": " : "", lasts ? "" : notes);
        if (lasts)
                (void)snprintf(length, sizeof(length), "%.3f%s",
                               (double)(e->end_ns - e->begin_ns) / (double)NSEC_PER_SEC,
                               e->going_on ? "+" : "");
        print_line(&(struct line){time, gpu, program, tenant ? tenant : "", what, length,
                                  lasts ? notes : ""},
                   width, out);
}

void trace_print(const struct trace_view *v, FILE *out)
{
        const int width = tenant_width(v);
        char day[16] = "";

        print_line(
                &(struct line){"TIME", "GPU", "PROGRAM", width ? "POD" : "", "WHAT", "SECONDS", ""},
                width, out);
        for (size_t i = 0; i < v->trace->n; i++)
                if (v->trace->events[i].what != TRACE_MEMORY)
                        print_event(v, &v->trace->events[i], day, width, out);
}
