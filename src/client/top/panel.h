/* panel.h: what is shown of one card: its memory by programs, and lines of recent use. Pure. */
#pragma once

#include "client/top/frame.h"
#include "client/top/layout.h"

/* Draws a card into lines y to y + height - 1. height 1: one line; 2: with a title; 3 and more:
 * with lines of recent use that are height - 2 high. */
void panel_draw(const json_t *gpu, const struct history_gpu *past, const struct top_view *view,
                struct frame *f, int y, int height);
