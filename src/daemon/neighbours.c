/* neighbours.c: owns what this daemon and the others on its cards tell each other.
 * Must never believe more of a message than that its sender would like some bytes, and never keep
 * bytes for somebody who does not take them. */
#include "daemon/neighbours.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/client.h"

#define NOTE_MAGIC   UINT32_C(0x4e4c4253) /* "SBLN" */
#define NOTE_VERSION 1
#define NAME_PREFIX  "sublet-daemon/"
#define NAMES_MAX    64 /* daemons that are asked */
#define LOANS_MAX    16 /* needs of others at a time */
#define SHUNNED_MAX  16
#define BATCH        32                  /* messages before clients are served again */
#define SILENCE_NS   (5 * NSEC_PER_SEC)  /* asked every second; then the need is over */
#define SHUN_NS      (10 * NSEC_PER_SEC) /* of a user whose daemon took nothing of it */

enum kind {
        NEED = 1, /* bytes that the sender's clients would hold on top of what they hold; may be 0
                   */
        HAVE = 2, /* the answer: bytes that the sender's clients hold and can move away */
};

/* One packet; both ends are on one machine. */
struct note {
        uint32_t magic;
        uint16_t version, kind;
        uint8_t uuid[16]; /* of the card */
        uint64_t bytes;
        uint64_t instance;
};
_Static_assert(sizeof(struct note) == 40, "as docs/protocol.md says");

/* What another daemon asked for: a client of the scheduler without a process. */
struct loan {
        sched_client id; /* 0: unused */
        uid_t uid;
        uint64_t instance;
        unsigned gpu;
        uint64_t bytes, lent;
        uint64_t limit;
        uint32_t sequence;
        uint64_t heard_ns;
        bool told, granted, revoked;
};

/* What another daemon says it could move away. */
struct offer {
        uint64_t instance, bytes, heard_ns;
        unsigned gpu;
};

struct neighbours {
        int fd;
        sd_event_source *source;
        struct loan loans[LOANS_MAX];
        struct offer offers[LOANS_MAX];
        struct {
                uid_t uid;
                uint64_t until_ns;
        } shunned[SHUNNED_MAX];
        unsigned n_shunned;
        char names[NAMES_MAX][sizeof(((struct sockaddr_un *)0)->sun_path)];
        unsigned n_names;
        uint64_t looked_ns;
};

/* ---- asking ---- */

