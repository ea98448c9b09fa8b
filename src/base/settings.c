/* settings.c: owns how variables of the environment are read. Must never guess: for an invalid
 * value it warns, and the initial value holds. */
#include "base/settings.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

const struct setting_row settings[SETTING_COUNT] = {
#define SETTING(id, readers, kind, form, initial, help) \
        [SETTING_##id] = {"SUBLET_" #id, readers, SETTING_##kind, form, initial, help},
#include "base/settings.def"
#undef SETTING
};

static atomic_uint_fast64_t refused; /* bit 1 << setting: the warning was given */
_Static_assert(SETTING_COUNT <= 64, "one bit a setting");

const char *setting_text(enum setting s)
{
        const char *text = getenv(settings[s].name);

        return text && *text ? text : NULL;
}

bool setting_is_on(enum setting s)
{
        const char *text = setting_text(s);

        return text && strcmp(text, "1") == 0;
}

int setting_place(enum setting s, const char *word)
{
        size_t n = strlen(word);
        int place = 0;

        for (const char *p = settings[s].form;; p++, place++) {
                size_t length = strcspn(p, " ");

                if (length == n && memcmp(p, word, n) == 0)
                        return place;
                p += length;
                if (!*p)
                        return -EINVAL;
        }
}

const char *setting_form(enum setting s, char ret[static SETTING_FORM_MAX])
{
        const char *p = settings[s].form;
        size_t n = 0;

        ret[0] = '\0';
        while (*p && n < SETTING_FORM_MAX - 1) {
                size_t length = settings[s].kind == SETTING_CHOICE ? strcspn(p, " ") : strlen(p);
                const char *rest = p + length + (p[length] == ' ');
                const char *next = !*rest ? "" : strchr(rest, ' ') ? ", " : " or ";

                n += (size_t)snprintf(ret + n, SETTING_FORM_MAX - n, "%.*s%s", (int)length, p,
                                      next);
                p = rest;
        }
        return ret;
}

void setting_refuse(enum setting s, const char *text)
{
        const uint64_t bit = UINT64_C(1) << s;
        char form[SETTING_FORM_MAX];

        if (atomic_fetch_or(&refused, bit) & bit)
                return;
        log_warning("%s is %s, not '%s'", settings[s].name, setting_form(s, form), text);
}

int setting_choice(enum setting s)
{
        const char *text = setting_text(s);
        int place = text ? setting_place(s, text) : -ENOENT;

        if (place >= 0)
                return place;
        if (text)
                setting_refuse(s, text);
        return setting_place(s, settings[s].initial);
}

enum setting setting_find(const char *name)
{
        unsigned s = 0;

        while (s < SETTING_COUNT && strcmp(settings[s].name, name) != 0)
                s++;
        return (enum setting)s;
}
