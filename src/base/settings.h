/* settings.h: the variables of the environment (settings.def). Any thread. Only the program itself
 * changes them while it runs. */
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
        const char *initial; /* its value where it is unset; "": none */
        const char *help;
} settings[SETTING_COUNT];

/* The value; NULL: unset, or empty. */
const char *setting_text(enum setting s);
/* A SWITCH: it is 1. */
bool setting_is_on(enum setting s);
/* A CHOICE: the place of its word in the form. Where it is unset or invalid, the place of the
 * initial word; invalid values are warned about once. */
int setting_choice(enum setting s);
/* The place of a word, from any source, in the form. -EINVAL: there is no such word. */
int setting_place(enum setting s, const char *word);
/* "a size such as 20GiB"; of a CHOICE "off, park or move". Returns ret. */
#define SETTING_FORM_MAX 64
const char *setting_form(enum setting s, char ret[static SETTING_FORM_MAX]);
/* Warn that the value is invalid; once. */
void setting_refuse(enum setting s, const char *text);
/* The setting of a variable's name; SETTING_COUNT: none. */
enum setting setting_find(const char *name);
