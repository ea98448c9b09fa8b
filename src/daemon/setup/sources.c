/* sources.c: owns which files a daemon reads, and in which order. Must never read, for a daemon of
 * many users, a file that one of them may have written; nor, for any daemon, a file of conf.d that
 * another user may have written. */
#include "daemon/setup/sources.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/daemon_paths.h"
#include "base/xdg.h"
#include "daemon/setup/resource_file.h"

#define SUFFIX       ".conf"
#define USER_FILE    "sublet/subletd.conf"
#define DROP_INS     ".d"
#define PATH_MAX_TMP (CONFIG_PATH_MAX + sizeof(DROP_INS) + 257) /* a slash and a file name */

/* ---- the choice of the file ---- */

/* Finds the user's folder of configurations. After `su` the variables may name another user's
 * folder: then none is found. */
static int user_folder(char ret[static CONFIG_PATH_MAX])
{
        struct stat st;
        const int r = xdg_folder(XDG_CONFIG, ret, CONFIG_PATH_MAX);

        if (r < 0)
                return r;
        return stat(ret, &st) == 0 && st.st_uid == geteuid() ? 0 : -ENOENT;
}

int sources_absolute(const char *name, char ret[static CONFIG_PATH_MAX])
{
        _cleanup_free_ char *here = name[0] == '/' || !name[0] ? NULL : getcwd(NULL, 0);
        int n = here ? snprintf(ret, CONFIG_PATH_MAX, "%s/%s", here, name)
                     : snprintf(ret, CONFIG_PATH_MAX, "%s", name);

        return n < CONFIG_PATH_MAX ? 0 : -ENAMETOOLONG;
}

int sources_choose(struct sources *s, const char *named, enum sources_of whose,
                   char error[static CONFIG_ERROR_MAX])
{
        char folder[CONFIG_PATH_MAX];
        int r = 0;

        s->file[0] = '\0';
        s->named = named != NULL;
        if (named)
                r = sources_absolute(named, s->file);
        else if (whose == SOURCES_SYSTEM)
                (void)strcpy(s->file, SOURCES_SYSTEM_FILE);
        else if (whose == SOURCES_USER && user_folder(folder) == 0)
                r = snprintf(s->file, sizeof(s->file), "%s/%s", folder, USER_FILE) <
                                    (int)sizeof(s->file)
                            ? 0
                            : -ENAMETOOLONG;
        if (r < 0)
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.300s: the name is too long",
                               named ? named : folder);
        return r;
}

int sources_in(struct sources *s, const char *dir, bool system)
{
        int r = sources_absolute(dir, s->dir);

        if (r == 0)
                last_good_open(&s->kept, s->dir, s->file, system);
        return r;
}

int sources_override(struct sources *s, const char *key, const char *value,
                     char error[static CONFIG_ERROR_MAX])
{
        struct source_override *bigger;
        struct config scratch;
        int r;

        config_default(&scratch);
        r = config_set(&scratch, key, value, error);
        config_free(&scratch);
        if (r < 0)
                return r;
        bigger = realloc(s->overrides, (s->n_overrides + 1) * sizeof(*bigger));
        if (!bigger)
                return -ENOMEM;
        s->overrides = bigger;
        s->overrides[s->n_overrides++] = (struct source_override){key, value};
        return 0;
}

/* ---- the files ---- */

static int is_drop_in(const struct dirent *e)
{
        size_t n = strlen(e->d_name);

        return e->d_name[0] != '.' && n > strlen(SUFFIX) &&
               strcmp(e->d_name + n - strlen(SUFFIX), SUFFIX) == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
        return strcmp((*a)->d_name, (*b)->d_name);
}

static int read_folder(const char *folder, bool guarded, struct texts *t,
                       char error[static CONFIG_ERROR_MAX])
{
        char path[PATH_MAX_TMP];
        struct dirent **found = NULL;
        int n, r = 0;

        n = scandir(folder, &found, is_drop_in, by_name);
        if (n < 0)
                return errno == ENOENT ? 0 : texts_refuse(folder, -errno, NULL, error);
        for (int i = 0; i < n; i++) {
                if (r == 0) {
                        (void)snprintf(path, sizeof(path), "%s/%s", folder, found[i]->d_name);
                        r = texts_read(t, TEXT_SETTINGS, path, guarded, error);
                        if (r == -EISDIR) /* a folder, or a link to /dev/null */
                                r = 0;
                }
                free(found[i]);
        }
        free(found);
        return r;
}

