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
#include "daemon/hangup.h"
#include "daemon/turns.h"

#define NOTE_MAGIC   UINT32_C(0x4e4c4253) /* "SBLN" */
#define NOTE_VERSION 2
#define NAME_PREFIX  "sublet-daemon/"
#define NAMES_MAX    64 /* daemons that are asked */
#define LOANS_MAX    16 /* needs of others at a time */
#define SHUNNED_MAX  16
#define REPEAT_NS    NSEC_PER_SEC
#define SILENCE_NS \
        (5 * NSEC_PER_SEC) /* then a need is over, and an offer forgotten; or with its sender */
#define TAKE_NS (2 * NSEC_PER_SEC)  /* what was left and is not taken for so long is taken back */
#define SHUN_NS (10 * NSEC_PER_SEC) /* of a user whose daemon took nothing of it */

enum kind {
        NEED = 1, /* bytes that the sender's clients would hold on top of what they hold; 0: none */
        HAVE = 2, /* the answer: bytes that the sender's clients hold and can move away */
        LEFT = 3, /* what the receiver needs is free now */
};

/* One packet; both ends are on one machine. */
struct note {
        uint32_t magic;
        uint16_t version, kind;
        uint8_t uuid[16]; /* of the card */
        uint64_t bytes;
        uint64_t since_ns; /* NEED: CLOCK_MONOTONIC when the client began to wait that needs them */
};
_Static_assert(sizeof(struct note) == 40, "as docs/protocol.md says");

/* What another daemon asked for: a client of the scheduler without a process. */
struct loan {
        sched_client id; /* 0: unused */
        uid_t uid;
        uint64_t instance, since_ns;
        unsigned gpu;
        uint64_t bytes;
        uint64_t lent, taken; /* of it: kept free for it; seen in use */
        uint64_t limit;
        uint32_t sequence;
        uint64_t heard_ns;
        uint64_t moved_ns; /* when the rest was left, or more of it was taken */
        bool told;
};

/* A note that begins or ends a loan waits until the card has been looked at. */
struct heard {
        struct note note;
        uid_t uid;
        uint64_t instance, since_ns;
        unsigned gpu;
};

