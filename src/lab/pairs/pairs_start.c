/* pairs_start.c: owns the processes of a run: its daemon, its MPS and its workers, which it starts
 * and ends. Must leave no process behind. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/uuid.h"
#include "lab/pairs/pairs_running.h"

#define QUANTUM      "50ms"
#define READY_S      120 /* a worker may take so long to start */
#define IDLE_WINDOWS 20

/* Parts of the GPU's memory for the models of a worker. Most pairs run under MPS. */
static const double budget_parts[PAIRS_PLACES] = {
        [PAIRS_PLACE_SUBLET] = 0.14, [PAIRS_PLACE_MPS] = 0.24, [PAIRS_PLACE_MEASURED] = 0.06};

/* ---- the daemon, and MPS ---- */

static int start_daemon(struct pairs_running *r)
{
        char settings[PATHS_DIR_MAX + 16];
        FILE *file;
        int result;

        result = lab_daemon_prepare(&r->daemon, r->setting->folder, r->setting->simulator != NULL);
        if (result != CLI_OK)
                return result;
        (void)snprintf(settings, sizeof(settings), "%s.conf", r->daemon.dir);
        file = fopen(settings, "we");
        if (!file)
                return cli_fail(CLI_FAILED, "cannot write %s: %m", settings);
        (void)fprintf(file, "[daemon]\nquantum = " QUANTUM "\n");
        (void)fclose(file);
        r->mode = "auto";
        return lab_daemon_start(&r->daemon, (const char *const[]){"--config", settings, NULL});
}

bool pairs_set_mode(struct pairs_running *r, enum way way)
{
        const char *mode = way == WAY_TURNS ? "exclusive" : "auto";
        json_auto_t *answer = NULL;
        int result;

        if (strcmp(mode, r->mode) == 0)
                return true;
        result = lab_daemon_set(&r->daemon, "mode", mode, &answer);
        if (result == 0)
                r->mode = mode;
        return result == 0;
}

json_int_t pairs_count_handoffs(const struct pairs_running *r)
{
        json_t *status = NULL, *gpu;
        json_int_t handoffs = 0;
        size_t i;

        if (lab_daemon_ask(&r->daemon, "status", &status) < 0)
                return 0;
        json_array_foreach (json_object_get(status, "gpus"), i, gpu)
                handoffs += json_integer_value(json_object_get(gpu, "handoffs"));
        json_decref(status);
        return handoffs;
}

static void start_mps(struct pairs_running *r)
{
        int result;

        if (!r->ways[WAY_SHARED])
                return;
        (void)snprintf(r->mps_dir, sizeof(r->mps_dir), "%.70s/mps", r->setting->folder);
        r->mps = (struct mps_options){
                .dir = r->mps_dir, .gpu = r->gpu, .uid = getuid(), .gid = getgid()};
        result = mps_start(&r->mps, &r->mps_pid);
        if (result == 0)
                return;
        r->ways[WAY_SHARED] = false;
        (void)cli_fail(0, "MPS does not start (%s): pairs of the way shared are not measured",
                       result == -ENOENT ? "there is no " MPS_CONTROL : strerror(-result));
}

/* ---- the workers ---- */

struct pairs_worker *pairs_worker_at(struct pairs_running *r, const struct pairs_job *job,
                                     enum pairs_place place, unsigned which)
{
        return &r->workers[job->torch ? PAIRS_KIND_MODELS : PAIRS_KIND_KERNELS][place][which];
}

unsigned pairs_workers_at(enum pairs_place place)
{
        return place == PAIRS_PLACE_MEASURED ? 1 : 2;
}

bool pairs_has_place(const struct pairs_running *r, enum pairs_place place)
{
        return place == PAIRS_PLACE_MPS ? r->ways[WAY_SHARED] : true;
}