static socklen_t address_of(const char *name, struct sockaddr_un *ret)
{
        size_t n = strlen(name);

        memset(ret, 0, sizeof(*ret));
        ret->sun_family = AF_UNIX;
        memcpy(ret->sun_path + 1, name, n); /* a leading NUL: a name without a file */
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static void own_name(const struct server *s, char name[static 64])
{
        (void)snprintf(name, 64, NAME_PREFIX "%016llx", (unsigned long long)s->instance);
}

/* Who else is there: the kernel's list of sockets, in which anybody may look. */
static void look_around(struct server *s)
{
        struct neighbours *n = s->neighbours;
        _cleanup_fclose_ FILE *list = NULL;
        char line[512], own[64];

        if (n->looked_ns && clock_now_ns() - n->looked_ns < NSEC_PER_SEC / 2)
                return;
        n->looked_ns = clock_now_ns();
        n->n_names = 0;
        own_name(s, own);
        list = fopen("/proc/net/unix", "re");
        while (list && n->n_names < NAMES_MAX && fgets(line, sizeof(line), list)) {
                char *name = strstr(line, " @" NAME_PREFIX);

                line[strcspn(line, "\n")] = '\0';
                if (!name || strcmp(name + 2, own) == 0 ||
                    strlen(name + 2) >= sizeof(n->names[0]) - 1)
                        continue;
                (void)snprintf(n->names[n->n_names++], sizeof(n->names[0]), "%s", name + 2);
        }
}

/* With so many bytes of one client on the card, how much more of it our clients would use than now.
 * 0: it fits beside what others use, or would not fit the card alone. */
static uint64_t missing(const struct server *s, unsigned gpu, uint64_t need)
{
        struct sched_gpu_view g;
        uint64_t held = 0;

        if (sched_gpu_view(s->sched, gpu, &g) < 0 || need > g.total ||
            need + g.fixed + g.headroom <= g.capacity ||
            need + g.fixed + g.headroom > g.capacity + g.foreign)
                return 0;
        for (const struct client *c = s->clients; c; c = c->next) {
                struct sched_account_view v;

                if (c->id && sched_account_view(s->sched, c->id, gpu, &v) == 0)
                        held += v.usage.backed;
        }
        return sub_sat(need, held);
}

static void tell(struct server *s, const struct sockaddr_un *to, socklen_t size, enum kind kind,
                 unsigned gpu, uint64_t bytes)
{
        struct note m = {NOTE_MAGIC, NOTE_VERSION, (uint16_t)kind, {0}, bytes, s->instance};

        memcpy(m.uuid, s->gpus.list[gpu].uuid, sizeof(m.uuid));
        /* One whose queue is full, or that is gone, does not hear it. */
        (void)sendto(s->neighbours->fd, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL,
                     (const struct sockaddr *)to, size);
}

static bool ask(struct server *s, unsigned gpu, uint64_t bytes)
{
        struct neighbours *n = s->neighbours;

        look_around(s);
        for (unsigned i = 0; i < n->n_names; i++) {
                struct sockaddr_un a;
                socklen_t size = address_of(n->names[i], &a);

                tell(s, &a, size, NEED, gpu, bytes);
        }
        return n->n_names > 0;
}

bool neighbours_may_help(struct server *s, unsigned gpu, uint64_t commit)
{
        struct sched_gpu_view g;

        if (!s->neighbours || sched_gpu_view(s->sched, gpu, &g) < 0)
                return false;
        return commit <= g.total && commit + g.fixed + g.headroom > g.capacity + g.movable &&
               commit + g.fixed + g.headroom <= g.capacity + g.foreign && ask(s, gpu, 0);
}

/* The most that a client of ours waits for on this card. */
static uint64_t greatest_need(const struct server *s, unsigned gpu)
{
        uint64_t most = 0;

        for (const struct client *c = s->clients; c; c = c->next) {
                struct sched_account_view v;

                if (c->id && !c->dropped && sched_account_view(s->sched, c->id, gpu, &v) == 0 &&
                    v.need > v.usage.backed)
                        most = MAX(most, v.need);
        }
        return most;
}

/* ---- lending ---- */

static bool is_shunned(const struct neighbours *n, uid_t uid, uint64_t now)
{
        for (unsigned i = 0; i < n->n_shunned; i++)
                if (n->shunned[i].uid == uid && now < n->shunned[i].until_ns)
                        return true;
        return false;
}

static void shun(struct neighbours *n, uid_t uid, uint64_t now)
{
        unsigned at = 0;

        for (unsigned i = 0; i < n->n_shunned; i++)
                if (n->shunned[i].until_ns < n->shunned[at].until_ns || n->shunned[i].uid == uid)
                        at = i;
        if (n->n_shunned < SHUNNED_MAX)
                at = n->n_shunned++;
        n->shunned[at].uid = uid;
        n->shunned[at].until_ns = now + SHUN_NS;
}

/* Its place in the queue is that of a client whose memory is all on the host. */
static void begin_loan(struct server *s, const struct note *need, unsigned gpu, uid_t uid)
{
        struct loan *l = NULL;
        struct sched_attach a = {.usage.allocated = need->bytes, .run = true};

        for (unsigned i = 0; i < LOANS_MAX && !l; i++)
                if (!s->neighbours->loans[i].id)
                        l = &s->neighbours->loans[i];
        if (!l)
                return;
        *l = (struct loan){
                .uid = uid, .instance = need->instance, .gpu = gpu, .bytes = need->bytes};
        l->heard_ns = clock_now_ns();
        if (sched_client_add(s->sched, uid, 0, l->heard_ns, &l->id) < 0) {
                l->id = 0;
                return;
        }
        log_info("GPU %u: the daemon of user %u asks for %llu MiB", gpu, (unsigned)uid,
                 (unsigned long long)(need->bytes / MIB));
        /* What its clients hold already is none of it, and may be too new to have been told. */
        s->gpus.list[gpu].foreign_told = measure_newest(&s->gpus.list[gpu]);
        session_begin(s);
        sched_gpu_foreign(s->sched, gpu, s->gpus.list[gpu].foreign_told, l->heard_ns, &s->actions);
        session_perform(s);
        (void)sched_client_attach(s->sched, l->id, gpu, &a, l->heard_ns, &s->actions);
        session_perform(s);
}

/* Whatever of it is in use by now is others' use like any other. */
static void end_loan(struct server *s, struct loan *l, bool over)
{
        struct gpu *g = &s->gpus.list[l->gpu];
        uint64_t foreign = over ? measure_foreign(g) : measure_newest(g);
        bool taken = foreign > g->foreign_told;
        uint64_t now = clock_now_ns();
        sched_client id = l->id;

        if (over && l->granted && !taken)
                shun(s->neighbours, l->uid, now);
        log_info("GPU %u: user %u's daemon %s", l->gpu, (unsigned)l->uid,
                 !over        ? "asks for more"
                 : taken      ? "has what it asked for"
                 : l->granted ? "did not take what was left to it"
                              : "asks for nothing any more");
        *l = (struct loan){0};
        g->foreign_told = foreign;
        session_begin(s);
        sched_client_left(s->sched, id, (unsigned)(g - s->gpus.list), foreign, now, &s->actions);
        session_perform(s);
}

/* What our clients on this card could move away. */
static uint64_t movable(const struct server *s, unsigned gpu)
{
        uint64_t bytes = 0;

        for (const struct client *c = s->clients; c; c = c->next) {
                struct sched_account_view a;
                struct sched_client_view v;

                if (c->id && sched_client_view(s->sched, c->id, clock_now_ns(), &v) == 0 &&
                    sched_account_view(s->sched, c->id, gpu, &a) == 0 &&
                    !(v.flags & (SCHED_OVERDUE | SCHED_LOST | SCHED_UNPREEMPTIBLE)))
                        bytes += a.usage.backed;
        }
        return bytes;
}

/* What is taken of the loan by now is not asked for any more. */
static bool needs_more(const struct server *s, const struct loan *l, uint64_t bytes)
{
        const struct gpu *g = &s->gpus.list[l->gpu];
        uint64_t taken = sub_sat(measure_newest(g), g->foreign_told);

        return bytes + taken > l->bytes + g->total_bytes / 64;
}

static void hear_need(struct server *s, const struct note *m, unsigned gpu, uid_t uid)
{
        struct neighbours *n = s->neighbours;
        uint64_t now = clock_now_ns();

        if (m->bytes == 0 || s->n_attached == 0 || is_shunned(n, uid, now))
                return;
        for (unsigned i = 0; i < LOANS_MAX; i++) {
                struct loan *l = &n->loans[i];

                if (l->id && l->uid == uid && l->instance == m->instance && l->gpu == gpu) {
                        l->heard_ns = now;
                        if (!needs_more(s, l, m->bytes))
                                return;
                        end_loan(s, l, false);
                }
        }
        begin_loan(s, m, gpu, uid);
}

/* Offers that are too old to be true are forgotten. */
static void tell_movable(struct server *s, unsigned gpu)
{
        struct neighbours *n = s->neighbours;
        uint64_t now = clock_now_ns(), bytes = 0;
        struct sched_gpu_view g;

        for (unsigned i = 0; i < LOANS_MAX; i++) {
                struct offer *o = &n->offers[i];

                if (o->instance && now - o->heard_ns > SILENCE_NS)
                        *o = (struct offer){0};
                if (o->instance && o->gpu == gpu)
                        bytes += MIN(o->bytes, s->gpus.list[gpu].total_bytes);
        }
        if (sched_gpu_view(s->sched, gpu, &g) < 0 || g.movable == MIN(bytes, g.foreign))
                return;
        session_begin(s);
        sched_gpu_movable(s->sched, gpu, bytes, now, &s->actions);
        session_perform(s);
}

static void hear_offer(struct server *s, const struct note *m, unsigned gpu)
{
        struct neighbours *n = s->neighbours;
        struct offer *at = NULL;

        for (unsigned i = 0; i < LOANS_MAX; i++) {
                struct offer *o = &n->offers[i];

                if (o->instance == m->instance && o->gpu == gpu) {
                        at = o;
                        break;
                }
                if (!o->instance && !at)
                        at = o;
        }
        if (!at)
                return;
        *at = (struct offer){m->instance, m->bytes, clock_now_ns(), gpu};
        tell_movable(s, gpu);
        session_resume(s);
}

static void hear(struct server *s, const struct note *m, const struct ucred *who,
                 const struct sockaddr_un *from, socklen_t size)
{
        unsigned gpu = 0;

        while (gpu < s->gpus.n && memcmp(s->gpus.list[gpu].uuid, m->uuid, sizeof(m->uuid)) != 0)
                gpu++;
        if (gpu == s->gpus.n || m->instance == s->instance || m->instance == 0 ||
            !users_take_many(s->users, who->uid, 1, clock_now_ns()))
                return;
        if (m->kind == NEED) {
                tell(s, from, size, HAVE, gpu, movable(s, gpu));
                hear_need(s, m, gpu, who->uid);
        } else if (m->kind == HAVE) {
                hear_offer(s, m, gpu);
        }
}

static int on_note(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct server *s = userdata;

        for (unsigned i = 0; i < BATCH; i++) {
                /* Room for the credentials alone: descriptors that somebody attaches are closed by
                 * the kernel. */
                union {
                        struct cmsghdr header;
                        char bytes[CMSG_SPACE(sizeof(struct ucred))];
                } room;
                struct note note;
                struct sockaddr_un from;
                struct iovec data = {&note, sizeof(note)};
                struct msghdr h = {.msg_name = &from,
                                   .msg_namelen = sizeof(from),
                                   .msg_iov = &data,
                                   .msg_iovlen = 1,
                                   .msg_control = &room,
                                   .msg_controllen = sizeof(room)};
                ssize_t size = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
                const struct cmsghdr *m = size < 0 ? NULL : CMSG_FIRSTHDR(&h);
                struct ucred who;

                if (size < 0)
                        break;
                if (size != sizeof(note) || (h.msg_flags & MSG_TRUNC) || !m ||
                    m->cmsg_level != SOL_SOCKET || m->cmsg_type != SCM_CREDENTIALS ||
                    note.magic != NOTE_MAGIC || note.version != NOTE_VERSION)
                        continue;
                memcpy(&who, CMSG_DATA(m), sizeof(who));
                hear(s, &note, &who, &from, h.msg_namelen);
        }
        return 0;
}

void neighbours_act(struct server *s, const struct sched_action *a)
{
        for (unsigned i = 0; s->neighbours && i < LOANS_MAX; i++) {
                struct loan *l = &s->neighbours->loans[i];

                if (!l->id || l->id != a->client)
                        continue;
                if (a->type == SCHED_DO_LIMIT) {
                        l->limit = a->limit.backed;
                        l->sequence = a->limit.sequence;
                        l->told = true;
                } else if (a->type == SCHED_DO_GRANT) {
                        l->granted = true;
                } else if (a->type == SCHED_DO_REVOKE) {
                        l->revoked = true;
                }
        }
}

/* What it may hold it has at once: nothing has to be moved in. */
static void answer_limit(struct server *s, struct loan *l)
{
        struct sched_usage u = {.allocated = l->bytes, .backed = MIN(l->limit, l->bytes)};

        l->told = false;
        l->lent = u.backed;
        session_begin(s);
        (void)sched_client_usage(s->sched, l->id, l->gpu, &u, l->sequence, 0, clock_now_ns(),
                                 &s->actions);
        session_perform(s);
}

void neighbours_settle(struct server *s)
{
        for (unsigned i = 0; s->neighbours && i < LOANS_MAX; i++) {
                struct loan *l = &s->neighbours->loans[i];

                while (l->id && l->told)
                        answer_limit(s, l);
                if (l->id && l->revoked)
                        end_loan(s, l, true);
        }
}

uint64_t neighbours_absorb(const struct server *s, unsigned gpu, uint64_t foreign_bytes)
{
        uint64_t told = s->gpus.list[gpu].foreign_told, lent = 0;

        for (unsigned i = 0; s->neighbours && i < LOANS_MAX; i++)
                if (s->neighbours->loans[i].id && s->neighbours->loans[i].gpu == gpu)
                        lent += s->neighbours->loans[i].lent;
        return foreign_bytes > told ? MAX(told, sub_sat(foreign_bytes, lent)) : foreign_bytes;
}

void neighbours_tick(struct server *s)
{
        uint64_t now = clock_now_ns();

        for (unsigned i = 0; s->neighbours && i < LOANS_MAX; i++) {
                struct loan *l = &s->neighbours->loans[i];
                const struct gpu *g = &s->gpus.list[l->gpu];

                if (l->id && (now - l->heard_ns > SILENCE_NS ||
                              (l->granted && measure_foreign(g) >= g->foreign_told + l->bytes)))
                        end_loan(s, l, true);
        }
        for (unsigned gpu = 0; s->neighbours && gpu < s->gpus.n; gpu++) {
                uint64_t bytes = missing(s, gpu, greatest_need(s, gpu));

                if (bytes > 0)
                        (void)ask(s, gpu, bytes);
                tell_movable(s, gpu);
        }
}

/* ---- start and end ---- */

int neighbours_open(struct server *s)
{
        struct neighbours *n = calloc(1, sizeof(*n));
        struct sockaddr_un a;
        char name[64];
        socklen_t size;
        int r = -ENOMEM;

        if (!n)
                return r;
        n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        own_name(s, name);
        size = address_of(name, &a);
        if (n->fd < 0 || setsockopt(n->fd, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int)) < 0 ||
            bind(n->fd, (struct sockaddr *)&a, size) < 0)
                r = -errno;
        else
                r = sd_event_add_io(s->event, &n->source, n->fd, EPOLLIN, on_note, s);
        if (r >= 0)
                r = sd_event_source_set_priority(n->source, SERVER_PRIORITY_BUSY);
        s->neighbours = n;
        if (r < 0)
                neighbours_close(s);
        return MIN(r, 0);
}

void neighbours_close(struct server *s)
{
        struct neighbours *n = s->neighbours;

        if (!n)
                return;
        (void)sd_event_source_disable_unref(n->source);
        if (n->fd >= 0)
                (void)close(n->fd);
        free(n);
        s->neighbours = NULL;
}
