/* buffers: buffers of which some are used more often than others. Obeys the lines on stdin and
 * answers each with a JSON line:
 *
 *   alloc N SIZE           makes and fills buffer number N       free N
 *   priority N P           sets its priority (sublet.h)          check     checks everything
 *   cycle UNITS N:T ...    does that many units of work; each checks and rewrites buffer N T times;
 *                          N:T:SIZE checks its first SIZE bytes T times
 *   until FILE N:T ...     does such units until the file exists
 *   info                   prints the driver's free bytes       end   (so does the end of stdin)
 *
 * "ms" in the answer to a cycle is the median of its units. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../include/sublet.h"
#include "base/macros.h"
#include "base/units.h"
#include "program.h"

#define BUFFERS 256

static struct buffer {
        struct block b;
        uint64_t round;
} buffer[BUFFERS];
static CUdeviceptr verdict;
static CUstream stream;

static struct buffer *numbered(const char *text, bool there)
{
        unsigned long n = strtoul(text, NULL, 10);

        if (n >= BUFFERS || (buffer[n].b.at != 0) != there)
                program_fail(PROGRAM_EXIT_USAGE, "no buffer '%s' to do that with", text);
        return &buffer[n];
}

static void look(const struct buffer *u, unsigned long times, const char *size)
{
        uint64_t bytes;

        if (program_size(size, &bytes) < 0 || bytes > u->b.bytes)
                program_fail(PROGRAM_EXIT_USAGE, "%s is no size of that buffer", size);
        for (; times > 0; times--)
                launch_verify(u->b.at, bytes, u->b.origin, pattern_key(options.seed, u->round),
                              verdict, stream);
}

static void use(struct buffer *u, unsigned long times)
{
        for (; times > 0; times--, u->round++)
                launch_step(u->b.at, u->b.bytes, u->b.origin, pattern_key(options.seed, u->round),
                            pattern_key(options.seed, u->round + 1), verdict, stream);
}

static void unit(char *pairs)
{
        char *copy = strdup(pairs), *rest = copy, *pair;

        while (copy && (pair = strsep(&rest, " "))) {
                char *times = strchr(pair, ':'), *size = times ? strchr(times + 1, ':') : NULL;
                unsigned long n = times ? strtoul(times + 1, NULL, 10) : 1;

                if (size)
                        look(numbered(pair, true), n, size + 1);
                else if (*pair)
                        use(numbered(pair, true), n);
        }
        free(copy);
        (void)verdict_take(verdict, 0, stream); /* waits, as a program does that prints its loss */
}

static int by_value(const void *a, const void *b)
{
        return *(const double *)a < *(const double *)b ? -1 : 1;
}

/* Runs units of work. Returns the median of their times in milliseconds. */
static double cycle(unsigned long units, const char *until, char *pairs)
{
        double ms[1000], median = 0;
        unsigned long n = 0;

        while (until ? access(until, F_OK) < 0 : n < MIN(units, ARRAY_SIZE(ms))) {
                uint64_t began = program_now_ns();

                unit(pairs);
                ms[n++ % ARRAY_SIZE(ms)] = (double)(program_now_ns() - began) / 1e6;
        }
        n = MIN(n, ARRAY_SIZE(ms));
        if (n) {
                qsort(ms, n, sizeof(*ms), by_value);
                median = ms[n / 2];
        }
        return median;
}

static void allocate(size_t n, const char *size)
{
        struct buffer *u = &buffer[n];

        if (program_size(size, &u->b.bytes) < 0)
                program_fail(PROGRAM_EXIT_USAGE, "%s is no size", size);
        u->b.bytes &= ~UINT64_C(7);
        u->b.origin = pattern_origin(n);
        u->round = 0;
        TRY(cu.MemAlloc(&u->b.at, u->b.bytes));
        launch_fill(u->b.at, u->b.bytes, u->b.origin, pattern_key(options.seed, 0), stream);
        TRY(cu.StreamSynchronize(stream));
}

static void check(void)
{
        for (size_t i = 0; i < BUFFERS; i++)
                if (buffer[i].b.at)
                        launch_verify(buffer[i].b.at, buffer[i].b.bytes, buffer[i].b.origin,
                                      pattern_key(options.seed, buffer[i].round), verdict, stream);
        (void)verdict_take(verdict, 0, stream);
}

static double obey(char *line)
{
        char *order = strsep(&line, " "), *first = line ? strsep(&line, " ") : NULL;

        if (!strcmp(order, "alloc") && first && line)
                allocate((size_t)(numbered(first, false) - buffer), line);
        else if (!strcmp(order, "free") && first) {
                TRY(cu.MemFree(numbered(first, true)->b.at));
                numbered(first, true)->b.at = 0;
        } else if (!strcmp(order, "priority") && first && line) {
                void *at = (void *)(uintptr_t)numbered(first, true)->b.at; /* NOLINT */

                return sublet_set_priority(at, (int)strtol(line, NULL, 10));
        } else if (!strcmp(order, "cycle") && first && line)
                return cycle(strtoul(first, NULL, 10), NULL, line);
        else if (!strcmp(order, "until") && first && line)
                return cycle(0, first, line);
        else if (!strcmp(order, "check"))
                check();
        else if (strcmp(order, "info") != 0)
                program_fail(PROGRAM_EXIT_USAGE, "%s: unknown order", order);
        return 0;
}

int main(int argc, char **argv)
{
        char line[4096];

        program_begin(argc, argv, &(struct options){.bytes = 0}, false);
        TRY(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        verdict = verdict_new();
        program_say("ready", "\"pid\":%d,\"here\":%d", (int)getpid(), sublet_is_here());
        while (fgets(line, sizeof(line), stdin)) {
                size_t free_bytes, total_bytes;
                char name[16];
                double result;

                line[strcspn(line, "\n")] = '\0';
                if (!strcmp(line, "end"))
                        break;
                (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(line, " "), line);
                result = obey(line);
                TRY(cu.MemGetInfo(&free_bytes, &total_bytes));
                program_say("done", "\"order\":\"%s\",\"free\":%zu,\"total\":%zu,\"ms\":%.4f", name,
                            free_bytes, total_bytes, result);
        }
        check();
        program_end();
}
