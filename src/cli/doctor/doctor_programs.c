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

/* Returns the index in hidden[] of a library that a process under sublet has loaded; -1: none. */
static int hidden_of(int pid)
{
        _cleanup_fclose_ FILE *file = NULL;
        char path[64], line[4352];
        bool ours = false;
        int found = -1;

        (void)snprintf(path, sizeof(path), "/proc/%d/maps", pid);
        file = fopen(path, "re");
        while (file && fgets(line, sizeof(line), file)) {
                ours = ours || maps(line, "libsublet");
                for (int i = 0; found < 0 && i < (int)ARRAY_SIZE(hidden); i++)
                        if (maps(line, hidden[i].name))
                                found = i;
        }
        return ours ? found : -1;
}

void programs_hidden(void (*found)(int pid, const char *library, const char *what))
{
        DIR *proc = opendir("/proc");
        const struct dirent *entry;

        while (proc && (entry = readdir(proc))) {
                int pid = atoi(entry->d_name), i = pid > 0 ? hidden_of(pid) : -1;

                if (i >= 0)
                        found(pid, hidden[i].name, hidden[i].what);
        }
        if (proc)
                (void)closedir(proc);
}
