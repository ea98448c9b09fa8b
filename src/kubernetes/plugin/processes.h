/* processes.h: one look at all processes of the node: which belong to a pod and run on musl without
 * the library, and which GPUs MPS serves. */
#pragma once

#include <stdbool.h>

#include "kubernetes/plugin/plugin_cards.h"

#define PROCESSES_GPUS 254 /* device files of the driver with higher numbers are no GPUs */

struct processes_mps {
        bool all;                  /* it may serve every GPU */
        bool held[PROCESSES_GPUS]; /* it has /dev/nvidiaN open */
};

struct processes_told {
        bool (*is_ours)(const char *uid, void *userdata);    /* does this pod ask for our GPUs? */
        bool (*knows_musl)(const char *uid, void *userdata); /* true: musl() need not be called */
        void (*musl)(const char *uid, int pid, const char *name, void *userdata);
        /* A pod of ours runs MPS for itself. It counts for no GPU: other pods cannot reach it. */
        void (*mps)(const char *uid, int pid, const char *name, void *userdata);
};

/* Looks at all processes. proc: "/proc". Processes that may not be looked at are left out. */
void processes_look(const char *proc, const struct processes_told *told, void *userdata,
                    struct processes_mps *ret);
/* Says of each card whether MPS serves it, as far as the look shows. */
void processes_mark_mps(const struct processes_mps *mps, const char *proc, struct cards *cards);
