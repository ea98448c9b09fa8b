/* make.c: owns how communicators are made: the ranks meet, see which of them share a card, and make
 * rings or ask the real NCCL.
 * Why: docs/decisions.md, "Ranks on several GPUs use rings in host memory". */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "ranks/comm/comm_state.h"
#include "ranks/events/event_values.h"
#include "ranks/real/real_nccl.h"
#include "ranks/real/real_functions.h"

#define ID_MAGIC "sublet\x01"
#define ID_BYTES sizeof(ID_MAGIC)
/* How long a rank waits for the server of a name that all ranks derive. */
#define SERVER_NS (120 * NSEC_PER_SEC)
#define RETRY_NS  (5 * NSEC_PER_MSEC)

/* What each rank tells the others first. */
struct introduction {
        CUuuid card;
        uint64_t ring_room;
};

ncclResult_t comm_unique_id(ncclUniqueId *ret)
{
        uint8_t name[MEET_NAME];
        int r = meet_serve_new(name);

        if (r < 0)
                return comm_fail(ncclSystemError, "ncclGetUniqueId: cannot listen: %s",
                                 strerror(-r));
        *ret = (ncclUniqueId){0};
        (void)memcpy(ret->internal, ID_MAGIC, ID_BYTES);
        (void)memcpy(ret->internal + ID_BYTES, name, MEET_NAME);
        return ncclSuccess;
}

int comm_name_of(const ncclUniqueId *id, uint8_t ret_name[static MEET_NAME])
{
        if (memcmp(id->internal, ID_MAGIC, ID_BYTES) != 0)
                return -1;
        (void)memcpy(ret_name, id->internal + ID_BYTES, MEET_NAME);
        return 0;
}

/* The beginning of a configuration, which is the same in all releases. */
struct config_head {
        size_t size;
        unsigned magic, version;
        int blocking;
};
#define CONFIG_MAGIC 0xcafebeefu
#define CONFIG_MOST  512u

static size_t config_bytes(const ncclConfig_t *config)
{
        return ((const struct config_head *)config)->size;
}

int comm_read_config(const ncclConfig_t *config, struct comm_plan *plan)
{
        const struct config_head *head = (const struct config_head *)config;

        plan->config = NULL;
        plan->must_not_block = false;
        if (!config)
                return 0;
        if (head->magic != CONFIG_MAGIC || head->size < sizeof(*head) || head->size > CONFIG_MOST ||
            (head->blocking != 0 && head->blocking != 1 && head->blocking != INT_MIN))
                return -1;
        plan->config = (ncclConfig_t *)config;
        plan->must_not_block = head->blocking == 0;
        return 0;
}

int comm_copy_config(struct comm_plan *plan)
{
        const size_t bytes = plan->config ? config_bytes(plan->config) : 0;
        void *copy = bytes ? malloc(bytes) : NULL;

        if (bytes && !copy)
                return -1;
        if (bytes)
                (void)memcpy(copy, plan->config, bytes);
        plan->config = copy;
        return 0;
}

/* Runs in the thread that reads for all communicators of the process. */
static void on_lost(void *context, int lost)
{
        /* A communicator that is still being made gets its error from meet_all(). */
        comm_lost(context, lost);
}

ncclResult_t comm_meeting_failed(const struct comm *c, int r)
{
        if (r == -ECONNRESET)
                return comm_lost_fail(c, meet_lost(c->meet));
        if (r == -ECONNREFUSED)
                return comm_fail(
                        ncclSystemError,
                        "rank %d finds no process that serves this ncclUniqueId: all ranks "
                        "of `sublet run --ranks` must run on one machine and in one "
                        "container, and the process that made the id must live",
                        c->rank);
        return comm_fail(ncclSystemError, "rank %d cannot meet the others: %s", c->rank,
                         strerror(-r));
}

/* A communicator that a thread makes, and that the program may abort meanwhile. */
struct comm_making {
        pthread_t thread;
        struct comm_plan plan; /* its configuration is a copy */
        struct comm *comm;
};

static pthread_mutex_t stopping = PTHREAD_MUTEX_INITIALIZER;

/* Notes the meeting that comm_stop() cancels; NULL: it is over. */
static void note_meeting(struct comm *c, struct meet *m)
{
        (void)pthread_mutex_lock(&stopping);
        c->stopper->being_made = m;
        if (c->stopper->stopped && m)
                meet_cancel(m);
        (void)pthread_mutex_unlock(&stopping);
}

static bool is_stopped(const struct comm *c)
{
        bool stopped;

        (void)pthread_mutex_lock(&stopping);
        stopped = c->stopper->stopped;
        (void)pthread_mutex_unlock(&stopping);
        return stopped;
}

void comm_stop(struct comm *c)
{
        (void)pthread_mutex_lock(&stopping);
        c->stopped = true;
        if (c->being_made)
                meet_cancel(c->being_made);
        (void)pthread_mutex_unlock(&stopping);
}

