/* reserve.c: owns the reservations of cards, and the choice of one. Must never promise a byte: a
 * reservation moves no memory, and changes nothing in the scheduler. */
#include "daemon/ledger/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/state/client.h"

#define GUESS_PART 10 /* without clients to judge by: a tenth of the card */

struct reservations {
        unsigned n;
        struct reservation {
                pid_t pid; /* 0: in a pid namespace that we cannot see */
                struct users_key user;
                int pidfd;
                unsigned gpu;
                uint64_t guess, since_ns;
        } list[RESERVE_MAX];
};

/* ---- the choice ---- */

static bool is_better(const struct reserve_card *a, const struct reserve_card *b)
{
        double part_a = (double)a->bytes / (double)MAX(a->capacity, 1u);
        double part_b = (double)b->bytes / (double)MAX(b->capacity, 1u);

        if (a->waiting != b->waiting)
                return a->waiting < b->waiting;
        if (part_a != part_b)
                return part_a < part_b;
        return a->clients < b->clients;
}

int reserve_choose(const struct reserve_card *cards, unsigned n)
{
        int best = -1;

        for (unsigned i = 0; i < n; i++)
                if (cards[i].eligible && (best < 0 || is_better(&cards[i], &cards[best])))
                        best = (int)i;
        return best;
}

/* ---- reservations ---- */

/* Returns the commit of the process on a card. *ret_attached: it has attached this card, or any
 * card if gpu is below 0. */
static uint64_t process_commit(struct server *s, pid_t pid, int gpu, bool *ret_attached)
{
        uint64_t sum = 0;

        *ret_attached = false;
        for (const struct client *c = s->clients; c && pid > 0; c = c->next) {
                struct sched_account_view v;

                if (c->peer.pid != pid || !c->id || c->ended)
                        continue;
                if (gpu < 0)
                        *ret_attached = true;
                else if (sched_account_view(s->sched, c->id, (unsigned)gpu, &v) == 0) {
                        *ret_attached = true;
                        sum += v.commit;
                }
        }
        return sum;
}

static bool counts(struct server *s, const struct reservation *r, uint64_t now_ns)
{
        bool here, anywhere;

        if (now_ns - r->since_ns >= RESERVE_NS || peer_ended(r->pidfd) ||
            !s->gpus.list[r->gpu].present)
                return false;
        (void)process_commit(s, r->pid, (int)r->gpu, &here);
        (void)process_commit(s, r->pid, -1, &anywhere);
        return here || !anywhere;
}

static void end_at(struct reservations *all, unsigned i)
{
        cleanup_close(&all->list[i].pidfd);
        all->list[i] = all->list[--all->n];
}

void reserve_prune(struct server *s)
{
        struct reservations *all = s->reservations;
        uint64_t now = clock_now_ns();

        for (unsigned i = 0; all && i < all->n;)
                if (counts(s, &all->list[i], now))
                        i++;
                else
                        end_at(all, i);
}

unsigned reserve_count(struct server *s, unsigned gpu)
{
        const struct reservations *all = s->reservations;
        unsigned n = 0;

        for (unsigned i = 0; all && i < all->n; i++) {
                bool attached;

                if (all->list[i].gpu != gpu)
                        continue;
                (void)process_commit(s, all->list[i].pid, (int)gpu, &attached);
                n += !attached;
        }
        return n;
}

/* Adds what the reservations count beyond the clients' commits. */
static void add_reservations(struct server *s, unsigned gpu, struct reserve_card *card)
{
        const struct reservations *all = s->reservations;

        for (unsigned i = 0; all && i < all->n; i++) {
                const struct reservation *r = &all->list[i];
                bool attached;

                if (r->gpu == gpu)
                        card->bytes +=
                                sub_sat(r->guess, process_commit(s, r->pid, (int)gpu, &attached));
        }
        card->clients += reserve_count(s, gpu);
}

static void look_at(struct server *s, unsigned gpu, struct reserve_card *ret)
{
        struct sched_gpu_view v;

        *ret = (struct reserve_card){0};
        if (!s->gpus.list[gpu].present || s->gpus.list[gpu].displaced ||
            sched_gpu_view(s->sched, gpu, &v) < 0)
                return;
        *ret = (struct reserve_card){.eligible = true,
                                     .waiting = v.waiting,
                                     .bytes = v.committed,
                                     .capacity = v.capacity};
        for (const struct client *c = s->clients; c; c = c->next)
                ret->clients += c->id && c->accounts[gpu].ordinal >= 0;
        add_reservations(s, gpu, ret);
}

static int find_room(struct reservations *all, struct users_key user)
{
        unsigned of_user = 0;

        for (unsigned i = 0; i < all->n; i++)
                of_user += users_same(all->list[i].user, user);
        return of_user >= RESERVE_OF_USER || all->n == RESERVE_MAX ? -EUSERS : 0;
}

int reserve_take(struct server *s, const struct peer *peer, uint32_t among, unsigned *ret_gpu)
{
        struct reserve_card cards[SCHED_GPUS_MAX];
        struct reservation made = {.pid = peer->pid, .user = users_key_of(peer), .pidfd = -EBADF};
        int r, gpu;

        if (!s->reservations && !(s->reservations = calloc(1, sizeof(*s->reservations))))
                return -ENOMEM;
        for (unsigned i = 0; i < s->reservations->n; i++)
                if (peer->pid > 0 && s->reservations->list[i].pid == peer->pid) {
                        end_at(s->reservations, i);
                        break;
                }
        reserve_prune(s);
        for (unsigned i = 0; i < s->gpus.n; i++) {
                look_at(s, i, &cards[i]);
                cards[i].eligible &= among >> i & 1;
        }
        gpu = reserve_choose(cards, s->gpus.n);
        if (gpu < 0)
                return -ENODEV;
        r = find_room(s->reservations, made.user);
        if (r < 0)
                return r;
        if (peer->pidfd >= 0) {
                made.pidfd = fcntl(peer->pidfd, F_DUPFD_CLOEXEC, 0);
                if (made.pidfd < 0)
                        return -errno;
        }
        made.gpu = (unsigned)gpu;
        made.since_ns = clock_now_ns();
        made.guess = cards[gpu].clients ? cards[gpu].bytes / cards[gpu].clients
                                        : cards[gpu].capacity / GUESS_PART;
        log_info("process %d is to use GPU %d: it reserves %llu MiB", (int)peer->pid, gpu,
                 (unsigned long long)(made.guess / MIB));
        s->reservations->list[s->reservations->n++] = made;
        *ret_gpu = made.gpu;
        return 0;
}

void reserve_free(struct server *s)
{
        struct reservations *all = s->reservations;

        while (all && all->n > 0)
                end_at(all, 0);
        free(all);
        s->reservations = NULL;
}
