/* mps_servers.c: owns the control daemons of MPS: who may have one, and when each starts and ends.
 * Must never wait for one, and never end one while a program may use it.
 * Why: docs/decisions.md, "A server of MPS is for one user, and outlives the daemon". */
#include "daemon/mps/mps_servers.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/precondition.h"
#include "base/text.h"
#include "daemon/ledger/entitlement.h"
#include "daemon/mps/mps_card.h"
#include "daemon/state/client.h"
#include "mps/mps.h"
#include "mps/usage.h"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

#define FOLDER       "mps"
#define PLACES_MAX   256u
#define CHILDREN_MAX (4 * PLACES_MAX)
#define UUID_PART    8 /* digits of a GPU's UUID that are part of a directory's name */
#define GROUPS_MAX   64
#define UUID_TEXT    48
#define NAME_MAX_LEN 48
#define FAST_US      UINT64_C(10000)
#define SLOW_US      UINT64_C(1000000)
#define ORDER_NS     (3 * NSEC_PER_SEC)
#define QUIT_NS      (5 * NSEC_PER_SEC)
#define FAILED_NS    (5 * NSEC_PER_SEC)  /* a start that has failed is not tried again before */
#define SILENT_MAX   2u                  /* people are told of this many failures in a row */
#define RETURNS_NS   (10 * NSEC_PER_SEC) /* programs of an earlier daemon come back within it */
#define NOT_USER     "the daemon may not act as this user: docs/operations.md, \"MPS\""

enum state {
        NEW,
        STARTING,
        READY,
        ASKING, /* no program of ours is left; the control daemon is asked for others */
        QUITTING,
        ORPHANED, /* the control daemon has ended, and programs may still use its server */
        FAILED,
};

struct mps_place {
        struct mps_place *next;
        struct mps_servers *all;
        uid_t uid;
        gid_t gid, groups[GROUPS_MAX];
        unsigned n_groups;
        uint64_t tenant;
        char gpu[UUID_PART + 1];
        char uuid[UUID_TEXT]; /* empty: an earlier daemon left it, and no program has asked since */
        char name[NAME_MAX_LEN]; /* below the daemon's directory */
        char dir[MPS_DIR_MAX];
        enum state state;
        pid_t child; /* the control daemon that we have started; 0: none, or it has ended */
        int pidfd;   /* of the control daemon; -EBADF: not known */
        uint64_t since_ns, idle_ns;
        const char *why; /* in state FAILED: the reason */

        struct member {
                pid_t pid;
                int pidfd;
        } members[MPS_CLIENTS_MAX];
        unsigned n_members;

        /* The order that is being given. It has ended when its process has ended and its answer was
         * read. */
        pid_t order_pid; /* 0: none, or it has ended */
        int order_fd;    /* -EBADF: the answer is read, or there is none */
        uint64_t order_ns;
        sd_event_source *order_io;
        bool order_failed;
        char answer[MPS_ANSWER_MAX];
        size_t answered;
        struct mps_usage usage;
        unsigned unknown; /* how often in a row we could not learn whether it is used */
};

struct mps_servers {
        struct server *server;
        struct mps_place *places;
        unsigned n;
        sd_event_source *timer;
        char dir[PATHS_DIR_MAX]; /* the daemon's, absolute; empty: too long */
        /* Our children that have not been waited for. A place may be gone before its children. */
        pid_t children[CHILDREN_MAX];
        unsigned n_children;
};

static struct mps_options options_of(const struct mps_place *p)
{
        return (struct mps_options){.dir = p->dir,
                                    .gpu = p->uuid[0] ? p->uuid : NULL,
                                    .uid = p->uid,
                                    .gid = p->gid,
                                    .groups = p->groups,
                                    .n_groups = p->n_groups,
                                    .outlives = true};
}

static void drop_fd(int *fd)
{
        cleanup_close(fd);
        *fd = -EBADF;
}

static void enter(struct mps_place *p, enum state state)
{
        p->state = state;
        p->since_ns = clock_now_ns();
        p->idle_ns = p->since_ns;
}

