/* name.h: the program's name in `sublet status`. */
#pragma once

#include <stddef.h>

/* Choose the name of this program: SUBLET_NAME if it is set, otherwise by name_choose(). */
void name_of_program(char *ret, size_t n);
