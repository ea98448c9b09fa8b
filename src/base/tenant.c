/* tenant.c: owns the forms and the places of the cgroups of pods and jobs. Must never count a name
 * at a place where a user could have made the cgroup.
 * Why: docs/decisions.md, "A pod is known by its cgroup, at the kubelet's place". */
#include "base/tenant.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/macros.h"

#define HEX        "0123456789abcdef"
#define POD_DIGITS 32 /* digits of a static pod's uid */
#define JOB_DIGITS 10 /* digits of a 32-bit number */
#define SLUID      "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
#define SLUID_SIZE 14 /* "s", and a 64-bit number to the base 32 */
#define SLICE      ".slice"

/* A part of a path without the slashes. */
struct part {
        const char *text;
        size_t length;
};

/* Takes the first part off a path. An empty part: the path has ended. */
static struct part take_part(const char **path, const char *end)
{
        struct part p;

        while (*path < end && **path == '/')
                (*path)++;
        p.text = *path;
        while (*path < end && **path != '/')
                (*path)++;
        p.length = (size_t)(*path - p.text);
        return p;
}

static bool is(struct part p, const char *text)
{
        return p.length == strlen(text) && memcmp(p.text, text, p.length) == 0;
}

static bool begins(struct part p, const char *text)
{
        return p.length >= strlen(text) && memcmp(p.text, text, strlen(text)) == 0;
}

static bool ends(struct part p, const char *text)
{
        const size_t n = strlen(text);

        return p.length >= n && memcmp(p.text + p.length - n, text, n) == 0;
}

/* ---- identifiers ---- */

bool tenant_read_pod(const char *text, size_t length, char ret[static TENANT_ID_MAX + 1])
{
        if (length != POD_DIGITS && length != TENANT_ID_MAX)
                return false;
        for (size_t i = 0; i < length; i++) {
                ret[i] = text[i] == '_' ? '-' : text[i];
                if (!ret[i] || !strchr(HEX "-", ret[i]))
                        return false;
        }
        ret[length] = 0;
        return true;
}

bool tenant_read_job(const char *text, size_t length, char ret[static TENANT_ID_MAX + 1])
{
        if (length == 0 || length > JOB_DIGITS || text[0] == '0')
                return false;
        for (size_t i = 0; i < length; i++)
                if (text[i] < '0' || text[i] > '9')
                        return false;
        memcpy(ret, text, length);
        ret[length] = 0;
        return true;
}

bool tenant_read_sluid(const char *text, size_t length, char ret[static TENANT_ID_MAX + 1])
{
        if (length != SLUID_SIZE || text[0] != 's')
                return false;
        for (size_t i = 1; i < length; i++)
                if (!text[i] || !strchr(SLUID, text[i]))
                        return false;
        memcpy(ret, text, length);
        ret[length] = 0;
        return true;
}

bool tenant_same(const struct tenant *a, const struct tenant *b)
{
        return a->kind == b->kind && strncmp(a->id, b->id, sizeof(a->id)) == 0;
}

/* No user can make hashes collide: the API server chooses the uids of pods at random. */
uint64_t tenant_number(const struct tenant *t)
{
        if (t->kind == TENANT_NONE)
                return 0;
        return hash_add(HASH_BASIS, t->id, strnlen(t->id, sizeof(t->id))) | UINT64_C(1) << 63;
}

/* ---- the places ---- */

/* The kubelet's tree: [kubelet/]kubepods/[QOS/]podUID, or, by systemd, [kubelet.slice/]
 * [kubelet-]kubepods.slice/[[kubelet-]kubepods-QOS.slice/][kubelet-]kubepods[-QOS]-podUID.slice
 * with '_' for '-'. inside: the path may begin below kubepods. */
static bool find_pod(const char *path, const char *end, bool inside, struct tenant *ret)
{
        struct part p = take_part(&path, end);
        const char *uid;

        if (is(p, "kubelet") || is(p, "kubelet" SLICE))
                p = take_part(&path, end);
        if (is(p, "kubepods") || is(p, "kubepods" SLICE) || ends(p, "-kubepods" SLICE))
                p = take_part(&path, end);
        else if (!inside)
                return false;
        if (is(p, "burstable") || is(p, "besteffort") || ends(p, "kubepods-burstable" SLICE) ||
            ends(p, "kubepods-besteffort" SLICE))
                p = take_part(&path, end);
        if (ends(p, SLICE)) {
                p.length -= strlen(SLICE);
                uid = memmem(p.text, p.length, "-pod", 4);
                if (!uid)
                        return false;
                uid += 4;
        } else {
                if (!begins(p, "pod"))
                        return false;
                uid = p.text + 3;
        }
        if (!tenant_read_pod(uid, (size_t)(p.text + p.length - uid), ret->id))
                return false;
        ret->kind = TENANT_POD;
        return true;
}

