/* processes.c: owns the look into /proc. Must never trust what it reads there: names and paths
 * belong to the pods.
 * Why: docs/decisions.md, "MPS is known by the GPUs that it has open". */
#include "kubernetes/plugin/processes.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/tenant.h"
#include "base/text.h"
#include "kubernetes/plugin/grant.h"

#define NAME_ROOM       32
#define NVIDIA_MAJOR    195   /* major number of /dev/nvidia*, by the kernel's devices.txt */
#define DESCRIPTORS_MAX 1024u /* looked at in a process; MPS opens its GPUs at its start */

/* A process chooses how much its files have: its environment may be gigabytes of zeros. */
#define ENVIRON_MAX (256u << 10)
#define CGROUPS_MAX (64u << 10)
#define MAP_MAX     8192u      /* most bytes of a line */
#define MAPS_MAX    (1u << 14) /* most lines of a process */
#define LINES_MAX   (1u << 15) /* lines of a pod's processes in one look; some pods share them */
#define SHARES      64u

#define SELF 0 /* stands for the plugin, instead of a pid */

static FILE *open_file(const char *proc, int pid, const char *name)
{
        char path[128];

        if (pid == SELF)
                (void)snprintf(path, sizeof(path), "%.80s/self/%s", proc, name);
        else
                (void)snprintf(path, sizeof(path), "%.80s/%d/%s", proc, pid, name);
        return fopen(path, "re");
}

static bool read_name(const char *proc, int pid, char ret[static NAME_ROOM])
{
        _cleanup_fclose_ FILE *f = open_file(proc, pid, "comm");
        char line[NAME_ROOM];

        if (!f || !fgets(line, sizeof(line), f))
                return false;
        line[strcspn(line, "\n")] = '\0';
        (void)text_copy(ret, NAME_ROOM, line);
        return true;
}

/* Returns the first bytes of a file, and a NUL; NULL: it may not be read. */
static char *read_file(const char *proc, int pid, const char *name, size_t most, size_t *ret_n)
{
        _cleanup_fclose_ FILE *f = open_file(proc, pid, name);
        _cleanup_free_ char *text = f ? malloc(most + 1) : NULL;

        if (!text)
                return NULL;
        *ret_n = fread(text, 1, most, f);
        text[*ret_n] = '\0';
        return TAKE_PTR(text);
}

/* Returns what the kernel says about the cgroups of a process; NULL: it may not be asked. */
static char *read_cgroups(const char *proc, int pid)
{
        size_t n;

        return read_file(proc, pid, "cgroup", CGROUPS_MAX, &n);
}

static bool find_pod(const char *proc, int pid, const char *ours, struct tenant *ret)
{
        _cleanup_free_ char *theirs = read_cgroups(proc, pid);

        tenant_of_cgroups(theirs ? theirs : "", ours ? ours : "", ret);
        return ret->kind == TENANT_POD;
}

/* True if the process has mapped musl, but not libsublet.so. left: lines that this look may still
 * read. */
static bool runs_on_musl(const char *proc, int pid, unsigned *left)
{
        _cleanup_fclose_ FILE *f = open_file(proc, pid, "maps");
        char line[MAP_MAX];
        bool musl = false;

        for (unsigned k = 0; f && *left > 0 && k < MAPS_MAX; k++) {
                if (!fgets(line, sizeof(line), f))
                        break;
                --*left;
                if (strstr(line, "/libsublet.so"))
                        return false;
                musl |= strstr(line, "/ld-musl-") != NULL;
        }
        return musl;
}

/* Finds out which file a descriptor of a process has open. AT_STATX_DONT_SYNC asks no file system:
 * one may hang, and a pod may serve it. */
static int look_at_file(int folder, const char *name, int flags, struct statx *ret)
{
        return statx(folder, name, flags | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MODE, ret) < 0
                       ? -errno
                       : 0;
}

static bool is_denial(int error)
{
        return error == -EACCES || error == -EPERM;
}

/* Finds the GPUs whose device files the process has open. A link's text can be anything, but the
 * kernel lets only a container that has a GPU open the GPU's device number. A descriptor that can
 * neither read nor write (O_PATH) needs no such right. Returns how many of the driver's files are
 * open; -EACCES: none is seen, and some may not be looked at. */
static int find_held(const char *proc, int pid, bool held[static PROCESSES_GPUS])
{
        char path[128];
        DIR *folder;
        const struct dirent *entry;
        bool denied;
        int n = 0;

        (void)snprintf(path, sizeof(path), "%.80s/%d/fd", proc, pid);
        folder = opendir(path);
        denied = !folder && is_denial(-errno);
        for (unsigned k = 0; folder && k < DESCRIPTORS_MAX && (entry = readdir(folder)); k++) {
                struct statx link, file;
                int r = look_at_file(dirfd(folder), entry->d_name, AT_SYMLINK_NOFOLLOW, &link);

                if (r < 0 || !(link.stx_mode & (S_IRUSR | S_IWUSR)))
                        continue;
                r = look_at_file(dirfd(folder), entry->d_name, 0, &file);
                denied |= is_denial(r);
                if (r < 0 || !S_ISCHR(file.stx_mode) || file.stx_rdev_major != NVIDIA_MAJOR)
                        continue;
                n++;
                if (file.stx_rdev_minor < PROCESSES_GPUS)
                        held[file.stx_rdev_minor] = true;
        }
        if (folder)
                (void)closedir(folder);
        return n > 0 ? n : denied ? -EACCES : 0;
}

