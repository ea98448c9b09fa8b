/* fuzz_sift.c: any bytes as the answer of an API server, in any pieces, lead to the same objects,
 * which have no other members than those that are read. Those of a whole document are what jansson
 * makes of it. */
#include "fuzz.h"

#include <string.h>

#include "base/macros.h"
#include "kubernetes/api/sift.h"

#define DEPTH_MAX 30u /* a document that is deeper is compared with nothing */

static const char *const frame_fields[] = {"items", "metadata", "type", NULL};
static const char *const fields[] = {"spec", "annotations/", NULL};

static bool is_read(const char *key, bool *ret_whole)
{
        static const char *const *const lists[] = {frame_fields, fields};

        for (size_t l = 0; l < ARRAY_SIZE(lists); l++)
                for (const char *const *f = lists[l]; *f; f++) {
                        const size_t n = strcspn(*f, "/");

                        if (strlen(key) == n && memcmp(*f, key, n) == 0) {
                                *ret_whole = (*f)[n] == '/';
                                return true;
                        }
                }
        return false;
}

/* Leaves what is read of a value. */
static void leave(json_t *value, unsigned depth)
{
        const char *key;
        json_t *member;
        void *next;
        size_t i;

        FUZZ_CHECK(depth <= DEPTH_MAX);
        json_array_foreach (value, i, member)
                leave(member, depth + 1);
        json_object_foreach_safe(value, next, key, member)
        {
                bool whole = false;

                if (!is_read(key, &whole))
                        (void)json_object_del(value, key);
                else if (!whole)
                        leave(member, depth + 1);
        }
}

/* Takes the objects that are told out of a document, in their order. */
static json_t *take_told(json_t *document)
{
        json_t *told = json_array(), *list;
        const char *key;

        json_object_foreach (document, key, list) {
                bool whole = false;

                (void)is_read(key, &whole);
                for (size_t i = 0; i < json_array_size(list);) {
                        json_t *one = json_array_get(list, i);

                        if (!json_is_object(one)) {
                                i++;
                                continue;
                        }
                        (void)json_array_append(told, one);
                        (void)json_array_remove(list, i);
                }
        }
        return told;
}

static bool on_one(const json_t *one, void *told)
{
        return json_array_append_new(told, json_deep_copy(one)) == 0;
}

static bool on_left_out(const char *text, const char *reason, void *told)
{
        FUZZ_CHECK(text && reason);
        return json_array_append_new(told, json_null()) == 0;
}

struct seen {
        bool good;
        json_t *told, *rest;
};

static struct seen sift(const char *text, size_t size, size_t piece, enum sift_where where)
{
        static const struct sift_told callbacks = {.one = on_one, .left_out = on_left_out};
        struct seen seen = {.good = true, .told = json_array()};
        struct sift *s = sift_new(frame_fields, fields, &callbacks, seen.told);

        FUZZ_CHECK(s);
        sift_begin(s, where);
        for (size_t i = 0; i < size; i += piece)
                seen.good = sift_feed(s, text + i, MIN(piece, size - i));
        seen.rest = sift_rest(s);
        sift_free(s);
        return seen;
}

static void end(struct seen *seen)
{
        json_decref(seen->told);
        json_decref(seen->rest);
}

static bool same(const json_t *one, const json_t *other)
{
        return one == other || json_equal(one, other);
}

static unsigned depth_of(const char *text, size_t size)
{
        unsigned depth = 0;

        for (size_t i = 0; i < size; i++)
                depth += text[i] == '{' || text[i] == '[';
        return depth;
}

/* A document without escapes, because keys are compared as they are written. */
static void compare_with_jansson(const char *text, size_t size, enum sift_where where)
{
        json_t *document = memchr(text, '\\', size) || depth_of(text, size) > DEPTH_MAX
                                   ? NULL
                                   : json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
        struct seen seen;
        json_t *told;

        if (!json_is_object(document)) {
                json_decref(document);
                return;
        }
        leave(document, 0);
        seen = sift(text, size, size, where);
        FUZZ_CHECK(seen.good);
        if (where == SIFT_LIST) {
                told = take_told(document);
                FUZZ_CHECK(json_equal(seen.told, told));
                FUZZ_CHECK(same(seen.rest, document));
                json_decref(told);
        } else {
                FUZZ_CHECK(json_array_size(seen.told) == 1);
                FUZZ_CHECK(json_equal(json_array_get(seen.told, 0), document));
        }
        end(&seen);
        json_decref(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const char *text = (const char *)data + 1;
        enum sift_where where;
        struct seen one, other;

        if (size < 2)
                return 0;
        size--;
        where = data[0] % 2 ? SIFT_LIST : SIFT_STREAM;
        one = sift(text, size, size, where);
        other = sift(text, size, data[0] / 2 + 1, where);
        FUZZ_CHECK(one.good == other.good && json_equal(one.told, other.told) &&
                   same(one.rest, other.rest));
        end(&one);
        end(&other);
        compare_with_jansson(text, size, where);
        return 0;
}
