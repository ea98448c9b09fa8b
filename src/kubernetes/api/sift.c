/* sift.c: owns what is kept of incoming JSON. Checks only the brackets; jansson checks what is
 * kept. Must never keep more than SIFT_KEPT_MAX, whatever the server sends.
 * Why: docs/decisions.md, "Answers of an API server are cut before they are parsed". */
#include "kubernetes/api/sift.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#define LEVELS_MAX 32u

struct level {
        bool is_array, has_one, whole; /* has_one: the next value needs a comma before it */
};

struct sift {
        const char *const *frame_fields, *const *fields;
        const struct sift_told *told;
        void *userdata;
        unsigned object_depth;           /* depth of the objects that one() gets */
        struct level levels[LEVELS_MAX]; /* levels of what is kept */
        unsigned depth;
        unsigned left_out_at; /* the depth of the object whose member is left out; 0: none is */
        bool in_text, escaped, in_word;
        bool wants_key, is_key, had_one; /* had_one: has_one of the level before the key */
        bool whole;                      /* the next member is kept with all that is in it */
        bool inside, large; /* inside: in an object for one(); large: it is too large */
        bool broken;
        char *kept;
        size_t used, room, key;
        size_t before, start; /* where the object begins: with the comma before it, and without */
};

static bool put(struct sift *s, char c)
{
        if (s->large)
                return true;
        if (s->used - (s->inside ? s->start : 0) >= SIFT_KEPT_MAX) {
                s->large = s->inside;
                return s->inside;
        }
        if (s->used + 2 > s->room) {
                const size_t room = MAX(s->room * 2, (size_t)4096);
                char *bigger = realloc(s->kept, room);

                if (!bigger)
                        return false;
                s->kept = bigger;
                s->room = room;
        }
        s->kept[s->used++] = c;
        s->kept[s->used] = '\0';
        return true;
}

static bool is_one_of(const char *const *fields, const char *key, size_t n, bool *ret_whole)
{
        for (; *fields; fields++) {
                const size_t length = strcspn(*fields, "/");

                if (length == n && memcmp(*fields, key, n) == 0) {
                        *ret_whole = (*fields)[length] == '/';
                        return true;
                }
        }
        return false;
}

static struct level *level_of(struct sift *s)
{
        return s->depth > 0 ? &s->levels[s->depth - 1] : NULL;
}

/* ---- values ---- */

/* Writes the comma before a value or key, if it needs one. */
static bool begin_one(struct sift *s)
{
        struct level *level = level_of(s);
        const bool comma = level->has_one;

        level->has_one = true;
        return !comma || put(s, ',');
}

static bool begin_value(struct sift *s)
{
        const struct level *level = level_of(s);

        if (!level || !level->is_array)
                return level && !s->wants_key;
        return begin_one(s);
}

static bool begin_text(struct sift *s)
{
        s->in_text = true;
        if (s->left_out_at)
                return true;
        s->is_key = s->wants_key;
        if (!s->is_key)
                return begin_value(s) && put(s, '"');
        s->wants_key = false;
        s->had_one = level_of(s)->has_one;
        if (!begin_one(s))
                return false;
        s->key = s->used;
        return put(s, '"');
}

static bool end_key(struct sift *s)
{
        const char *key = s->kept + s->key + 1;
        const size_t n = s->used - s->key - 2;

        s->is_key = false;
        if (!s->large) {
                if (level_of(s)->whole || is_one_of(s->frame_fields, key, n, &s->whole) ||
                    is_one_of(s->fields, key, n, &s->whole))
                        return put(s, ':');
                s->used = s->key - s->had_one;
                level_of(s)->has_one = s->had_one;
        }
        s->left_out_at = s->depth;
        return true;
}

static bool take_text(struct sift *s, char c)
{
        const bool ends = c == '"' && !s->escaped;

        s->escaped = c == '\\' && !s->escaped;
        s->in_text = !ends;
        if (s->left_out_at)
                return true;
        return put(s, c) && (!ends || !s->is_key || end_key(s));
}

static bool take_word(struct sift *s, char c)
{
        const bool begins = !s->in_word;

        s->in_word = true;
        if (s->left_out_at)
                return true;
        return (!begins || begin_value(s)) && put(s, c);
}

