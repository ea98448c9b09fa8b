/* trace.c: owns the form of a trace: a CSV file with a line for each burst of a client.
 * Must never guess: a line that is not understood is an error that names it.
 *
 * A burst begins at start_s, but not before think_s after its client's burst before. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/macros.h"
#include "workload.h"

#define HEADER         "name,user,start_s,memory_GiB,burst_s,think_s"
#define FIELDS         6
#define JOBS_MAX       10000U
#define JOB_PHASES_MAX 100000U
#define SECONDS_MAX    1e9
#define MEMORY_GIB_MAX 1e6
#define USER_MAX       2000000000.0

struct trace {
        struct workload *w;
        unsigned line, first_job; /* first_job: jobs before it come from the workload file */
        char *error;
        size_t error_size;
        uint64_t *memory; /* what each job holds after its last line */
};

/* One line of the file. */
struct row {
        const char *name;
        uint32_t uid;
        uint64_t start_ns, memory, burst_ns, think_ns;
};

__attribute__((format(printf, 2, 3))) static int wrong(struct trace *t, const char *format, ...)
{
        va_list ap;
        int n = snprintf(t->error, t->error_size, "line %u: ", t->line);

        if (n < 0 || (size_t)n >= t->error_size)
                return -EINVAL;
        va_start(ap, format);
        (void)vsnprintf(t->error + n, t->error_size - (size_t)n, format, ap);
        va_end(ap);
        return -EINVAL;
}

/* ---- one line ---- */

static int split(struct trace *t, char *text, char *fields[static FIELDS])
{
        unsigned n = 0;
        char *field;

        text[strcspn(text, "\r\n")] = '\0';
        while ((field = strsep(&text, ","))) {
                if (n < FIELDS)
                        fields[n] = field;
                n++;
        }
        return n == FIELDS ? 0 : wrong(t, "%u fields stand there instead of " HEADER, n);
}

static int get_number(struct trace *t, const char *what, const char *text, double max, double *ret)
{
        char *end;

        *ret = strtod(text, &end);
        if (end == text || *end || !(*ret >= 0 && *ret <= max))
                return wrong(t, "'%s' is no %s: a number from 0 to %.0f", text, what, max);
        return 0;
}

static int get_row(struct trace *t, char *text, struct row *ret)
{
        char *f[FIELDS];
        double user, start, memory, burst, think;
        int e = split(t, text, f);

        if (e < 0)
                return e;
        if (!*f[0] || strlen(f[0]) >= WORKLOAD_NAME_MAX)
                return wrong(t, "a name has 1 to %d letters", WORKLOAD_NAME_MAX - 1);
        if ((e = get_number(t, "user", f[1], USER_MAX, &user)) < 0 ||
            (e = get_number(t, "start_s", f[2], SECONDS_MAX, &start)) < 0 ||
            (e = get_number(t, "memory_GiB", f[3], MEMORY_GIB_MAX, &memory)) < 0 ||
            (e = get_number(t, "burst_s", f[4], SECONDS_MAX, &burst)) < 0 ||
            (e = get_number(t, "think_s", f[5], SECONDS_MAX, &think)) < 0)
                return e;
        if (user != (uint32_t)user)
                return wrong(t, "'%s' is no user: a whole number", f[1]);
        if (burst < 1e-6)
                return wrong(t, "a burst takes 1us at least");
        *ret = (struct row){.name = f[0],
                            .uid = (uint32_t)user,
                            .start_ns = (uint64_t)(start * 1e9),
                            .memory = (uint64_t)(memory * (double)GIB),
                            .burst_ns = (uint64_t)(burst * 1e9),
                            .think_ns = (uint64_t)(think * 1e9)};
        return 0;
}

/* ---- jobs ---- */

static int add_phase(struct trace *t, struct job *j, const struct phase *p)
{
        struct phase *more;

        if (j->n_phases + 1 >= JOB_PHASES_MAX)
                return wrong(t, "'%s' has too many bursts", j->name);
        more = reallocarray(j->phases, j->n_phases + 1, sizeof(*more));
        if (!more)
                return -ENOMEM;
        j->phases = more;
        more[j->n_phases++] = *p;
        return 0;
}