/* Call it after each change: sets the timer, and the count for the metrics. */
static void arm(struct mps_servers *all)
{
        bool soon = false;

        all->server->n_mps = 0;
        for (const struct mps_place *p = all->places; p; p = p->next) {
                soon |= p->state == STARTING || p->state == QUITTING;
                all->server->n_mps += p->state != FAILED;
        }
        if (!all->places) {
                (void)sd_event_source_set_enabled(all->timer, SD_EVENT_OFF);
                return;
        }
        (void)sd_event_source_set_time_relative(all->timer, soon ? FAST_US : SLOW_US);
        (void)sd_event_source_set_enabled(all->timer, SD_EVENT_ONESHOT);
}

/* ---- its programs ---- */

static void drop_ended(struct mps_place *p)
{
        for (unsigned i = p->n_members; i-- > 0;) {
                if (!peer_ended(p->members[i].pidfd))
                        continue;
                (void)close(p->members[i].pidfd);
                p->members[i] = p->members[--p->n_members];
                p->idle_ns = clock_now_ns();
        }
}

/* False: the place has no room for the program. A program whose end cannot be seen is not counted:
 * the control daemon is asked for its programs before its end. */
static bool add_member(struct mps_place *p, const struct client *c)
{
        int fd;

        drop_ended(p);
        for (unsigned i = 0; i < p->n_members; i++)
                if (p->members[i].pid == c->peer.pid)
                        return true;
        if (p->n_members == MPS_CLIENTS_MAX)
                return false;
        p->idle_ns = clock_now_ns();
        fd = c->peer.pidfd < 0 ? -1 : fcntl(c->peer.pidfd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0)
                p->members[p->n_members++] = (struct member){c->peer.pid, fd};
        return true;
}

static void answer(struct client *c, const struct mps_place *p, const char *devices,
                   const char *why)
{
        struct wire_message m = {.header = {WIRE_JOINED, WIRE_NO_GPU, 0}};

        c->joins = NULL;
        m.JOINED.ready = p != NULL;
        (void)snprintf(m.JOINED.place, sizeof(m.JOINED.place), "%s", p ? p->name : "");
        (void)snprintf(m.JOINED.devices, sizeof(m.JOINED.devices), "%s", devices);
        (void)snprintf(m.JOINED.why, sizeof(m.JOINED.why), "%s", why);
        client_send(c, &m);
}

static void answer_all(struct mps_place *p, const char *why)
{
        for (struct client *c = p->all->server->clients; c; c = c->next)
                if (c->joins == p)
                        answer(c, why ? NULL : p, why ? "" : c->joins_devices, why ? why : "");
}

static bool is_awaited(const struct mps_place *p)
{
        for (const struct client *c = p->all->server->clients; c; c = c->next)
                if (c->joins == p && !c->dropped)
                        return true;
        return false;
}

/* ---- orders ---- */

static void end_order(struct mps_place *p)
{
        p->order_io = sd_event_source_disable_unref(p->order_io);
        drop_fd(&p->order_fd);
        if (p->order_pid > 0)
                (void)kill(p->order_pid, SIGKILL); /* no effect if it has ended; SIGCHLD reaps it */
}

static void answered(struct mps_place *p);

static void read_answer_end(struct mps_place *p)
{
        p->order_io = sd_event_source_disable_unref(p->order_io);
        drop_fd(&p->order_fd);
        if (p->order_pid == 0)
                answered(p);
        arm(p->all);
}

static int on_answer(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct mps_place *p = userdata;
        const size_t room = sizeof(p->answer) - 1 - p->answered;
        const ssize_t n = read(fd, p->answer + p->answered, room);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        p->answered += n > 0 ? (size_t)n : 0;
        if (n > 0 && p->answered < sizeof(p->answer) - 1)
                return 0;
        p->answer[p->answered] = '\0';
        read_answer_end(p);
        return 0;
}

