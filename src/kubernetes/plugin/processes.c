/* processes.c: owns the look into /proc. Must never trust what it reads there: names and paths
 * belong to the pods. */
#include "kubernetes/plugin/processes.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/text.h"

#define UID_ROOM  37
#define NAME_ROOM 32

static FILE *open_file(const char *proc, int pid, const char *name)
{
        char path[128];

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

/* Reads the uid after "pod": 36 characters with '-' or '_', or 32 digits. */
static bool read_uid(const char *text, char ret[static UID_ROOM])
{
        const size_t n = strspn(text, "0123456789abcdef-_");

        if (n != 36 && n != 32)
                return false;
        for (size_t i = 0; i < n; i++)
                ret[i] = text[i] == '_' ? '-' : text[i];
        ret[n] = '\0';
        return true;
}

/* The kubelet's cgroups are named podUID, or kubepods-CLASS-podUID.slice. */
static bool find_pod(const char *proc, int pid, char ret[static UID_ROOM])
{
        _cleanup_fclose_ FILE *f = open_file(proc, pid, "cgroup");
        char line[1024];

        while (f && fgets(line, sizeof(line), f)) {
                const char *at = strstr(line, "kubepods");

                while (at && (at = strstr(at, "pod")))
                        if (read_uid(at += 3, ret))
                                return true;
        }
        return false;
}

static bool runs_on_musl(const char *proc, int pid)
{
        _cleanup_fclose_ FILE *f = open_file(proc, pid, "maps");
        _cleanup_free_ char *line = NULL;
        size_t room = 0;
        bool musl = false;

        while (f && getline(&line, &room, f) >= 0) {
                if (strstr(line, "/libsublet.so"))
                        return false;
                musl |= strstr(line, "/ld-musl-") != NULL;
        }
        return musl;
}

/* A process that has ended keeps its name until its parent takes note, which some never do. */
static bool has_ended(const char *proc, int pid)
{
        _cleanup_fclose_ FILE *f = open_file(proc, pid, "status");
        char line[128], state = '?';

        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "State: %c", &state) == 1)
                        break;
        return state == 'Z' || state == 'X';
}

/* MIG-GPU-... is an older way to write an instance, which is not its UUID. */
static bool is_uuid(const char *name)
{
        return (strncmp(name, "GPU-", 4) == 0 || strncmp(name, "MIG-", 4) == 0) &&
               strncmp(name, "MIG-GPU-", 8) != 0;
}

void processes_add_mps(const char *devices, struct processes_mps *mps)
{
        size_t used = strlen(mps->devices), n = 0;

        while (*(devices += strspn(devices, ", "))) {
                n = strcspn(devices, ", ");
                /* Numbers depend on the environment of the process, so they may be any GPU. */
                if (!is_uuid(devices) || used + n + 2 > sizeof(mps->devices)) {
                        mps->all = true;
                        return;
                }
                used += (size_t)snprintf(mps->devices + used, sizeof(mps->devices) - used, "%s%.*s",
                                         used ? "," : "", (int)n, devices);
                devices += n;
        }
        mps->all |= n == 0;
}

/* True for a directory in which subletd has started it (mps_servers.h): DIR/mps/UID.TENANT.GPU. */
static bool is_of_subletd(const char *directory)
{
        const char *name = strrchr(directory, '/');
        unsigned uid;
        unsigned long long tenant;
        char gpu[9];

        return name && name - directory >= 4 && strncmp(name - 4, "/mps", 4) == 0 &&
               sscanf(name, "/%10u.%16llx.%8[0-9a-f]", &uid, &tenant, gpu) == 3;
}

static void look_at_mps(const char *proc, int pid, struct processes_mps *mps)
{
        static const char key[] = "CUDA_VISIBLE_DEVICES=", pipe[] = "CUDA_MPS_PIPE_DIRECTORY=";
        _cleanup_fclose_ FILE *f = open_file(proc, pid, "environ");
        _cleanup_free_ char *entry = NULL;
        _cleanup_free_ char *devices = NULL;
        size_t room = 0;

        while (f && getdelim(&entry, &room, '\0', f) >= 0) {
                if (strncmp(entry, pipe, sizeof(pipe) - 1) == 0 && is_of_subletd(entry))
                        return;
                if (!devices && strncmp(entry, key, sizeof(key) - 1) == 0)
                        devices = strdup(entry + sizeof(key) - 1);
        }
        processes_add_mps(devices ? devices : "", mps);
}

/* CUDA takes the beginning of a UUID for the whole, if it is the only one. */
static bool means(const char *name, size_t n, const char *uuid)
{
        return n > 4 && n <= strlen(uuid) && strncasecmp(name, uuid, n) == 0;
}

/* A GPU that is no card is one with MIG: any of its instances may be meant. */
static void mark_instances(struct cards *cards)
{
        for (unsigned i = 0; i < cards->n; i++)
                cards->list[i].mps |= strncmp(cards->list[i].uuid, "MIG-", 4) == 0;
}

void processes_mark_mps(const struct processes_mps *mps, struct cards *cards)
{
        const char *at = mps->devices;

        for (unsigned i = 0; i < cards->n; i++)
                cards->list[i].mps = mps->all;
        while (*at) {
                const size_t n = strcspn(at, ",");
                bool found = false;

                for (unsigned i = 0; i < cards->n; i++)
                        if (means(at, n, cards->list[i].uuid))
                                cards->list[i].mps = found = true;
                if (!found && strncmp(at, "GPU-", 4) == 0)
                        mark_instances(cards);
                at += n + (at[n] == ',');
        }
}

void processes_look(const char *proc, const struct processes_told *told, void *userdata,
                    struct processes_mps *ret)
{
        DIR *folder = opendir(proc);
        const struct dirent *entry;

        memset(ret, 0, sizeof(*ret));
        while (folder && (entry = readdir(folder))) {
                const int pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
                char name[NAME_ROOM], uid[UID_ROOM];
                bool ours, mps;

                if (pid <= 0 || !read_name(proc, pid, name))
                        continue;
                ours = find_pod(proc, pid, uid) && told->is_ours(uid, userdata);
                /* The kernel keeps 15 characters of nvidia-cuda-mps-control and -server. */
                mps = strncmp(name, "nvidia-cuda-mps", 15) == 0 && !has_ended(proc, pid);
                if (mps && ours)
                        told->mps(uid, pid, name, userdata);
                else if (mps)
                        look_at_mps(proc, pid, ret);
                if (ours && !told->knows_musl(uid, userdata) && runs_on_musl(proc, pid))
                        told->musl(uid, pid, name, userdata);
        }
        if (folder)
                (void)closedir(folder);
}
