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
#include "base/text.h"

#define TYPO_MAX 2 /* letters that differ: a name further away may be another tool's */

const struct setting_row settings[SETTING_COUNT] = {
#define SETTING(id, readers, kind, form, initial, help) \
        [SETTING_##id] = {"SUBLET_" #id, readers, SETTING_##kind, form, initial, help},
#include "base/settings.def"
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
        log_warning("%s is %s, not '%s': %s%s", settings[s].name, setting_form(s, form), text,
                    *settings[s].initial ? settings[s].initial : "it has no effect",
                    *settings[s].initial ? " applies" : "");
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

/* Returns how many letters differ. A name that leaves out the first words is close. */
static unsigned how_far(const char *name, const char *from)
{
        const char *words = strchr(name, '_'); /* "_CAP" of SUBLET_CAP */
        const size_t n = words ? strlen(words) : 0, whole = strlen(from);

        if (n > 0 && whole > strlen(name) && strcmp(from + whole - n, words) == 0)
                return 1;
        return text_distance(name, from);
}

enum setting setting_closest(const char *name, unsigned *ret_distance)
{
        unsigned best = 0;

        *ret_distance = how_far(name, settings[0].name);
        for (unsigned s = 1; s < SETTING_COUNT; s++) {
                const unsigned d = how_far(name, settings[s].name);

                if (d < *ret_distance) {
                        *ret_distance = d;
                        best = s;
                }
        }
        return (enum setting)best;
}

bool setting_unknown(size_t *at, char ret[static SETTING_NAME_MAX])
{
        extern char **environ;

        for (; environ && environ[*at]; (*at)++) {
                const char *v = environ[*at];

                if (strncmp(v, "SUBLET_", 7) != 0)
                        continue;
                (void)snprintf(ret, SETTING_NAME_MAX, "%.*s", (int)strcspn(v, "="), v);
                if (setting_find(ret) == SETTING_COUNT) {
                        (*at)++;
                        return true;
                }
        }
        return false;
}

void settings_warn(void)
{
        char name[SETTING_NAME_MAX];
        size_t at = 0;

        while (setting_unknown(&at, name)) {
                unsigned away;
                const enum setting meant = setting_closest(name, &away);

                if (away <= TYPO_MAX)
                        log_warning("%s is no variable of sublet, and does nothing: did you mean "
                                    "%s?",
                                    name, settings[meant].name);
        }
}
