/* job_bounds.h: the administrator's file, /etc/sublet/slurm.conf: what jobs may get.
 *
 * Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slurm/wishes.h"

#define BOUNDS_ERROR_MAX 512
#define BOUNDS_FILE      "/etc/sublet/slurm.conf"

struct bounds {
        bool always; /* jobs that do not ask run under sublet, too */
        int priority_most;
        unsigned minimum_most;    /* thousandths; 0: no job gets a minimum */
        unsigned maximum;         /* thousandths */
        unsigned weight_most;     /* thousandths */
        uint64_t memory_cap_most; /* bytes; 0: no cap unless the job asks for one */
};

struct bounds_file {
        bool refuse; /* a job that cannot be set up fails, instead of running without sublet */
        unsigned n_accounts;
        struct bounds_section *sections; /* [default] first, then the accounts */
};

/* Reads the file. A missing file is an empty one. 0, or -errno with a sentence: then *ret has the
 * defaults, so that nobody gets more. The caller frees *ret with bounds_free() in any case. */
int bounds_read(const char *path, struct bounds_file *ret, char error[static BOUNDS_ERROR_MAX]);
void bounds_free(struct bounds_file *f);

/* Returns what jobs of the account may get. NULL: an account without a section. */
struct bounds bounds_of(const struct bounds_file *f, const char *account);

/* True if jobs of some account run under sublet without asking. */
bool bounds_any_always(const struct bounds_file *f);

/* Holds what the job gets: its wishes within the bounds. `less` lists, with commas, what is less
 * than the job asked for; "": it gets all. */
struct granted {
        unsigned minimum, maximum, weight; /* thousandths; minimum 0: none */
        uint64_t cap;                      /* 0: none */
        int priority, priority_most;
};
struct granted bounds_grant(const struct bounds *b, const struct wishes *w,
                            char less[static BOUNDS_ERROR_MAX]);
