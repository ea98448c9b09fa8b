/* workload.c: owns the words of a workload file and their limits.
 * Must never guess: a line that is not understood is an error that names it. */
#include "workload.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/macros.h"
#include "base/units.h"

#define WORDS_MAX  4
#define JOBS_MAX   1000
#define PHASES_MAX 1000
#define DAY        (24 * 3600 * NSEC_PER_SEC)
/* The rate at which page faults bring memory in. Measured: 8.5 to 9.8 GB/s, on an H200 with one
 * kernel alone on the card. */
#define FAULT_RATE UINT64_C(9800000000)

struct reader {
        struct workload *w;
        unsigned line;
        bool needs_jobs;
        char *words[WORDS_MAX + 1];
        unsigned n_words;
        char *error;
        size_t error_size;
};

__attribute__((format(printf, 2, 3))) static int wrong(struct reader *r, const char *format, ...)
{
        va_list ap;
        int n = snprintf(r->error, r->error_size, "line %u: ", r->line);

        if (n < 0 || (size_t)n >= r->error_size)
                return -EINVAL;
        va_start(ap, format);
        (void)vsnprintf(r->error + n, r->error_size - (size_t)n, format, ap);
        va_end(ap);
        return -EINVAL;
}

static struct job *last_job(const struct reader *r)
{
        return r->w->n_jobs ? &r->w->jobs[r->w->n_jobs - 1] : NULL;
}

/* ---- values ---- */

static int get_size(struct reader *r, uint64_t *ret)
{
        if (units_parse_size(r->words[1], ret) < 0 || *ret > UINT64_C(1) << 50)
                return wrong(r, "'%s' is no size such as 40GiB", r->words[1]);
        return 0;
}

static int get_rate(struct reader *r, unsigned word, uint64_t *ret)
{
        if (units_parse_rate(r->words[word], ret) < 0 || *ret < MIB || *ret > UINT64_C(1) << 50)
                return wrong(r, "'%s' is no rate such as 50GB/s", r->words[word]);
        return 0;
}

static int get_duration(struct reader *r, unsigned word, uint64_t *ret)
{
        char *end;
        double v = strtod(r->words[word], &end);
        /* Days and hours exist only in workload files, not on a command line. */
        uint64_t unit = strcmp(end, "d") == 0   ? DAY
                        : strcmp(end, "h") == 0 ? 3600 * NSEC_PER_SEC
                                                : 0;

        if (unit && end != r->words[word] && v >= 0 && v < 10000) {
                *ret = (uint64_t)(v * (double)unit);
                return 0;
        }
        if (units_parse_duration(r->words[word], ret) < 0 || *ret > 10000 * DAY)
                return wrong(r, "'%s' is no duration such as 20s", r->words[word]);
        return 0;
}

/* One duration, alone or with 'random'; or two durations and the name of a distribution. */
static int get_time(struct reader *r, struct duration *ret)
{
        const char *name = r->words[r->n_words - 1];
        int e = get_duration(r, 1, &ret->ns);

        if (e < 0 || r->n_words == 2)
                return e;
        if (r->n_words == 3) {
                ret->distribution = EXPONENTIAL;
                return strcmp(name, "random") == 0
                               ? 0
                               : wrong(r, "'%s' is not understood; only 'random' may stand there",
                                       name);
        }
        e = get_duration(r, 2, &ret->high_ns);
        if (e < 0)
                return e;
        if (ret->high_ns <= ret->ns)
                return wrong(r, "the second duration must be the longer one");
        if (strcmp(name, "lognormal") == 0)
                ret->distribution = LOGNORMAL;
        else if (strcmp(name, "pareto") == 0)
                ret->distribution = PARETO;
        else
                return wrong(r, "'%s' is not understood; 'lognormal' or 'pareto' may stand there",
                             name);
        return 0;
}

static int get_number(struct reader *r, long low, long high, long *ret)
{
        char *end;

        errno = 0;
        *ret = strtol(r->words[1], &end, 10);
        if (errno || *end || end == r->words[1] || *ret < low || *ret > high)
                return wrong(r, "'%s' is no number from %ld to %ld", r->words[1], low, high);
        return 0;
}

