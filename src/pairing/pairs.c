/* pairs.c: owns which model answers for which pair. Must never mix jobs of different cards. */
#include "pairing/pairs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/units.h"

#define BATCH        8192 /* pairs predicted at once */
#define TURNS_MARGIN 0.1  /* the model of turns was within a tenth of what was measured */
/* Predictions from an estimated rate on half of the SMs err by 12.4 %, and those from a measured
 * one by 5.6 % (docs/measurements/h100-pairs.md). So intervals and margins are raised to this
 * power. */
#define HALF_ESTIMATED 2.2

static int check_cards(const struct job *jobs, size_t n, const struct model *model,
                       char error[static PAIRS_ERROR_MAX])
{
        const struct job *first = NULL;

        for (size_t i = 0; i < n; i++) {
                const char *gpu = jobs[i].measured.gpu;

                if (!*gpu)
                        continue;
                if (first && strcmp(gpu, first->measured.gpu) != 0)
                        return model_fail(
                                error, -EINVAL,
                                "job %s was measured on %s, and job %s on %s: measure both on "
                                "one kind of card",
                                first->name, first->measured.gpu, jobs[i].name, gpu);
                if (model && strcmp(gpu, model->gpu) != 0)
                        return model_fail(
                                error, -EINVAL,
                                "the model is of %s, and job %s was measured on %s: measure it "
                                "on that card, or train a model of this one",
                                model->gpu, jobs[i].name, gpu);
                first = &jobs[i];
        }
        return 0;
}

int pairs_open(const struct job *jobs, size_t n, const struct model *model, double capacity_bytes,
               double quantum_s, struct pairs *ret, char error[static PAIRS_ERROR_MAX])
{
        struct pairs p = {.jobs = jobs, .n = n, .model = model};
        int r = check_cards(jobs, n, model, error);

        if (r < 0)
                return r;
        p.features = calloc(n, sizeof(*p.features));
        p.turns = calloc(n, sizeof(*p.turns));
        if (!p.features || !p.turns) {
                pairs_close(&p);
                return model_fail(error, -ENOMEM, "no memory for %zu jobs", n);
        }
        for (size_t i = 0; i < n; i++) {
                features_of(&jobs[i], &p.features[i]);
                turns_job_of(&jobs[i], &p.turns[i]);
        }
        turns_card_of(&jobs[0], &p.card);
        if (capacity_bytes > 0)
                p.card.capacity_bytes = capacity_bytes;
        p.card.quantum_s = quantum_s;
        *ret = p;
        return 0;
}

void pairs_close(struct pairs *p)
{
        free(p->features);
        free(p->turns);
        *p = (struct pairs){0};
}

/* Writes what the model of turns predicts. The trees, if they know turns, predict them for a pair
 * that fits the card, because no bytes move there. Without trees, the model predicts them for such
 * a pair only if turns alone are allowed. */
static void by_turns(const struct pairs *p, const bool allowed[static WAYS],
                     struct pairs_pair *pair)
{
        const struct turns_job jobs[2] = {p->turns[pair->a], p->turns[pair->b]};
        struct turns t;

        if (turns_predict(jobs, &p->card, &t) < 0)
                return;
        pair->fits = t.missing_bytes == 0;
        pair->missing_bytes = t.missing_bytes;
        pair->handoff_s = t.handoff_s;
        pair->bus_bytes_s = t.bus_bytes_s;
        pair->host_bytes = t.host_bytes;
        if (!allowed[WAY_TURNS] ||
            (pair->fits && (p->model ? p->model->ways[WAY_TURNS].trees != NULL
                                     : allowed[WAY_SLICED] || allowed[WAY_SHARED])))
                return;
        pair->ways[WAY_TURNS] =
                (struct pairs_way){.possible = true, .progress = {t.progress[0], t.progress[1]}};
}

/* True if the rates of both jobs on half of the SMs were measured. */
static bool know_halves(const struct pairs *p, const struct pairs_pair *pair)
{
        return p->features[pair->a].roof.half > 0 && p->features[pair->b].roof.half > 0;
}

/* Predicts those of at most BATCH pairs that fit, by the trees of each allowed way. */
static int by_trees(const struct pairs *p, const bool allowed[static WAYS], struct pairs_pair *list,
                    size_t n, float *rows, double *progress, char error[static PAIRS_ERROR_MAX])
{
        size_t used = 0;

        for (size_t i = 0; i < n; i++)
                if (list[i].fits)
                        features_rows(&p->features[list[i].a], &p->features[list[i].b],
                                      rows + 2 * used++ * FEATURES);
        for (unsigned way = 0; way < WAYS; way++) {
                const double *at = progress;
                int r;

                if (!allowed[way] || !p->model->ways[way].trees)
                        continue;
                r = model_predict(p->model, (enum way)way, rows, 2 * used, p->threads, progress,
                                  error);
                if (r < 0)
                        return r;
                for (size_t i = 0; i < n; i++) {
                        if (!list[i].fits)
                                continue;
                        list[i].ways[way] = (struct pairs_way){
                                .possible = true,
                                .by_model = true,
                                .progress = {at[0], at[1]},
                                .estimated = way == WAY_SHARED && !know_halves(p, &list[i])};
                        at += 2;
                }
        }
        return 0;
}

