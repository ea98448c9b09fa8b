/* places.c: owns the search for a user's own daemon. Must never trust a folder or a socket of
 * another user, and never leave a descriptor open.
 * Why: docs/decisions.md, "Programs look for a private daemon in one list of places". */
#include "base/places.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"

#define ROOT_MAX 32 /* "/proc/PID/root" */

/* Checks that a process listens at the socket of the folder. Without any_user, this user or root
 * must run that process. 0 or -errno. */
static int listens(const char *dir, uid_t uid, bool any_user)
{
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct sockaddr_un sa = {.sun_family = AF_UNIX};
        struct ucred peer;
        socklen_t n = sizeof(peer);
        int r;

        if (fd < 0)
                return -errno;
        r = paths_join(dir, PATHS_CLIENT_SOCKET, sa.sun_path, sizeof(sa.sun_path));
        if (r < 0)
                return r;
        if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
                return errno == EAGAIN ? 0 : -errno; /* the queue is full, so the daemon lives */
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
                return -errno;
        return any_user || peer.uid == uid || peer.uid == 0 ? 0 : -EPERM;
}

static int ask_place(const char *dir, uid_t uid)
{
        int r = paths_check_private(dir, uid);

        return r < 0 ? r : listens(dir, uid, false);
}

/* ---- the list ---- */

struct list {
        const struct paths_input *in;
        struct private_place *places; /* room for PLACES_MAX */
        unsigned n;
};