static int get_percent(struct reader *r, unsigned *ret_permille)
{
        char *end;
        double v = strtod(r->words[1], &end);

        if (end == r->words[1] || strcmp(end, "%") != 0 || !(v >= 0.1 && v <= 100))
                return wrong(r, "'%s' is no share such as 5%%", r->words[1]);
        *ret_permille = (unsigned)(v * 10 + 0.5);
        return 0;
}

static int get_auto(struct reader *r, uint64_t *ret_ns)
{
        if (strcmp(r->words[1], "auto") == 0) {
                *ret_ns = 0;
                return 0;
        }
        return get_duration(r, 1, ret_ns);
}

/* ---- words ---- */

static int on_card(struct reader *r)
{
        return get_size(r, &r->w->card);
}

static int on_bus(struct reader *r)
{
        int e = get_rate(r, 1, &r->w->in_rate);

        r->w->out_rate = r->w->in_rate;
        return e < 0 || r->n_words == 2 ? e : get_rate(r, 2, &r->w->out_rate);
}

static int on_extent(struct reader *r)
{
        int e = get_size(r, &r->w->extent);

        return e == 0 && r->w->extent < MIB ? wrong(r, "an extent is 1MiB at least") : e;
}

static int on_faults(struct reader *r)
{
        return get_rate(r, 1, &r->w->fault_rate);
}

static int on_context(struct reader *r)
{
        return get_size(r, &r->w->context);
}

static int on_host(struct reader *r)
{
        return get_size(r, &r->w->config.host_budget_bytes);
}

static int on_mode(struct reader *r)
{
        if (sched_mode_parse(r->words[1], &r->w->config.mode) < 0)
                return wrong(r, "'%s' is no mode: auto, exclusive or off", r->words[1]);
        return 0;
}

static int on_quantum(struct reader *r)
{
        return get_auto(r, &r->w->config.quantum_ns);
}

static int on_idle_release(struct reader *r)
{
        return get_auto(r, &r->w->config.idle_release_ns);
}

static int on_handoff_share(struct reader *r)
{
        int e = get_percent(r, &r->w->config.handoff_permille);

        return e == 0 && r->w->config.handoff_permille > 900 ? wrong(r, "90%% is the most") : e;
}

static int on_until(struct reader *r)
{
        return get_duration(r, 1, &r->w->until_ns);
}

static int on_seed(struct reader *r)
{
        long v;
        int e = get_number(r, 0, 1000000000, &v);

        r->w->seed = (uint64_t)v;
        return e;
}

static int on_job(struct reader *r)
{
        struct workload *w = r->w;
        struct job *more;

        if (w->n_jobs && w->jobs[w->n_jobs - 1].n_phases == 0)
                return wrong(r, "the job before ('%s') has no gpu or think line",
                             w->jobs[w->n_jobs - 1].name);
        if (w->n_jobs == JOBS_MAX)
                return wrong(r, "more than %d jobs", JOBS_MAX);
        if (strlen(r->words[1]) >= WORKLOAD_NAME_MAX)
                return wrong(r, "a name is shorter than %d letters", WORKLOAD_NAME_MAX);
        more = reallocarray(w->jobs, w->n_jobs + 1, sizeof(*more));
        if (!more)
                return -ENOMEM;
        w->jobs = more;
        more = &w->jobs[w->n_jobs++];
        *more = (struct job){.line = r->line,
                             .count = 1,
                             .repeat = 1,
                             .kernel_ns = 10 * NSEC_PER_MSEC,
                             .busy_permille = 1000,
                             .uid = 1000};
        memcpy(more->name, r->words[1], strlen(r->words[1]));
        return 0;
}

static int on_count(struct reader *r)
{
        long v;
        int e = get_number(r, 1, WORKLOAD_CLIENTS_MAX, &v);

        last_job(r)->count = (unsigned)v;
        return e;
}

static int on_repeat(struct reader *r)
{
        long v = 0;
        int e = strcmp(r->words[1], "forever") == 0 ? 0 : get_number(r, 1, 1000000000, &v);

        last_job(r)->repeat = (unsigned)v;
        return e;
}

static int on_at(struct reader *r)
{
        return get_duration(r, 1, &last_job(r)->at_ns);
}

static int on_every(struct reader *r)
{
        return get_time(r, &last_job(r)->every);
}

