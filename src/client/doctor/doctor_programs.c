/* doctor_programs.c: owns the look at the libraries of other processes. Must never report a process
 * that it could not read as if it had looked. */
#include "client/doctor/doctor_programs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/program_name.h"
#include "base/text.h"
#include "client/launch/unshared.h"

#define SEGMENTS   "/dev/shm/"    /* where the simulator keeps its sessions */
#define AGENT_NAME "sublet-agent" /* name of the library's thread (src/preload/agent/agent.c) */

static const struct {
        const char *name, *what;
} hidden[] = {
#define HIDDEN(name, what) {name, what},
#include "cuda/hidden_libraries.def"
};

/* Which driver counts. */
struct wanted {
        bool simulated;
        char folder[PATH_MAX]; /* folder of the simulated driver */
        ino_t segments[8];     /* files of the simulator's session */
        unsigned n;
};

/* True if this line of /proc/PID/maps maps this library. */
static bool maps(const char *line, const char *name)
{
        const char *file = strrchr(line, '/');

        return file && strncmp(file + 1, name, strlen(name)) == 0 &&
               strncmp(file + 1 + strlen(name), ".so", 3) == 0;
}

static bool maps_driver(const char *line, const struct wanted *w)
{
        const char *path = strchr(line, '/');
        const size_t n = strlen(w->folder);

        return maps(line, "libcuda") &&
               !w->simulated == !(n && strncmp(path, w->folder, n) == 0 && path[n] == '/');
}

/* Finds the memory that the processes of the simulator's session share. A session of that name may
 * be open to all users, or each user may have one. */
static void find_segments(const char *session, struct wanted *w)
{
        char pattern[128];
        glob_t found = {0};
        struct stat st;

        (void)snprintf(pattern, sizeof(pattern), SEGMENTS "simcuda-*-%s-*", session);
        if (glob(pattern, 0, NULL, &found) == 0)
                for (size_t i = 0; i < found.gl_pathc && w->n < ARRAY_SIZE(w->segments); i++)
                        if (stat(found.gl_pathv[i], &st) == 0)
                                w->segments[w->n++] = st.st_ino;
        globfree(&found);
}

/* True if this line shows that the process works on a GPU: each context maps this device. libcuda
 * alone shows nothing, because NVML loads it into monitors and subletd, too (580.159.04). In place
 * of a device, the simulator maps the memory of its session, which may appear by another name. */
static bool maps_device(const char *line, const struct wanted *w)
{
        unsigned long long inode;

        if (!w->simulated)
                return strstr(line, "/dev/nvidia-uvm") != NULL;
        if (!w->n || !strstr(line, SEGMENTS) || sscanf(line, "%*s %*s %*s %*s %llu", &inode) != 1)
                return false;
        for (unsigned i = 0; i < w->n; i++)
                if (w->segments[i] == inode)
                        return true;
        return false;
}

/* What /proc/PID/maps shows of a process. */
struct seen {
        bool refused; /* this user may not look */
        bool ours, driver, device;
        int hidden; /* index in hidden[]; -1: none */
};

static struct seen look_at(int pid, const struct wanted *w)
{
        _cleanup_fclose_ FILE *file = NULL;
        struct seen s = {.hidden = -1};
        char path[64], line[4352];

        (void)snprintf(path, sizeof(path), "/proc/%d/maps", pid);
        file = fopen(path, "re");
        s.refused = !file && (errno == EACCES || errno == EPERM);
        while (file && fgets(line, sizeof(line), file)) {
                s.ours = s.ours || maps(line, "libsublet");
                s.driver = s.driver || maps_driver(line, w);
                s.device = s.device || maps_device(line, w);
                for (int i = 0; s.hidden < 0 && i < (int)ARRAY_SIZE(hidden); i++)
                        if (maps(line, hidden[i].name))
                                s.hidden = i;
        }
        return s;
}