/* Gives the control daemon an order. False: that is not possible. */
static bool order(struct mps_place *p, const char *text)
{
        const struct mps_options o = options_of(p);
        int r;

        end_order(p);
        p->answered = 0;
        p->order_ns = clock_now_ns();
        r = p->all->n_children < CHILDREN_MAX ? mps_ask_begin(&o, text, &p->order_pid, &p->order_fd)
                                              : -EAGAIN;
        if (r == 0)
                p->all->children[p->all->n_children++] = p->order_pid;
        if (r == 0)
                r = sd_event_add_io(p->all->server->event, &p->order_io, p->order_fd, EPOLLIN,
                                    on_answer, p);
        if (r < 0) {
                log_info("cannot give MPS in %s the order %s: %s", p->dir, text, strerror(-r));
                end_order(p);
        }
        return r >= 0;
}

/* ---- a life ---- */

/* Kills all processes of the place, even a child that is not MPS yet and so cannot be found. */
static void kill_all(const struct mps_place *p)
{
        if (p->child > 0)
                (void)kill(p->child, SIGKILL);
        (void)mps_kill(p->dir, p->uid);
}

static void fail_place(struct mps_place *p, const char *why)
{
        log_warning("MPS for user %u: %s (%s/log)", (unsigned)p->uid, why, p->dir);
        kill_all(p);
        p->why = why;
        enter(p, FAILED);
        answer_all(p, why);
}

static void quit(struct mps_place *p)
{
        enter(p, QUITTING);
        (void)order(p, "quit -t 2");
}

static void start(struct mps_place *p)
{
        const struct mps_options o = options_of(p);
        int r = mps_make_dir(p->dir, p->uid, p->gid);

        enter(p, STARTING);
        if (r == 0)
                r = p->all->n_children < CHILDREN_MAX ? mps_spawn(&o, &p->child) : -EAGAIN;
        if (r == 0)
                p->all->children[p->all->n_children++] = p->child;
        if (r == -EPERM)
                fail_place(p, NOT_USER);
        else if (r < 0)
                fail_place(p, "the control daemon of MPS cannot be started");
}

static void become_ready(struct mps_place *p)
{
        const pid_t pid = p->child ? p->child : mps_find(p->dir, p->uid);

        p->pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -EBADF;
        enter(p, READY);
        log_info("MPS for user %u is ready: process %d, %s", (unsigned)p->uid, (int)pid, p->dir);
        answer_all(p, NULL);
}

/* Removes the place's directory and its last processes, which no program uses. */
static void clean_up(struct mps_place *p)
{
        end_order(p);
        kill_all(p);
        mps_remove_dir(p->dir);
        drop_fd(&p->pidfd);
        log_info("MPS for user %u has ended: %s", (unsigned)p->uid, p->dir);
}

static bool has_ended(const struct mps_place *p)
{
        return p->pidfd >= 0 ? peer_ended(p->pidfd) : mps_find(p->dir, p->uid) == 0;
}

/* Keeps the control daemon, because programs may use it. */
static void stay(struct mps_place *p)
{
        enter(p, READY);
        if (++p->unknown == SILENT_MAX)
                log_warning("the control daemon of MPS for user %u does not say whether programs "
                            "use it, so it stays (%s/log)",
                            (unsigned)p->uid, p->dir);
}

/* The control daemon's own lists decide, because a program may have come without asking us. */
static void answered(struct mps_place *p)
{
        const struct mps_options o = options_of(p);
        enum mps_use use;

        if (p->state != ASKING)
                return;
        use = mps_usage_take(&p->usage, &o, p->order_failed ? NULL : p->answer);
        if (use == MPS_UNKNOWN) {
                stay(p);
                return;
        }
        p->unknown = use == MPS_ASK_ON ? p->unknown : 0;
        if (use == MPS_USED || p->n_members > 0 || is_awaited(p))
                enter(p, READY);
        else if (use == MPS_UNUSED)
                quit(p);
        else if (!order(p, p->usage.order))
                stay(p);
}