static int on_kernel(struct reader *r)
{
        return get_duration(r, 1, &last_job(r)->kernel_ns);
}

static int on_busy(struct reader *r)
{
        return get_percent(r, &last_job(r)->busy_permille);
}

static int on_user(struct reader *r)
{
        long v;
        int e = get_number(r, 0, 2000000000, &v);

        last_job(r)->uid = (uint32_t)v;
        return e;
}

static int on_priority(struct reader *r)
{
        long v;
        int e = get_number(r, -100, 100, &v);

        last_job(r)->priority = (int)v;
        return e;
}

/* The programs of a job with a share are a class of their own. */
static struct sched_share *share_of(struct reader *r)
{
        struct job *j = last_job(r);

        j->class_number = r->w->n_jobs;
        return &j->share;
}

static int on_weight(struct reader *r)
{
        char *end;
        const double v = strtod(r->words[1], &end);

        if (*end || !(v >= 0.01 && v <= 100))
                return wrong(r, "weight is a number from 0.01 to 100, not '%s'", r->words[1]);
        share_of(r)->weight = (unsigned)(v * 1000 + 0.5);
        return 0;
}

static int on_minimum(struct reader *r)
{
        return get_percent(r, &share_of(r)->minimum);
}

static int on_maximum(struct reader *r)
{
        return get_percent(r, &share_of(r)->maximum);
}

static int add_phase(struct reader *r, const struct phase *p)
{
        struct job *j = last_job(r);
        struct phase *more;

        if (j->n_phases == PHASES_MAX)
                return wrong(r, "more than %d phases", PHASES_MAX);
        more = reallocarray(j->phases, j->n_phases + 1, sizeof(*more));
        if (!more)
                return -ENOMEM;
        j->phases = more;
        more[j->n_phases++] = *p;
        return 0;
}

static int add_timed(struct reader *r, enum phase_kind kind)
{
        struct phase p = {.kind = kind};
        int e = get_time(r, &p.time);

        if (e == 0 && p.time.ns < NSEC_PER_USEC)
                e = wrong(r, "a phase takes 1us at least");
        return e < 0 ? e : add_phase(r, &p);
}

static int on_gpu(struct reader *r)
{
        return add_timed(r, PHASE_GPU);
}

static int on_think(struct reader *r)
{
        return add_timed(r, PHASE_THINK);
}

/* Before the first phase: the memory that the job starts with. Later: a phase that changes it. */
static int on_memory(struct reader *r)
{
        struct phase p = {.kind = PHASE_MEMORY};
        int e = get_size(r, &p.bytes);

        if (e < 0)
                return e;
        if (last_job(r)->n_phases)
                return add_phase(r, &p);
        last_job(r)->memory = p.bytes;
        return 0;
}

enum where { OF_CARD, OF_JOB, ANYWHERE };

static const struct word {
        const char *name;
        int (*on)(struct reader *r);
        enum where where;
        unsigned values_max;
} words[] = {
        {"card", on_card, OF_CARD, 1},
        {"bus", on_bus, OF_CARD, 2},
        {"faults", on_faults, OF_CARD, 1},
        {"extent", on_extent, OF_CARD, 1},
        {"context", on_context, OF_CARD, 1},
        {"host", on_host, OF_CARD, 1},
        {"mode", on_mode, OF_CARD, 1},
        {"quantum", on_quantum, OF_CARD, 1},
        {"idle_release", on_idle_release, OF_CARD, 1},
        {"handoff_share", on_handoff_share, OF_CARD, 1},
        {"until", on_until, OF_CARD, 1},
        {"seed", on_seed, OF_CARD, 1},
        {"job", on_job, ANYWHERE, 1},
        {"count", on_count, OF_JOB, 1},
        {"repeat", on_repeat, OF_JOB, 1},
        {"at", on_at, OF_JOB, 1},
        {"every", on_every, OF_JOB, 2},
        {"memory", on_memory, OF_JOB, 1},
        {"kernel", on_kernel, OF_JOB, 1},
        {"busy", on_busy, OF_JOB, 1},
        {"user", on_user, OF_JOB, 1},
        {"priority", on_priority, OF_JOB, 1},
        {"weight", on_weight, OF_JOB, 1},
        {"minimum", on_minimum, OF_JOB, 1},
        {"maximum", on_maximum, OF_JOB, 1},
        {"gpu", on_gpu, OF_JOB, 3},
        {"think", on_think, OF_JOB, 3},
};

