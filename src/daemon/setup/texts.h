/* texts.h: the contents of configuration files, with their names, so that what was read once can be
 * kept and read again. Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "daemon/setup/values.h"

#define TEXTS_FILE_MAX (16u << 20) /* bytes of one file */

enum text_form { TEXT_SETTINGS, TEXT_RESOURCES }; /* config.h, resource_file.h */

struct texts {
        struct text {
                enum text_form form;
                char *name, *bytes;
                size_t n;
        } * list;
        size_t n;
};

void texts_free(struct texts *t);
/* Writes "PATH: WHY" and returns r, which is -errno. why NULL: strerror(). Inline, so that lint's
 * analyzer knows what it returns. */
static inline int texts_refuse(const char *path, int r, const char *why,
                               char error[static CONFIG_ERROR_MAX])
{
        (void)snprintf(error, CONFIG_ERROR_MAX, "%.300s: %s", *path ? path : "''",
                       why ? why : strerror(-r));
        return r;
}

/* Appends a file to the list. guarded: refuse a file that belongs to a user other than root and
 * the daemon's own, or that every user may write. 0; or, with a sentence that names the file,
 * -ENOENT, -EISDIR (no regular file) or another -errno. */
int texts_read(struct texts *t, enum text_form form, const char *path, bool guarded,
               char error[static CONFIG_ERROR_MAX]);
/* Returns the text of this form and name; NULL: there is none. */
const struct text *texts_find(const struct texts *t, enum text_form form, const char *name);

/* Writes all texts as one, which texts_unpack() reads. NULL: no memory. */
char *texts_pack(const struct texts *t, size_t *ret_n);
/* Reads what texts_pack() wrote. 0; -EBADMSG: these bytes were not packed, or not all of them are
 * there; -ENOMEM. */
int texts_unpack(const char *bytes, size_t n, struct texts *ret);

#define _cleanup_texts_ __attribute__((cleanup(texts_free)))
