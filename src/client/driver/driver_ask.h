/* driver_ask.h: asks this machine's driver and NVML without risk.
 *
 * A child process makes the calls: a driver that hangs or crashes harms only the child. */
#pragma once

#include <limits.h>
#include <stdint.h>

#include "client/driver/driver_symbols.h"

#define DRIVER_GPUS_MAX 16
#define DRIVER_UNKNOWN  UINT64_MAX

enum driver_stage {
        DRIVER_NOT_FOUND,   /* no libcuda.so.1, or it cannot be loaded: see reason */
        DRIVER_NOT_STARTED, /* cuInit failed: see result */
        DRIVER_LOOKING,     /* cuInit worked, but the child ended before its last question */
        DRIVER_ANSWERED,
};

struct driver_gpu {
        char name[96], pci_bus_id[32];
        uint64_t total_bytes;
        uint64_t used_bytes; /* DRIVER_UNKNOWN: there is no NVML */
        int vmm;             /* virtual memory management, 0 or 1; -1: unknown */
        int compute_mode;    /* an nvmlComputeMode_t; -1: unknown */
};

struct driver_report {
        enum driver_stage stage;
        int hung;    /* true if the child was killed after the time limit */
        int signal;  /* the signal that ended the child; 0: none */
        int result;  /* CUresult of cuInit */
        int version; /* 13000 is CUDA 13.0 */
        int nvml;    /* true if NVML answered */
        int n_gpus;
        char library[PATH_MAX]; /* the file of the driver; "": unknown */
        char reason[256];       /* the loader's message for DRIVER_NOT_FOUND, the error's name for
                                   DRIVER_NOT_STARTED */
        struct driver_symbols symbols;
        struct driver_gpu gpus[DRIVER_GPUS_MAX];
};

/* Asks the driver. folder: where to load the libraries from; NULL: the usual search. 0 or
 * -errno. */
int driver_ask(const char *folder, struct driver_report *ret);
