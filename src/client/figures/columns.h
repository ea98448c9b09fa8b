/* columns.h: how many columns of a terminal a text takes: a Chinese character takes two, an accent
 * of its own none. The texts are UTF-8, whatever the locale. */
#pragma once

#include <stddef.h>

int columns_of(const char *text);
/* Returns how many bytes of the text fit `most` columns, whole characters only, and in *ret_used
 * how many columns these take. */
size_t columns_fit(const char *text, int most, int *ret_used);