static bool is_same(const char *a, const char *b)
{
        struct stat one, other;

        return paths_stat(a, 0, &one) == 0 && paths_stat(b, 0, &other) == 0 &&
               one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/* Returns the new place; NULL: the place is in the list already, or the list is full. Two names may
 * be one folder. named: a program's SUBLET_DIR names it, so another user's daemon counts, too. */
static struct private_place *add(struct list *l, const char *dir, bool named)
{
        const uid_t uid = l->in->uid;

        for (unsigned i = 0; i < l->n; i++)
                if (strcmp(l->places[i].dir, dir) == 0 || is_same(l->places[i].dir, dir)) {
                        l->places[i].named |= named; /* a program joins this daemon alone */
                        return NULL;
                }
        if (l->n == PLACES_MAX)
                return NULL;
        l->places[l->n] = (struct private_place){
                .error = named ? listens(dir, uid, true) : ask_place(dir, uid), .named = named};
        (void)snprintf(l->places[l->n].dir, sizeof(l->places[0].dir), "%s", dir);
        return &l->places[l->n++];
}

static void add_known(struct list *l)
{
        char dir[PATHS_DIR_MAX];

        for (int p = 0; p < PATHS_PLACES; p++)
                if (paths_private_at(l->in, (enum paths_place)p, "", dir, sizeof(dir)) == 0)
                        (void)add(l, dir, false);
}

/* ---- the programs of this user ---- */

/* What a program's environment says. */
struct said {
        bool under_sublet;          /* `sublet run` has started it, or an ancestor of it */
        char daemon[PATHS_DIR_MAX]; /* SUBLET_DIR: that daemon is for the programs that name it */
        char runtime[PATHS_DIR_MAX];
        char session[64]; /* the simulator's: programs on two simulated cards share nothing */
};

static void take_variable(const char *text, struct said *s)
{
        if (strncmp(text, "SUBLET_DAEMON=", 14) == 0)
                s->under_sublet = true;
        else if (strncmp(text, "SUBLET_DIR=", 11) == 0)
                (void)snprintf(s->daemon, sizeof(s->daemon), "%s", text + 11);
        else if (strncmp(text, "XDG_RUNTIME_DIR=", 16) == 0)
                (void)snprintf(s->runtime, sizeof(s->runtime), "%s", text + 16);
        else if (strncmp(text, "SIMCUDA_SESSION=", 16) == 0)
                (void)snprintf(s->session, sizeof(s->session), "%s", text + 16);
}

/* A variable that is longer than the buffer is passed over: it is none of ours. */
static void read_environment(int proc, const char *pid, struct said *ret)
{
        _cleanup_close_ int fd = -EBADF;
        char path[32], buffer[4096];
        size_t used = 0;
        bool skips = false;
        ssize_t n;

        *ret = (struct said){0};
        (void)snprintf(path, sizeof(path), "%.10s/environ", pid);
        fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
        while (fd >= 0 && (n = read(fd, buffer + used, sizeof(buffer) - used)) > 0) {
                const char *at = buffer, *end;

                used += (size_t)n;
                while ((end = memchr(at, '\0', used - (size_t)(at - buffer)))) {
                        if (!skips)
                                take_variable(at, ret);
                        skips = false;
                        at = end + 1;
                }
                used -= (size_t)(at - buffer);
                memmove(buffer, at, used);
                if (used == sizeof(buffer)) {
                        skips = true;
                        used = 0;
                }
        }
}

static bool is_own_session(const struct said *s)
{
        const char *own = getenv("SIMCUDA_SESSION");

        return strcmp(s->session, own ? own : "") == 0;
}

/* True if the list has this daemon already. socket: its path through /proc/PID/root; a container
 * may have mounted the socket of a listed daemon. */
static bool is_known(const struct list *l, const char *dir, const char *socket)
{
        for (unsigned i = 0; i < l->n; i++) {
                const struct private_place *old = &l->places[i];
                char path[PATHS_DIR_MAX + 32];

                (void)paths_join(old->dir, PATHS_CLIENT_SOCKET, path, sizeof(path));
                if (old->elsewhere ? strcmp(old->dir, dir) == 0 : is_same(path, socket))
                        return true;
        }
        return false;
}

/* Adds the daemon of a program that is in a container, or in a service with a /tmp of its own. */
static void add_elsewhere(struct list *l, const char *root, const struct said *s, int pid)
{
        /* Only the names of the places there are known: their owners cannot be checked here. */
        const struct paths_input there = {
                .runtime = s->runtime, .logins = PATHS_LOGINS_DIR, .uid = l->in->uid};
        char path[ROOT_MAX + PATHS_DIR_MAX + 32], dir[PATHS_DIR_MAX];

        (void)snprintf(path, sizeof(path), "%s" PATHS_SYSTEM_DIR "/" PATHS_CLIENT_SOCKET, root);
        if (access(path, F_OK) == 0)
                return; /* the program is under the machine's daemon */
        for (int p = 0; p < PATHS_PLACES && l->n < PLACES_MAX; p++) {
                struct private_place *new;

                if (paths_private_name(&there, (enum paths_place)p, "", dir, sizeof(dir)) < 0)
                        continue;
                (void)snprintf(path, sizeof(path), "%s%s/" PATHS_CLIENT_SOCKET, root, dir);
                if (is_known(l, dir, path))
                        continue;
                (void)snprintf(path, sizeof(path), "%s%s", root, dir);
                if (listens(path, l->in->uid, false) < 0)
                        continue;
                new = &l->places[l->n++];
                *new = (struct private_place){.pid = pid, .elsewhere = true};
                (void)strcpy(new->dir, dir);
        }
}

/* Reads a name as a pid. 0: the name is no number. Replaces strtol(), which is another symbol from
 * glibc 2.38 on. */
static int pid_of(const char *name)
{
        int pid = 0;

        while (isdigit((unsigned char)*name) && pid < 100000000)
                pid = pid * 10 + (*name++ - '0');
        return *name ? 0 : pid;
}

/* The simulator's daemons have names of their own: programs there use another card. */
static bool is_simulators(const char *dir)
{
        const char *slash = strrchr(dir, '/');

        return slash && strncmp(slash, "/sublet-sim", 11) == 0;
}

/* Adds the place that a program of this mount namespace names. Returns true if the program has no
 * SUBLET_DIR, and so uses the usual places. */
static bool add_of(struct list *l, const struct said *s, int pid, bool all)
{
        struct paths_input in = *l->in;
        char dir[PATHS_DIR_MAX];
        struct private_place *new = NULL;

        in.runtime = s->runtime;
        if (!s->daemon[0] && paths_private_at(&in, PATHS_AT_RUNTIME, "", dir, sizeof(dir)) == 0)
                new = add(l, dir, false);
        else if (all && s->daemon[0] == '/' && !is_simulators(s->daemon))
                new = add(l, s->daemon, true);
        if (new)
                new->pid = pid;
        return !s->daemon[0];
}

/* Adds the places that programs name. all: also looks at programs in other mount namespaces, and at
 * daemons that are not to be joined. Returns true if some program uses the usual places. */
static bool add_named(struct list *l, bool all)
{
        bool usual = false;
        DIR *proc = opendir("/proc");
        const struct dirent *entry;
        struct stat st, own;

        if (!proc || paths_stat("/proc/self/ns/mnt", 0, &own) < 0)
                goto out;
        while ((entry = readdir(proc))) {
                char root[ROOT_MAX], path[ROOT_MAX];
                const int pid = pid_of(entry->d_name);
                struct said s;

                (void)snprintf(path, sizeof(path), "/proc/%.10s", entry->d_name);
                if (!pid || paths_stat(path, 0, &st) < 0 || st.st_uid != l->in->uid)
                        continue;
                read_environment(dirfd(proc), entry->d_name, &s);
                if (!s.under_sublet || (s.daemon[0] && !all) || !is_own_session(&s))
                        continue;
                (void)snprintf(path, sizeof(path), "/proc/%.10s/ns/mnt", entry->d_name);
                if (paths_stat(path, 0, &st) < 0)
                        continue;
                if (st.st_ino != own.st_ino) {
                        (void)snprintf(root, sizeof(root), "/proc/%.10s/root", entry->d_name);
                        if (all && !s.daemon[0])
                                add_elsewhere(l, root, &s, pid);
                        continue;
                }
                usual |= add_of(l, &s, pid, all);
        }
out:
        if (proc)
                (void)closedir(proc);
        return usual;
}

static bool first_answer(const struct list *l, char *dir, size_t n)
{
        for (unsigned i = 0; i < l->n; i++)
                if (l->places[i].error == 0) {
                        (void)snprintf(dir, n, "%s", l->places[i].dir);
                        return true;
                }
        return false;
}

void places_find(const struct paths_input *in, char *dir, size_t n)
{
        struct private_place places[PLACES_MAX];
        struct list l = {in, places, 0};

        add_known(&l);
        if (first_answer(&l, dir, n))
                return;
        (void)add_named(&l, false);
        (void)first_answer(&l, dir, n);
}

unsigned places_look(const struct paths_input *in, struct private_place ret[static PLACES_MAX])
{
        const bool named = in->named && in->named[0];
        struct list l = {in, ret, 0};
        char dir[PATHS_DIR_MAX];

        /* The caller's own daemon comes first, so that it has one name in the list. */
        if (named)
                (void)add(&l, in->named, true);
        else
                add_known(&l);
        if (!add_named(&l, true) || !named)
                return l.n;
        /* Programs at the usual places are under the machine's daemon or a private one. */
        if (in->system && paths_join(in->system, PATHS_CLIENT_SOCKET, dir, sizeof(dir)) == 0 &&
            access(dir, F_OK) == 0)
                (void)add(&l, in->system, true);
        else
                add_known(&l);
        return l.n;
}
