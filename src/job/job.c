/* job.c: owns the reading and writing of job files. Must never trust a file: each value is checked
 * before it is kept. */
#include "job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/text.h"

/* One number or text of struct job. section "": it is in the file's outermost object. */
struct field {
        const char *section, *name;
        size_t at, size; /* size 0: the field is a number */
        double least, most;
};

static const struct field fields[] = {
#define NUMBER(section, name, least, most) \
        {#section, #name, offsetof(struct job, section.name), 0, least, most},
#define TEXT(section, name, size) {#section, #name, offsetof(struct job, section.name), size, 0, 0},
#include "job/job_fields.def"
        {"", "other_share", offsetof(struct job, other_share), 0, 0, 1.001},
};

static const struct field kernel_fields[] = {
#define KERNEL(name, least, most) {"", #name, offsetof(struct job_kernel, name), 0, least, most},
#include "job/job_fields.def"
};

#define FOR_EACH_FIELD(f, table) \
        for (const struct field *f = (table); f < (table) + ARRAY_SIZE(table); f++)

static double *number_at(void *base, const struct field *f)
{
        return (void *)((char *)base + f->at);
}

static char *text_at(void *base, const struct field *f)
{
        return (char *)base + f->at;
}

void job_kernel_init(struct job_kernel *kernel)
{
        *kernel = (struct job_kernel){0};
        for (unsigned d = 0; d < 3; d++)
                kernel->grid[d] = kernel->block[d] = NAN;
        FOR_EACH_FIELD (f, kernel_fields)
                *number_at(kernel, f) = NAN;
}

void job_init(struct job *job)
{
        *job = (struct job){0};
        FOR_EACH_FIELD (f, fields)
                if (f->size == 0)
                        *number_at(job, f) = NAN;
}

void job_free(struct job *job)
{
        for (char **word = job->command; word && *word; word++)
                free(*word);
        free(job->command);
        free(job->kernels);
        job_init(job);
}

/* ---- reading ---- */

/* A file that is being read: what sentences call it, and where a sentence about an error goes. */
struct reading {
        const char *from;
        char *error;
};

static int fail_job(const struct reading *r, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

static int fail_job(const struct reading *r, const char *format, ...)
{
        char what[JOB_ERROR_MAX / 2], from[JOB_ERROR_MAX / 2];
        va_list args;

        va_start(args, format);
        (void)vsnprintf(what, sizeof(what), format, args);
        va_end(args);
        (void)snprintf(r->error, JOB_ERROR_MAX, "%s: %s", text_copy(from, sizeof(from), r->from),
                       what);
        return -EINVAL;
}

/* Writes how a sentence names the field: "gpu.sm", or "kernels[3].waves". */
static const char *name_field(const struct field *f, int kernel, char ret[static 64])
{
        if (kernel >= 0)
                (void)snprintf(ret, 64, "kernels[%d].%s", kernel, f->name);
        else
                (void)snprintf(ret, 64, "%s%s%s", f->section, *f->section ? "." : "", f->name);
        return ret;
}

static int take_number(const struct reading *r, const struct field *f, int kernel,
                       const json_t *value, double *ret)
{
        char name[64];
        double n;

        if (!json_is_number(value))
                return fail_job(r, "%s is no number", name_field(f, kernel, name));
        n = json_number_value(value);
        if (!isfinite(n) || n < f->least || n > f->most)
                return fail_job(r, "%s is %g, which is not within %g to %g",
                                name_field(f, kernel, name), n, f->least, f->most);
        *ret = n;
        return 0;
}

/* Takes a text that people will see. */
static int take_text(const struct reading *r, const char *name, const json_t *value, char *ret,
                     size_t size)
{
        if (!json_is_string(value))
                return fail_job(r, "%s is no text", name);
        if (json_string_length(value) >= size)
                return fail_job(r, "%s has %zu bytes, and %zu are the most", name,
                                json_string_length(value), size - 1);
        if (!text_is_clean(json_string_value(value)))
                return fail_job(r, "%s contains a character that cannot be shown", name);
        (void)strcpy(ret, json_string_value(value));
        return 0;
}

static int take_section(const struct reading *r, const json_t *json, const struct field *f,
                        const json_t **ret)
{
        *ret = *f->section ? json_object_get(json, f->section) : json;
        if (*ret && !json_is_object(*ret))
                return fail_job(r, "%s is no object", f->section);
        return 0;
}

static int take_fields(const struct reading *r, const json_t *json, struct job *job)
{
        FOR_EACH_FIELD (f, fields) {
                const json_t *section, *value;
                char name[64];
                int e = take_section(r, json, f, &section);

                if (e < 0)
                        return e;
                value = json_object_get(section, f->name);
                if (!value)
                        continue;
                if (f->size)
                        e = take_text(r, name_field(f, -1, name), value, text_at(job, f), f->size);
                else
                        e = take_number(r, f, -1, value, number_at(job, f));
                if (e < 0)
                        return e;
        }
        return 0;
}

static int take_dimensions(const struct reading *r, const json_t *json, int kernel,
                           const char *name, double ret[static 3])
{
        const json_t *list = json_object_get(json, name);

        if (!list)
                return 0;
        if (json_array_size(list) != 3)
                return fail_job(r, "kernels[%d].%s is no list of three numbers", kernel, name);
        for (unsigned d = 0; d < 3; d++) {
                const struct field f = {"", name, 0, 0, 0, INT32_MAX};
                int e = take_number(r, &f, kernel, json_array_get(list, d), &ret[d]);

                if (e < 0)
                        return e;
        }
        return 0;
}

static int take_kernel(const struct reading *r, const json_t *json, int at, struct job_kernel *k)
{
        const json_t *name = json_object_get(json, "name");
        const json_t *graph = json_object_get(json, "graph");
        int e;

        job_kernel_init(k);
        if (!json_is_object(json))
                return fail_job(r, "kernels[%d] is no object", at);
        if (name && !json_is_string(name))
                return fail_job(r, "kernels[%d].name is no text", at);
        if (graph && !json_is_boolean(graph))
                return fail_job(r, "kernels[%d].graph is neither true nor false", at);
        k->graph = json_is_true(graph);
        /* Names of C++ may have thousands of bytes; the beginning is enough. */
        (void)text_copy(k->name, sizeof(k->name), name ? json_string_value(name) : "");
        e = take_dimensions(r, json, at, "grid", k->grid);
        if (e == 0)
                e = take_dimensions(r, json, at, "block", k->block);
        if (e < 0)
                return e;
        FOR_EACH_FIELD (f, kernel_fields) {
                const json_t *value = json_object_get(json, f->name);

                e = value ? take_number(r, f, at, value, number_at(k, f)) : 0;
                if (e < 0)
                        return e;
        }
        return 0;
}

static int take_kernels(const struct reading *r, const json_t *json, struct job *job)
{
        const json_t *list = json_object_get(json, "kernels");
        const size_t n = json_array_size(list);

        if (list && !json_is_array(list))
                return fail_job(r, "kernels is no list");
        if (n > JOB_KERNELS_MAX)
                return fail_job(r, "kernels has %zu entries, and %d are the most", n,
                                JOB_KERNELS_MAX);
        if (n == 0)
                return 0;
        job->kernels = calloc(n, sizeof(*job->kernels));
        if (!job->kernels)
                return -ENOMEM;
        job->n_kernels = n;
        for (size_t i = 0; i < n; i++) {
                int e = take_kernel(r, json_array_get(list, i), (int)i, &job->kernels[i]);

                if (e < 0)
                        return e;
        }
        return 0;
}

static int take_command(const struct reading *r, const json_t *json, struct job *job)
{
        const json_t *list = json_object_get(json, "command");
        const size_t n = json_array_size(list);

        if (!list)
                return 0;
        if (!json_is_array(list) || n > JOB_WORDS_MAX)
                return fail_job(r, "command is no list of at most %d words", JOB_WORDS_MAX);
        job->command = calloc(n + 1, sizeof(*job->command));
        if (!job->command)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                const json_t *word = json_array_get(list, i);

                if (!json_is_string(word))
                        return fail_job(r, "command[%zu] is no text", i);
                job->command[i] = strdup(json_string_value(word));
                if (!job->command[i])
                        return -ENOMEM;
        }
        return 0;
}

static int take_job(const struct reading *r, const json_t *json, struct job *job)
{
        const json_t *version = json_object_get(json, "sublet_job");
        int e;

        if (!json_is_integer(version))
                return fail_job(r,
                                "this is no job file: it has no sublet_job; sublet measure writes "
                                "job files");
        if (json_integer_value(version) != JOB_VERSION)
                return fail_job(r,
                                "the file has version %lld (sublet_job), and this sublet reads "
                                "version %d; measure the job again",
                                (long long)json_integer_value(version), JOB_VERSION);
        e = take_text(r, "name", json_object_get(json, "name"), job->name, sizeof(job->name));
        if (e == 0 && !*job->name)
                e = fail_job(r, "name is empty");
        if (e == 0)
                e = take_fields(r, json, job);
        if (e == 0)
                e = take_command(r, json, job);
        if (e == 0)
                e = take_kernels(r, json, job);
        return e;
}

int job_from_json(const json_t *json, const char *from, struct job *ret,
                  char error[static JOB_ERROR_MAX])
{
        const struct reading r = {from, error};
        struct job job;
        int e;

        job_init(&job);
        e = take_job(&r, json, &job);
        if (e == -ENOMEM)
                (void)fail_job(&r, "there is no memory for it");
        if (e < 0) {
                job_free(&job);
                return e;
        }
        *ret = job;
        return 0;
}

int job_decode(const char *text, size_t length, const char *from, struct job *ret,
               char error[static JOB_ERROR_MAX])
{
        const struct reading r = {from, error};
        json_error_t where;
        json_t *json;
        int e;

        if (length > JOB_FILE_MAX)
                return fail_job(&r, "a job file has at most %u bytes", JOB_FILE_MAX);
        json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
        if (!json) {
                char why[JSON_ERROR_TEXT_LENGTH];

                return fail_job(&r, "this is no JSON: %s (line %d)",
                                text_copy(why, sizeof(why), where.text), where.line);
        }
        e = job_from_json(json, from, ret, error);
        json_decref(json);
        return e;
}

int job_read(const char *path, struct job *ret, char error[static JOB_ERROR_MAX])
{
        const struct reading r = {path, error};
        _cleanup_fclose_ FILE *in = fopen(path, "re");
        _cleanup_free_ char *text = malloc(JOB_FILE_MAX + 1);
        size_t n;

        if (!in || !text) {
                const int e = in ? ENOMEM : errno;

                (void)fail_job(&r, "cannot read it: %s", strerror(e));
                return -e;
        }
        n = fread(text, 1, JOB_FILE_MAX + 1, in);
        if (ferror(in)) {
                const int e = errno ? errno : EIO; /* a folder can be opened, not read */

                (void)fail_job(&r, "cannot read it: %s", strerror(e));
                return -e;
        }
        return job_decode(text, n, path, ret, error);
}

/* ---- writing ---- */

/* Adds a number to an object, if it is known. Whole numbers are written as such. */
static int put_number(json_t *object, const char *name, double n)
{
        if (!isfinite(n))
                return 0;
        if (n == floor(n) && fabs(n) < 9e15)
                return json_object_set_new(object, name, json_integer((json_int_t)n));
        return json_object_set_new(object, name, json_real(n));
}

static json_t *list_of_three(const double n[static 3])
{
        return json_pack("[III]", (json_int_t)n[0], (json_int_t)n[1], (json_int_t)n[2]);
}

static json_t *kernel_to_json(const struct job_kernel *k)
{
        json_t *json = json_pack("{ss}", "name", k->name);
        int r = json ? 0 : -1;

        if (r == 0 && isfinite(k->grid[0] + k->grid[1] + k->grid[2]))
                r = json_object_set_new(json, "grid", list_of_three(k->grid));
        if (r == 0 && isfinite(k->block[0] + k->block[1] + k->block[2]))
                r = json_object_set_new(json, "block", list_of_three(k->block));
        FOR_EACH_FIELD (f, kernel_fields)
                if (r == 0)
                        r = put_number(json, f->name, *number_at((void *)k, f));
        if (r == 0)
                r = json_object_set_new(json, "graph", json_boolean(k->graph));
        if (r == 0)
                return json;
        json_decref(json);
        return NULL;
}

/* Returns the object in json that the field belongs to, which is made if need be; NULL: no memory.
 */
static json_t *section_of(json_t *json, const struct field *f)
{
        json_t *section = *f->section ? json_object_get(json, f->section) : json;

        if (section)
                return section;
        section = json_object();
        return json_object_set_new(json, f->section, section) == 0 ? section : NULL;
}

static int put_field(json_t *json, const struct job *job, const struct field *f)
{
        void *base = (void *)job;
        json_t *section;

        if (f->size ? !*text_at(base, f) : !isfinite(*number_at(base, f)))
                return 0;
        section = section_of(json, f);
        if (!section)
                return -1;
        if (f->size)
                return json_object_set_new(section, f->name, json_string(text_at(base, f)));
        return put_number(section, f->name, *number_at(base, f));
}

/* Words of a command may be any bytes; those that are not UTF-8 are shown as '?'. */
static int put_command(json_t *json, const struct job *job)
{
        json_t *list = json_array();
        int r = json_object_set_new(json, "command", list);

        for (char **word = job->command; r == 0 && *word; word++) {
                json_t *text = json_string(*word);
                _cleanup_free_ char *clean = text ? NULL : malloc(strlen(*word) + 1);

                if (clean)
                        text = json_string(text_copy(clean, strlen(*word) + 1, *word));
                r = json_array_append_new(list, text);
        }
        return r;
}

json_t *job_to_json(const struct job *job)
{
        json_t *json = json_pack("{siss}", "sublet_job", JOB_VERSION, "name", job->name);
        json_t *kernels;
        int r = json ? 0 : -1;

        if (r == 0 && job->command)
                r = put_command(json, job);
        FOR_EACH_FIELD (f, fields)
                if (r == 0 && *f->section)
                        r = put_field(json, job, f);
        if (r == 0) {
                kernels = json_array();
                r = json_object_set_new(json, "kernels", kernels);
                for (size_t i = 0; r == 0 && i < job->n_kernels; i++)
                        r = json_array_append_new(kernels, kernel_to_json(&job->kernels[i]));
        }
        if (r == 0)
                r = put_number(json, "other_share", job->other_share);
        if (r == 0)
                return json;
        json_decref(json);
        return NULL;
}

int job_write(const struct job *job, FILE *out)
{
        json_t *json = job_to_json(job);
        int r;

        if (!json)
                return -ENOMEM;
        errno = 0;
        r = json_dumpf(json, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
        if (r < 0 || putc('\n', out) == EOF || fflush(out) != 0)
                r = errno ? -errno : -EIO;
        json_decref(json);
        return r;
}
