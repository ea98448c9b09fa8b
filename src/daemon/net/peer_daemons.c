/* peer_daemons.c: owns the messages between this daemon and the others on its cards. Must never
 * believe more of a message than that a program of its sender's user waits for bytes. Must not
 * believe that for long if nobody takes the bytes. Must never let a message take a byte from a
 * client that is not idle.
 * Why: docs/decisions.md, "Peer daemons do not negotiate". */
#include "daemon/net/peer_daemons.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/precondition.h"
#include "daemon/state/client.h"
#include "daemon/people/hangup.h"
#include "daemon/net/read_turns.h"
#include "daemon/ledger/event.h"

#define NEED_MAGIC   UINT32_C(0x4e4c4253) /* "SBLN" */
#define NEED_VERSION 1
#define NAME_PREFIX  "sublet-daemon/"
#define NAMES_MAX    64                 /* the most peer daemons that are told of a need */
#define NEEDS_MAX    16                 /* needs kept for one card, one for each user */
#define BELIEF_NS    (3 * NSEC_PER_SEC) /* a need that is not repeated for this long is over */
#define YIELD_NS     (3 * NSEC_PER_SEC) /* shortest time between two requests to idle clients */
#define VAIN_NS      (10 * NSEC_PER_SEC)
/* Memory that was given to a need has to be taken within TAKE_NS, in which the slowest bus empties
 * a large card. Otherwise the need is not followed for REST_NS, then for twice as long, and so
 * on. */
#define TAKE_NS      (20 * NSEC_PER_SEC)
#define REST_NS      (60 * NSEC_PER_SEC)
#define REST_MOST_NS (16 * REST_NS)

/* One message; sender and receiver run on one machine. */
struct packet {
        uint32_t magic, version;
        uint8_t uuid[16]; /* UUID of the card */
        uint64_t bytes;   /* foreign bytes that are in the way of a client of the sender */
};
_Static_assert(sizeof(struct packet) == 32, "as docs/protocol.md says");

struct need {
        uid_t uid;
        uint64_t bytes;
        uint64_t heard_ns;         /* when the need was last heard; 0: the entry is unused */
        uint64_t yielded, foreign; /* figures of the card before memory was given to the need */
        uint64_t given_ns; /* when memory was first given that nobody has taken; 0: none was */
        uint64_t rest_ns;  /* how long the need is not followed if nobody takes it */
};

struct peer_daemons {
        int fd;
        sd_event_source *source;
        struct {
                struct need needs[NEEDS_MAX];
                uint64_t yielded_ns, vain_until_ns;
                bool yields;
        } cards[SCHED_GPUS_MAX];
        char names[NAMES_MAX][sizeof(((struct sockaddr_un *)0)->sun_path)];
        unsigned n_names;
        uint64_t looked_ns;
};

/* ---- messages to peer daemons ---- */

