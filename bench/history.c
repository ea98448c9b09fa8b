/* history.c: measures what the daemon's history costs: to append a record, to find whether a client
 * has changed, to note that it has, and to copy all records. Prints times of the processor, so it
 * says something about the machine that it runs on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/history/history.h"
#include "daemon/history/record_ring.h"
#include "daemon/state/client.h"

#define ROUNDS 5u
#define CALLS  2000000u
#define COPIES 100u

static struct server server;
static struct client client;

/* ---- fakes: a user may have as many records as the bench makes ---- */

bool users_note(struct user *user, unsigned n, uint64_t now_ns)
{
        return true;
}

struct client *server_find(const struct server *s, sched_client id)
{
        return &client;
}

/* ---- what is measured ---- */

static void append(void)
{
        const struct history_record r = {.time_ns = 1, .kind = HISTORY_STATE};

        ring_append(server.history, &r);
}

static void note_a_change(void)
{
        client.pause.ordered = !client.pause.ordered;
        history_client(&client);
}

static void find_no_change(void)
{
        history_client(&client);
}

/* For an answer to the order `trace`: the loop does nothing else meanwhile. */
static void copy(void)
{
        struct ring_copy n;

        free(history_copy(&server, &(struct peer){.uid = 1}, &n));
}

static uint64_t cpu_ns(void)
{
        struct timespec ts;

        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
        return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static void measure(const char *what, void (*call)(void), unsigned calls)
{
        double best = 0;

        for (unsigned round = 0; round < ROUNDS; round++) {
                const uint64_t began = cpu_ns();
                double ns;

                for (unsigned i = 0; i < calls; i++)
                        call();
                ns = (double)(cpu_ns() - began) / calls;
                best = round ? MIN(best, ns) : ns;
        }
        (void)printf("%-40s %9.1f ns\n", what, best);
}

int main(void)
{
        static struct sched_actions out;
        static struct config config;
        const struct sched_attach attach = {.usage = {.allocated = GIB, .backed = GIB}};
        struct sched_config sc;
        static const struct peer row = {.pid = 1, .uid = 1};

        sched_config_default(&sc);
        config.sched = sc;
        server.config = &config;
        server.sched = sched_new(&sc);
        server.history = ring_new();
        if (!server.sched || !server.history)
                return EXIT_FAILURE;
        client.server = &server;
        memset(client.gpu_of, 0xff, sizeof(client.gpu_of)); /* sets each entry to -1 */
        client.gpu_of[0] = 0;
        if (sched_gpu_add(server.sched, 0, 80 * GIB) < 0 ||
            sched_client_add(server.sched, (struct sched_origin){0}, 0, 1, &client.id) < 0 ||
            sched_client_attach(server.sched, client.id, 0, &attach, 1, &out) < 0)
                return EXIT_FAILURE;
        measure("append a record", append, CALLS);
        measure("look at a client that has not changed", find_no_change, CALLS);
        measure("note that a client has changed", note_a_change, CALLS);
        for (unsigned i = 0; i < HISTORY_PROGRAMS; i++)
                (void)ring_enter(server.history, &row, "program", 1);
        measure("copy the full ring", copy, COPIES);
        ring_free(server.history);
        sched_free(server.sched);
        return EXIT_SUCCESS;
}
