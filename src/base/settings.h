/* settings.h: the variables of the environment (settings.def). Any thread may call these functions,
 * because only the program itself changes its variables while it runs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum setting {
#define SETTING(id, readers, kind, form, initial, help) SETTING_##id,
#include "base/settings.def"
        SETTING_COUNT,
};

enum setting_kind { SETTING_TEXT, SETTING_CHOICE, SETTING_SWITCH };

extern const struct setting_row {
        const char *name;    /* SUBLET_... */
        const char *readers; /* which programs read it: "all", "programs" under sublet, ... */
        enum setting_kind kind;
        const char *form;    /* allowed values, as settings.def writes them */
        const char *initial; /* the value of an unset variable; "": none */
        const char *help;
} settings[SETTING_COUNT];

/* Returns the variable's value; NULL: unset or empty. */
const char *setting_text(enum setting s);
/* True if a SWITCH is on. */
bool setting_is_on(enum setting s);
/* Returns the place of a CHOICE's word among the words of its form. An unset or invalid variable
 * counts as the initial word; an invalid one is warned about once. */
int setting_choice(enum setting s);
/* Returns the place of `word` among the words of a CHOICE's form; -EINVAL: it is none of them. */
int setting_place(enum setting s, const char *word);
/* Describes the allowed values: "a size such as 20GiB", or "off, park or move" for a CHOICE.
 * Returns ret. */
#define SETTING_FORM_MAX 64
const char *setting_form(enum setting s, char ret[static SETTING_FORM_MAX]);
/* Warns once that text is an invalid value of this setting. */
void setting_refuse(enum setting s, const char *text);
/* Returns the setting of the variable with this name; SETTING_COUNT: there is none. */
enum setting setting_find(const char *name);
/* Writes the name of the next variable of the environment that begins with SUBLET_ and is none of
 * ours. *at: where to go on, 0 at first. False: there is none. */
#define SETTING_NAME_MAX 64
bool setting_unknown(size_t *at, char ret[static SETTING_NAME_MAX]);
/* Returns the setting whose name is most like this one. *ret_distance: how many letters differ; 1
 * if only the first words of the setting are left out, as in SUBLET_CAP. */
enum setting setting_closest(const char *name, unsigned *ret_distance);
/* Warns about variables that look like misspelt ones of ours. */
void settings_warn(void);