/* Reads the beginning of a file of the process. Returns the number of bytes; 0: none. */
static size_t read_file(int pid, const char *file, char *ret, size_t room)
{
        _cleanup_close_ int fd = -EBADF;
        char path[64];
        ssize_t n;

        (void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        n = fd >= 0 ? read(fd, ret, room) : 0;
        return n > 0 ? (size_t)n : 0;
}

static void name_of(int pid, char ret[static PROGRAM_NAME_MAX])
{
        char line[NAME_LINE_MAX], file[32] = "?";
        const size_t n = read_file(pid, "comm", file, sizeof(file) - 1);

        if (n)
                file[strcspn(file, "\n")] = '\0';
        name_choose(line, read_file(pid, "cmdline", line, sizeof(line)), NULL, file, ret,
                    PROGRAM_NAME_MAX);
}

/* Finds LD_PRELOAD in the environment that the process began with. */
static void find_preload(int pid, struct program_unshared *ret)
{
        _cleanup_free_ char *variable = NULL;
        _cleanup_fclose_ FILE *file = NULL;
        char path[64];
        size_t room = 0;

        (void)snprintf(path, sizeof(path), "/proc/%d/environ", pid);
        file = fopen(path, "re");
        while (file && getdelim(&variable, &room, '\0', file) > 0)
                if (strncmp(variable, "LD_PRELOAD=", 11) == 0) {
                        ret->preloads = true;
                        ret->ours = strstr(variable, "libsublet.so") != NULL;
                        (void)text_copy(ret->preload, sizeof(ret->preload), variable + 11);
                        return;
                }
}

/* True if the library's thread that talks with the daemon runs in the process. */
static bool has_agent(int pid)
{
        const struct dirent *entry;
        bool found = false;
        char path[64];
        DIR *tasks;

        (void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
        tasks = opendir(path);
        while (tasks && !found && (entry = readdir(tasks))) {
                char file[32], name[16] = "";

                (void)snprintf(file, sizeof(file), "task/%.10s/comm", entry->d_name);
                found = read_file(pid, file, name, sizeof(name) - 1) > 0 &&
                        strncmp(name, AGENT_NAME, strlen(AGENT_NAME)) == 0;
        }
        if (tasks)
                (void)closedir(tasks);
        return found;
}

/* True for doctor itself, for kernel threads and ended processes, which have no command line, and
 * for processes of MPS, which doctor reports elsewhere. */
static bool is_nobody(int pid)
{
        char text[32] = "";

        if (pid == getpid() || read_file(pid, "cmdline", text, 1) == 0)
                return true;
        return read_file(pid, "comm", text, sizeof(text) - 1) > 0 &&
               strncmp(text, "nvidia-cuda-mps", 15) == 0;
}

static struct program_unshared describe(int pid, bool loaded)
{
        struct program_unshared u = {.pid = pid, .uid = (uid_t)-1, .loaded = loaded};
        char path[64];
        struct stat st;

        (void)snprintf(path, sizeof(path), "/proc/%d", pid);
        if (stat(path, &st) == 0)
                u.uid = st.st_uid;
        name_of(pid, u.name);
        (void)snprintf(path, sizeof(path), "/proc/%d/exe", pid);
        u.musl = unshared_is_musl(path);
        find_preload(pid, &u);
        return u;
}

unsigned programs_look(const char *folder, bool simulated,
                       void (*has_hidden)(int pid, const char *library, const char *what),
                       void (*is_unshared)(const struct program_unshared *u))
{
        const char *session = getenv("SIMCUDA_SESSION");
        struct wanted w = {.simulated = simulated};
        DIR *proc = opendir("/proc");
        const struct dirent *entry;
        unsigned refused = 0;

        if (simulated)
                find_segments(session && *session ? session : "default", &w);
        if (!realpath(folder, w.folder))
                w.folder[0] = '\0';
        while (proc && (entry = readdir(proc))) {
                const int pid = isdigit((unsigned char)*entry->d_name) ? atoi(entry->d_name) : 0;
                struct seen s;

                if (pid <= 0 || is_nobody(pid))
                        continue;
                s = look_at(pid, &w);
                refused += s.refused;
                if (s.ours && s.hidden >= 0)
                        has_hidden(pid, hidden[s.hidden].name, hidden[s.hidden].what);
                if (s.driver && s.device && (!s.ours || !has_agent(pid))) {
                        const struct program_unshared u = describe(pid, s.ours);

                        is_unshared(&u);
                }
        }
        if (proc)
                (void)closedir(proc);
        return refused;
}