/* ---- brackets ---- */

static bool open_one(struct sift *s, bool is_array)
{
        const struct level *level;
        const size_t before = s->used;
        bool whole;

        if (!s->left_out_at && s->depth == LEVELS_MAX) {
                if (!s->inside)
                        return false;
                s->large = true;
                s->left_out_at = s->depth;
        }
        if (s->left_out_at) {
                s->depth++; /* the depth may exceed the levels that are kept */
                return true;
        }
        level = level_of(s);
        whole = level && (level->whole || (s->whole && !level->is_array));
        if (level ? !begin_value(s) : is_array)
                return false;
        if (s->depth == s->object_depth && !is_array && (!level || level->is_array)) {
                s->inside = true;
                s->before = before;
                s->start = s->used;
        }
        s->levels[s->depth++] = (struct level){.is_array = is_array, .whole = whole};
        s->wants_key = !is_array;
        return put(s, is_array ? '[' : '{');
}

static bool end_object(struct sift *s)
{
        struct level *level = level_of(s);
        const char *text = s->kept + s->start;
        json_error_t error = {.text = "it is too large"};
        /* A NUL in an annotation ends its text, and must not hide the pod. */
        json_t *one =
                s->large ? NULL : json_loadb(text, s->used - s->start, JSON_ALLOW_NUL, &error);
        const bool ok = one ? s->told->one(one, s->userdata)
                            : s->told->left_out(text, error.text, s->userdata);

        json_decref(one);
        s->inside = s->large = false;
        s->used = s->before;
        if (level)
                level->has_one = s->before < s->start;
        return ok;
}

static bool close_one(struct sift *s, bool is_array)
{
        if (s->left_out_at && s->depth > s->left_out_at) {
                s->depth--;
                return true;
        }
        s->left_out_at = 0;
        if (s->depth == 0 || level_of(s)->is_array != is_array || !put(s, is_array ? ']' : '}'))
                return false;
        s->depth--;
        s->wants_key = false;
        return !s->inside || s->depth != s->object_depth || end_object(s);
}

static bool take_comma(struct sift *s)
{
        if (s->left_out_at && s->depth > s->left_out_at)
                return true;
        s->left_out_at = 0;
        if (s->depth == 0)
                return false;
        s->wants_key = !level_of(s)->is_array;
        return true;
}

static bool take_char(struct sift *s, char c)
{
        if (s->in_text)
                return take_text(s, c);
        if (!strchr("{}[],:\" \t\r\n", c))
                return take_word(s, c);
        s->in_word = false;
        switch (c) {
        case '"':
                return begin_text(s);
        case '{':
        case '[':
                return open_one(s, c == '[');
        case '}':
        case ']':
                return close_one(s, c == ']');
        case ',':
                return take_comma(s);
        default: /* a blank; a key has written its colon */
                return true;
        }
}

/* ---- the whole ---- */

bool sift_feed(struct sift *s, const char *bytes, size_t n)
{
        for (size_t i = 0; i < n && !s->broken; i++)
                s->broken = !take_char(s, bytes[i]);
        return !s->broken;
}

json_t *sift_rest(const struct sift *s)
{
        return s->broken || s->depth > 0 ? NULL
                                         : json_loadb(s->kept ? s->kept : "", s->used, 0, NULL);
}

void sift_begin(struct sift *s, enum sift_where where)
{
        free(s->kept);
        *s = (struct sift){.frame_fields = s->frame_fields,
                           .fields = s->fields,
                           .told = s->told,
                           .userdata = s->userdata,
                           .object_depth = where == SIFT_LIST ? 2 : 0};
}

struct sift *sift_new(const char *const *frame_fields, const char *const *fields,
                      const struct sift_told *told, void *userdata)
{
        struct sift *s = malloc(sizeof(*s));

        if (s)
                *s = (struct sift){.frame_fields = frame_fields,
                                   .fields = fields,
                                   .told = told,
                                   .userdata = userdata};
        return s;
}

void sift_free(struct sift *s)
{
        if (!s)
                return;
        free(s->kept);
        free(s);
}
