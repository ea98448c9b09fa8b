/* ini_lines.c: owns which lines of a file are refused although libinih takes them. Must never let a
 * key get lost in the value of another. */
#include "base/ini_lines.h"

#include <string.h>

#define BLANKS " \t\r\n\v\f"
#define WORD   "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

/* libinih would take the rest of a long line for a line of its own. */
char *ini_lines_read(char *buf, int size, void *lines)
{
        struct ini_lines *l = lines;
        const char *line = l->too_long ? NULL : fgets(buf, size, l->file);
        size_t blanks;

        if (!line)
                return NULL;
        l->number++;
        l->too_long = strlen(line) == (size_t)size - 1 && line[size - 2] != '\n';
        if (l->too_long)
                return NULL;
        blanks = strspn(line, BLANKS);
        if (line[blanks] && !strchr("#;", line[blanks])) {
                l->continued = l->has_key && blanks > 0;
                l->has_key = l->continued || line[blanks] != '[';
        }
        return buf;
}

static bool begins_like_a_key(const char *text)
{
        const char *after = text + strspn(text, WORD);

        after += strspn(after, BLANKS);
        return *text == '[' || *after == '=' || *after == ':';
}

static bool has_comment(const char *value)
{
        for (const char *at = value; (at = strpbrk(at, "#;")); at++)
                if (at == value || strchr(BLANKS, at[-1]))
                        return true;
        return false;
}

const char *ini_lines_problem(const struct ini_lines *l, const char *value, bool is_list)
{
        if (l->continued && (!is_list || begins_like_a_key(value)))
                return "the line begins with a blank, so it belongs to the key before it: remove "
                       "the blank";
        return has_comment(value) ? "a comment needs a line of its own" : NULL;
}
