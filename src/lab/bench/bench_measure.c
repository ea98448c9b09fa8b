/* bench_measure.c: owns the order of the runs, and turns what programs did into rows. Must never
 * show a run that failed as one that went well. */
#include "lab/bench/bench.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "client/common/cli.h"
#include "lab/demo/demo.h"

#define PROBE_PHASES  3   /* phases of an endless program when it runs alone */
#define LIMIT_TIMES   20  /* a run may take so many times the duration for each program … */
#define LIMIT_EXTRA_S 120 /* … and this for starts and moves */

/* Results of a role's programs that ran alone: the rounds that fit the duration, and each program's
 * digest. If their work is fixed, every other run must give the same digests. */
struct reference {
        uint64_t rounds;
        char digests[BENCH_JOBS_MAX][24];
};

struct measuring {
        const struct bench_stage *stage;
        const struct bench_setting *setting;
        struct bench_row *rows;
        size_t n;
};

/* ---- the rows ---- */

static struct bench_row *find_row(struct measuring *m, const struct bench_mix *mix,
                                  const struct bench_role *role, enum bench_way way,
                                  const char *quantum)
{
        for (size_t i = 0; i < m->n; i++) {
                struct bench_row *row = &m->rows[i];

                if (row->mix == mix && row->role == role && row->way == way &&
                    row->quantum == quantum)
                        return row;
        }
        return NULL;
}

static int add_row(struct measuring *m, const struct bench_row *row)
{
        struct bench_row *more = reallocarray(m->rows, m->n + 1, sizeof(*more));

        if (!more)
                return cli_fail(CLI_FAILED, "out of memory");
        m->rows = more;
        m->rows[m->n++] = *row;
        return CLI_OK;
}

/* Says why a way is not tried; NULL: it is. */
static const char *left_out(const struct measuring *m, const struct bench_mix *mix,
                            enum bench_way way)
{
        const bool fits = bench_mix_fits(mix, m->setting->capacity, m->setting->jobs);

        if (way == BENCH_PLAIN && !fits)
                return "does not fit";
        /* Managed memory beyond what is free can hang a GPU, also for other users. */
        if (way == BENCH_MANAGED && !m->setting->simulated)
                return "not tried on a GPU: more than is free can hang it";
        return NULL;
}

static bool has_way(const struct measuring *m, const struct bench_mix *mix,
                    const struct bench_role *role, enum bench_way way)
{
        if (way == BENCH_SERIAL)
                return role->figure == BENCH_TIME && role->many && m->setting->jobs > 1;
        if (way == BENCH_MANAGED)
                return !m->setting->torch &&
                       !bench_mix_fits(mix, m->setting->capacity, m->setting->jobs);
        return true;
}

static int add_rows(struct measuring *m, const struct bench_mix *mix)
{
        for (unsigned k = 0; k < BENCH_ROLES; k++) {
                const struct bench_role *role = &mix->roles[k];

                for (int way = BENCH_ALONE; role->figure && way <= BENCH_SUBLET; way++) {
                        const unsigned times = way == BENCH_SUBLET ? m->setting->n_quanta : 1;
                        const char *why = left_out(m, mix, way);
                        struct bench_row row = {.mix = mix, .role = role, .way = way};
                        int r = CLI_OK;

                        row.state = why ? BENCH_LEFT_OUT : BENCH_MEASURED;
                        (void)snprintf(row.note, sizeof(row.note), "%s", why ? why : "");
                        for (unsigned q = 0; r == CLI_OK && has_way(m, mix, role, way) && q < times;
                             q++) {
                                row.quantum = way == BENCH_SUBLET ? m->setting->quanta[q] : NULL;
                                r = add_row(m, &row);
                        }
                        if (r != CLI_OK)
                                return r;
                }
        }
        return CLI_OK;
}

static void report(const struct bench_row *row)
{
        char way[BENCH_TEXT_MAX];

        bench_way_text(row, way);
        if (row->state == BENCH_MEASURED)
                (void)fprintf(stderr, "%s, %s: %s %.2f s\n", row->mix->name, way, row->role->name,
                              row->seconds[row->n - 1]);
        else
                (void)fprintf(stderr, "%s, %s: %s: %s\n", row->mix->name, way, row->role->name,
                              row->note);
}

/* ---- one run ---- */

