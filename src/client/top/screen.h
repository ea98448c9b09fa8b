/* screen.h: the terminal, by ncurses: shows frames, reads keys. One terminal a process. */
#pragma once

#include <stdbool.h>

#include "client/top/frame.h"

/* True if the locale and the terminal can show block characters. */
bool screen_is_unicode(void);
/* Takes over the terminal. *ret_colours: it has colours, and NO_COLOR is not set. 0; -ENOTTY: the
 * terminal's type is not known, or it cannot move its cursor. */
int screen_open(bool *ret_colours);
void screen_close(void);

void screen_size(int *ret_width, int *ret_height);
/* Sends only what differs from the last frame. */
void screen_draw(const struct frame *f);
/* Reads a key, as keys.h names it, without waiting. False: there is none. */
bool screen_key(unsigned *ret);
