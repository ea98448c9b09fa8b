/* demo_view.c: owns the demo's display: the live picture and the table at the end. Must never
 * decide anything. */
#include "lab/demo/demo.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"

#define BAR_CELLS    50
#define PLAIN_WIDE   80  /* columns of output that is no terminal */
#define QUIET_PERIOD 2.0 /* seconds between two lines if lines cannot be overwritten */

static const char *const ends[] = {[DEMO_RUNNING] = "running",
                                   [DEMO_COMPLETED] = "completed",
                                   [DEMO_NO_MEMORY] = "out of memory",
                                   [DEMO_FAILED] = "failed"};

static const char *size_text(uint64_t bytes, char buf[static UNITS_TEXT_MAX])
{
        return bytes == DEMO_UNKNOWN ? "N/A" : units_format_size(bytes, buf);
}

void demo_screen_begin(struct demo_screen *screen, const struct demo_row *row)
{
        const char *term = getenv("TERM");

        screen->terminal = isatty(STDOUT_FILENO) && (!term || strcmp(term, "dumb") != 0);
        screen->drawn = 0;
        screen->said = -QUIET_PERIOD;
        (void)printf("\n%s\n", row->title);
        (void)fflush(stdout);
}

/* Draws the card as cells: the backed memory of A and B, other memory in use, free memory. On
 * the plain driver a program's memory counts as "other", because NVML gives only the sum for the
 * card. */
static void draw_bar(const struct demo_stage *stage, const struct demo_row *row,
                     const struct demo_result *now, uint64_t used, char bar[static BAR_CELLS + 1])
{
        double cell = (double)stage->card_bytes / BAR_CELLS, at = 0;
        unsigned i = 0;

        for (unsigned k = 0; row->shared && k < DEMO_JOBS; k++) {
                const struct demo_job *job = &now->jobs[k];

                if (job->outcome != DEMO_RUNNING || job->backed == DEMO_UNKNOWN)
                        continue;
                at += (double)job->backed;
                while (i < BAR_CELLS && ((double)i + 0.5) * cell < at)
                        bar[i++] = (char)('A' + k);
        }
        while (i < BAR_CELLS && used != DEMO_UNKNOWN && ((double)i + 0.5) * cell < (double)used)
                bar[i++] = '#';
        while (i < BAR_CELLS)
                bar[i++] = '.';
        bar[i] = 0;
}

/* Describes a program in one line; brief: without the places of its memory. */
static const char *job_text(const struct demo_row *row, const struct demo_job *job, bool brief,
                            char *buf, size_t n)
{
        char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX], of[32] = "", memory[80] = "";
        bool known = row->shared && job->backed != DEMO_UNKNOWN;

        if (job->outcome != DEMO_RUNNING) {
                (void)snprintf(buf, n, "%s%s%s", ends[job->outcome], job->trouble[0] ? ": " : "",
                               job->trouble);
                return buf;
        }
        if (job->program.pid <= 0)
                return "not started";
        if (job->rounds)
                (void)snprintf(of, sizeof(of), " of %llu", (unsigned long long)job->rounds);
        if (known && !brief)
                (void)snprintf(memory, sizeof(memory), ", on the card %s, off it %s",
                               size_text(job->backed, a), size_text(job->evicted, b));
        (void)snprintf(buf, n, "%-9s round %llu%s%s",
                       !job->allocated ? "starts"
                       : job->pauses   ? "pauses"
                       : known         ? job->state
                                       : "computes",
                       (unsigned long long)job->round, of, memory);
        return buf;
}

static int columns(void)
{
        struct winsize size;

        return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col
                       ? size.ws_col
                       : PLAIN_WIDE;
}

/* Prints a line, cut at the terminal's width: a wrapped line would take two, and the next picture
 * would overwrite the wrong lines. */
static __attribute__((format(printf, 1, 2))) void draw_line(const char *format, ...)
{
        char line[320];
        va_list args;

        va_start(args, format);
        (void)vsnprintf(line, sizeof(line), format, args);
        va_end(args);
        (void)printf("\033[K%.*s\n", columns() - 1, line);
}