static void add_programs(const struct measuring *m, struct bench_run *run,
                         const struct bench_role *role, unsigned programs,
                         const struct reference *reference)
{
        const double duration = m->setting->duration;

        for (unsigned k = 0; k < programs; k++)
                run->jobs[run->n++] =
                        (struct bench_job){.role = role,
                                           .bytes = bench_role_bytes(role, m->setting->capacity),
                                           .seed = m->setting->seed + k,
                                           .rounds = role->gpu > 0 ? reference->rounds : 1,
                                           .cpu = role->cpu * duration,
                                           .pause = role->pause * duration,
                                           .seconds = role->gpu * duration,
                                           .phases = role->phases};
}

static void describe_trouble(const struct bench_run *run, const struct bench_job *job, char *note)
{
        const unsigned number = (unsigned)(job - run->jobs) + 1;

        if (job->outcome == BENCH_NO_MEMORY)
                (void)snprintf(note, BENCH_TEXT_MAX, "program %u: out of memory", number);
        else if (job->outcome == BENCH_TOO_LONG)
                (void)snprintf(note, BENCH_TEXT_MAX, "not done after %.0f s", run->limit);
        else
                (void)snprintf(note, BENCH_TEXT_MAX, "program %u: %s", number,
                               job->trouble[0] ? job->trouble : "did not run");
}

/* Compares the results with the reference. A program that ends only when others have ended has no
 * fixed amount of work, so only its own checks count. */
static enum bench_verdict judge(const struct bench_row *row, const struct bench_run *run,
                                const struct reference *reference)
{
        unsigned k = 0;

        for (unsigned i = 0; i < run->n; i++) {
                const struct bench_job *job = &run->jobs[i];

                if (job->mismatches)
                        return BENCH_DIFFERENT;
                if (job->role == row->role && job->phases &&
                    strcmp(job->digest, reference->digests[k++]) != 0)
                        return BENCH_DIFFERENT;
        }
        if (row->way == BENCH_ALONE || row->way == BENCH_SERIAL)
                return BENCH_REFERENCE;
        return row->role->phases ? BENCH_EQUAL : BENCH_CHECKED;
}

static void measure_row(struct bench_row *row, const struct bench_run *run,
                        const struct reference *reference)
{
        struct bench_measurement found = {
                .moved_out = run->moved_out, .moved_in = run->moved_in, .handoffs = run->handoffs};
        _cleanup_free_ double *delays = NULL;
        unsigned n_delays = 0, programs = 0;
        double took = 0;

        if (row->state != BENCH_MEASURED)
                return;
        for (unsigned i = 0; i < run->n; i++)
                n_delays += run->jobs[i].n_delays;
        delays = calloc(n_delays + 1, sizeof(*delays));
        n_delays = 0;
        for (unsigned i = 0; i < run->n; i++) {
                const struct bench_job *job = &run->jobs[i];

                if (job->outcome != BENCH_COMPLETED) {
                        row->state = BENCH_FAILED;
                        describe_trouble(run, job, row->note);
                        return;
                }
                if (job->role != row->role)
                        continue;
                took = MAX(took, job->took);
                found.waiting += job->waiting;
                programs++;
                if (job->n_delays > 0)
                        found.first = MAX(found.first, job->delays[0]);
                for (unsigned k = 0; delays && k < job->n_delays; k++)
                        delays[n_delays++] = job->delays[k];
        }
        if (row->role->figure == BENCH_TIME) {
                found.seconds = run->serial ? run->took : took;
        } else {
                found.seconds = bench_median(delays, n_delays);
                found.longest = bench_longest(delays, n_delays);
        }
        found.waiting /= MAX(programs, 1U);
        found.verdict = judge(row, run, reference);
        bench_row_add(row, &found);
}

/* Runs a role's programs one after the other. Each runs alone, so this sets the reference, too. */
static int measure_alone(struct measuring *m, const struct bench_mix *mix,
                         const struct bench_role *role, struct reference *reference,
                         enum bench_way way)
{
        struct bench_row *alone = find_row(m, mix, role, way, NULL),
                         *serial = way == BENCH_ALONE ? find_row(m, mix, role, BENCH_SERIAL, NULL)
                                                      : NULL;
        struct bench_run run = {.stage = m->stage,
                                .serial = true,
                                .meet = mix->meet,
                                .shared = way == BENCH_ALONE_SUBLET,
                                .limit = LIMIT_TIMES * m->setting->duration + LIMIT_EXTRA_S};
        struct bench_run first = {0};
        int r;

