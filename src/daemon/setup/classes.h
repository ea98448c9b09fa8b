/* classes.h: the classes of programs, and what each class gets.
 *
 * A program belongs to the first class that matches it, or to none. Pure, except that names of
 * users are looked up when a file is read. Not thread-safe. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/tenant.h"
#include "daemon/setup/values.h"

#define CLASSES_MAX     4096
#define PODS_MAX        4096
#define POD_NAME_MAX    161 /* with the NUL */
#define CLASS_NAME_MAX  256 /* with the NUL: a namespace and a pod fit */
#define CLASS_AS_DAEMON UINT64_MAX

struct class_settings {
        unsigned minimum_permille; /* 0: none */
        unsigned maximum_permille; /* 1000: none */
        unsigned weight_permille;  /* 1000: as everybody */
        uint64_t memory_cap;       /* bytes; 0: none */
        int priority, priority_max;
        uint64_t quantum_ns, idle_release_ns; /* 0: automatic; CLASS_AS_DAEMON: as the daemon */
        uint64_t grace_ns;                    /* CLASS_AS_DAEMON: as the daemon */
        int kill_overdue, mps;                /* 1, 0; -1: as the daemon */
        bool exclusive; /* nobody else runs on a card while one of its programs wants to */
        bool group;     /* its programs run together */
};

struct class_users {
        struct class_uids {
                uid_t first, last;
        } * list;
        unsigned n;
};

struct class_patterns {
        char **list;
        unsigned n;
};

struct class
{
        char name[CLASS_NAME_MAX];
        struct class_settings settings;
        struct class_users users;
        struct class_patterns names, cgroups;
        struct class_patterns pods, jobs; /* uids and numbers, as in struct tenant */
        struct class_patterns sluids;     /* the SLUID, Slurm's other name, of its only job */
        bool by_group;    /* it is of a resource file: programs name it as their group */
        uint32_t number;  /* from 1 on; kept over a reload */
        const char *file; /* the file of its last key; classes.files owns the text */
        unsigned line;
};

struct classes {
        struct class *list; /* in the order of the files */
        unsigned n, room;
        struct class_settings unmatched; /* [default]: for programs in no class */
        char **files;                    /* the files that were read */
        unsigned n_files;
        struct class_pod *pods; /* names of pods */
        unsigned n_pods;

        /* classes_check() makes this index, so that a thousand classes of pods cost a client
         * nothing. */
        struct class_entry {
                const char *id; /* of a pod or a job, or a job's SLUID */
                unsigned class; /* index in list */
        } * by_tenant;          /* sorted by id, then by class */
        unsigned n_by_tenant;
        unsigned *others; /* the indices of classes that name neither pods nor jobs */
        unsigned n_others;
        bool by_cgroup; /* a class asks for the cgroup */
};

/* [pod UID]: what people call a pod. */
struct class_pod {
        char uid[TENANT_ID_MAX + 1];
        char namespace[POD_NAME_MAX], name[POD_NAME_MAX]; /* "": not known */
        unsigned order; /* if several have one uid, the last one counts */
};

/* A program, as the classes see it. */
struct class_subject {
        uid_t uid;
        const char *name;            /* the program chooses it; NULL: unknown */
        const char *cgroup;          /* tenant_path(), such as /user.slice; NULL: unknown */
        const struct tenant *tenant; /* NULL: none */
};

void classes_init(struct classes *c);
void classes_free(struct classes *c);

/* Finds the class of this name, or adds one at the end. 0, or with a sentence in error: -E2BIG,
 * -ENOMEM. The pointer is valid until the next class is added. */
int classes_begin(struct classes *c, const char *name, struct class **ret,
                  char error[static CONFIG_ERROR_MAX]);
/* True for the name of a section: 1 to 31 letters, digits, '-', '_' and '.'. */
bool classes_is_name(const char *name);
/* Keeps the name of a file. Returns the copy; NULL: no memory. */
const char *classes_keep_file(struct classes *c, const char *file);

/* Begins the section of a pod. As classes_begin(), and -EINVAL: it is no uid. */
int classes_begin_pod(struct classes *c, const char *uid, struct class_pod **ret,
                      char error[static CONFIG_ERROR_MAX]);
/* Returns the names of the pod; NULL: no file tells them. */
const struct class_pod *classes_pod(const struct classes *c, const struct tenant *tenant);
/* Returns the tenant as people know it: with the job's number in place of its SLUID, if a class
 * tells that number. */
struct tenant classes_tenant(const struct classes *c, const struct tenant *tenant);

/* True if this key of a class takes a list. */
bool class_has_list(const char *key);
/* Set a key of a class, or of [default]; as values_set(). */
int class_set(struct class *class, const char *key, const char *text, bool more,
              char error[static CONFIG_ERROR_MAX]);
int class_set_unmatched(struct class_settings *s, const char *key, const char *text,
                        char error[static CONFIG_ERROR_MAX]);

int class_set_pod(struct class_pod *pod, const char *key, const char *text,
                  char error[static CONFIG_ERROR_MAX]);

/* Returns the rows of the keys that a program may have of its own: minimum, maximum, weight,
 * memory_cap and priority. Their fields are in class_settings. */
const struct value_key *class_own_keys(size_t *ret_n);

/* Checks all classes together, and sets the fields that follow from others. room_permille: the most
 * that all minima may add up to. shared: other users connect. 0, or -EINVAL, -ENOMEM with a
 * sentence that names file and line. Call it before the functions that search. */
int classes_check(struct classes *c, unsigned room_permille, bool shared,
                  char error[static CONFIG_ERROR_MAX]);

/* Returns the first class that matches; NULL: none does. */
const struct class *classes_find(const struct classes *c, const struct class_subject *who);
/* False for a class that only the resource file has: no key says which programs are in it. */
bool classes_matches_by_key(const struct class *class);
/* Returns the class of this name; NULL: there is none. */
const struct class *classes_named(const struct classes *c, const char *name);

void classes_print_help(FILE *out);
void classes_print_pod_help(FILE *out);