/* Reads the files of the daemon's owner. */
static int read_owners(const struct sources *s, struct texts *t,
                       char error[static CONFIG_ERROR_MAX])
{
        char folder[CONFIG_PATH_MAX + sizeof(DROP_INS)];
        struct stat st;
        int r;

        if (!s->file[0] && !s->named)
                return 0;
        r = texts_read(t, TEXT_SETTINGS, s->file, s->shared, error);
        /* A link to nothing is an error, because the owner has put it there. */
        if (r == -ENOENT && lstat(s->file, &st) == 0)
                return texts_refuse(s->file, r, "a link to a file that is not there", error);
        if (r < 0 && (r != -ENOENT || s->named))
                return r;
        (void)snprintf(folder, sizeof(folder), "%s%s", s->file, DROP_INS);
        return read_folder(folder, s->shared, t, error);
}

/* Reads what programs wrote into conf.d. The directory of a private daemon may be one in /tmp that
 * another user has made before. So its owner is checked in any case. */
static int read_programs(const struct sources *s, struct texts *t,
                         char error[static CONFIG_ERROR_MAX])
{
        char folder[CONFIG_PATH_MAX + sizeof("/" PATHS_CONFIG)];
        struct stat st;

        if (!s->dir[0])
                return 0;
        (void)snprintf(folder, sizeof(folder), "%s/" PATHS_CONFIG, s->dir);
        if (lstat(folder, &st) < 0)
                return errno == ENOENT || errno == ENOTDIR
                               ? 0
                               : texts_refuse(folder, -errno, NULL, error);
        if (!S_ISDIR(st.st_mode))
                return texts_refuse(folder, -ENOTDIR, NULL, error);
        if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022))
                return texts_refuse(
                        folder, -EPERM,
                        "other users may write it: only root's and the daemon's own user's "
                        "folder counts (chown root, chmod go-w)",
                        error);
        return read_folder(folder, true, t, error);
}

/* ---- their meaning ---- */

/* Programs read `require` themselves, in the machine's file alone, and obey it only if nobody but
 * root may write that file. A key that programs would not obey is an error. */
static int check_require(const struct sources *s, bool of_file, const struct config *c,
                         char error[static CONFIG_ERROR_MAX])
{
        struct stat st;

        if (c->require != of_file || (c->require && strcmp(s->file, SOURCES_SYSTEM_FILE) != 0))
                return texts_refuse("require", -EINVAL,
                                    "programs read this key in " SOURCES_SYSTEM_FILE
                                    " alone, so it must stand there",
                                    error);
        if (!c->require)
                return 0;
        if (stat(s->file, &st) < 0)
                return texts_refuse(s->file, -errno, NULL, error);
        if (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH | S_IROTH)) != S_IROTH)
                return texts_refuse(
                        s->file, -EPERM,
                        "programs obey the key require only if they can read the file, and "
                        "only root may write it (chown root, chmod go-w,go+r)",
                        error);
        return 0;
}

static int take_text(struct config *c, const struct text *t, char error[static CONFIG_ERROR_MAX])
{
        _cleanup_fclose_ FILE *file = t->n > 0 ? fmemopen(t->bytes, t->n, "r") : NULL;

        if (t->n == 0 && t->form == TEXT_SETTINGS)
                return 0;
        if (!file)
                file = fopen("/dev/null", "re");
        if (!file)
                return texts_refuse(t->name, -errno, NULL, error);
        return t->form == TEXT_SETTINGS ? config_read(c, file, t->name, error)
                                        : resource_file_read(&c->classes, file, t->name, error);
}

static int take_settings(struct config *c, const struct sources *s, const struct texts *t,
                         bool *ret_require, char error[static CONFIG_ERROR_MAX])
{
        int r = 0;

        for (size_t i = 0; i < t->n && r == 0; i++) {
                if (t->list[i].form != TEXT_SETTINGS)
                        continue;
                r = take_text(c, &t->list[i], error);
                if (strcmp(t->list[i].name, s->file) == 0)
                        *ret_require = c->require;
        }
        return r;
}

