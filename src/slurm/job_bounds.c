/* job_bounds.c: owns the keys of the administrator's file, and what a job gets of its wishes. Must
 * never give a job more than the file allows, or than the defaults if the file cannot be read. */
#include "slurm/job_bounds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ini.h>

#include "base/cleanup.h"
#include "base/ini_lines.h"
#include "base/macros.h"
#include "base/shares.h"
#include "base/units.h"

#define ACCOUNT_SECTION "account "
#define ACCOUNTS_MAX    4096u
#define SECTION_CUT     49u /* libinih cuts longer names of sections to this length */

struct bounds_section {
        char *account; /* NULL: [default] */
        unsigned set;  /* bit 1 << row of bounds_keys */
        struct bounds values;
};

static const struct bounds defaults = {.maximum = SHARES_ALL, .weight_most = SHARES_ALL};

/* ---- the keys ---- */

static int parse_minimum(struct bounds *b, const char *text)
{
        return shares_parse_percent(text, 0, SHARES_MINIMA_MAX, &b->minimum_most);
}

static int parse_maximum(struct bounds *b, const char *text)
{
        return shares_parse_percent(text, SHARES_MAXIMUM_MIN, SHARES_ALL, &b->maximum);
}

static int parse_weight(struct bounds *b, const char *text)
{
        return shares_parse_weight(text, &b->weight_most);
}

static int parse_cap(struct bounds *b, const char *text)
{
        if (strcmp(text, "none") == 0) {
                b->memory_cap_most = 0;
                return 0;
        }
        return units_parse_size(text, &b->memory_cap_most) == 0 && b->memory_cap_most > 0 ? 0
                                                                                          : -EINVAL;
}

static int parse_priority(struct bounds *b, const char *text)
{
        return shares_parse_priority(text, &b->priority_most);
}

static int parse_always(struct bounds *b, const char *text)
{
        b->always = strcmp(text, "yes") == 0;
        return b->always || strcmp(text, "no") == 0 ? 0 : -EINVAL;
}

static const struct {
        const char *name, *form;
        int (*parse)(struct bounds *b, const char *text);
        size_t offset, size;
} bounds_keys[] = {
#define AT(member) offsetof(struct bounds, member), sizeof(((struct bounds *)0)->member)
        {"minimum_most", "a percentage from 0% to 95%", parse_minimum, AT(minimum_most)},
        {"maximum", "a percentage from 1% to 100%", parse_maximum, AT(maximum)},
        {"weight_most", "a number from 0.01 to 100", parse_weight, AT(weight_most)},
        {"memory_cap_most", "a size such as 20GiB, or none", parse_cap, AT(memory_cap_most)},
        {"priority_most", "a number from -20 to 20", parse_priority, AT(priority_most)},
        {"always", "yes or no", parse_always, AT(always)},
#undef AT
};

/* ---- the file ---- */

struct reading {
        struct bounds_file *f;
        struct ini_lines lines;
        int error_line;
        char error[BOUNDS_ERROR_MAX];
};

static int fail_bound(struct reading *r, const char *what, const char *text, const char *form)
{
        r->error_line = r->lines.number;
        (void)snprintf(r->error, sizeof(r->error), "%s \"%.100s\": write %s", what, text, form);
        return 0;
}

static int fail_line(struct reading *r, const char *problem)
{
        r->error_line = r->lines.number;
        (void)snprintf(r->error, sizeof(r->error), "%s", problem);
        return 0;
}

/* Slurm writes all accounts in small letters. */
static struct bounds_section *find(const struct bounds_file *f, const char *account)
{
        for (unsigned i = 1; i <= f->n_accounts; i++)
                if (strcasecmp(f->sections[i].account, account) == 0)
                        return &f->sections[i];
        return NULL;
}

static struct bounds_section *section_of(struct bounds_file *f, const char *account)
{
        struct bounds_section *bigger = find(f, account);

        if (bigger)
                return bigger;
        bigger = f->n_accounts < ACCOUNTS_MAX
                         ? realloc(f->sections, (f->n_accounts + 2) * sizeof(*bigger))
                         : NULL;
        if (!bigger)
                return NULL;
        f->sections = bigger;
        bigger += f->n_accounts + 1;
        *bigger = (struct bounds_section){.account = strdup(account)};
        if (!bigger->account)
                return NULL;
        f->n_accounts++;
        return bigger;
}

