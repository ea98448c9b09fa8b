/* keys.h: what keys do. Pure: keys change what a person has chosen, or make an order. */
#pragma once

#include "client/top/layout.h"

/* Keys that are no characters have numbers above the last character's. */
enum key {
        KEYS_UP = 0x110000,
        KEYS_DOWN,
        KEYS_PAGE_UP,
        KEYS_PAGE_DOWN,
        KEYS_HOME,
        KEYS_END,
        KEYS_LEFT,
        KEYS_RIGHT,
        KEYS_BACKSPACE,
};

/* The keys for people; ends with keys NULL. word: for the line of keys; "": only in the help. */
struct key_help {
        const char *keys, *word, *help;
};
extern const struct key_help keys_help[];

struct top_order {
        const char *name; /* "pause", "resume", "evict" or "priority" */
        int pid;
        int by; /* how much higher the priority is to be */
};

enum keys_act { KEYS_NOTHING, KEYS_QUIT, KEYS_ORDER };
enum keys_act keys_press(struct top_view *view, const struct top_rows *rows, unsigned key,
                         struct top_order *ret_order);