void comm_stop_making(struct comm *c)
{
        struct comm_making *m = c->making;

        if (!m)
                return;
        comm_stop(c);
        (void)pthread_join(m->thread, NULL);
        c->making = NULL;
        free(m->plan.config);
        free(m);
}

static int join(struct comm *c, bool must_wait)
{
        const uint64_t until = clock_now_ns() + SERVER_NS;
        const struct timespec nap = {.tv_nsec = RETRY_NS};
        int r;

        while ((r = meet_join(c->name, c->rank, c->n, on_lost, c, &c->meet)) == -ECONNREFUSED &&
               must_wait && clock_now_ns() < until && !is_stopped(c))
                (void)nanosleep(&nap, NULL);
        if (r == 0)
                note_meeting(c, c->meet);
        return r;
}

/* True if two ranks share a card. */
static bool is_shared(const struct introduction *all, int n)
{
        for (int a = 0; a < n; a++)
                for (int b = 0; b < a; b++)
                        if (memcmp(&all[a].card, &all[b].card, sizeof(all[a].card)) == 0)
                                return true;
        return false;
}

static bool is_one_card(const struct introduction *all, int n)
{
        for (int i = 1; i < n; i++)
                if (memcmp(&all[i].card, &all[0].card, sizeof(all[i].card)) != 0)
                        return false;
        return true;
}

/* Has the real NCCL make the communicator, because each rank has a card of its own. */
static ncclResult_t make_real(struct comm *c, ncclConfig_t *config)
{
        ncclUniqueId id = {0};
        ncclResult_t result = ncclSuccess;
        struct {
                int32_t result;
                ncclUniqueId id;
        } mine = {0}, all[MEET_RANKS_MAX];
        int r;

        if (!real_nccl_is_there())
                result = comm_fail(
                        ncclSystemError,
                        "the ranks have cards of their own, and there is no libnccl.so.2");
        else if (c->rank == 0)
                result = real_nccl()->ncclGetUniqueId(&id);
        if (result != ncclSuccess && real_nccl_is_there())
                (void)comm_fail(result,
                                "rank %d of %d: ncclGetUniqueId of libnccl.so.2 failed with "
                                "error %d",
                                c->rank, c->n, (int)result);
        mine.result = (int32_t)result;
        mine.id = id;
        r = meet_all(c->meet, &mine, sizeof(mine), NULL, 0, all, NULL);
        if (r < 0)
                return comm_meeting_failed(c, r);
        for (int i = 0; i < c->n; i++)
                if (all[i].result != ncclSuccess)
                        return result != ncclSuccess
                                       ? result
                                       : comm_fail(ncclRemoteError,
                                                   "rank %d of %d: rank %d cannot use "
                                                   "libnccl.so.2, and says why",
                                                   c->rank, c->n, i);
        note_meeting(c, NULL);
        meet_leave(c->meet, 0);
        c->meet = NULL;
        return config ? real_nccl()->ncclCommInitRankConfig(comm_await_real(c), c->n, all[0].id,
                                                            c->rank, config)
                      : real_nccl()->ncclCommInitRank(comm_await_real(c), c->n, all[0].id, c->rank);
}

/* Makes rings. If the card is too full for them, it makes smaller ones, and in the end rings in
 * host memory. All ranks see the same answers, so all make the same tries. */
static ncclResult_t make_rings(struct comm *c, const struct introduction *all)
{
        bool on_host = !is_one_card(all, c->n);
        uint64_t most = UINT64_MAX, bytes;
        CUresult e;
        int r;

        for (int i = 0; i < c->n; i++)
                most = MIN(most, all[i].ring_room);
        bytes = most;
        while ((r = ring_make(c->meet, c->rank, c->n, bytes, on_host, &c->ring, &e)) == -ENOMEM &&
               !on_host) {
                on_host = bytes == RING_LEAST;
                bytes = on_host ? most : ring_half(bytes);
                log_info("rank %d of %d: the card has no room for its ring; trying %llu MiB %s",
                         c->rank, c->n, (unsigned long long)(bytes >> 20),
                         on_host ? "of host memory" : "of it");
        }
        if (r == 0) {
                events_begin();
                return ncclSuccess;
        }
        if (r != -EIO && r != -ENOMEM)
                return comm_meeting_failed(c, r);
        if (e != CUDA_SUCCESS)
                return comm_cuda_failed(c, "making memory for its operations", e);
        return comm_fail(ncclRemoteError,
                         "rank %d of %d: another rank cannot make memory for its operations, and "
                         "says why",
                         c->rank, c->n);
}

static ncclResult_t make_shared(struct comm *c, ncclConfig_t *config, bool must_wait)
{
        struct introduction mine = {0}, all[MEET_RANKS_MAX];
        size_t card_bytes = 0;
        CUdevice device;
        CUresult e = real_cuda()->cuCtxGetDevice(&device);
        int r;

        if (e == CUDA_SUCCESS)
                e = real_cuda()->cuDeviceGetUuid_v2(&mine.card, device);
        if (e == CUDA_SUCCESS)
                e = real_cuda()->cuDeviceTotalMem_v2(&card_bytes, device);
        if (e != CUDA_SUCCESS)
                return comm_cuda_failed(c, "asking for the card's UUID and size", e);
        mine.ring_room = ring_room(card_bytes);
        r = join(c, must_wait);
        if (r == 0)
                r = meet_all(c->meet, &mine, sizeof(mine), NULL, 0, all, NULL);
        if (r < 0)
                return comm_meeting_failed(c, r);
        return is_shared(all, c->n) ? make_rings(c, all) : make_real(c, config);
}