static void tick_ready(struct mps_place *p, uint64_t now)
{
        if (has_ended(p)) {
                log_warning("the control daemon of MPS for user %u has ended: programs that use "
                            "its server go on, and no other can join them (%s/log)",
                            (unsigned)p->uid, p->dir);
                enter(p, ORPHANED);
                return;
        }
        if (p->n_members > 0 || sub_sat(now, p->idle_ns) < p->all->server->config->linger_ns)
                return;
        enter(p, ASKING);
        mps_usage_begin(&p->usage);
        if (!order(p, p->usage.order))
                stay(p);
}

/* True if an earlier daemon left the place: its programs may still come back. */
static bool may_be_used(const struct mps_place *p, uint64_t now)
{
        return !p->uuid[0] && sub_sat(now, p->since_ns) < RETURNS_NS &&
               mps_count(p->dir, p->uid) > 0;
}

/* Takes the next step in the life of a place. False: the place is to be forgotten. */
static bool tick(struct mps_place *p, uint64_t now)
{
        const bool late = sub_sat(now, p->since_ns) >= MPS_START_MS * NSEC_PER_MSEC;

        drop_ended(p);
        switch (p->state) {
        case NEW:
                break;
        case STARTING:
                if (mps_is_ready(p->dir))
                        become_ready(p);
                else if (late)
                        fail_place(p, "the control daemon of MPS did not start within 10 s");
                break;
        case READY:
                tick_ready(p, now);
                break;
        case ASKING:
                if (sub_sat(now, p->order_ns) < ORDER_NS)
                        break;
                end_order(p);
                stay(p);
                break;
        case QUITTING:
                if (!has_ended(p) && sub_sat(now, p->since_ns) < QUIT_NS)
                        break;
                clean_up(p);
                if (!is_awaited(p))
                        return false;
                start(p);
                break;
        case ORPHANED:
                if (p->n_members > 0 ||
                    sub_sat(now, p->idle_ns) < p->all->server->config->linger_ns)
                        break;
                if (may_be_used(p, now))
                        break;
                clean_up(p);
                return false;
        case FAILED:
                if (sub_sat(now, p->since_ns) < FAILED_NS || p->child)
                        break;
                clean_up(p);
                return false;
        }
        return true;
}

static void free_place(struct mps_place *p)
{
        end_order(p);
        drop_fd(&p->pidfd);
        for (unsigned i = 0; i < p->n_members; i++)
                (void)close(p->members[i].pidfd);
        free(p);
}

static int on_tick(sd_event_source *src, uint64_t usec, void *userdata)
{
        struct mps_servers *all = userdata;
        const uint64_t now = clock_now_ns();

        for (struct mps_place **link = &all->places; *link;) {
                struct mps_place *p = *link;

                if (tick(p, now)) {
                        link = &p->next;
                        continue;
                }
                answer_all(p, "the MPS server has ended");
                *link = p->next;
                all->n--;
                free_place(p);
        }
        arm(all);
        return 0;
}

/* The control daemon that we have started has ended. */
static void child_ended(struct mps_place *p, int status)
{
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

        p->child = 0;
        if (p->state != STARTING)
                return;
        fail_place(p, code == MPS_EXIT_NOT_USER ? NOT_USER
                                                : "the control daemon of MPS does not start");
        arm(p->all);
}

static void order_ended(struct mps_place *p, int status)
{
        p->order_pid = 0;
        p->order_failed = !WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SUCCESS;
        if (p->order_fd < 0)
                answered(p);
        arm(p->all);
}

bool mps_servers_reaped(struct server *s, pid_t pid, int status)
{
        struct mps_servers *all = s->mps;
        unsigned i = 0;

        while (all && i < all->n_children && all->children[i] != pid)
                i++;
        if (!all || i == all->n_children)
                return false;
        all->children[i] = all->children[--all->n_children];
        for (struct mps_place *p = all->places; p; p = p->next) {
                if (p->order_pid == pid)
                        order_ended(p, status);
                if (p->child == pid)
                        child_ended(p, status);
        }
        return true;
}

/* ---- a program asks ---- */

static struct mps_place *find(const struct mps_servers *all, uid_t uid, uint64_t tenant,
                              const char *uuid)
{
        for (struct mps_place *p = all->places; p; p = p->next)
                if (p->uid == uid && p->tenant == tenant && strncmp(p->gpu, uuid, UUID_PART) == 0)
                        return p;
        return NULL;
}