void demo_screen_draw(struct demo_screen *screen, const struct demo_stage *stage,
                      const struct demo_row *row, const struct demo_result *now, uint64_t card_used,
                      double seconds)
{
        char bar[BAR_CELLS + 1], used[UNITS_TEXT_MAX], all[UNITS_TEXT_MAX], a[160], b[160];
        char turns[64] = "", moved[64] = "";
        const char *texts[DEMO_JOBS] = {
                job_text(row, &now->jobs[0], !screen->terminal, a, sizeof(a)),
                job_text(row, &now->jobs[1], !screen->terminal, b, sizeof(b))};

        if (!screen->terminal) {
                if (seconds - screen->said < QUIET_PERIOD)
                        return;
                screen->said = seconds;
                (void)printf("  %5.1f s  A %s; B %s\n", seconds, texts[0], texts[1]);
                (void)fflush(stdout);
                return;
        }
        draw_bar(stage, row, now, card_used, bar);
        if (screen->drawn)
                (void)printf("\033[%dA", screen->drawn);
        draw_line("  [%s] %s of %s", bar, size_text(card_used, used),
                  units_format_size(stage->card_bytes, all));
        for (unsigned k = 0; k < DEMO_JOBS; k++)
                draw_line("  %c  %s", (int)('A' + k), texts[k]);
        if (row->shared)
                (void)snprintf(turns, sizeof(turns), ", %llu hand-offs%s",
                               (unsigned long long)now->handoffs,
                               now->daemon_killed ? ", daemon killed and back" : "");
        if (row->shared && stage->simulated && now->to_card != DEMO_UNKNOWN)
                (void)snprintf(moved, sizeof(moved), ", %s out, %s in",
                               units_format_size(now->to_host, used),
                               units_format_size(now->to_card, all));
        draw_line("  %.1f s%s%s", seconds, turns, moved);
        (void)fflush(stdout);
        screen->drawn = 2 + DEMO_JOBS;
}

void demo_screen_end(struct demo_screen *screen, const struct demo_result *result)
{
        if (screen->terminal)
                return;
        (void)printf("  ended after %.1f s\n", result->seconds);
}

int demo_same_results(const struct demo_result *a, const struct demo_result *b)
{
        int compared = 0;

        for (unsigned k = 0; k < DEMO_JOBS; k++) {
                if (a->jobs[k].outcome != DEMO_COMPLETED || b->jobs[k].outcome != DEMO_COMPLETED)
                        continue;
                if (a->jobs[k].mismatches || b->jobs[k].mismatches ||
                    strcmp(a->jobs[k].digest, b->jobs[k].digest) != 0)
                        return 0;
                compared++;
        }
        return compared > 0;
}

/* Formats the bytes that sublet moved, both ways together. */
static void moved_text(const struct demo_row *row, const struct demo_result *result, char *buf,
                       size_t n)
{
        char bytes[UNITS_TEXT_MAX];

        if (!row->shared)
                (void)snprintf(buf, n, "-");
        else if (result->to_card == DEMO_UNKNOWN)
                (void)snprintf(buf, n, "N/A");
        else
                (void)snprintf(buf, n, "%s%s", result->counted_by_clients ? ">= " : "",
                               units_format_size(result->to_card + result->to_host, bytes));
}

static const char *results_text(const struct demo_result *results, unsigned i)
{
        if (i == 0)
                return "reference";
        for (unsigned k = 0; k < DEMO_JOBS; k++)
                if (results[i].jobs[k].outcome != DEMO_COMPLETED)
                        return "incomplete";
        return demo_same_results(&results[i], &results[0]) ? "identical" : "DIFFERENT";
}

void demo_print_table(const struct demo_row *rows, const struct demo_result *results, unsigned n)
{
        bool by_clients = false;

        (void)printf("\n%-22s %-10s %-13s %7s %11s  %s\n", "", "A", "B", "time", "moved",
                     "results");
        for (unsigned i = 0; i < n; i++) {
                char moved[32];

                moved_text(&rows[i], &results[i], moved, sizeof(moved));
                (void)printf("%-22s %-10s %-13s %5.1f s %11s  %s\n", rows[i].title,
                             ends[results[i].jobs[0].outcome], ends[results[i].jobs[1].outcome],
                             results[i].seconds, moved, results_text(results, i));
                by_clients |= results[i].counted_by_clients;
        }
        (void)printf("\nmoved: between the card and host memory, both ways together%s.\n"
                     "identical: bit for bit the results of the row \"one after the other\".\n",
                     by_clients ? ",\nas both programs had reported when last asked" : "");
}
