/* settings.h: the variables of the environment (settings.def). Any thread; nothing is changed while
 * the program runs but by the program. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum setting {
#define SETTING(id, readers, kind, form, initial, help) SETTING_##id,
#include "base/settings.def"
#undef SETTING
        SETTING_COUNT,
};

enum setting_kind { SETTING_TEXT, SETTING_CHOICE, SETTING_SWITCH };

extern const struct setting_row {
        const char *name;    /* SUBLET_... */
        const char *readers; /* who reads it */
        enum setting_kind kind;
        const char *form;    /* what it may be */
        const char *initial; /* where it is unset; "": nothing */
        const char *help;
} settings[SETTING_COUNT];

/* What it is set to; NULL: unset, or empty. */
const char *setting_text(enum setting s);
/* A SWITCH: it is 1. */
bool setting_is_on(enum setting s);
/* A CHOICE: the place of its word in the form; of the initial one where it is unset or none of
 * them, which is said once. */
int setting_choice(enum setting s);
/* The place of a word in the form, which need not come from the environment. -EINVAL: none. */
int setting_place(enum setting s, const char *word);
/* "a size such as 20GiB"; of a CHOICE "off, park or move". Returns ret. */
#define SETTING_FORM_MAX 64
const char *setting_form(enum setting s, char ret[static SETTING_FORM_MAX]);
/* Say that it is not what it may be; once. */
void setting_refuse(enum setting s, const char *text);
/* The setting of a variable's name; SETTING_COUNT: none. */
enum setting setting_find(const char *name);
