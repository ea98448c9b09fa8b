/* gpus_in_use.c: owns which programs belong to which submitted job, and so which GPUs others use.
 * Must never take a byte or a turn from a program that was not submitted. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "daemon/ledger/event.h"
#include "daemon/ledger/reserve.h"
#include "daemon/people/process.h"
#include "daemon/queue/state.h"
#include "daemon/state/client.h"

#define ANCESTORS_MAX 64u
#define CHILDREN_MAX  4096u
#define OTHERS_IDLE_NS                                                            \
        (30 * NSEC_PER_SEC) /* idle for so long, a program leaves its GPU to jobs \
                             */

/* Returns the parent of a process; 0: unknown. In /proc/PID/stat it stands behind the name, which
 * may contain any character. */
static pid_t parent_of(pid_t pid)
{
        char path[64], line[1024], *after_name;
        _cleanup_fclose_ FILE *f = NULL;
        int parent = 0;

        (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        f = fopen(path, "re");
        if (f && fgets(line, sizeof(line), f) && (after_name = strrchr(line, ')')))
                (void)sscanf(after_name, ") %*c %d", &parent);
        return parent;
}

bool submit_has_program(const struct peer *peer, pid_t named)
{
        char path[64];
        _cleanup_fclose_ FILE *f = NULL;
        bool found = false;
        int pid;

        if (peer->pid <= 0 || named <= 0)
                return false;
        (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)peer->pid,
                       (int)peer->pid);
        f = fopen(path, "re");
        for (unsigned i = 0; f && !found && i < CHILDREN_MAX && fscanf(f, "%d", &pid) == 1; i++) {
                struct process p;

                found = process_look(pid, &p) == 0 && p.inner == named && p.real_uid == peer->uid &&
                        !p.ended;
        }
        return found && !peer_ended(peer->pidfd); /* another process may have its number */
}

/* `sublet submit` adopts orphans among its descendants, so the parents of a job's programs always
 * lead to it. */
static uint32_t find_job(const struct submits *all, const struct client *c)
{
        pid_t pid = c->peer.pid;

        for (unsigned i = 0; i < ANCESTORS_MAX && pid > 1; i++, pid = parent_of(pid))
                for (const struct submission *m = all->list; m; m = m->next)
                        if (m->id && !m->dead && m->peer.pid == pid &&
                            peer_same_user(&m->peer, &c->peer))
                                return m->id;
        return 0;
}

/* Returns the job that the client belongs to; 0: none. It is looked for once, and again when jobs
 * have come back to a restarted daemon. */
static uint32_t job_of(const struct submits *all, struct client *c)
{
        if (!c->job.known || c->job.returned != all->returned ||
            (c->job.id && !queue_find(all->queue, c->job.id)))
                c->job = (struct client_job){
                        .known = true, .returned = all->returned, .id = find_job(all, c)};
        return c->job.id;
}

/* Notes whether the client does anything. Once a second is enough. */
static void note_work(struct client *c, uint64_t now_ns)
{
        struct sched_client_view v;

        if (sched_client_view(c->server->sched, c->id, now_ns, &v) < 0)
                return;
        if (!c->job.worked_ns || v.run_ns != c->job.run_ns ||
            (v.state != SCHED_IDLE && v.state != SCHED_EVICTING && !v.idle))
                c->job.worked_ns = now_ns;
        c->job.run_ns = v.run_ns;
}

static bool is_used(struct submits *all, unsigned gpu, uint64_t now_ns)
{
        struct server *s = all->server;

        for (struct client *c = s->clients; c; c = c->next)
                if (c->id && !c->ended && !c->gone && c->accounts[gpu].ordinal >= 0 &&
                    !job_of(all, c) && now_ns - c->job.worked_ns < OTHERS_IDLE_NS)
                        return true;
        return reserve_count(s, gpu) > 0;
}

void submit_look_at_gpus(struct submits *all, bool second)
{
        struct server *s = all->server;
        const uint64_t now_ns = clock_now_ns();

        for (struct client *c = s->clients; c; c = c->next) {
                const uint32_t before = c->job.id;

                if (!c->id || (!second && c->job.worked_ns))
                        continue;
                (void)job_of(all, c);
                if (before && !c->job.id)
                        c->job.worked_ns = now_ns;
                note_work(c, now_ns);
        }
        for (unsigned i = 0; i < SCHED_GPUS_MAX; i++) {
                const struct gpu *g = &s->gpus.list[i];
                const bool present = i < s->gpus.n && g->present && !g->displaced;

                queue_gpu_set(all->queue, i, present, present && is_used(all, i, now_ns));
        }
}

static void set_alone(struct client *c, bool alone)
{
        struct server *s = c->server;

        if (c->job.alone == alone)
                return;
        c->job.alone = alone;
        event_begin(s);
        (void)sched_client_alone(s->sched, c->id, alone, clock_now_ns(), &s->actions);
        event_end(s);
}

void submit_apply_turns(struct submits *all)
{
        for (struct client *c = all->server->clients; c; c = c->next) {
                const struct queue_job *j;

                if (!c->id)
                        continue;
                j = queue_find(all->queue, job_of(all, c));
                set_alone(c, j && j->gpu >= 0 && queue_takes_turns(all->queue, (unsigned)j->gpu));
        }
}

double submit_capacity(const struct server *s)
{
        uint64_t least = 0;

        for (unsigned i = 0; i < s->gpus.n; i++) {
                struct sched_gpu_view v;

                if (s->gpus.list[i].present && sched_gpu_view(s->sched, i, &v) == 0)
                        least = least ? MIN(least, v.capacity) : v.capacity;
        }
        return (double)least;
}
