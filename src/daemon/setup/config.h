/* config.h: the settings; the configuration file and the command line share one table.
 *
 * libinih reads the file: one section, [daemon], one key for each row of the table in config.c. All
 * functions leave one sentence in `error` when they fail. Nothing here is thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sched/sched.h"
#include "wire/wire.h"

#define CONFIG_ERROR_MAX  512
#define CONFIG_GPU_MAX    64
#define CONFIG_CAPACITIES 32

struct config_capacity {
        char gpu[CONFIG_GPU_MAX]; /* index or UUID in NVML's form; empty: every GPU */
        uint64_t bytes;
};

struct config {
        struct sched_config sched;
        uint64_t host_memory_bytes; /* UINT64_MAX: computed from the machine's memory */
        struct config_capacity capacities[CONFIG_CAPACITIES]; /* the last match wins */
        unsigned n_capacities;
        unsigned connections_per_user;
        unsigned unevictable_per_user_permille, host_per_user_permille;
        uint64_t linger_ns;      /* time without clients after which a private daemon ends */
        enum wire_freeze freeze; /* the strongest freeze mode that programs may use */
        bool kill_overdue;
};

void config_default(struct config *c);

/* Sets one key from text. 0; -ENOENT: no such key; -EINVAL: malformed value. */
int config_set(struct config *c, const char *key, const char *value,
               char error[static CONFIG_ERROR_MAX]);

/* Reads a stream over the values of c, which an error leaves as they were. 0, -EINVAL (error says
 * name and line), or -EIO. */
int config_read(struct config *c, FILE *file, const char *name,
                char error[static CONFIG_ERROR_MAX]);
/* As config_read(), for a file: also -errno of opening it. */
int config_load(struct config *c, const char *path, char error[static CONFIG_ERROR_MAX]);

/* True if the capacity is set for this GPU, or for all GPUs. */
bool config_is_for(const struct config_capacity *e, unsigned index, const char *uuid_text);
/* Returns the capacity that is set for this GPU, or 0. */
uint64_t config_capacity(const struct config *c, unsigned index, const char *uuid_text);

/* Prints one line for each key: name, meaning, default. */
void config_print_help(FILE *out);
