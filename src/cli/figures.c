/* figures.c: owns how figures and texts are written in few columns. Must never let a text of the
 * daemon's JSON steer a terminal. */
#include "cli/figures.h"

#include <stdbool.h>
#include <string.h>

#include "base/macros.h"

void figure_size(double bytes, char cell[static FIGURE_MAX])
{
        static const char units[] = "BKMGTPE";
        size_t i = 0;

        for (; bytes >= 1023.5 && i + 2 < sizeof(units); i++)
                bytes /= 1024;
        (void)snprintf(cell, FIGURE_MAX, "%.*f%c", i > 0 && bytes < 99.95 ? 1 : 0, bytes, units[i]);
        if (bytes == 0)
                (void)strcpy(cell, "0");
}

void figure_seconds(double s, char cell[static FIGURE_MAX])
{
        unsigned long whole = s > 0 && s < 1e12 ? (unsigned long)s : 0;

        if (s < 9.95)
                (void)snprintf(cell, FIGURE_MAX, "%.1fs", s > 0 ? s : 0);
        else if (whole < 60)
                (void)snprintf(cell, FIGURE_MAX, "%.0fs", s);
        else if (whole < 3600)
                (void)snprintf(cell, FIGURE_MAX, "%lum%02lus", whole / 60, whole % 60);
        else if (whole < 86400)
                (void)snprintf(cell, FIGURE_MAX, "%luh%02lum", whole / 3600, whole % 3600 / 60);
        else
                (void)snprintf(cell, FIGURE_MAX, "%lud%02luh", whole / 86400, whole % 86400 / 3600);
}

size_t figure_character(const char *text, uint32_t *ret)
{
        const unsigned char *p = (const unsigned char *)text;
        const size_t n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;

        *ret = n == 1 ? *p : 0xfffd;
        if (n < 2 || *p > 0xf4)
                return 1;
        for (size_t i = 1; i < n; i++)
                if ((p[i] & 0xc0) != 0x80)
                        return 1;
        *ret = *p & (0xffu >> (n + 1));
        for (size_t i = 1; i < n; i++)
                *ret = *ret << 6 | (p[i] & 0x3fu);
        return n;
}

/* True for C0 and C1 controls, separators of lines, and marks of direction. */
static bool steers(uint32_t c)
{
        static const struct {
                uint32_t from, to;
        } ranges[] = {{0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},   {0x200e, 0x200f},
                      {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfff9, 0xfffd}, {0xe0000, 0xe007f}};

        for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
                if (c >= ranges[i].from && c <= ranges[i].to)
                        return true;
        return false;
}

void figure_text(const char *text, char cell[static FIGURE_MAX])
{
        size_t used = 0, n;
        uint32_t c;

        for (; *text; text += n) {
                n = figure_character(text, &c);
                if (used + n >= FIGURE_MAX)
                        break;
                if (steers(c))
                        cell[used++] = '?';
                else
                        for (size_t i = 0; i < n; i++)
                                cell[used++] = text[i];
        }
        cell[used] = 0;
}

void figure_put(const json_t *value, enum figure kind, char cell[static FIGURE_MAX])
{
        if (kind == FIGURE_TEXT && json_is_string(value))
                figure_text(json_string_value(value), cell);
        else if (kind == FIGURE_COUNT && json_is_integer(value))
                (void)snprintf(cell, FIGURE_MAX, "%" JSON_INTEGER_FORMAT,
                               json_integer_value(value));
        else if (kind == FIGURE_SIZE && json_is_number(value))
                figure_size(json_number_value(value), cell);
        else if (kind == FIGURE_SECONDS && json_is_number(value))
                figure_seconds(json_number_value(value), cell);
        else
                (void)strcpy(cell, FIGURE_UNKNOWN);
}

double figure_number(const json_t *object, const char *field)
{
        return json_number_value(json_object_get(object, field));
}

const char *figure_string(const json_t *object, const char *field)
{
        const char *text = json_string_value(json_object_get(object, field));

        return text ? text : FIGURE_UNKNOWN;
}