/* Makes a place without a control daemon. NULL: no memory. */
static struct mps_place *add_place(struct mps_servers *all, uid_t uid, uint64_t tenant,
                                   const char *gpu)
{
        struct mps_place *p = calloc(1, sizeof(*p));

        if (!p)
                return NULL;
        p->all = all;
        p->uid = uid;
        p->tenant = tenant;
        p->pidfd = p->order_fd = -EBADF;
        (void)snprintf(p->gpu, sizeof(p->gpu), "%.*s", UUID_PART, gpu);
        (void)snprintf(p->name, sizeof(p->name), FOLDER "/%u.%llx.%s", (unsigned)uid,
                       (unsigned long long)tenant, p->gpu);
        if (!all->dir[0] ||
            snprintf(p->dir, sizeof(p->dir), "%s/%s", all->dir, p->name) >= (int)sizeof(p->dir))
                p->dir[0] = '\0'; /* too long */
        p->next = all->places;
        all->places = p;
        all->n++;
        return p;
}

/* Takes the groups of the program that asks first; none if they are too many. */
static void take_groups(struct mps_place *p, int fd)
{
        socklen_t n = sizeof(p->groups);

        p->n_groups = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, p->groups, &n) == 0
                              ? (unsigned)(n / sizeof(gid_t))
                              : 0;
}

static int make_folder(const struct mps_servers *all)
{
        char path[PATHS_DIR_MAX + sizeof(FOLDER) + 1];

        (void)snprintf(path, sizeof(path), "%s/" FOLDER, all->server->place->dir);
        if (mkdir(path, 0711) < 0 && errno != EEXIST)
                return -errno;
        return chmod(path, 0711) < 0 ? -errno : 0; /* mkdir() is subject to the umask */
}

static void join(struct client *c, struct mps_place *p)
{
        if (p->state == READY && has_ended(p))
                enter(p, ORPHANED);
        drop_ended(p);
        if (p->state == ORPHANED && p->n_members == 0 && mps_count(p->dir, p->uid) == 0) {
                clean_up(p);
                start(p);
        }
        if (p->state == ORPHANED) {
                answer(c, NULL, "",
                       "its control daemon has ended, and programs still use its server");
        } else if (p->state == FAILED) {
                answer(c, NULL, "", p->why);
        } else if (!add_member(p, c)) {
                answer(c, NULL, "", "48 programs share this server, and it takes no more");
        } else if (p->state == READY || p->state == ASKING) {
                answer(c, p, c->joins_devices, "");
        } else {
                c->joins = p;
        }
}

int mps_servers_join(struct client *c, const struct wire_message *m)
{
        struct mps_servers *all = c->server->mps;
        const uint64_t tenant = tenant_number(&c->peer.tenant);
        const struct gpu *card;
        struct mps_place *p;
        const char *why;

        if (c->joins || c->joined)
                return -EEXIST;
        c->joined = true;
        if (!entitlement_mps(c)) {
                answer(c, NULL, "", "the GPU's owner does not allow it (the daemon's setting mps)");
                return 0;
        }
        card = mps_card(c, m, &why);
        if (!card) {
                answer(c, NULL, "", why);
                return 0;
        }
        /* Under MPS the numbers of GPUs begin anew. */
        if (isdigit((unsigned char)m->JOIN.devices[0]) && strcmp(m->JOIN.devices, "0") != 0)
                (void)text_copy(c->joins_devices, sizeof(c->joins_devices), card->uuid_text);
        p = find(all, c->peer.uid, tenant, card->uuid_text + 4);
        if (!p && all->n < PLACES_MAX && make_folder(all) == 0)
                p = add_place(all, c->peer.uid, tenant, card->uuid_text + 4);
        if (!p) {
                answer(c, NULL, "", "the daemon can make no more MPS servers");
                return 0;
        }
        if (!p->uuid[0]) { /* new, or left by an earlier daemon */
                p->gid = c->peer.gid;
                take_groups(p, c->fd);
                (void)text_copy(p->uuid, sizeof(p->uuid), card->uuid_text);
        }
        if (p->state == NEW && p->dir[0])
                start(p);
        else if (p->state == NEW)
                fail_place(p, "the daemon's directory has too long a name for MPS");
        join(c, p);
        arm(all);
        return 0;
}

