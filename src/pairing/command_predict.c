/* command_predict.c: sublet predict: how two jobs run beside each other. Must never show a figure
 * without its interval. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "pairing/commands.h"

#define OPTIONAL true
#define REQUIRED false
#define NONE     false

#define AT(field)    offsetof(struct command_input, field)
#define SET_WAY      ways_set, AT(allowed), "auto", WAYS_FORM
#define SET_MODEL    options_set_text, AT(model_path)
#define SET_CAPACITY command_set_size, AT(capacity_bytes), .form = COMMAND_SIZE_FORM
#define SET_QUANTUM  options_set_seconds, AT(quantum_s), .form = COMMAND_DURATION_FORM
#define SET_JSON     options_set_true, AT(json)

static const struct option_row options[] = {
#define PREDICT(id, name_, argument_, placeholder, help_, letter_) \
        {name_, placeholder, help_, SET_##id, .letter = letter_, .optional = argument_},
#include "pairing/options.def"
        {0}};

/* For the pairs past memory that were measured, the model of turns was off by at most a tenth. */
#define TURNS_LOW  0.9
#define TURNS_HIGH 1.1

struct interval {
        double value, low, high;
};

/* Returns the progress of a job (0, 1) or the sum (2), with its interval. */
static struct interval interval_of(const struct command_input *in, const struct pairs_pair *pair,
                                   enum way way, unsigned which)
{
        const struct pairs_way *w = &pair->ways[way];
        const struct model_way *m = &in->model.ways[way];
        const double value = which < 2 ? w->progress[which] : w->progress[0] + w->progress[1];
        const double doubt = pairs_doubt(w);

        if (!w->by_model)
                return (struct interval){value, value * TURNS_LOW, value * TURNS_HIGH};
        return (struct interval){value, value * pow(which < 2 ? m->low : m->sum_low, doubt),
                                 value * pow(which < 2 ? m->high : m->sum_high, doubt)};
}

static const char *fit_text(const struct pairs_pair *pair)
{
        return pair->fits ? "both fit the card" : "they do not fit the card together";
}

static void print_text(const struct command_input *in, const struct pairs_pair *pair, enum way way)
{
        char why[PAIRS_WHY_MAX];
        const char *names[] = {in->jobs[0].name, in->jobs[1].name, "both together"};
        const int width = (int)MAX(MAX(strlen(names[0]), strlen(names[1])), strlen(names[2]));

        (void)printf("%s beside %s, %s: %s\n\n", names[0], names[1], way_names[way],
                     fit_text(pair));
        (void)printf("%-*s  progress  nine of ten\n", width, "");
        for (unsigned i = 0; i < 3; i++) {
                const struct interval v = interval_of(in, pair, way, i);

                (void)printf("%-*s  %8.2f  %.2f to %.2f\n", width, names[i], v.value, v.low,
                             v.high);
        }
        (void)printf("\nWhy: %s.\n", pairs_why(&in->pairs, pair, way, why));
        for (unsigned w = 0; w < WAYS; w++)
                if (w != way && pair->ways[w].possible)
                        (void)printf("%s would give %.2f together%s.\n", way_names[w],
                                     interval_of(in, pair, (enum way)w, 2).value,
                                     pair->ways[w].by_model ? "" : ", by a model of turns alone");
}

static json_t *to_json(const struct interval *v)
{
        return json_pack("{sf s[ff]}", "value", v->value, "interval", v->low, v->high);
}

static json_t *way_to_json(const struct command_input *in, const struct pairs_pair *pair,
                           enum way way)
{
        struct interval v[3];
        char why[PAIRS_WHY_MAX];

        for (unsigned i = 0; i < 3; i++)
                v[i] = interval_of(in, pair, way, i);
        return json_pack("{s[oo] so sb ss}", "progress", to_json(&v[0]), to_json(&v[1]), "sum",
                         to_json(&v[2]), "by_model", pair->ways[way].by_model, "why",
                         pairs_why(&in->pairs, pair, way, why));
}

static int print_json(const struct command_input *in, const struct pairs_pair *pair, enum way way)
{
        json_t *json = json_pack("{s[ss] ss sb s{}}", "pair", in->jobs[0].name, in->jobs[1].name,
                                 "way", way_names[way], "fits", pair->fits, "ways");

        for (unsigned w = 0; json && w < WAYS; w++)
                if (pair->ways[w].possible)
                        (void)json_object_set_new(json_object_get(json, "ways"), way_names[w],
                                                  way_to_json(in, pair, (enum way)w));
        if (!pair->fits)
                (void)json_object_set_new(
                        json, "turns",
                        json_pack("{sf sf sf sf}", "missing_bytes", pair->missing_bytes,
                                  "handoff_s", pair->handoff_s, "bus_bytes_s", pair->bus_bytes_s,
                                  "host_bytes", pair->host_bytes));
        return command_print_json(json);
}

static int no_way(const struct command_input *in, const struct pairs_pair *pair)
{
        if (pair->fits && *in->no_model)
                return command_fail(STATUS_FAILED, "%s", in->no_model);
        if (pair->fits)
                return command_fail(STATUS_FAILED,
                                    "the model knows none of the ways that --way allows");
        for (unsigned k = 0; k < 2; k++)
                if (in->pairs.turns[k].memory_bytes > in->pairs.card.capacity_bytes)
                        return command_fail(STATUS_FAILED,
                                            "job %s needs more memory than the card has",
                                            in->jobs[k].name);
        return command_fail(STATUS_FAILED, "the jobs do not fit the card together, and --way does "
                                           "not allow turns");
}

static int predict(struct command_input *in, char **paths)
{
        struct pairs_pair pair = {.a = 0, .b = 1};
        char error[PAIRS_ERROR_MAX];
        enum way way;
        int status = command_open(in, paths, 2);

        if (status != STATUS_OK)
                return status;
        if (pairs_predict(&in->pairs, in->allowed, &pair, 1, error) < 0)
                return command_fail(STATUS_FAILED, "%s", error);
        if (pairs_choose(&in->pairs, &pair, 0, &way) < 0)
                return no_way(in, &pair);
        if (in->json)
                return print_json(in, &pair, way);
        print_text(in, &pair, way);
        return STATUS_OK;
}

int predict_main(int argc, char **argv)
{
        struct command_input in = {0};
        int words, status = command_options("predict", argc, argv, options, &in, &words);

        if (status != STATUS_OK)
                return status;
        if (words != 2)
                return command_fail(STATUS_USAGE, "predict takes two job files");
        status = predict(&in, argv);
        command_close(&in);
        return status;
}