static int on_failure(struct reading *r, const char *key, const char *value)
{
        if (strcmp(key, "on_failure") != 0)
                return fail_bound(r, "unknown key", key, "on_failure under [plugin]");
        r->f->refuse = strcmp(value, "refuse") == 0;
        return r->f->refuse || strcmp(value, "run") == 0
                       ? 1
                       : fail_bound(r, "malformed on_failure", value, "run or refuse");
}

/* Returns the section of the file; NULL: the name is refused. */
static struct bounds_section *begin_section(struct reading *r, const char *section)
{
        const char *account = section + strlen(ACCOUNT_SECTION);
        struct bounds_section *s = r->f->sections;

        if (strcmp(section, "default") == 0)
                return s;
        if (strncmp(section, ACCOUNT_SECTION, strlen(ACCOUNT_SECTION)) != 0)
                (void)fail_bound(r, "unknown section", section,
                                 "[plugin], [default] or [account NAME]");
        else if (!account[0] || strpbrk(account, " \t") || strlen(section) >= SECTION_CUT)
                (void)fail_bound(r, "malformed section", section,
                                 "[account NAME], with a name of up to 40 characters and no blank");
        else
                s = section_of(r->f, account);
        if (!s)
                (void)fail_bound(r, "one account too many", section, "fewer");
        return r->error_line ? NULL : s;
}

static int on_pair(void *user, const char *section, const char *key, const char *value)
{
        struct reading *r = user;
        struct bounds_section *s;
        const char *problem = ini_lines_problem(&r->lines, value, false);

        if (r->error_line)
                return 0;
        if (problem)
                return fail_line(r, problem);
        if (strcmp(section, "plugin") == 0)
                return on_failure(r, key, value);
        s = begin_section(r, section);
        if (!s)
                return 0;
        for (size_t i = 0; i < ARRAY_SIZE(bounds_keys); i++) {
                if (strcmp(key, bounds_keys[i].name) != 0)
                        continue;
                s->set |= 1u << i;
                return bounds_keys[i].parse(&s->values, value) == 0
                               ? 1
                               : fail_bound(r, bounds_keys[i].name, value, bounds_keys[i].form);
        }
        return fail_bound(
                r, "unknown key", key,
                "minimum_most, maximum, weight_most, memory_cap_most, priority_most or always");
}

static int empty(struct bounds_file *f)
{
        bounds_free(f);
        f->sections = calloc(1, sizeof(*f->sections));
        return f->sections ? 0 : -ENOMEM;
}

/* Opens the file if only root, or the user that runs this, can have written it. */
static int open_file(const char *path, FILE **ret, const char **ret_why)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        *ret_why = !S_ISREG(st.st_mode)                       ? "not a regular file"
                   : st.st_uid != 0 && st.st_uid != geteuid() ? "root must own it"
                   : st.st_mode & (S_IWOTH | S_IWGRP)         ? "only its owner may write it"
                                                              : NULL;
        if (*ret_why)
                return -EPERM;
        *ret = fdopen(fd, "r");
        if (!*ret)
                return -errno;
        (void)TAKE_FD(fd);
        return 0;
}

int bounds_read(const char *path, struct bounds_file *ret, char error[static BOUNDS_ERROR_MAX])
{
        _cleanup_fclose_ FILE *file = NULL;
        const char *why = NULL;
        struct reading r = {.f = ret};
        int bad;

        *ret = (struct bounds_file){0};
        bad = empty(ret);
        if (bad == 0)
                bad = open_file(path, &file, &why);
        if (bad == -ENOENT)
                return 0;
        if (bad < 0) {
                (void)snprintf(error, BOUNDS_ERROR_MAX, "%.200s: %s", path,
                               why ? why : strerror(-bad));
                return bad;
        }
        r.lines.file = file;
        bad = ini_parse_stream(ini_lines_read, &r.lines, on_pair, &r);
        if (r.lines.too_long && !r.error_line)
                (void)fail_line(&r, INI_LINES_TOO_LONG);
        if (bad == 0 && !r.error_line && !ferror(file))
                return 0;
        if (r.error_line)
                (void)snprintf(error, BOUNDS_ERROR_MAX, "%.200s:%d: %.250s", path, r.error_line,
                               r.error);
        else if (ferror(file))
                (void)snprintf(error, BOUNDS_ERROR_MAX, "%.200s: cannot be read", path);
        else
                (void)snprintf(error, BOUNDS_ERROR_MAX,
                               "%.200s:%d: neither a line \"key = value\" nor \"[section]\"", path,
                               MAX(bad, 1));
        (void)empty(ret);
        return -EINVAL;
}

