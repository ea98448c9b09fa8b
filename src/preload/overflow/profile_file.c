/* profile_file.c: owns the text of a profile. Must never trust a line: people edit files. */
#include "preload/overflow/profile_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/text.h"
#include "base/units.h"

#define MAGIC   "sublet profile "
#define VERSION "1"

int64_t profile_use(const struct profile_buffer *b)
{
        uint64_t mib = MAX(b->bytes / MIB, 1u);

        return b->saved_ns ? (int64_t)MIN(MAX(b->saved_ns / mib, 1u), (uint64_t)INT64_MAX) : -1;
}

/* Reads one line, and cuts it to pieces. False: it describes no buffer. */
static bool read_buffer(char *line, struct profile_buffer *ret)
{
        uint64_t gpu = UINT64_MAX, bytes = 0, nth = 0, saved = UINT64_MAX, noise = 0;
        struct {
                const char *key;
                uint64_t *value;
        } keys[] = {{"gpu", &gpu},
                    {"bytes", &bytes},
                    {"nth", &nth},
                    {"saved_ns", &saved},
                    {"noise_ns", &noise}};
        char *word;

        while ((word = strsep(&line, " \t\r"))) {
                char *value = strchr(word, '=');

                if (!*word)
                        continue;
                if (!value)
                        return false;
                *value++ = 0;
                for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                        if (strcmp(keys[i].key, word) == 0 &&
                            units_parse_count(value, keys[i].value) < 0)
                                return false;
        }
        if (gpu > UINT16_MAX || bytes == 0 || nth == 0 || saved > INT64_MAX)
                return false;
        *ret = (struct profile_buffer){(unsigned)gpu, bytes, nth, saved, noise};
        return true;
}

static bool is_known(const struct profile_list *list, const struct profile_buffer *b)
{
        for (size_t i = 0; i < list->count; i++)
                if (list->buffers[i].gpu == b->gpu && list->buffers[i].bytes == b->bytes &&
                    list->buffers[i].nth == b->nth)
                        return true;
        return false;
}

static void note_bad(struct profile_bad *bad, unsigned number, const char *line)
{
        if (bad->lines++ > 0)
                return;
        bad->first = number;
        (void)text_copy(bad->text, sizeof(bad->text), line);
}

static int parse_lines(char *copy, struct profile_list *list, struct profile_bad *bad)
{
        char *rest = copy, *line = strsep(&rest, "\n");
        unsigned number = 1;

        line[strcspn(line, " \t\r")] = 0;
        if (strcmp(line, VERSION) != 0)
                return -EPROTONOSUPPORT;
        while ((line = strsep(&rest, "\n"))) {
                struct profile_buffer b;
                char shown[sizeof(bad->text)];

                number++;
                line += strspn(line, " \t\r");
                if (!*line || *line == '#')
                        continue;
                (void)snprintf(shown, sizeof(shown), "%s", line);
                if (list->count < PROFILE_BUFFERS_MAX && read_buffer(line, &b) &&
                    !is_known(list, &b))
                        list->buffers[list->count++] = b;
                else
                        note_bad(bad, number, shown);
        }
        return 0;
}

int profile_parse(const char *text, size_t length, struct profile_list *ret,
                  struct profile_bad *ret_bad)
{
        struct profile_list list = {0};
        struct profile_bad bad = {0};
        size_t magic = strlen(MAGIC), lines = 1;
        char *copy;
        int r;

        if (length < magic || memcmp(text, MAGIC, magic) != 0)
                return -EINVAL;
        for (size_t i = 0; i < length; i++)
                lines += text[i] == '\n';
        list.buffers = calloc(MIN(lines, (size_t)PROFILE_BUFFERS_MAX), sizeof(*list.buffers));
        copy = malloc(length - magic + 1);
        if (!copy || !list.buffers) {
                free(copy);
                free(list.buffers);
                return -ENOMEM;
        }
        memcpy(copy, text + magic, length - magic);
        copy[length - magic] = 0; /* bytes behind a NUL are no text */
        r = parse_lines(copy, &list, &bad);
        free(copy);
        if (r < 0) {
                free(list.buffers);
                return r;
        }
        *ret = list;
        *ret_bad = bad;
        return 0;
}

static int by_use(const void *left, const void *right)
{
        const struct profile_buffer *a = left, *b = right;
        int64_t l = profile_use(a), r = profile_use(b);

        if (l != r)
                return l > r ? -1 : 1;
        if (a->bytes != b->bytes)
                return a->bytes < b->bytes ? -1 : 1;
        return a->nth < b->nth ? -1 : a->nth > b->nth;
}

char *profile_format(const char *program, uint64_t step_ns, struct profile_list *list)
{
        size_t room = 512 + list->count * PROFILE_LINE_MAX, used;
        char *text = malloc(room);

        if (!text)
                return NULL;
        if (list->count > 0)
                qsort(list->buffers, list->count, sizeof(*list->buffers), by_use);
        used = (size_t)snprintf(
                text, room,
                MAGIC VERSION "\n# %.64s: a step with none of these buffers on the card took %llu "
                              "us.\n# The buffer that saves the most time for its size comes "
                              "first.\n",
                program, (unsigned long long)(step_ns / 1000));
        for (size_t i = 0; i < list->count; i++) {
                const struct profile_buffer *b = &list->buffers[i];

                used += (size_t)snprintf(
                        text + used, room - used,
                        "gpu=%u bytes=%llu nth=%llu saved_ns=%llu noise_ns=%llu\n", b->gpu,
                        (unsigned long long)b->bytes, (unsigned long long)b->nth,
                        (unsigned long long)b->saved_ns, (unsigned long long)b->noise_ns);
        }
        return text;
}
