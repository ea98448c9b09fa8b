/* figures.c: owns how figures and texts are written in few columns. Must never let a text of the
 * daemon's JSON steer a terminal. */
#include "client/figures/figures.h"

#include <string.h>

#include "base/text.h"

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

void figure_text(const char *text, char cell[static FIGURE_MAX])
{
        (void)text_copy(cell, FIGURE_MAX, text);
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

const char *figure_compute_mode(const json_t *gpu)
{
        const char *mode = json_string_value(json_object_get(gpu, "compute_mode"));

        if (mode && strncmp(mode, "exclusive", 9) == 0)
                return "exclusive compute mode: one program at a time";
        if (mode && strcmp(mode, "prohibited") == 0)
                return "prohibited compute mode: no program at all";
        return NULL;
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
