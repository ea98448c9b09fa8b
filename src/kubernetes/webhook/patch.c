/* patch.c: owns how operations and their paths are written. Must never change a value that it is
 * given. */
#include "kubernetes/webhook/patch.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

int patch_open(struct patch *p)
{
        p->failed = false;
        p->operations = json_array();
        p->sentences = json_array();
        if (p->operations && p->sentences)
                return 0;
        patch_close(p);
        return -ENOMEM;
}

void patch_close(struct patch *p)
{
        json_decref(p->operations);
        json_decref(p->sentences);
        p->operations = p->sentences = NULL;
}

/* Writes "/NAME", with the two characters escaped that have a meaning there (RFC 6901). */
static void write_name(FILE *f, const char *name)
{
        (void)fputc('/', f);
        for (; *name; name++) {
                if (*name == '~')
                        (void)fputs("~0", f);
                else if (*name == '/')
                        (void)fputs("~1", f);
                else
                        (void)fputc(*name, f);
        }
}

void patch_operation(struct patch *p, const char *operation, json_t *value, const char *const *path)
{
        _cleanup_free_ char *pointer = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&pointer, &size);
        json_t *made = NULL;

        if (f) {
                for (; *path; path++)
                        write_name(f, *path);
                if (fclose(f) == 0)
                        made = json_pack("{s:s, s:s, s:O*}", "op", operation, "path", pointer,
                                         "value", value);
        }
        if (!made || json_array_append_new(p->operations, made) < 0)
                p->failed = true;
}

void patch_say(struct patch *p, const char *format, ...)
{
        char text[2 * PATCH_SENTENCE_MAX], clean[PATCH_SENTENCE_MAX];
        va_list args;
        json_t *said;
        size_t i;

        va_start(args, format);
        (void)vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        (void)text_copy(clean, sizeof(clean), text);
        json_array_foreach (p->sentences, i, said)
                if (strcmp(json_string_value(said), clean) == 0)
                        return;
        if (i < PATCH_SENTENCES_MAX && json_array_append_new(p->sentences, json_string(clean)) < 0)
                p->failed = true;
}