/* Slurm's tree of version 1: slurm[_NODE]/uid_N/job_N; of version 2:
 * SLICE/[NODE_]slurmstepd.scope/job_N, or SLUID for job_N, below one slice or two nested ones. */
static bool find_job(const char *path, const char *end, struct tenant *ret)
{
        struct part p = take_part(&path, end);
        bool scope = false;

        if (is(p, "slurm") || begins(p, "slurm_")) {
                if (!begins(take_part(&path, end), "uid_"))
                        return false;
        } else {
                for (unsigned i = 0; i < 2 && ends(p, SLICE) && !begins(p, "user"); i++)
                        p = take_part(&path, end);
                if (!is(p, "slurmstepd.scope") && !ends(p, "_slurmstepd.scope"))
                        return false;
                scope = true;
        }
        p = take_part(&path, end);
        if (!(begins(p, "job_") && tenant_read_job(p.text + 4, p.length - 4, ret->id)) &&
            !(scope && tenant_read_sluid(p.text, p.length, ret->id)))
                return false;
        ret->kind = TENANT_JOB;
        return true;
}

/* Looks for a tenant at the top of the tree, then below each cgroup that the daemon is in. If the
 * daemon has a cgroup namespace of its own, the kernel writes "/.." for each cgroup above it. */
static bool find_in(struct part theirs, struct part ours, struct tenant *ret)
{
        const char *end = theirs.text + theirs.length, *ours_end = ours.text + ours.length;
        const char *at = theirs.text, *our_at = ours.text, *next = at;
        struct part p = take_part(&next, end), q;

        if (is(p, "..")) {
                while (is(p, "..")) {
                        at = next;
                        p = take_part(&next, end);
                }
                return find_pod(at, end, true, ret) || find_job(at, end, ret);
        }
        for (;;) {
                if (find_pod(at, end, false, ret) || find_job(at, end, ret))
                        return true;
                p = take_part(&at, end);
                q = take_part(&our_at, ours_end);
                if (p.length == 0 || p.length != q.length || memcmp(p.text, q.text, p.length) != 0)
                        return false;
        }
}

/* ---- /proc/PID/cgroup ---- */

/* The hierarchies that count, in the order in which they are tried; "" is that of version 2. On a
 * machine with both versions, container engines may use only those of version 1. name=systemd does
 * not count, because systemd gives users parts of it. */
static const char *const hierarchies[] = {"", "memory", "pids", "freezer"};

static bool lists(struct part list, const char *name)
{
        const char *end = list.text + list.length;

        for (const char *p = list.text; p <= end; p++) {
                const char *comma = memchr(p, ',', (size_t)(end - p));
                struct part one = {p, (size_t)((comma ? comma : end) - p)};

                if (is(one, name))
                        return true;
                p = comma ? comma : end;
        }
        return false;
}

/* Finds a hierarchy's path. A line is "NUMBER:CONTROLLERS:PATH". False: there is no such line. */
static bool find_path(const char *cgroups, const char *hierarchy, struct part *ret)
{
        for (const char *line = cgroups; *line;) {
                const size_t length = strcspn(line, "\n");
                const char *end = line + length;
                const char *first = memchr(line, ':', length);
                const char *second =
                        first ? memchr(first + 1, ':', (size_t)(end - first - 1)) : NULL;

                if (second &&
                    lists((struct part){first + 1, (size_t)(second - first - 1)}, hierarchy)) {
                        *ret = (struct part){second + 1, (size_t)(end - second - 1)};
                        return true;
                }
                line = *end ? end + 1 : end;
        }
        return false;
}

void tenant_of_cgroups(const char *theirs, const char *ours, struct tenant *ret)
{
        *ret = (struct tenant){.kind = TENANT_NONE};
        for (size_t i = 0; i < ARRAY_SIZE(hierarchies); i++) {
                struct part their_path, our_path = {"/", 1};

                if (!find_path(theirs, hierarchies[i], &their_path))
                        continue;
                (void)find_path(ours, hierarchies[i], &our_path);
                if (find_in(their_path, our_path, ret))
                        return;
                *ret = (struct tenant){.kind = TENANT_NONE};
        }
}

int tenant_path(const char *cgroups, char *ret, size_t size)
{
        struct part path = {NULL, 0}, one;

        for (size_t i = 0; i < ARRAY_SIZE(hierarchies); i++)
                if (find_path(cgroups, hierarchies[i], &one) && (!path.text || is(path, "/")))
                        path = one;
        if (!path.text)
                return -ENOENT;
        if (path.length >= size)
                return -ENAMETOOLONG;
        memcpy(ret, path.text, path.length);
        ret[path.length] = 0;
        return 0;
}