/* True if subletd has started MPS in this directory (mps_servers.h): DIR/mps/UID.TENANT.GPU. */
static bool is_of_subletd(const char *directory)
{
        const char *name = strrchr(directory, '/');
        unsigned uid;
        unsigned long long tenant;
        char gpu[9];

        return name && name - directory >= 4 && strncmp(name - 4, "/mps", 4) == 0 &&
               sscanf(name, "/%10u.%16llx.%8[0-9a-f]", &uid, &tenant, gpu) == 3;
}

static bool is_started_by_subletd(const char *proc, int pid)
{
        static const char pipe[] = "CUDA_MPS_PIPE_DIRECTORY=";
        size_t n = 0;
        _cleanup_free_ char *all = read_file(proc, pid, "environ", ENVIRON_MAX, &n);

        for (const char *entry = all; entry && entry < all + n; entry += strlen(entry) + 1)
                if (strncmp(entry, pipe, sizeof(pipe) - 1) == 0 && is_of_subletd(entry))
                        return true;
        return false;
}

/* Control daemons and servers of MPS keep the device files of the GPUs that they serve open. If a
 * process outside of pods may not be looked into, its name is believed; in a pod anybody may have
 * chosen the name. */
static void look_at_mps(const char *proc, int pid, bool in_pod, struct processes_mps *mps)
{
        bool held[PROCESSES_GPUS] = {false};
        const int n = find_held(proc, pid, held);

        if (n == 0 || is_started_by_subletd(proc, pid))
                return;
        mps->all |= n < 0 && !in_pod;
        for (unsigned i = 0; i < PROCESSES_GPUS; i++)
                mps->held[i] |= held[i];
}

/* A MIG instance has no known device number, and without the driver's files in /proc no card has
 * one. Such a card counts as served if MPS has a GPU open that is none of the known ones. */
void processes_mark_mps(const struct processes_mps *mps, const char *proc, struct cards *cards)
{
        static const bool none[PROCESSES_GPUS];
        const bool any = mps->all || memcmp(mps->held, none, sizeof(none)) != 0;
        bool known[PROCESSES_GPUS] = {false}, other = false;
        int minors[CARDS_MAX];

        for (unsigned i = 0; i < cards->n; i++) {
                unsigned minor;

                minors[i] = any && grant_minor(proc, cards->list[i].uuid, &minor) == 0 &&
                                            minor < PROCESSES_GPUS
                                    ? (int)minor
                                    : -1;
                if (minors[i] >= 0)
                        known[minors[i]] = true;
        }
        for (unsigned k = 0; k < PROCESSES_GPUS; k++)
                other |= mps->held[k] && !known[k];
        for (unsigned i = 0; i < cards->n; i++)
                cards->list[i].mps = mps->all || (minors[i] >= 0 ? mps->held[minors[i]] : other);
}

void processes_look(const char *proc, const struct processes_told *told, void *userdata,
                    struct processes_mps *ret)
{
        _cleanup_free_ char *cgroups = read_cgroups(proc, SELF);
        DIR *folder = opendir(proc);
        const struct dirent *entry;
        unsigned lines[SHARES];

        for (unsigned i = 0; i < SHARES; i++)
                lines[i] = LINES_MAX;
        memset(ret, 0, sizeof(*ret));
        while (folder && (entry = readdir(folder))) {
                const int pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
                char name[NAME_ROOM];
                struct tenant pod;
                bool in_pod, ours, mps;

                if (pid <= 0 || !read_name(proc, pid, name))
                        continue;
                in_pod = find_pod(proc, pid, cgroups, &pod);
                ours = in_pod && told->is_ours(pod.id, userdata);
                /* The kernel keeps 15 characters of nvidia-cuda-mps-control and -server. */
                mps = strncmp(name, "nvidia-cuda-mps", 15) == 0;
                if (mps && !ours)
                        look_at_mps(proc, pid, in_pod, ret);
                else if (mps && find_held(proc, pid, (bool[PROCESSES_GPUS]){false}) > 0)
                        told->mps(pod.id, pid, name, userdata);
                if (ours && !told->knows_musl(pod.id, userdata) &&
                    runs_on_musl(proc, pid, &lines[tenant_number(&pod) % SHARES]))
                        told->musl(pod.id, pid, name, userdata);
        }
        if (folder)
                (void)closedir(folder);
}
