/* top_history.c: owns what is remembered of earlier looks. Must never compare figures of two
 * daemons: they count from different beginnings. */
#include "client/top/top_history.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/figures/client_words.h"

#define GPUS_MAX 32
#define SAMPLES  16
#define SAMPLE_S 2.0 /* seconds between two samples: all of them cover the last half minute */
#define HUES_MAX 4096u

struct past {
        int pid, gpu;
        unsigned hue;
        bool here;  /* the present look shows it */
        bool fresh; /* there was no look before */
        double moved;
        struct {
                double at, ran;
        } samples[SAMPLES];
        unsigned n;
};

struct history {
        json_t *now;
        char instance[24];
        double at;
        struct history_gpu gpus[GPUS_MAX];
        unsigned n_gpus;
        struct past *clients;
        size_t n, room;
};

struct history *history_new(void)
{
        return calloc(1, sizeof(struct history));
}

void history_free(struct history *h)
{
        if (!h)
                return;
        json_decref(h->now);
        free(h->clients);
        free(h);
}

const json_t *history_now(const struct history *h)
{
        return h->now;
}

/* ---- finding ---- */

/* The daemon lists programs in the order in which they came, as we do. So the next one that is
 * looked for usually stands right behind the last one, at `from`. Several may have pid 0: those in
 * pid namespaces that the daemon cannot see. */
static struct past *find(const struct history *h, int pid, int gpu, size_t from)
{
        for (size_t i = 0; i < h->n; i++) {
                struct past *p = &h->clients[(from + i) % h->n];

                if (p->pid == pid && p->gpu == gpu && !p->here)
                        return p;
        }
        return NULL;
}

const struct history_gpu *history_gpu(const struct history *h, int index)
{
        for (unsigned i = 0; i < h->n_gpus; i++)
                if (h->gpus[i].index == index)
                        return &h->gpus[i];
        return NULL;
}

/* ---- programs ---- */

/* Returns the lowest number that no program has. A program has one number on all of its cards. */
static unsigned free_hue(const struct history *h, int pid)
{
        static bool taken[HUES_MAX];
        unsigned hue = 0;

        memset(taken, 0, sizeof(taken));
        for (size_t i = 0; i < h->n; i++) {
                if (h->clients[i].pid == pid)
                        return h->clients[i].hue;
                taken[h->clients[i].hue] = true;
        }
        while (hue + 1 < HUES_MAX && taken[hue])
                hue++;
        return hue;
}

static struct past *add(struct history *h, int pid, int gpu)
{
        const unsigned hue = free_hue(h, pid);

        if (h->n == h->room) {
                const size_t room = h->room ? 2 * h->room : 64;
                struct past *bigger = realloc(h->clients, room * sizeof(*bigger));

                if (!bigger)
                        return NULL;
                h->clients = bigger;
                h->room = room;
        }
        h->clients[h->n] = (struct past){.pid = pid, .gpu = gpu, .hue = hue, .fresh = true};
        return &h->clients[h->n++];
}

/* Compares with the oldest sample that is kept, and keeps a sample now and then. */
static json_t *measure_share(struct past *p, double at, double ran)
{
        const unsigned oldest = p->n > SAMPLES ? p->n % SAMPLES : 0;
        const unsigned newest = (p->n - 1) % SAMPLES;
        const double passed = p->n ? at - p->samples[oldest].at : 0;
        const double got = passed > 0 ? (ran - p->samples[oldest].ran) / passed : 0;

        if (!p->n || at - p->samples[newest].at >= SAMPLE_S) {
                p->samples[p->n % SAMPLES].at = at;
                p->samples[p->n % SAMPLES].ran = ran;
                p->n++;
        }
        return passed > 0 ? json_real(MIN(MAX(got, 0.0), 1.0)) : json_null();
}

static void look_at_client(struct history *h, json_t *client, const struct history_gpu *gpu,
                           double at, size_t *from, double *sum)
{
        const int pid = (int)figure_number(client, "pid");
        const double moved = client_moved(client), passed = at - h->at;
        struct past *p = find(h, pid, gpu->index, *from);
        double bus = -1;

        if (!p)
                p = add(h, pid, gpu->index);
        if (!p)
                return;
        *from = (size_t)(p - h->clients) + 1;
        if (!p->fresh && passed > 0) {
                bus = MAX(moved - p->moved, 0.0) / passed;
                *sum += bus;
        }
        p->here = true;
        p->moved = moved;
        p->fresh = false;
        (void)json_object_set_new(client, "got",
                                  measure_share(p, at, figure_number(client, "gpu_time_s")));
        (void)json_object_set_new(client, "bus", bus >= 0 ? json_real(bus) : json_null());
        (void)json_object_set_new(client, "hue", json_integer(p->hue));
}

static void forget_ended(struct history *h)
{
        size_t n = 0;

        for (size_t i = 0; i < h->n; i++)
                if (h->clients[i].here)
                        h->clients[n++] = h->clients[i];
        h->n = n;
}

/* ---- cards ---- */

static struct history_gpu *gpu_of(struct history *h, const json_t *gpu)
{
        const int index = (int)figure_number(gpu, "index");
        const char *uuid = figure_string(gpu, "uuid");
        unsigned i = 0;

        while (i < h->n_gpus && h->gpus[i].index != index)
                i++;
        if (i == GPUS_MAX)
                return NULL;
        if (i == h->n_gpus || strncmp(h->gpus[i].uuid, uuid, sizeof(h->gpus[i].uuid) - 1) != 0) {
                h->gpus[i] = (struct history_gpu){.index = index};
                (void)snprintf(h->gpus[i].uuid, sizeof(h->gpus[i].uuid), "%s", uuid);
                h->n_gpus = MAX(h->n_gpus, i + 1);
        }
        return &h->gpus[i];
}

static void look_at_gpu(struct history *h, const json_t *gpu, double at)
{
        const json_t *use = json_object_get(gpu, "utilization");
        json_t *client;
        struct history_gpu *g = gpu_of(h, gpu);
        const bool rated = h->now && at > h->at;
        double bus = 0;
        size_t i, from = 0;

        if (!g)
                return;
        json_array_foreach (json_object_get(gpu, "clients"), i, client)
                look_at_client(h, client, g, at, &from, &bus);
        g->use[g->looks % HISTORY_LOOKS] = json_is_number(use) ? (float)json_number_value(use) : -1;
        g->bus[g->looks % HISTORY_LOOKS] = rated ? (float)bus : -1;
        g->looks++;
}

void history_add(struct history *h, json_t *status)
{
        const char *instance = figure_string(status, "instance");
        const double at = figure_number(status, "uptime_s");
        json_t *gpu;
        size_t i;

        if (strncmp(h->instance, instance, sizeof(h->instance) - 1) != 0) {
                (void)snprintf(h->instance, sizeof(h->instance), "%s", instance);
                h->n = 0;
                json_decref(h->now);
                h->now = NULL;
        }
        for (size_t k = 0; k < h->n; k++)
                h->clients[k].here = false;
        json_array_foreach (json_object_get(status, "gpus"), i, gpu)
                look_at_gpu(h, gpu, at);
        forget_ended(h);
        h->at = at;
        json_decref(h->now);
        h->now = json_incref(status);
}
