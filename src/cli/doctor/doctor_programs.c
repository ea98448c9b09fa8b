/* doctor_programs.c: owns the look at the libraries of other processes. Skips processes that it may
 * not read. */
#include "cli/doctor/doctor_programs.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"

static const struct {
        const char *name, *what;
} hidden[] = {
#define HIDDEN(name, what) {name, what},
#include "cuda/hidden_libraries.def"
#undef HIDDEN
};

/* True if this line of /proc/PID/maps maps this library. */
static bool maps(const char *line, const char *name)
{
        const char *file = strrchr(line, '/');

        return file && strncmp(file + 1, name, strlen(name)) == 0 &&
               strncmp(file + 1 + strlen(name), ".so", 3) == 0;
}

/* What /proc/PID/maps shows of a process. */
struct seen {
        bool ours, driver;
        int hidden; /* index in hidden[]; -1: none */
};

static struct seen look_at(int pid)
{
        _cleanup_fclose_ FILE *file = NULL;
        struct seen s = {.hidden = -1};
        char path[64], line[4352];

        (void)snprintf(path, sizeof(path), "/proc/%d/maps", pid);
        file = fopen(path, "re");
        while (file && fgets(line, sizeof(line), file)) {
                s.ours = s.ours || maps(line, "libsublet");
                s.driver = s.driver || maps(line, "libcuda");
                for (int i = 0; s.hidden < 0 && i < (int)ARRAY_SIZE(hidden); i++)
                        if (maps(line, hidden[i].name))
                                s.hidden = i;
        }
        return s;
}

/* True if the process was started with libsublet.so to be preloaded. */
static bool was_preloaded(int pid)
{
        _cleanup_free_ char *variable = NULL;
        _cleanup_fclose_ FILE *file = NULL;
        char path[64];
        size_t room = 0;

        (void)snprintf(path, sizeof(path), "/proc/%d/environ", pid);
        file = fopen(path, "re");
        while (file && getdelim(&variable, &room, '\0', file) > 0)
                if (strncmp(variable, "LD_PRELOAD=", 11) == 0)
                        return strstr(variable, "libsublet.so") != NULL;
        return false;
}

void programs_look(void (*has_hidden)(int pid, const char *library, const char *what),
                   void (*is_unshared)(int pid))
{
        DIR *proc = opendir("/proc");
        const struct dirent *entry;

        while (proc && (entry = readdir(proc))) {
                const int pid = atoi(entry->d_name);
                const struct seen s = pid > 0 ? look_at(pid) : (struct seen){.hidden = -1};

                if (s.ours && s.hidden >= 0)
                        has_hidden(pid, hidden[s.hidden].name, hidden[s.hidden].what);
                if (s.driver && !s.ours && was_preloaded(pid))
                        is_unshared(pid);
        }
        if (proc)
                (void)closedir(proc);
}
