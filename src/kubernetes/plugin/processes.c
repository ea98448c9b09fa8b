/* processes.c: owns the look into /proc. Must never trust what it reads there: names and paths
 * belong to the pods. */
#include "kubernetes/plugin/processes.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void add_mps(const char *proc, int pid, struct processes_mps *mps)
{
        static const char key[] = "CUDA_VISIBLE_DEVICES=", pipe[] = "CUDA_MPS_PIPE_DIRECTORY=";
        _cleanup_fclose_ FILE *f = open_file(proc, pid, "environ");
        _cleanup_free_ char *entry = NULL;
        size_t room = 0, used = strlen(mps->devices);
        _cleanup_free_ char *copy = NULL;
        const char *devices = "";

        while (f && getdelim(&entry, &room, '\0', f) >= 0) {
                if (strncmp(entry, pipe, sizeof(pipe) - 1) == 0 && is_of_subletd(entry))
                        return;
                if (!copy && strncmp(entry, key, sizeof(key) - 1) == 0)
                        copy = strdup(entry + sizeof(key) - 1);
        }
        if (copy)
                devices = copy;
        /* One that names no UUIDs counts as one of all GPUs: numbers depend on its environment. */
        if (!strstr(devices, "GPU-") && !strstr(devices, "MIG-"))
                devices = "all";
        (void)snprintf(mps->devices + used, sizeof(mps->devices) - used, "%s%s", used ? "," : "",
                       devices);
        mps->runs = true;
}

bool processes_mps_serves(const struct processes_mps *mps, const char *uuid)
{
        const char *at = mps->devices;

        while (mps->runs && *at) {
                const size_t n = strcspn(at, ",");

                /* CUDA takes the beginning of a UUID for the whole, if it is the only one. */
                if ((n == 3 && strncmp(at, "all", 3) == 0) ||
                    (n > 4 && n <= strlen(uuid) && strncmp(at, uuid, n) == 0))
                        return true;
                at += n + (at[n] == ',');
        }
        return false;
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

                if (pid <= 0 || !read_name(proc, pid, name))
                        continue;
                /* The kernel keeps 15 characters of nvidia-cuda-mps-control. */
                if (strncmp(name, "nvidia-cuda-mps", 15) == 0)
                        add_mps(proc, pid, ret);
                if (find_pod(proc, pid, uid) && told->asks(uid, userdata) &&
                    runs_on_musl(proc, pid))
                        told->musl(uid, pid, name, userdata);
        }
        if (folder)
                (void)closedir(folder);
}