static int add_job(struct trace *t, const struct row *row)
{
        struct workload *w = t->w;
        struct job *jobs;
        uint64_t *memory;

        if (w->n_jobs == JOBS_MAX)
                return wrong(t, "more than %u names", JOBS_MAX);
        jobs = reallocarray(w->jobs, w->n_jobs + 1, sizeof(*jobs));
        if (!jobs)
                return -ENOMEM;
        w->jobs = jobs;
        memory = reallocarray(t->memory, w->n_jobs + 1, sizeof(*memory));
        if (!memory)
                return -ENOMEM;
        t->memory = memory;
        memory[w->n_jobs] = row->memory;
        jobs[w->n_jobs] = (struct job){.line = t->line,
                                       .count = 1,
                                       .repeat = 1,
                                       .at_ns = row->start_ns,
                                       .memory = row->memory,
                                       .kernel_ns = 10 * NSEC_PER_MSEC,
                                       .busy_permille = 1000,
                                       .uid = row->uid};
        memcpy(jobs[w->n_jobs].name, row->name, strlen(row->name) + 1);
        w->n_jobs++;
        w->clients++;
        return 0;
}

static int job_of(struct trace *t, const struct row *row, unsigned *ret)
{
        struct workload *w = t->w;

        for (unsigned i = t->first_job; i < w->n_jobs; i++) {
                struct job *j = &w->jobs[i];

                if (strcmp(j->name, row->name) != 0)
                        continue;
                if (j->uid != row->uid)
                        return wrong(t, "'%s' belongs to user %u since line %u", j->name, j->uid,
                                     j->line);
                *ret = i;
                return 0;
        }
        *ret = w->n_jobs;
        return add_job(t, row);
}

static int add_row(struct trace *t, const struct row *row)
{
        const struct phase burst = {.kind = PHASE_GPU, .time.ns = row->burst_ns};
        const struct phase think = {.kind = PHASE_THINK, .time.ns = row->think_ns};
        const struct phase memory = {.kind = PHASE_MEMORY, .bytes = row->memory};
        struct job *j;
        unsigned i;
        int e = job_of(t, row, &i);

        if (e < 0)
                return e;
        j = &t->w->jobs[i];
        /* The pause before this burst stands at the end of the line before. */
        if (j->n_phases)
                j->phases[j->n_phases - 1].not_before_ns = row->start_ns;
        if (row->memory != t->memory[i])
                e = add_phase(t, j, &memory);
        t->memory[i] = row->memory;
        if (e == 0)
                e = add_phase(t, j, &burst);
        return e < 0 ? e : add_phase(t, j, &think);
}

int trace_read(FILE *f, struct workload *w, char *error, size_t size)
{
        struct trace t = {.w = w, .first_job = w->n_jobs, .error = error, .error_size = size};
        _cleanup_free_ char *text = NULL;
        size_t room = 0;
        ssize_t length;
        int e = 0;

        t.memory = calloc(w->n_jobs + 1, sizeof(*t.memory));
        if (!t.memory)
                e = -ENOMEM;
        while (e == 0 && (length = getline(&text, &room, f)) >= 0) {
                struct row row = {0};

                t.line++;
                if (strlen(text) != (size_t)length) {
                        e = wrong(&t, "it is not text");
                        break;
                }
                if (text[0] == '#' || text[strspn(text, " \t\r\n")] == '\0' ||
                    (t.line == 1 && strncmp(text, HEADER, strlen(HEADER)) == 0))
                        continue;
                e = get_row(&t, text, &row);
                if (e == 0)
                        e = add_row(&t, &row);
        }
        if (e == 0 && w->n_jobs == t.first_job)
                e = wrong(&t, "the file ends and has no burst");
        if (e == -ENOMEM)
                (void)snprintf(error, size, "out of memory");
        free(t.memory);
        w->config.clients_max = w->clients;
        return e;
}
