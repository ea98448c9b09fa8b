/* card_nvml.h: what NVIDIA's management library says about the cards, if it is installed.
 *
 * Only the reader's process (reader.h) calls the library: any call may hang, or crash. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sched/sched.h"

#define NVML_UUID_TEXT_MAX 96
#define NVML_NAME_MAX      96
#define NVML_PROCESSES_MAX 1024u

/* Who may use a card, by the driver: nvmlComputeMode_t. */
enum compute_mode {
        COMPUTE_MODE_UNKNOWN = -1,
        COMPUTE_MODE_DEFAULT = 0,
        COMPUTE_MODE_EXCLUSIVE_THREAD = 1, /* only old drivers have this mode */
        COMPUTE_MODE_PROHIBITED = 2,       /* no process */
        COMPUTE_MODE_EXCLUSIVE_PROCESS = 3 /* one process */
};

struct nvml;

struct nvml_process {
        uint32_t pid;
        uint64_t used_bytes; /* UINT64_MAX: NVML gives no figure */
};

struct nvml_card {
        uint8_t uuid[16];
        char uuid_text[NVML_UUID_TEXT_MAX], name[NVML_NAME_MAX];
        bool measured; /* the figures of the card's memory are known */
        bool listed;   /* the list of processes is known */
        uint64_t total_bytes, used_bytes;
        uint64_t
                bus_bytes_s; /* what copies reach in each direction, by the PCIe link; 0: unknown */
        int utilization;     /* percent of the time, lately, in which a kernel ran; -1: unknown */
        enum compute_mode compute_mode;
        unsigned n_processes;
        struct nvml_process processes[NVML_PROCESSES_MAX];
};

/* One look at all cards, read one after the other. */
struct nvml_look {
        unsigned n;
        struct nvml_card cards[SCHED_GPUS_MAX];
};

/* Loads and starts the library. 0; -ENOENT: there is no library; -EIO: it does not start. */
int nvml_open(struct nvml **ret);
/* Reads all cards anew. */
void nvml_read(const struct nvml *n, struct nvml_look *ret);

/* Returns "default", "exclusive_process", ...; NULL: unknown. Pure. */
const char *nvml_compute_mode_name(enum compute_mode mode);
