/* sift.h: cuts JSON that comes in pieces into objects, without the members that nobody reads. So a
 * list of large objects takes the memory of one small object. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#define SIFT_KEPT_MAX (1u << 20) /* bytes of one object, after members were left out */

/* Where the objects are. */
enum sift_where { SIFT_STREAM, SIFT_LIST /* in an array that is a member of one object */ };

struct sift_told {
        /* An object is complete. If it returns false, reading ends; left_out() does the same. */
        bool (*one)(const json_t *one, void *userdata);
        /* An object is too large, or jansson refuses it. text: how it begins. */
        bool (*left_out)(const char *text, const char *reason, void *userdata);
};

struct sift;

/* Each list names the members that are kept at any depth, and ends with NULL; "x/" keeps x with all
 * that is in it. The lists outlive the sift. NULL: no memory. */
struct sift *sift_new(const char *const *frame_fields, const char *const *fields,
                      const struct sift_told *told, void *userdata);
void sift_free(struct sift *s);

/* Forgets all that was read. */
void sift_begin(struct sift *s, enum sift_where where);
/* Returns false if the bytes are no JSON of this form, or a callback has ended the reading. Later
 * bytes are ignored. */
bool sift_feed(struct sift *s, const char *bytes, size_t n);
/* Returns the object around a list, without the list's objects; the caller frees it. NULL: the JSON
 * was not complete. */
json_t *sift_rest(const struct sift *s);