/* Reads the resource file, unless it is among the texts. */
static int take_resources(const struct sources *s, struct config *c, struct texts *owners,
                          char error[static CONFIG_ERROR_MAX])
{
        const char *name = c->resource_config;
        int r = 0;

        if (!name[0])
                return 0;
        if (!texts_find(owners, TEXT_RESOURCES, name))
                r = texts_read(owners, TEXT_RESOURCES, name, s->shared, error);
        return r < 0 ? r : take_text(c, texts_find(owners, TEXT_RESOURCES, name), error);
}

static int take_all(const struct sources *s, struct texts *owners, const struct texts *programs,
                    struct config *c, char error[static CONFIG_ERROR_MAX])
{
        bool require = false;
        const char *last;
        int r;

        r = take_settings(c, s, owners, &require, error);
        if (r == 0)
                r = take_settings(c, s, programs, &require, error);
        for (size_t i = 0; i < s->n_overrides && r == 0; i++)
                r = config_set(c, s->overrides[i].key, s->overrides[i].value, error);
        /* Not for the last good files: programs read the present file in any case. */
        if (r == 0 && owners != &s->good)
                r = check_require(s, require, c, error);
        last = c->classes.n_files ? c->classes.files[c->classes.n_files - 1] : "the command line";
        if (r == 0)
                r = take_resources(s, c, owners, error);
        return r < 0 ? r : config_check(c, s->shared, last, error);
}

/* Makes a configuration of the texts, for config_free(). 0; or -errno with a sentence, and *ret is
 * unchanged. */
static int make(const struct sources *s, struct texts *owners, const struct texts *programs,
                struct config *ret, char error[static CONFIG_ERROR_MAX])
{
        struct config c;
        int r;

        config_default(&c);
        r = take_all(s, owners, programs, &c, error);
        if (r < 0)
                config_free(&c);
        else
                *ret = c;
        return r;
}

/* ---- reading ---- */

/* True if what programs wrote would be good without any file of the owner. */
static bool are_good(const struct sources *s, const struct texts *programs)
{
        _cleanup_texts_ struct texts none = {0};
        char error[CONFIG_ERROR_MAX];
        struct config c;

        if (make(s, &none, programs, &c, error) < 0)
                return false;
        config_free(&c);
        return true;
}

/* Finds the owner's files that were accepted last. */
static void recall(struct sources *s)
{
        char error[CONFIG_ERROR_MAX];
        int r;

        if (s->good_known)
                return;
        r = last_good_read(&s->kept, &s->good, error);
        s->good_known = r == 0;
        if (r < 0 && r != -ENOENT)
                log_warning("the last good configuration is not used: %s", error);
}

int sources_read(struct sources *s, struct config *ret)
{
        _cleanup_texts_ struct texts owners = {0}, programs = {0};
        char again[CONFIG_ERROR_MAX];
        bool read;
        int r;

        r = read_programs(s, &programs, s->error);
        read = r == 0;
        if (r == 0)
                r = read_owners(s, &owners, s->error);
        if (r == 0)
                r = make(s, &owners, &programs, ret, s->error);
        if (r == 0) {
                texts_free(&s->good);
                s->good = owners;
                owners = (struct texts){0};
                s->good_known = s->programs_good = true;
                s->found = SOURCES_GOOD;
                s->error[0] = '\0';
                return 0;
        }
        s->programs_good = read && are_good(s, &programs);
        recall(s);
        if (read && s->good_known && make(s, &s->good, &programs, ret, again) == 0)
                r = 1;
        if (r == 1 || s->found != SOURCES_NOTHING)
                s->found = SOURCES_LAST_GOOD;
        return r;
}

void sources_read_first(struct sources *s, struct config *ret)
{
        s->found = SOURCES_NOTHING;
        if (sources_read(s, ret) < 0)
                config_default(ret);
}

void sources_refuse(struct sources *s, const char *error)
{
        (void)snprintf(s->error, sizeof(s->error), "%s", error);
        s->found = SOURCES_LAST_GOOD;
}

void sources_keep(struct sources *s)
{
        if (s->found == SOURCES_GOOD)
                last_good_write(&s->kept, &s->good);
}

void sources_forget(struct sources *s)
{
        texts_free(&s->good);
        s->good_known = false;
}