bool pairs_make_ready(struct pairs_worker *const *workers, unsigned n)
{
        struct pairs_worker *fresh[PAIRS_KINDS * PAIRS_PLACES * 2] = {0};
        unsigned n_fresh = 0;
        bool all = true;

        for (unsigned i = 0; i < n; i++) {
                struct pairs_worker *w = workers[i];

                if (pairs_worker_runs(w) && w->answered)
                        continue;
                if (pairs_worker_runs(w))
                        fresh[n_fresh++] = w;
                else if (w->starts >= PAIRS_STARTS_MAX || pairs_worker_start(w) < 0)
                        all = false;
                else
                        fresh[n_fresh++] = w;
        }
        (void)pairs_workers_wait(fresh, n_fresh, READY_S);
        for (unsigned i = 0; i < n_fresh; i++)
                if (strcmp(fresh[i]->answer, "ready") != 0) {
                        pairs_worker_end(fresh[i]);
                        all = false;
                }
        return all;
}

static void set_up_worker(struct pairs_running *r, enum pairs_kind kind, enum pairs_place place,
                          unsigned which)
{
        static const char *const kinds[] = {"kernels", "models"};
        static const char *const places[] = {"sublet", "mps", "measured"};
        struct pairs_worker *w = &r->workers[kind][place][which];

        *w = PAIRS_WORKER_NONE;
        w->daemon = &r->daemon;
        w->preload = place != PAIRS_PLACE_MPS;
        w->mps_dir = place == PAIRS_PLACE_MPS ? r->mps_dir : NULL;
        w->gpu = place == PAIRS_PLACE_MPS ? r->gpu : NULL;
        w->python = kind == PAIRS_KIND_MODELS ? r->setting->python : NULL;
        w->log = r->log;
        w->measure_dir = place == PAIRS_PLACE_MEASURED ? r->measure_dir : NULL;
        w->budget = (uint64_t)(r->card_job.measured.memory_bytes * budget_parts[place]);
        (void)snprintf(w->name, sizeof(w->name), "pairs-%s-%s-%u", kinds[kind], places[place],
                       which + 1);
}

/* Lists all workers of a place. */
static unsigned workers_of(struct pairs_running *r, enum pairs_place place,
                           struct pairs_worker **ret)
{
        unsigned n = 0;

        for (unsigned kind = 0; kind < PAIRS_KINDS; kind++)
                for (unsigned which = 0; r->kinds[kind] && which < pairs_workers_at(place); which++)
                        ret[n++] = &r->workers[kind][place][which];
        return n;
}

/* Says what the worker last wrote to stderr. */
static void show_log(const struct pairs_running *r)
{
        FILE *file = fopen(r->log, "re");
        char line[256];
        unsigned n = 0;

        while (file && n++ < 20 && fgets(line, sizeof(line), file))
                (void)fputs(line, stderr);
        if (file)
                (void)fclose(file);
}

/* Watches the card while nothing runs on it. */
static double watch_idle(struct card *card)
{
        const struct timespec pause = {.tv_nsec = CARD_WINDOW_NS};
        struct card_figures figures;

        for (unsigned i = 0; i < IDLE_WINDOWS; i++) {
                if (i == IDLE_WINDOWS / 2)
                        card_reset(card); /* forgets the windows in which the card slowed down */
                card_look(card);
                (void)nanosleep(&pause, NULL);
        }
        card_figures(card, &figures);
        card_reset(card);
        return figures.power_w;
}

