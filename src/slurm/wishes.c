/* wishes.c: owns the keys of --sublet. Must never accept a text that it does not fully understand:
 * the user is told before the job is submitted. */
#include "slurm/wishes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/settings.h"
#include "base/shares.h"
#include "base/text.h"
#include "base/units.h"

#define SHOWN_MAX 61 /* bytes of a user's text in slurmd's log, with the NUL */

static int take_share(struct wishes *w, const char *text)
{
        unsigned minimum, maximum;

        if (shares_parse_range(text, &minimum, &maximum) < 0)
                return -EINVAL;
        w->minimum = minimum;
        w->maximum = maximum;
        return 0;
}

static int take_weight(struct wishes *w, const char *text)
{
        return shares_parse_weight(text, &w->weight);
}

static int take_cap(struct wishes *w, const char *text)
{
        return units_parse_size(text, &w->cap) == 0 && w->cap > 0 ? 0 : -EINVAL;
}

static int take_priority(struct wishes *w, const char *text)
{
        w->has_priority = true;
        return shares_parse_priority(text, &w->priority);
}

static const struct {
        const char *key;
        enum setting like; /* the variable that takes the same values */
        int (*take)(struct wishes *w, const char *text);
} wishes_keys[] = {
        {"share", SETTING_SHARE, take_share},
        {"weight", SETTING_WEIGHT, take_weight},
        {"cap", SETTING_MEMORY_CAP, take_cap},
        {"priority", SETTING_PRIORITY, take_priority},
};

static int take_wish(struct wishes *w, char *item, char error[static WISHES_ERROR_MAX])
{
        char *value = strchr(item, '='), form[SETTING_FORM_MAX], shown[SHOWN_MAX];

        if (value)
                *value++ = '\0';
        for (size_t i = 0; i < ARRAY_SIZE(wishes_keys); i++) {
                if (strcmp(item, wishes_keys[i].key) != 0)
                        continue;
                if (value && wishes_keys[i].take(w, value) == 0)
                        return 0;
                (void)snprintf(error, WISHES_ERROR_MAX, "--sublet: %s is %s, not '%s'", item,
                               setting_form(wishes_keys[i].like, form),
                               text_copy(shown, sizeof(shown), value ? value : ""));
                return -EINVAL;
        }
        (void)snprintf(error, WISHES_ERROR_MAX,
                       "--sublet does not know '%s'; it takes share, weight, cap and priority, "
                       "or off alone",
                       text_copy(shown, sizeof(shown), item));
        return -EINVAL;
}

int wishes_parse(const char *text, struct wishes *ret, char error[static WISHES_ERROR_MAX])
{
        struct wishes w = {0};
        _cleanup_free_ char *copy = NULL;
        char *rest, *item;
        int r = 0;

        /* Slurm passes "(null)" on for an option without an argument. */
        if (!text || !text[0] || strcmp(text, "(null)") == 0) {
                *ret = w;
                return 0;
        }
        if (strcmp(text, "off") == 0) {
                *ret = (struct wishes){.off = true};
                return 0;
        }
        rest = copy = strdup(text);
        if (!copy) {
                (void)snprintf(error, WISHES_ERROR_MAX, "--sublet: out of memory");
                return -ENOMEM;
        }
        while (r == 0 && (item = strsep(&rest, ",")))
                r = take_wish(&w, item, error);
        if (r == 0)
                *ret = w;
        return r;
}
