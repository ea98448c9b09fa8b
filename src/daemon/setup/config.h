/* config.h: the settings; the configuration files and the command line share one table.
 *
 * libinih reads the files: [daemon], with one key for each row of the table in config.c, [default],
 * [class NAME] and [pod UID] (classes.h). sources.h says which files there are. All functions leave
 * one sentence in `error` when they fail. Nothing here is thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/setup/address.h"
#include "daemon/setup/classes.h"
#include "daemon/setup/values.h"
#include "sched/sched.h"
#include "wire/wire.h"

#define CONFIG_SYSTEM_FILE "/etc/sublet/subletd.conf" /* programs read `require` there, too */
#define CONFIG_GPU_MAX     64
#define CONFIG_CAPACITIES  32
#define CONFIG_PATH_MAX    1024

struct config_capacity {
        char gpu[CONFIG_GPU_MAX]; /* index or UUID in NVML's form; empty: every GPU */
        uint64_t bytes;
};

struct config {
        struct sched_config sched;
        uint64_t host_memory_bytes; /* UINT64_MAX: computed from the machine's memory */
        uint64_t host_pool_bytes;   /* the most that one tenant may have; 0: no host pool */
        struct config_capacity capacities[CONFIG_CAPACITIES]; /* the last match wins */
        unsigned n_capacities; /* stands behind capacities, because both are one key's value */
        unsigned connections_per_user;
        unsigned unevictable_per_user_permille, host_per_user_permille;
        uint64_t linger_ns;      /* time without clients after which a private daemon ends */
        enum wire_freeze freeze; /* the strongest freeze mode that programs may use */
        bool kill_overdue;
        bool mps;                              /* programs may share a card through an MPS server */
        char resource_config[CONFIG_PATH_MAX]; /* a file of resource_file.h; empty: none */
        char metrics[ADDRESS_TEXT_MAX]; /* where they are served (address.h); empty: nowhere */
        bool names;         /* everybody on the machine is told users and names of programs */
        bool metrics_names; /* readers over TCP are told users and names of programs */
        bool require; /* programs never run unshared; they read the file themselves (owner.h) */
        struct classes classes;
};

/* Sets the defaults of a structure that owns nothing; config_free() goes with it. */
void config_default(struct config *c);
void config_free(struct config *c);

/* Sets one key of [daemon] from text. 0; -ENOENT: no such key; -EINVAL: malformed value. */
int config_set(struct config *c, const char *key, const char *value,
               char error[static CONFIG_ERROR_MAX]);

/* Reads a stream over the values of c. 0, -EINVAL (error says name and line), -ENOMEM, or -EIO;
 * after an error c holds a part of the file, and may only be freed. */
int config_read(struct config *c, FILE *file, const char *name,
                char error[static CONFIG_ERROR_MAX]);
/* Checks what no key can check by itself, once everything is read. shared: other users connect.
 * name: the file for a sentence about [daemon]. 0, -EINVAL. */
int config_check(struct config *c, bool shared, const char *name,
                 char error[static CONFIG_ERROR_MAX]);

/* Calls back for each key that differs and that takes effect only at a start, and gives `to` the
 * value of `from`. */
void config_keep_at_start(struct config *to, const struct config *from,
                          void (*differs)(const char *key, void *user), void *user);
/* Gives `next` what `now` has by an order, except for keys that the files have changed since. */
void config_keep_orders(struct config *next, const struct config *now, const struct config *files);
/* Calls back for each key that `now` has by an order. */
void config_orders(const struct config *now, const struct config *files,
                   void (*ordered)(const char *key, const char *value, void *user), void *user);

/* Returns the rows of [daemon], whose fields are in struct config. */
const struct value_key *config_keys(size_t *ret_n);

/* True if the capacity is set for this GPU, or for all GPUs. */
bool config_is_for(const struct config_capacity *e, unsigned index, const char *uuid_text);
/* Returns the capacity that is set for this GPU, or 0. */
uint64_t config_capacity(const struct config *c, unsigned index, const char *uuid_text);

/* Prints one line for each key: name, meaning, default. */
void config_print_help(FILE *out);
