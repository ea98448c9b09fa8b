/* resource_file.c: owns the format of the resource file. Must never accept a line in part. */
#include "daemon/setup/resource_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"

#define LIMIT_LEAST 10 /* thousandths: less would be rounded to nothing */

/* Parses a fraction from 0 to 1 into thousandths. */
static int parse_fraction(const char *text, unsigned *ret_permille)
{
        char *end;
        double v;

        if (!isdigit((unsigned char)text[0]) && text[0] != '.')
                return -EINVAL;
        v = strtod(text, &end);
        if (*end || !(v >= 0 && v <= 1))
                return -EINVAL;
        *ret_permille = (unsigned)(v * 1000 + 0.5);
        return 0;
}

/* Cuts the line into words. Returns how many there are; only `most` are stored. */
static unsigned cut(char *line, char **words, unsigned most)
{
        unsigned n = 0;
        char *rest = line, *word;

        while ((word = strsep(&rest, " \t\r\n"))) {
                if (!*word)
                        continue;
                if (n < most)
                        words[n] = word;
                n++;
        }
        return n;
}

static const char *read_class(struct classes *c, char *const words[static 4], const char *file,
                              unsigned line, char error[static CONFIG_ERROR_MAX])
{
        unsigned request, limit;
        struct class *class;
        uint64_t bytes;

        if (strlen(words[0]) >= CLASS_NAME_MAX)
                return "the ID is too long: it may have 255 characters";
        if (parse_fraction(words[1], &request) < 0)
                return "the REQUEST is a fraction from 0 to 1";
        if (parse_fraction(words[2], &limit) < 0 || limit < LIMIT_LEAST)
                return "the LIMIT is a fraction from 0.01 to 1";
        if (units_parse_count(words[3], &bytes) < 0)
                return "the GPU_MEM is a number of bytes, 0 for no limit";
        if (classes_begin(c, words[0], &class, error) < 0)
                return error;
        if (class->file == file)
                return "another line has the same ID";
        class->settings.minimum_permille = request;
        class->settings.maximum_permille = limit;
        class->settings.memory_cap = bytes;
        class->settings.group = class->by_group = true;
        class->file = file;
        class->line = line;
        return NULL;
}

int resource_file_read(struct classes *c, FILE *file, const char *name,
                       char error[static CONFIG_ERROR_MAX])
{
        _cleanup_free_ char *text = NULL;
        char *words[4], reason[CONFIG_ERROR_MAX];
        const char *wrong = NULL, *kept = classes_keep_file(c, name);
        uint64_t count = 0, seen = 0;
        size_t room = 0;
        unsigned line = 0;

        while (kept && !wrong && getline(&text, &room, file) >= 0) {
                unsigned n = cut(text, words, 4);

                line++;
                if (line == 1 && (n != 1 || units_parse_count(words[0], &count) < 0))
                        wrong = "the first line must be the number of lines that follow";
                if (line == 1 || n == 0)
                        continue;
                if (n != 4)
                        wrong = "not a line \"ID REQUEST LIMIT GPU_MEM\"";
                else if (++seen > count)
                        wrong = "there are more lines than the first line says";
                else
                        wrong = read_class(c, words, kept, line, reason);
        }
        if (!kept || ferror(file)) {
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.300s: cannot be read", name);
                return kept ? -EIO : -ENOMEM;
        }
        if (!wrong && line == 0)
                wrong = "the first line must be the number of lines that follow";
        if (!wrong && seen < count)
                wrong = "there are fewer lines than the first line says";
        if (wrong)
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.200s:%u: %.200s", name, line ? line : 1,
                               wrong);
        return wrong ? -EINVAL : 0;
}
