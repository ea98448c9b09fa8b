/* processes.h: one look at all processes of the node: which belong to a pod and run on musl without
 * the library, and whether MPS runs. */
#pragma once

#include <stdbool.h>

#define MPS_DEVICES_MAX 1024

struct processes_mps {
        bool runs;
        /* CUDA_VISIBLE_DEVICES of its control daemons, with commas; "": unknown, or all GPUs. */
        char devices[MPS_DEVICES_MAX];
};

struct processes_told {
        bool (*asks)(const char *uid, void *userdata); /* is this pod of interest? */
        void (*musl)(const char *uid, int pid, const char *name, void *userdata);
};

/* proc: "/proc". Processes that may not be looked at are left out. */
void processes_look(const char *proc, const struct processes_told *told, void *userdata,
                    struct processes_mps *ret);
/* True if MPS serves this GPU, as far as the look shows. */
bool processes_mps_serves(const struct processes_mps *mps, const char *uuid);