/* What we need ourselves, as the others know it. */
struct need {
        uint64_t bytes, since_ns, told_ns;
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
        struct need needs[SCHED_GPUS_MAX];
        struct heard heard[LOANS_MAX];
        unsigned n_heard;
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

static void name_of(uint64_t instance, char name[static 64])
{
        (void)snprintf(name, 64, NAME_PREFIX "%016llx", (unsigned long long)instance);
}

/* The name ends with the daemon that has it, however that ends. */
static bool is_there(uint64_t instance)
{
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct sockaddr_un a;
        char name[64];
        socklen_t size;

        name_of(instance, name);
        size = address_of(name, &a);
        return fd < 0 || connect(fd, (struct sockaddr *)&a, size) == 0 || errno != ECONNREFUSED;
}

/* The kernel says where a note comes from, and no two sockets have one name. 0: no daemon's. */
static uint64_t instance_at(const struct sockaddr_un *from, socklen_t size)
{
        const size_t prefix = sizeof(NAME_PREFIX) - 1, digits = 16;
        char name[64] = {0}, again[64];
        uint64_t instance;

        if (size != offsetof(struct sockaddr_un, sun_path) + 1 + prefix + digits)
                return 0;
        memcpy(name, from->sun_path + 1, prefix + digits);
        instance = strtoull(name + prefix, NULL, 16);
        name_of(instance, again);
        return from->sun_path[0] == '\0' && strcmp(name, again) == 0 ? instance : 0;
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
        name_of(s->instance, own);
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

static void tell(struct server *s, const char *name, enum kind kind, unsigned gpu, uint64_t bytes,
                 uint64_t since_ns)
{
        struct note m = {NOTE_MAGIC, NOTE_VERSION, (uint16_t)kind, {0}, bytes, since_ns};
        struct sockaddr_un to;
        socklen_t size = address_of(name, &to);

        memcpy(m.uuid, s->gpus.list[gpu].uuid, sizeof(m.uuid));
        /* One whose queue is full, or that is gone, does not hear it. */
        (void)sendto(s->neighbours->fd, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL,
                     (const struct sockaddr *)&to, size);
}

static void tell_one(struct server *s, uint64_t instance, enum kind kind, unsigned gpu,
                     uint64_t bytes)
{
        char name[64];

        name_of(instance, name);
        tell(s, name, kind, gpu, bytes, 0);
}

/* Tell everybody what we need, nothing included. */
static bool ask(struct server *s, unsigned gpu)
{
        struct neighbours *n = s->neighbours;
        struct need *need = &n->needs[gpu];

        need->bytes = sched_gpu_lacks(s->sched, gpu, &need->since_ns);
        need->told_ns = clock_now_ns();
        look_around(s);
        for (unsigned i = 0; i < n->n_names; i++)
                tell(s, n->names[i], NEED, gpu, need->bytes, need->since_ns);
        return n->n_names > 0;
}

/* What has changed is told at once, and what has not every second: notes may be lost. */
static void ask_if_news(struct server *s, unsigned gpu)
{
        const struct need *told = &s->neighbours->needs[gpu];
        uint64_t since_ns, bytes = sched_gpu_lacks(s->sched, gpu, &since_ns);

        if (since_ns != told->since_ns || bytes > told->bytes ||
            (bytes == 0) != (told->bytes == 0) ||
            (bytes > 0 && clock_now_ns() - told->told_ns >= REPEAT_NS))
                (void)ask(s, gpu);
}

bool neighbours_may_help(struct server *s, unsigned gpu, uint64_t commit)
{
        struct sched_gpu_view g;

        if (!s->neighbours || sched_gpu_view(s->sched, gpu, &g) < 0)
                return false;
        return commit <= g.total && commit + g.fixed + g.headroom > g.capacity + g.movable &&
               commit + g.fixed + g.headroom <= g.capacity + g.foreign && ask(s, gpu);
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
static void begin_loan(struct server *s, const struct note *need, unsigned gpu, uid_t uid,
                       uint64_t instance)
{
        struct loan *l = NULL;
        uint64_t bytes = MIN(need->bytes, s->gpus.list[gpu].total_bytes);
        struct sched_attach a = {.usage.allocated = bytes,
                                 .run = true,
                                 .stranger_since_ns = MAX(need->since_ns, UINT64_C(1))};
        uint64_t now = clock_now_ns(), foreign;

        for (unsigned i = 0; i < LOANS_MAX && !l; i++)
                if (!s->neighbours->loans[i].id)
                        l = &s->neighbours->loans[i];
        if (!l)
                return;
        *l = (struct loan){.uid = uid,
                           .instance = instance,
                           .since_ns = need->since_ns,
                           .gpu = gpu,
                           .bytes = bytes,
                           .heard_ns = now,
                           .moved_ns = now};
        if (sched_client_add(s->sched, uid, 0, now, &l->id) < 0) {
                l->id = 0;
                return;
        }
        log_info("GPU %u: the daemon of user %u asks for %llu MiB", gpu, (unsigned)uid,
                 (unsigned long long)(bytes / MIB));
        /* What its clients hold already is none of it, and may be too new to have been told. */
        foreign = measure_now(s, gpu);
        s->gpus.list[gpu].foreign_told = foreign;
        session_begin(s);
        sched_gpu_foreign(s->sched, gpu, foreign, now, &s->actions);
        session_perform(s);
        (void)sched_client_attach(s->sched, l->id, gpu, &a, now, &s->actions);
        session_perform(s);
}

/* Until all of it is left there is nothing that its client could do: what is there counts as taken.
 * From then on what is seen in use. */
static void report(struct server *s, struct loan *l)
{
        struct sched_usage u = {.allocated = l->bytes,
                                .backed = l->lent < l->bytes ? l->lent : l->taken};

        session_begin(s);
        (void)sched_client_usage(s->sched, l->id, l->gpu, &u, l->sequence, 0, clock_now_ns(),
                                 &s->actions);
        session_perform(s);
}

/* What others use beyond what was there when the first of it was left. */
static void see_taken(struct server *s, struct loan *l, uint64_t foreign)
{
        const struct gpu *g = &s->gpus.list[l->gpu];
        uint64_t taken = MIN(sub_sat(foreign, g->foreign_told), l->lent);

        if (taken < l->taken + g->total_bytes / 256)
                return;
        l->taken = taken;
        l->moved_ns = clock_now_ns();
        report(s, l);
}

/* A client that uses several cards takes nothing of the first before it has been left the last. */
static bool all_left(const struct neighbours *n, const struct loan *l)
{
        for (unsigned i = 0; i < LOANS_MAX; i++) {
                const struct loan *o = &n->loans[i];

                if (o->id && o->instance == l->instance && o->since_ns == l->since_ns &&
                    o->lent < o->bytes)
                        return false;
        }
        return true;
}

enum loan_end {
        LOAN_MORE, /* another one for more follows */
        LOAN_OVER, /* the borrower has what it asked for, or does not take it */
        LOAN_GONE, /* the borrower does not exist any more */
};

/* What of it is in use by now is others' use like any other. */
static void end_loan(struct server *s, struct loan *l, enum loan_end why)
{
        unsigned gpu = l->gpu;
        uint64_t now = clock_now_ns(), foreign = measure_now(s, gpu);
        bool left = l->lent == l->bytes;
        sched_client id;

        see_taken(s, l, foreign);
        if (why == LOAN_OVER && left && l->taken) {
                l->taken = l->bytes; /* less, if it needs less by now; it runs */
                report(s, l);
        } else if (why == LOAN_OVER && all_left(s->neighbours, l)) {
                shun(s->neighbours, l->uid, now);
        }
        log_info("GPU %u: user %u's daemon %s", gpu, (unsigned)l->uid,
                 why == LOAN_GONE   ? "is gone, and so is what it asked for"
                 : why == LOAN_MORE ? "asks for more"
                 : l->taken         ? "has what it asked for"
                 : left             ? "did not take what was left to it"
                                    : "asks for nothing any more");
        id = l->id;
        *l = (struct loan){0};
        s->gpus.list[gpu].foreign_told = foreign;
        session_begin(s);
        sched_client_left(s->sched, id, gpu, foreign, now, &s->actions);
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

/* What is taken of it by now is not asked for any more; but both were not seen at one instant. */
static bool needs_more(const struct server *s, const struct loan *l, uint64_t bytes)
{
        uint64_t slack = l->taken ? s->gpus.list[l->gpu].total_bytes / 64 : 0;

        bytes = MIN(bytes, s->gpus.list[l->gpu].total_bytes);
        return bytes + l->taken > l->bytes + slack;
}

static struct loan *loan_of(struct neighbours *n, unsigned gpu, uid_t uid, uint64_t instance)
{
        for (unsigned i = 0; i < LOANS_MAX; i++) {
                struct loan *l = &n->loans[i];

                if (l->id && l->uid == uid && l->instance == instance && l->gpu == gpu)
                        return l;
        }
        return NULL;
}

static bool is_over(const struct loan *l, const struct note *m)
{
        return m->bytes == 0 || m->since_ns != l->since_ns;
}

/* What the note changes, with the card as it was at the last look. */
static void obey_need(struct server *s, const struct heard *h)
{
        struct neighbours *n = s->neighbours;
        struct loan *l = loan_of(n, h->gpu, h->uid, h->instance);

        if (!s->gpus.list[h->gpu].present ||
            (l && !is_over(l, &h->note) && !needs_more(s, l, h->note.bytes)))
                return;
        if (l)
                end_loan(s, l, is_over(l, &h->note) ? LOAN_OVER : LOAN_MORE);
        if (h->note.bytes > 0 && s->n_attached > 0 && !is_shunned(n, h->uid, clock_now_ns()))
                begin_loan(s, &h->note, h->gpu, h->uid, h->instance);
}

static void obey_later(struct server *s, const struct heard *h)
{
        uint64_t began = clock_now_ns();

        obey_need(s, h);
        users_charge_since(s->users, h->uid, began, clock_now_ns());
}

void neighbours_looked(struct server *s)
{
        struct neighbours *n = s->neighbours;
        unsigned left = 0;

        for (unsigned i = 0; n && i < n->n_heard; i++)
                if (s->look && n->heard[i].since_ns > s->look_ns)
                        n->heard[left++] = n->heard[i];
                else
                        obey_later(s, &n->heard[i]);
        if (n)
                n->n_heard = left;
}

static void hear_need(struct server *s, const struct note *m, unsigned gpu, uid_t uid,
                      uint64_t instance)
{
        struct neighbours *n = s->neighbours;
        uint64_t now = clock_now_ns();
        struct heard h = {*m, uid, instance, now, gpu};
        struct loan *l = loan_of(n, gpu, uid, instance);

        if (l)
                l->heard_ns = now;
        for (unsigned i = 0; i < n->n_heard; i++)
                if (n->heard[i].gpu == gpu && n->heard[i].uid == uid &&
                    n->heard[i].instance == instance) {
                        n->heard[i].note = *m; /* the newer one holds */
                        return;
                }
        if (l ? !is_over(l, m) && !needs_more(s, l, m->bytes)
              : m->bytes == 0 || s->n_attached == 0 || is_shunned(n, uid, now))
                return;
        if (n->n_heard == LOANS_MAX)
                return; /* it is said again */
        if (reader_ask(s->reader))
                n->heard[n->n_heard++] = h;
        else
                obey_need(s, &h);
}

/* A wrong word costs a look. */
static void hear_left(struct server *s, unsigned gpu)
{
        if (s->neighbours->needs[gpu].bytes > 0)
                measure_fall(s, gpu);
}

/* Offers that are too old to be true are forgotten. */
static void tell_movable(struct server *s, unsigned gpu)
{
        struct neighbours *n = s->neighbours;
        uint64_t now = clock_now_ns(), bytes = 0;
        struct sched_gpu_view g;

        for (unsigned i = 0; i < LOANS_MAX; i++) {
                struct offer *o = &n->offers[i];

                if (o->instance && (now - o->heard_ns > SILENCE_NS || !is_there(o->instance)))
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

static void hear_offer(struct server *s, const struct note *m, unsigned gpu, uint64_t instance)
{
        struct neighbours *n = s->neighbours;
        struct offer *at = NULL;

        for (unsigned i = 0; i < LOANS_MAX; i++) {
                struct offer *o = &n->offers[i];

                if (o->instance == instance && o->gpu == gpu) {
                        at = o;
                        break;
                }
                if (!o->instance && !at)
                        at = o;
        }
        if (!at)
                return;
        *at = (struct offer){instance, m->bytes, clock_now_ns(), gpu};
        tell_movable(s, gpu);
        session_resume(s);
}

static void hear(struct server *s, const struct note *m, const struct ucred *who,
                 const struct sockaddr_un *from, socklen_t size)
{
        uint64_t instance = instance_at(from, size), now = clock_now_ns();
        struct user *user = users_find(s->users, who->uid, now);
        int at = gpus_named(&s->gpus, m->uuid);
        unsigned gpu = (unsigned)at;

        /* Notes are repeated, and of a user that has used more than its share they are not read. */
        if (at < 0 || instance == s->instance || instance == 0 || !user ||
            users_credit(user, now) < 0)
                return;
        if (m->kind == NEED) {
                tell_one(s, instance, HAVE, gpu, movable(s, gpu));
                hear_need(s, m, gpu, who->uid, instance);
        } else if (m->kind == HAVE) {
                hear_offer(s, m, gpu, instance);
        } else if (m->kind == LEFT) {
                hear_left(s, gpu);
        }
        users_charge(user, clock_now_ns() - now, clock_now_ns());
}

static int on_note(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct server *s = userdata;
        uint64_t began = clock_now_ns();

        while (clock_now_ns() - began < TURN_NS) {
                union hangup_room room;
                struct note note;
                struct sockaddr_un from;
                struct iovec data = {&note, sizeof(note)};
                struct msghdr h = {.msg_name = &from,
                                   .msg_namelen = sizeof(from),
                                   .msg_iov = &data,
                                   .msg_iovlen = 1};
                const struct cmsghdr *m;
                struct ucred who;
                ssize_t size;

                hangup_expect(&h, &room);
                size = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
                if (size < 0)
                        break;
                if (hangup_take(&h)) /* no note of a daemon's; others have their turn first */
                        break;
                m = CMSG_FIRSTHDR(&h);
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

                if (!l->id || l->id != a->client || a->type != SCHED_DO_LIMIT)
                        continue;
                l->limit = a->limit.backed;
                l->sequence = a->limit.sequence;
                l->told = true;
        }
}

static void answer_limit(struct server *s, struct loan *l)
{
        bool left = l->lent == l->bytes;

        l->told = false;
        l->lent = MIN(l->limit, l->bytes);
        if (!left && l->lent == l->bytes) {
                l->moved_ns = clock_now_ns();
                tell_one(s, l->instance, LEFT, l->gpu, l->bytes);
        }
        report(s, l);
}

void neighbours_settle(struct server *s)
{
        if (!s->stirred)
                return;
        s->stirred = false;
        for (unsigned i = 0; s->neighbours && i < LOANS_MAX; i++) {
                struct loan *l = &s->neighbours->loans[i];

                while (l->id && l->told)
                        answer_limit(s, l);
        }
        for (unsigned gpu = 0; s->neighbours && gpu < s->gpus.n; gpu++)
                ask_if_news(s, gpu);
}

uint64_t neighbours_absorb(const struct server *s, unsigned gpu, uint64_t foreign_bytes)
{
        uint64_t told = s->gpus.list[gpu].foreign_told, lent = 0;

        for (unsigned i = 0; s->neighbours && i < LOANS_MAX; i++)
                if (s->neighbours->loans[i].id && s->neighbours->loans[i].gpu == gpu)
                        lent += s->neighbours->loans[i].lent;
        return foreign_bytes > told ? MAX(told, sub_sat(foreign_bytes, lent)) : foreign_bytes;
}

static void watch(struct server *s, struct loan *l)
{
        uint64_t now;

        if (!is_there(l->instance)) {
                end_loan(s, l, LOAN_GONE);
                return;
        }
        see_taken(s, l, measure_newest(&s->gpus.list[l->gpu]));
        now = clock_now_ns();
        if (now - l->heard_ns > SILENCE_NS || l->taken == l->bytes ||
            (l->lent == l->bytes && now - l->moved_ns > TAKE_NS))
                end_loan(s, l, LOAN_OVER);
        else if (l->lent == l->bytes)
                tell_one(s, l->instance, LEFT, l->gpu, l->bytes);
}

void neighbours_tick(struct server *s)
{
        s->stirred = true; /* needs are repeated */
        for (unsigned i = 0; s->neighbours && i < LOANS_MAX; i++)
                if (s->neighbours->loans[i].id)
                        watch(s, &s->neighbours->loans[i]);
        for (unsigned gpu = 0; s->neighbours && gpu < s->gpus.n; gpu++)
                tell_movable(s, gpu);
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
        /* Anybody may write here, and to close what he attaches could take for ever. */
        if (n->fd >= 0)
                peer_pass_descriptors(n->fd, false);
        name_of(s->instance, name);
        size = address_of(name, &a);
        if (n->fd < 0 || setsockopt(n->fd, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int)) < 0 ||
            bind(n->fd, (struct sockaddr *)&a, size) < 0)
                r = -errno;
        else
                r = sd_event_add_io(s->event, &n->source, n->fd, EPOLLIN, on_note, s);
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
                (void)hangup_close(n->fd);
        free(n);
        s->neighbours = NULL;
}