        if (!alone)
                return CLI_OK;
        add_programs(m, &run, role, serial ? m->setting->jobs : 1, reference);
        for (unsigned k = 0; k < run.n; k++)
                run.jobs[k].phases = role->phases ? role->phases : PROBE_PHASES;
        r = bench_run(&run);
        if (r == CLI_OK) {
                first = run;
                first.n = 1;
                first.took = run.jobs[0].took;
                if (way == BENCH_ALONE && reference->rounds == 0) {
                        reference->rounds = run.jobs[0].rounds;
                        for (unsigned k = 0; k < run.n; k++)
                                memcpy(reference->digests[k], run.jobs[k].digest,
                                       sizeof(run.jobs[k].digest));
                }
                measure_row(alone, &first, reference);
                report(alone);
                if (serial) {
                        measure_row(serial, &run, reference);
                        report(serial);
                }
        }
        bench_run_clear(&run);
        return r;
}

static int measure_together(struct measuring *m, const struct bench_mix *mix,
                            struct reference *references, enum bench_way way, const char *quantum)
{
        struct bench_run run = {.stage = m->stage,
                                .meet = mix->meet,
                                .shared = way == BENCH_SUBLET,
                                .quantum = quantum};
        bool wanted = false;
        int r;

        for (unsigned k = 0; k < BENCH_ROLES; k++) {
                const struct bench_role *role = &mix->roles[k];
                const struct bench_row *row = find_row(m, mix, role, way, quantum);

                wanted |= row && row->state != BENCH_LEFT_OUT;
                add_programs(m, &run, role, bench_role_programs(role, m->setting->jobs),
                             &references[k]);
        }
        if (!wanted)
                return CLI_OK;
        for (unsigned k = 0; k < run.n; k++)
                run.jobs[k].managed = way == BENCH_MANAGED;
        run.limit = LIMIT_TIMES * m->setting->duration * run.n + LIMIT_EXTRA_S;
        r = bench_run(&run);
        for (unsigned k = 0; r == CLI_OK && k < BENCH_ROLES; k++) {
                struct bench_row *row = find_row(m, mix, &mix->roles[k], way, quantum);

                if (!row)
                        continue;
                measure_row(row, &run, &references[k]);
                report(row);
        }
        bench_run_clear(&run);
        return r;
}

static int measure_way(struct measuring *m, const struct bench_mix *mix,
                       struct reference *references, enum bench_way way)
{
        int r = CLI_OK;

        if (way == BENCH_ALONE || way == BENCH_ALONE_SUBLET)
                for (unsigned k = 0; r == CLI_OK && k < BENCH_ROLES; k++)
                        r = measure_alone(m, mix, &mix->roles[k], &references[k], way);
        else if (way == BENCH_SUBLET)
                for (unsigned q = 0; r == CLI_OK && q < m->setting->n_quanta; q++)
                        r = measure_together(m, mix, references, way, m->setting->quanta[q]);
        else if (way != BENCH_SERIAL) /* measured with BENCH_ALONE */
                r = measure_together(m, mix, references, way, NULL);
        return r;
}

/* Every other time the ways come in the opposite order, so that a machine that slowly changes
 * favours none. Alone comes first the first time: it tells how much the others have to do. */
static int measure_mix(struct measuring *m, const struct bench_mix *mix)
{
        struct reference references[BENCH_ROLES] = {0};

        for (unsigned n = 0; n < m->setting->repeat; n++)
                for (int i = BENCH_ALONE; i <= BENCH_SUBLET; i++) {
                        const int way = n % 2 == 0 ? i : BENCH_SUBLET - i;
                        int r = measure_way(m, mix, references, way);
                        const struct bench_row *alone =
                                find_row(m, mix, &mix->roles[0], BENCH_ALONE, NULL);

                        if (r != CLI_OK)
                                return r;
                        if (alone && alone->state == BENCH_FAILED)
                                return cli_fail(CLI_FAILED, "a program alone does not run here: %s",
                                                alone->note);
                }
        return CLI_OK;
}

int bench_measure(const struct bench_stage *stage, const struct bench_setting *setting,
                  const struct bench_mix *const *mixes, size_t n_mixes, struct bench_row **ret_rows,
                  size_t *ret_n)
{
        struct measuring m = {.stage = stage, .setting = setting};
        int r = CLI_OK;

        for (size_t i = 0; r == CLI_OK && i < n_mixes; i++)
                r = add_rows(&m, mixes[i]);
        for (size_t i = 0; r == CLI_OK && i < n_mixes; i++)
                r = measure_mix(&m, mixes[i]);
        *ret_rows = m.rows;
        *ret_n = m.n;
        return r;
}