/* Asks the first worker which card this is. This also shows whether anything runs here at all. */
static int ask_card(struct pairs_running *r)
{
        struct pairs_worker *w = &r->workers[PAIRS_KIND_KERNELS][PAIRS_PLACE_SUBLET][0];
        struct card_figures figures = {0};
        uint8_t uuid[16];

        if (!pairs_make_ready(&w, 1)) {
                if (lab_interrupted())
                        return CLI_FAILED;
                show_log(r);
                return cli_fail(CLI_FAILED, "a program alone does not run here: %s", w->answer);
        }
        pairs_worker_order(w, "card %s", r->file);
        if (!pairs_workers_wait(&w, 1, PAIRS_ANSWER_S) ||
            pairs_card_read(r->file, &r->card_job, uuid) < 0)
                return cli_fail(CLI_FAILED, "the card is not known: %s", w->answer);
        (void)uuid_format(uuid, r->gpu);
        r->card = card_open(r->setting->simulator);
        if (!r->card || !card_choose(r->card, uuid))
                (void)cli_fail(0, "NVML does not know this GPU: the jobs go without its figures");
        if (r->card)
                card_figures(r->card, &figures);
        (void)snprintf(r->card_job.measured.driver, sizeof(r->card_job.measured.driver), "%s",
                       figures.driver);
        r->card_job.measured.bus_gb_s = r->card ? figures.bus_gb_s : NAN;
        r->idle_w = r->card ? watch_idle(r->card) : NAN;
        return CLI_OK;
}

static bool all_run(struct pairs_worker *const *workers, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                if (!pairs_worker_runs(workers[i]))
                        return false;
        return true;
}

int pairs_start(struct pairs_running *r)
{
        struct pairs_worker *workers[PAIRS_KINDS * PAIRS_PLACES * 2];
        unsigned n, n_mps;
        int result = start_daemon(r);

        if (result != CLI_OK)
                return result;
        set_up_worker(r, PAIRS_KIND_KERNELS, PAIRS_PLACE_SUBLET, 0);
        result = ask_card(r);
        if (result != CLI_OK)
                return result;
        start_mps(r);
        for (unsigned kind = 0; kind < PAIRS_KINDS; kind++)
                for (unsigned place = 0; place < PAIRS_PLACES; place++)
                        for (unsigned which = 0; which < 2; which++)
                                if (kind || place || which)
                                        set_up_worker(r, kind, place, which);
        n_mps = r->ways[WAY_SHARED] ? workers_of(r, PAIRS_PLACE_MPS, workers) : 0;
        n = n_mps + workers_of(r, PAIRS_PLACE_SUBLET, workers + n_mps);
        n += workers_of(r, PAIRS_PLACE_MEASURED, workers + n);
        /* The first program under MPS starts the server. Programs that start with it could come too
         * early. */
        if (n_mps > 0)
                (void)pairs_make_ready(workers, 1);
        (void)pairs_make_ready(workers, n);
        if (r->kinds[PAIRS_KIND_MODELS] && !lab_interrupted() &&
            !pairs_worker_runs(&r->workers[PAIRS_KIND_MODELS][PAIRS_PLACE_SUBLET][0])) {
                (void)cli_fail(0, "models are left out: %s",
                               r->workers[PAIRS_KIND_MODELS][PAIRS_PLACE_SUBLET][0].answer);
                show_log(r);
                r->kinds[PAIRS_KIND_MODELS] = false;
        } else if (n_mps > 0 && !lab_interrupted() && !all_run(workers, n_mps)) {
                (void)cli_fail(0,
                               "programs do not start under MPS (%s): no pairs are measured "
                               "under shared",
                               workers[0]->answer);
                show_log(r);
                for (unsigned i = 0; i < n_mps; i++)
                        pairs_worker_end(workers[i]);
                r->ways[WAY_SHARED] = false;
        }
        return lab_interrupted() ? CLI_FAILED : CLI_OK;
}

void pairs_end(struct pairs_running *r)
{
        for (unsigned kind = 0; kind < PAIRS_KINDS; kind++)
                for (unsigned place = 0; place < PAIRS_PLACES; place++)
                        for (unsigned which = 0; which < 2; which++)
                                pairs_worker_end(&r->workers[kind][place][which]);
        if (r->mps_pid > 0)
                mps_stop(&r->mps, r->mps_pid);
        lab_daemon_end(&r->daemon);
        card_close(r->card);
        pages_remove(r->measure_dir);
        pairs_data_close(&r->data);
}
