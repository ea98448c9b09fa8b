/* count_values.h: how much memory a text of JSON may take once it is read. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* True if the text has more values than this. Each becomes up to 200 bytes of memory, whatever its
 * text is: a short text may hold very many. */
bool values_are_more_than(const char *text, size_t size, unsigned most);