static socklen_t address_of(const char *name, struct sockaddr_un *ret)
{
        size_t n = strlen(name);

        memset(ret, 0, sizeof(*ret));
        ret->sun_family = AF_UNIX;
        memcpy(ret->sun_path + 1, name, n); /* a leading NUL marks a name without a file */
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static void name_of(uint64_t instance, char name[static 64])
{
        (void)snprintf(name, 64, NAME_PREFIX "%016llx", (unsigned long long)instance);
}

/* Lists the other daemons: anybody may read the kernel's list of sockets, which has their names. */
static unsigned look_around(struct server *s)
{
        struct peer_daemons *p = s->peer_daemons;
        _cleanup_fclose_ FILE *list = NULL;
        char line[512], own[64];

        if (p->looked_ns && clock_now_ns() - p->looked_ns < NSEC_PER_SEC / 2)
                return p->n_names;
        p->looked_ns = clock_now_ns();
        p->n_names = 0;
        name_of(s->instance, own);
        list = fopen("/proc/net/unix", "re");
        while (list && p->n_names < NAMES_MAX && fgets(line, sizeof(line), list)) {
                char *name = strstr(line, " @" NAME_PREFIX);

                line[strcspn(line, "\n")] = '\0';
                if (!name || strcmp(name + 2, own) == 0 ||
                    strlen(name + 2) >= sizeof(p->names[0]) - 1)
                        continue;
                (void)snprintf(p->names[p->n_names++], sizeof(p->names[0]), "%s", name + 2);
        }
        return p->n_names;
}

/* Returns how many foreign bytes must go before a client can be promised this commit. */
static uint64_t excess(const struct server *s, unsigned gpu, uint64_t commit)
{
        struct sched_gpu_view g;

        if (sched_gpu_view(s->sched, gpu, &g) < 0 || commit > g.visible)
                return 0;
        return sub_sat(commit + g.unevictable + g.headroom, g.capacity);
}

static uint64_t needed(const struct server *s, unsigned gpu)
{
        uint64_t bytes = sched_gpu_lacks(s->sched, gpu);

        for (const struct client *c = s->clients; c; c = c->next)
                if (c->request.kept && c->request.gpu == gpu && !c->dropped)
                        bytes = MAX(bytes, excess(s, gpu, c->request.commit));
        return bytes;
}

static void tell_need(struct server *s, unsigned gpu)
{
        struct peer_daemons *p = s->peer_daemons;
        struct packet m = {.magic = NEED_MAGIC, .version = NEED_VERSION, .bytes = needed(s, gpu)};

        memcpy(m.uuid, s->gpus.list[gpu].uuid, sizeof(m.uuid));
        if (m.bytes == 0)
                return;
        (void)look_around(s);
        for (unsigned i = 0; i < p->n_names; i++) {
                struct sockaddr_un to;
                socklen_t size = address_of(p->names[i], &to);

                /* A daemon that is gone, or whose queue is full, misses this message. */
                (void)sendto(p->fd, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL,
                             (const struct sockaddr *)&to, size);
        }
}

bool peer_daemons_may_help(struct server *s, unsigned gpu, uint64_t commit)
{
        struct sched_gpu_view g;
        uint64_t over = excess(s, gpu, commit);

        return s->peer_daemons && over > 0 && sched_gpu_view(s->sched, gpu, &g) == 0 &&
               over <= g.foreign && clock_now_ns() >= s->peer_daemons->cards[gpu].vain_until_ns &&
               look_around(s) > 0;
}

bool peer_daemons_exist(struct server *s)
{
        return s->peer_daemons && look_around(s) > 0;
}

void peer_daemons_did_not_help(struct server *s, unsigned gpu)
{
        PRECONDITION(gpu < SCHED_GPUS_MAX && s->peer_daemons, );
        s->peer_daemons->cards[gpu].vain_until_ns = clock_now_ns() + VAIN_NS;
}

/* ---- giving way ---- */

static bool is_believed(const struct need *n, uint64_t now)
{
        return n->heard_ns && now - n->heard_ns <= BELIEF_NS;
}

static void begin_need(struct need *n, const struct sched_gpu_view *v, uint64_t rest_ns)
{
        n->yielded = v->yielded;
        n->foreign = v->foreign;
        n->given_ns = 0;
        n->rest_ns = rest_ns;
}

/* True if idle clients are to give way to the need: nothing was given to it, or what was given has
 * been taken, or may still be taken in time. Taking half is enough, because other foreign memory
 * may go meanwhile. */
static bool is_followed(struct need *n, const struct sched_gpu_view *v, uint64_t now)
{
        const uint64_t given = sub_sat(v->yielded, n->yielded);
        const uint64_t taken = sub_sat(v->foreign, n->foreign);

        if (given && !n->given_ns)
                n->given_ns = now;
        if (!given || taken > MIN(given, n->bytes) / 2)
                begin_need(n, v, given ? REST_NS : n->rest_ns);
        else if (now - n->given_ns > TAKE_NS + n->rest_ns)
                begin_need(n, v, MIN(2 * n->rest_ns, REST_MOST_NS));
        return !n->given_ns || now - n->given_ns <= TAKE_NS;
}

static void give_way(struct server *s, unsigned gpu)
{
        __typeof__(s->peer_daemons->cards[0]) *card = &s->peer_daemons->cards[gpu];
        uint64_t now = clock_now_ns(), bytes = 0;
        struct sched_gpu_view v;

        if (sched_gpu_view(s->sched, gpu, &v) < 0)
                return;
        for (unsigned i = 0; i < NEEDS_MAX; i++) {
                struct need *n = &card->needs[i];

                if (is_believed(n, now) && is_followed(n, &v, now))
                        bytes = MAX(bytes, n->bytes);
        }
        if (bytes ? now - card->yielded_ns < YIELD_NS : !card->yields)
                return;
        if (bytes)
                card->yielded_ns = now;
        card->yields = bytes > 0;
        event_begin(s);
        sched_gpu_yield(s->sched, gpu, bytes, now, &s->actions);
        event_end(s);
}

/* Finds the user's entry, or one for him: a user who sends many messages takes no other user's
 * entry, and keeps his own rest_ns. NULL: there is none. */
static struct need *find_need(struct server *s, unsigned gpu, uid_t uid, uint64_t now)
{
        struct need *unused = NULL;

        for (unsigned i = 0; i < NEEDS_MAX; i++) {
                struct need *n = &s->peer_daemons->cards[gpu].needs[i];

                if (n->heard_ns && n->uid == uid)
                        return n;
                if (!n->heard_ns || now - n->heard_ns > TAKE_NS + n->rest_ns)
                        unused = n;
        }
        if (unused)
                *unused = (struct need){.uid = uid, .rest_ns = REST_NS};
        return unused;
}

static void keep_need(struct server *s, unsigned gpu, uid_t uid, uint64_t bytes, uint64_t now)
{
        struct need *n = find_need(s, gpu, uid, now);
        struct sched_gpu_view v;
        bool is_new;

        if (!n || sched_gpu_view(s->sched, gpu, &v) < 0)
                return;
        is_new = !is_believed(n, now);
        if (is_new && !n->given_ns)
                begin_need(n, &v, n->rest_ns);
        n->bytes = bytes;
        n->heard_ns = now;
        if (is_new)
                log_info("GPU %u: a program of user %u, under another daemon, waits for %llu MiB",
                         gpu, (unsigned)uid, (unsigned long long)(bytes / MIB));
}

static void hear(struct server *s, const struct packet *m, const struct ucred *who)
{
        uint64_t began = clock_now_ns();
        struct user *user = users_find(s->users, USERS_UID(who->uid), began);
        int gpu = gpus_named(&s->gpus, m->uuid);

        /* Needs are repeated, so messages of a user without credit are skipped. */
        if (gpu < 0 || !user || users_credit(user, began) < 0)
                return;
        if (!peer_in_container(who->pid)) /* there a sender could be another user each time */
                keep_need(s, (unsigned)gpu, who->uid, m->bytes, began);
        users_charge(user, clock_now_ns() - began, clock_now_ns());
}

static int on_packet(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct server *s = userdata;
        uint64_t began = clock_now_ns();

        while (clock_now_ns() - began < TURN_NS) {
                union hangup_room room;
                struct packet m;
                struct iovec data = {&m, sizeof(m)};
                struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};
                const struct cmsghdr *cmsg;
                struct ucred who;
                ssize_t size;

                hangup_expect(&h, &room);
                size = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
                if (size < 0)
                        break;
                if (hangup_take(&h)) /* daemons send no descriptors; after this work, let others
                                        have their turn */
                        break;
                cmsg = CMSG_FIRSTHDR(&h);
                if (size != sizeof(m) || (h.msg_flags & MSG_TRUNC) || !cmsg ||
                    cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_CREDENTIALS ||
                    m.magic != NEED_MAGIC || m.version != NEED_VERSION || m.bytes == 0)
                        continue;
                memcpy(&who, CMSG_DATA(cmsg), sizeof(who));
                hear(s, &m, &who);
        }
        return 0;
}