/* ---- several at once ---- */

/* what: a struct comm_plan. */
static ncclResult_t make_here(struct comm *c, const void *what)
{
        const struct comm_plan *plan = what;
        ncclResult_t result = ncclSuccess;
        bool pushed = false;
        CUresult e = comm_enter(c, &pushed);

        if (e == CUDA_SUCCESS)
                e = real_cuda()->cuEventCreate(&c->last, CU_EVENT_DISABLE_TIMING);
        if (e == CUDA_SUCCESS)
                e = real_cuda()->cuEventCreate(&c->side, CU_EVENT_DISABLE_TIMING);
        if (e != CUDA_SUCCESS)
                result = comm_cuda_failed(c, "making an event", e);
        else if (c->n > 1)
                result = make_shared(c, plan->config, plan->must_wait);
        else
                c->ring = (struct ring){.rank = 0, .n = 1, .bytes = RING_LEAST};
        note_meeting(c, NULL);
        if (c->real)
                comm_free_events(c);
        comm_leave(pushed);
        return result;
}

static void *make_later(void *argument)
{
        struct comm_making *m = argument;
        ncclResult_t expected = ncclInProgress;

        (void)atomic_compare_exchange_strong(&m->comm->error, &expected,
                                             make_here(m->comm, &m->plan));
        return NULL;
}

/* Starts a thread that makes the communicator. */
static ncclResult_t start_making(struct comm *c, const struct comm_plan *plan)
{
        struct comm_making *m = calloc(1, sizeof(*m));

        if (!m)
                return comm_fail(ncclSystemError, "no memory");
        m->plan = *plan;
        m->comm = c;
        if (comm_copy_config(&m->plan) < 0) {
                free(m);
                return comm_fail(ncclSystemError, "no memory");
        }
        c->making = m;
        atomic_store(&c->error, ncclInProgress);
        if (pthread_create(&m->thread, NULL, make_later, m) == 0)
                return ncclSuccess;
        c->making = NULL;
        free(m->plan.config);
        free(m);
        return comm_fail(ncclSystemError, "cannot start a thread for a communicator");
}

static void *run_task(void *argument)
{
        struct comm_task *t = argument;

        t->result = t->run(t->comm, t->what);
        return NULL;
}

ncclResult_t comm_run_tasks(struct comm_task *t, unsigned n)
{
        ncclResult_t result = ncclSuccess;
        unsigned started = 1;

        while (started < n && pthread_create(&t[started].thread, NULL, run_task, &t[started]) == 0)
                started++;
        if (started == n)
                (void)run_task(&t[0]);
        else
                result = comm_fail(ncclSystemError, "cannot start a thread for each communicator");
        for (unsigned i = 1; i < started; i++) {
                if (result != ncclSuccess)
                        comm_stop(t[i].comm); /* it would wait for the others */
                (void)pthread_join(t[i].thread, NULL);
        }
        for (unsigned i = 0; i < n && result == ncclSuccess; i++)
                result = t[i].result;
        return result;
}

static struct comm *begin(const struct comm_plan *plan)
{
        struct comm *c = comm_new();

        if (!c)
                return NULL;
        (void)memcpy(c->name, plan->name, MEET_NAME);
        c->rank = plan->rank;
        c->n = plan->n;
        c->device = plan->device;
        c->context = plan->context;
        c->stopper = plan->parent ? plan->parent : c;
        return c;
}

ncclResult_t comm_make(const struct comm_plan *plans, unsigned n, struct comm **ret)
{
        struct comm_task tasks[MEET_RANKS_MAX];
        ncclResult_t result = ncclSuccess;

        if (n > MEET_RANKS_MAX)
                return comm_fail(ncclInvalidUsage, "at most %d communicators at once",
                                 MEET_RANKS_MAX);
        for (unsigned i = 0; i < n; i++) {
                tasks[i] = (struct comm_task){
                        .comm = begin(&plans[i]), .run = make_here, .what = &plans[i]};
                if (!tasks[i].comm)
                        result = comm_fail(ncclSystemError, "no memory");
        }
        /* NCCL's rule: all communicators of a group block, or none of them does. */
        for (unsigned i = 0; i < n && plans[0].must_not_block && result == ncclSuccess; i++)
                result = start_making(tasks[i].comm, &plans[i]);
        if (result == ncclSuccess && !plans[0].must_not_block)
                result = comm_run_tasks(tasks, n);
        for (unsigned i = 0; i < n; i++) {
                if (result == ncclSuccess)
                        ret[i] = tasks[i].comm;
                else if (tasks[i].comm)
                        comm_drop(tasks[i].comm);
        }
        return result;
}
