/* text.h: text that comes from elsewhere and ends up on terminals and in logs: UTF-8, without
 * anything that a terminal would obey. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* True if the text is valid UTF-8 and can be shown: without control characters, line separators and
 * changes of the writing direction. */
bool text_is_clean(const char *text);

/* Returns how many bytes of the text fit `most` bytes without cutting a character in two. */
size_t text_fit(const char *text, size_t most);

/* Copies as much of the text as fits n bytes with the NUL, whole characters only. '?' replaces each
 * byte or character that is not clean. Returns ret. */
char *text_copy(char *ret, size_t n, const char *text);

/* Returns how many letters are to be changed, added, left out or swapped with the next, to make one
 * word of the other. Only the first 47 bytes of b count. */
unsigned text_distance(const char *a, const char *b);