void peer_daemons_tick(struct server *s)
{
        for (unsigned gpu = 0; s->peer_daemons && gpu < s->gpus.n; gpu++) {
                if (!s->gpus.list[gpu].present)
                        continue;
                tell_need(s, gpu);
                give_way(s, gpu);
        }
}

/* ---- start and end ---- */

int peer_daemons_open(struct server *s)
{
        struct peer_daemons *p = calloc(1, sizeof(*p));
        struct sockaddr_un a;
        char name[64];
        socklen_t size;
        int r = -ENOMEM;

        if (!p)
                return r;
        p->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        /* Anybody may write to this socket, and closing a descriptor that came could take for
         * ever. */
        if (p->fd >= 0)
                peer_pass_descriptors(p->fd, false);
        name_of(s->instance, name);
        size = address_of(name, &a);
        if (p->fd < 0 || setsockopt(p->fd, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int)) < 0 ||
            bind(p->fd, (struct sockaddr *)&a, size) < 0)
                r = -errno;
        else
                r = sd_event_add_io(s->event, &p->source, p->fd, EPOLLIN, on_packet, s);
        s->peer_daemons = p;
        if (r < 0)
                peer_daemons_close(s);
        return MIN(r, 0);
}

void peer_daemons_close(struct server *s)
{
        struct peer_daemons *p = s->peer_daemons;

        if (!p)
                return;
        (void)sd_event_source_disable_unref(p->source);
        if (p->fd >= 0)
                (void)hangup_close(p->fd);
        free(p);
        s->peer_daemons = NULL;
}