void bounds_free(struct bounds_file *f)
{
        for (unsigned i = 1; i <= f->n_accounts; i++)
                free(f->sections[i].account);
        free(f->sections);
        *f = (struct bounds_file){0};
}

static void overlay(struct bounds *b, const struct bounds_section *s)
{
        for (size_t i = 0; i < ARRAY_SIZE(bounds_keys); i++)
                if (s->set & 1u << i)
                        memcpy((char *)b + bounds_keys[i].offset,
                               (const char *)&s->values + bounds_keys[i].offset,
                               bounds_keys[i].size);
}

struct bounds bounds_of(const struct bounds_file *f, const char *account)
{
        const struct bounds_section *own = account ? find(f, account) : NULL;
        struct bounds b = defaults;

        if (f->sections)
                overlay(&b, &f->sections[0]);
        if (own)
                overlay(&b, own);
        return b;
}

bool bounds_any_always(const struct bounds_file *f)
{
        for (unsigned i = 0; f->sections && i <= f->n_accounts; i++)
                if (f->sections[i].values.always)
                        return true;
        return false;
}

/* ---- what a job gets ---- */

static void note(char less[static BOUNDS_ERROR_MAX], const char *format, ...)
        __attribute__((format(printf, 2, 3)));

static void note(char less[static BOUNDS_ERROR_MAX], const char *format, ...)
{
        size_t used = strlen(less);
        va_list args;

        if (used > 0)
                used += (size_t)snprintf(less + used, BOUNDS_ERROR_MAX - used, ", ");
        va_start(args, format);
        (void)vsnprintf(less + used, BOUNDS_ERROR_MAX - used, format, args);
        va_end(args);
}

static void note_percent(char less[static BOUNDS_ERROR_MAX], const char *what, unsigned gets,
                         unsigned asked)
{
        char got[SHARES_TEXT_MAX], wanted[SHARES_TEXT_MAX];

        note(less, "a %s of %s instead of %s", what, shares_format_percent(gets, got),
             shares_format_percent(asked, wanted));
}

struct granted bounds_grant(const struct bounds *b, const struct wishes *w,
                            char less[static BOUNDS_ERROR_MAX])
{
        struct granted g = {
                .maximum = MIN(w->maximum ? MAX(w->maximum, SHARES_MAXIMUM_MIN) : b->maximum,
                               b->maximum),
                .weight = MIN(w->weight ? w->weight : SHARES_ALL, b->weight_most),
                .cap = w->cap ? w->cap : b->memory_cap_most,
                .priority = MIN(w->priority, b->priority_most),
                .priority_most = b->priority_most,
        };
        char size[UNITS_TEXT_MAX], asked[UNITS_TEXT_MAX];

        less[0] = '\0';
        g.minimum = MIN(MIN(w->minimum, b->minimum_most), g.maximum);
        if (b->memory_cap_most)
                g.cap = MIN(g.cap, b->memory_cap_most);
        if (g.minimum < w->minimum)
                note_percent(less, "minimum", g.minimum, w->minimum);
        /* A share without a maximum reads as a maximum of 1000. */
        if (g.maximum < w->maximum && w->maximum < SHARES_ALL)
                note_percent(less, "maximum", g.maximum, w->maximum);
        if (g.weight < w->weight)
                note(less, "a weight of %s instead of %s", shares_format(g.weight, size),
                     shares_format(w->weight, asked));
        if (g.cap < w->cap)
                note(less, "a memory cap of %s instead of %s", units_format_size(g.cap, size),
                     units_format_size(w->cap, asked));
        if (w->has_priority && g.priority < w->priority)
                note(less, "priority %d instead of %d", g.priority, w->priority);
        return g;
}
