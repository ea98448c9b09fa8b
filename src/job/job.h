/* job.h: a job as `sublet measure` saw it alone on the card, and the file that holds it.
 *
 * job_fields.def has the fields. A number that the card or the driver does not give is NAN and is
 * left out of the file. A job file is foreign input: each number is checked against its range, and
 * an error is one sentence that names the file and the field. Unknown fields are passed over, so
 * that a newer sublet may add some. Thread-safe. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define JOB_VERSION         1
#define JOB_NAME_MAX        96
#define JOB_KERNEL_NAME_MAX 128
#define JOB_KERNELS_MAX     64
#define JOB_WORDS_MAX       4096 /* words of the command */
#define JOB_FILE_MAX        (1u << 20)
#define JOB_ERROR_MAX       512

struct job_kernel {
        char name[JOB_KERNEL_NAME_MAX];
        double grid[3], block[3];
        bool graph; /* launched by a graph */
#define KERNEL(field, least, most) double field;
#include "job/job_fields.def"
};

struct job {
        char name[JOB_NAME_MAX];
        char **command; /* ends with NULL; NULL: not known */
#define SECTION(section)                    struct {
#define NUMBER(section, field, least, most) double field;
#define TEXT(section, field, size)          char field[size];
#define END(section) \
        }            \
        section;
#include "job/job_fields.def"
        struct job_kernel *kernels; /* n_kernels of them, at most JOB_KERNELS_MAX */
        size_t n_kernels;
        double other_share;
};

/* Makes a job of which nothing is known: all numbers are NAN, all texts empty. */
void job_init(struct job *job);
/* Makes a kernel of which nothing is known. */
void job_kernel_init(struct job_kernel *kernel);
/* Releases what the job holds, and leaves it as job_init() does. */
void job_free(struct job *job);
#define _cleanup_job_ __attribute__((cleanup(job_free)))

/* Reads the file at this path. 0: the caller frees the job. -errno: `error` holds a sentence;
 * -EINVAL: the file is no job file. */
int job_read(const char *path, struct job *ret, char error[static JOB_ERROR_MAX]);
/* Reads a job from the bytes of a file. from: what a sentence calls the file. */
int job_decode(const char *text, size_t length, const char *from, struct job *ret,
               char error[static JOB_ERROR_MAX]);
/* Reads a job from a value of JSON, such as a part of a data file. */
int job_from_json(const json_t *json, const char *from, struct job *ret,
                  char error[static JOB_ERROR_MAX]);

/* Returns a new reference, or NULL: no memory, or a text is not UTF-8. Numbers that are not finite
 * are left out. */
json_t *job_to_json(const struct job *job);
/* Writes the job as a job file. 0 or -errno. */
int job_write(const struct job *job, FILE *out);