/* ---- lines ---- */

static int split(struct reader *r, char *text)
{
        char *save, *word;

        text[strcspn(text, "#\n")] = '\0';
        r->n_words = 0;
        for (word = strtok_r(text, " \t\r", &save); word; word = strtok_r(NULL, " \t\r", &save)) {
                if (r->n_words > WORDS_MAX)
                        return wrong(r, "too many words");
                r->words[r->n_words++] = word;
        }
        return 0;
}

static int read_line(struct reader *r, char *text)
{
        int e = split(r, text);

        if (e < 0 || r->n_words == 0)
                return e;
        for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
                const struct word *w = &words[i];

                if (strcmp(r->words[0], w->name) != 0)
                        continue;
                if (w->where == OF_JOB && !last_job(r))
                        return wrong(r, "'%s' belongs to a job, and there is none yet", w->name);
                if (w->where == OF_CARD && last_job(r))
                        return wrong(r, "'%s' belongs before the first job", w->name);
                if (r->n_words < 2)
                        return wrong(r, "'%s' needs a value", w->name);
                if (r->n_words > 1 + w->values_max)
                        return wrong(r, "'%s' takes %u value%s at most", w->name, w->values_max,
                                     w->values_max == 1 ? "" : "s");
                return w->on(r);
        }
        return wrong(r, "there is no word '%s'", r->words[0]);
}

/* Checks rules that concern more than one line. */
static int check(struct reader *r)
{
        struct workload *w = r->w;
        uint64_t clients = 0;

        if (!w->card)
                return wrong(r, "the file ends and says no card");
        if (!w->in_rate)
                return wrong(r, "the file ends and says no bus");
        if (!w->n_jobs && r->needs_jobs)
                return wrong(r, "the file ends and has no job");
        for (unsigned i = 0; i < w->n_jobs; i++) {
                struct job *j = &w->jobs[i];
                uint64_t ns = 0;

                r->line = j->line;
                for (unsigned k = 0; k < j->n_phases; k++)
                        ns += j->phases[k].time.ns;
                if (!ns)
                        return wrong(r, "job '%s' has no gpu or think line", j->name);
                if (!j->repeat && !w->until_ns)
                        return wrong(r, "job '%s' repeats for ever, and no 'until' ends it",
                                     j->name);
                clients += j->count;
        }
        if (clients > WORKLOAD_CLIENTS_MAX)
                return wrong(r, "more than %u clients in all", WORKLOAD_CLIENTS_MAX);
        w->clients = (unsigned)clients;
        return 0;
}

static int read_all(FILE *f, bool needs_jobs, struct workload *ret, char *error, size_t size)
{
        struct workload w = {
                .extent = 128 * MIB, .context = 512 * MIB, .fault_rate = FAULT_RATE, .seed = 1};
        struct reader r = {.w = &w, .error = error, .error_size = size, .needs_jobs = needs_jobs};
        _cleanup_free_ char *text = NULL;
        size_t room = 0;
        ssize_t length;
        int e = 0;

        sched_config_default(&w.config);
        w.config.host_budget_bytes = UINT64_C(1) << 50;
        while (e == 0 && (length = getline(&text, &room, f)) >= 0) {
                r.line++;
                e = strlen(text) == (size_t)length ? read_line(&r, text)
                                                   : wrong(&r, "it is not text");
        }
        if (e == 0)
                e = check(&r);
        if (e < 0) {
                if (e == -ENOMEM)
                        (void)snprintf(error, size, "out of memory");
                workload_free(&w);
                return e;
        }
        w.config.clients_max = w.clients;
        *ret = w;
        return 0;
}

int workload_read(FILE *f, struct workload *ret, char *error, size_t size)
{
        return read_all(f, true, ret, error, size);
}

int workload_read_card(FILE *f, struct workload *ret, char *error, size_t size)
{
        return read_all(f, false, ret, error, size);
}

void workload_free(struct workload *w)
{
        for (unsigned i = 0; i < w->n_jobs; i++)
                free(w->jobs[i].phases);
        free(w->jobs);
        *w = (struct workload){0};
}