void mps_servers_seen(struct client *c, unsigned gpu)
{
        struct mps_servers *all = c->server->mps;
        const char *uuid = c->server->gpus.list[gpu].uuid_text;
        struct mps_place *p;

        PRECONDITION(gpu < SCHED_GPUS_MAX, );
        if (!all || strncmp(uuid, "GPU-", 4) != 0)
                return;
        p = find(all, c->peer.uid, tenant_number(&c->peer.tenant), uuid + 4);
        if (p)
                (void)add_member(p, c);
}

/* ---- start and end ---- */

/* Takes over what an earlier daemon has left in a directory of the name UID.TENANT.GPU. */
static void adopt(struct mps_servers *all, int folder, const char *name)
{
        unsigned long long tenant;
        char gpu[UUID_PART + 1], again[NAME_MAX_LEN];
        struct mps_place *p;
        struct stat st;
        unsigned uid;

        if (sscanf(name, "%10u.%16llx.%8[0-9a-f]", &uid, &tenant, gpu) != 3 ||
            fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
            st.st_uid != uid || all->n >= PLACES_MAX)
                return;
        (void)snprintf(again, sizeof(again), "%u.%llx.%s", uid, tenant, gpu);
        if (strcmp(again, name) != 0)
                return;
        p = add_place(all, uid, tenant, gpu);
        if (!p || !p->dir[0])
                return;
        p->gid = st.st_gid;
        if (mps_find(p->dir, p->uid) > 0)
                become_ready(p);
        else
                enter(p, ORPHANED); /* perhaps with a server */
}

int mps_servers_new(struct server *s)
{
        struct mps_servers *all = calloc(1, sizeof(*all));
        char path[PATHS_DIR_MAX + sizeof(FOLDER) + 1];
        _cleanup_free_ char *absolute = NULL;
        const struct dirent *e;
        DIR *d;
        int r;

        if (!all)
                return -ENOMEM;
        all->server = s;
        s->mps = all;
        absolute = realpath(s->place->dir, NULL);
        if (absolute && strlen(absolute) < sizeof(all->dir))
                (void)strcpy(all->dir, absolute);
        r = sd_event_add_time_relative(s->event, &all->timer, CLOCK_MONOTONIC, 0, 1000, on_tick,
                                       all);
        if (r < 0)
                return r;
        (void)snprintf(path, sizeof(path), "%s/" FOLDER, s->place->dir);
        d = opendir(path);
        while (d && (e = readdir(d)))
                adopt(all, dirfd(d), e->d_name);
        if (d)
                (void)closedir(d);
        arm(all);
        return 0;
}

/* True if programs use the server. May wait for a moment, because the daemon ends. */
static bool is_used(const struct mps_place *p)
{
        const struct mps_options o = options_of(p);
        enum mps_use use;

        if (p->n_members > 0 || p->state == FAILED)
                return p->n_members > 0;
        use = mps_usage_ask(&o);
        return use == MPS_USED || (use == MPS_UNKNOWN && mps_count(p->dir, p->uid) > 0);
}

void mps_servers_free(struct server *s)
{
        struct mps_servers *all = s->mps;
        char path[PATHS_DIR_MAX + sizeof(FOLDER) + 1];

        if (!all)
                return;
        while (all->places) {
                struct mps_place *p = all->places;

                all->places = p->next;
                drop_ended(p);
                if (!is_used(p))
                        clean_up(p);
                free_place(p);
        }
        (void)snprintf(path, sizeof(path), "%s/" FOLDER, s->place->dir);
        (void)rmdir(path); /* if it is empty */
        (void)sd_event_source_disable_unref(all->timer);
        free(all);
        s->mps = NULL;
}