int pairs_predict(const struct pairs *p, const bool allowed[static WAYS], struct pairs_pair *list,
                  size_t n, char error[static PAIRS_ERROR_MAX])
{
        _cleanup_free_ float *rows =
                calloc(2 * MIN(n, (size_t)BATCH) + 1, FEATURES * sizeof(*rows));
        _cleanup_free_ double *progress = calloc(2 * MIN(n, (size_t)BATCH) + 1, sizeof(*progress));

        if (!rows || !progress)
                return model_fail(error, -ENOMEM, "no memory for %zu pairs", n);
        for (size_t i = 0; i < n; i++)
                by_turns(p, allowed, &list[i]);
        for (size_t at = 0; p->model && at < n; at += BATCH) {
                int r = by_trees(p, allowed, list + at, MIN(n - at, (size_t)BATCH), rows, progress,
                                 error);

                if (r < 0)
                        return r;
        }
        return 0;
}

/* ---- choosing ---- */

double pairs_doubt(const struct pairs_way *w)
{
        return w->estimated ? HALF_ESTIMATED : 1;
}

double pairs_threshold(const struct pairs *p, const struct pairs_pair *pair, enum way way,
                       double bound)
{
        if (!pair->ways[way].by_model || bound <= 0)
                return bound * (1 + TURNS_MARGIN);
        return bound * pow(model_threshold(&p->model->ways[way], bound) / bound,
                           pairs_doubt(&pair->ways[way]));
}

double pairs_worth(const struct pairs_pair *pair, enum way way, double sum)
{
        /* The model of turns was never checked against measured pairs that fit the card: it is a
         * last resort for such pairs. */
        if (pair->fits && !pair->ways[way].by_model)
                sum /= 1000;
        return way == WAY_SLICED ? sum * PAIRS_GAIN : sum;
}

int pairs_choose(const struct pairs *p, const struct pairs_pair *pair, double bound, enum way *ret)
{
        double best = 0;

        for (unsigned way = 0; way < WAYS; way++) {
                const struct pairs_way *w = &pair->ways[way];
                const double least = pairs_threshold(p, pair, (enum way)way, bound);
                const double worth =
                        pairs_worth(pair, (enum way)way, w->progress[0] + w->progress[1]);

                if (!w->possible || w->progress[0] < least || w->progress[1] < least)
                        continue;
                if (worth > best) {
                        best = worth;
                        *ret = (enum way)way;
                }
        }
        return best > 0 ? 0 : -ENOENT;
}

/* ---- why ---- */

static void turns_why(const struct pairs *p, const struct pairs_pair *pair,
                      char ret[static PAIRS_WHY_MAX])
{
        char bytes[UNITS_TEXT_MAX], time[UNITS_TEXT_MAX];

        if (pair->fits)
                (void)snprintf(ret, PAIRS_WHY_MAX,
                               "both fit the card, and each has it alone in its turns");
        else
                (void)snprintf(ret, PAIRS_WHY_MAX,
                               "memory is short: the card lacks %s for both, and each hand-off "
                               "moves them both ways over the bus in %s",
                               units_format_size((uint64_t)pair->missing_bytes, bytes),
                               units_format_duration((uint64_t)(pair->handoff_s * 1e9), time));
}

static void shared_why(const struct roof_job jobs[static 2], bool estimated,
                       char ret[static PAIRS_WHY_MAX])
{
        const double half[2] = {roof_half(&jobs[0]), roof_half(&jobs[1])};
        const int n = snprintf(ret, PAIRS_WHY_MAX,
                               "each has half of the SMs, where they run at %.0f %% and %.0f %% of "
                               "their speed alone%s",
                               half[0] * 100, half[1] * 100,
                               estimated ? ", as sublet estimates without measure --mps" : "");

        if (isfinite(jobs[0].use[ROOF_DRAM] + jobs[1].use[ROOF_DRAM]))
                (void)snprintf(ret + n, PAIRS_WHY_MAX - (size_t)n,
                               ", with %.0f %% and %.0f %% of the DRAM bandwidth",
                               jobs[0].use[ROOF_DRAM] * half[0] * 100,
                               jobs[1].use[ROOF_DRAM] * half[1] * 100);
}

const char *pairs_why(const struct pairs *p, const struct pairs_pair *pair, enum way way,
                      char ret[static PAIRS_WHY_MAX])
{
        const struct features *f[2] = {&p->features[pair->a], &p->features[pair->b]};
        const struct roof_job roof[2] = {f[0]->roof, f[1]->roof};
        const double duty = roof[0].duty + roof[1].duty;

        if (way == WAY_TURNS) {
                turns_why(p, pair, ret);
        } else if (way == WAY_SLICED && duty > 1) {
                (void)snprintf(
                        ret, PAIRS_WHY_MAX,
                        "the card's time is short: alone, they use it %.0f %% and %.0f %% of "
                        "the time",
                        roof[0].duty * 100, roof[1].duty * 100);
        } else if (way == WAY_SLICED) {
                (void)snprintf(ret, PAIRS_WHY_MAX,
                               "nothing is short: launch gaps leave the card idle %.0f %% and "
                               "%.0f %% of the time",
                               100 - roof[0].duty * 100, 100 - roof[1].duty * 100);
        } else {
                shared_why(roof, pair->ways[way].estimated, ret);
        }
        return ret;
}
