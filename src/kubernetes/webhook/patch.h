/* patch.h: a JSON patch (RFC 6902) that grows, and sentences for the person who asked.
 *
 * Values are shared with the caller: a patch takes a reference of its own. A patch for which there
 * was no memory is marked, and must not be sent. Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

/* The API server cuts longer sentences, and drops those past 4096 bytes in all. */
#define PATCH_SENTENCE_MAX  256
#define PATCH_SENTENCES_MAX 12

struct patch {
        json_t *operations, *sentences;
        bool failed;
};

/* 0 or -ENOMEM. */
int patch_open(struct patch *p);
void patch_close(struct patch *p);

/* The names on the way to a value, for patch_operation(), which escapes them. */
#define PATCH_PATH(...) ((const char *const[]){__VA_ARGS__, NULL})

/* value NULL: the operation has none. */
void patch_operation(struct patch *p, const char *operation, json_t *value,
                     const char *const *path);
/* Adds a sentence unless it is there already. Replaces characters that a terminal would obey. */
void patch_say(struct patch *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
