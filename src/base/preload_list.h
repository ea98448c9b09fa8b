/* preload_list.h: the variables by which programs load sublet's library. Pure but for malloc. */
#pragma once

/* Returns `now` (NULL: the variable is unset) with the library first. Libraries of the user stay. A
 * libsublet.so or libsublet-ranks.so of any installation is taken out, because only one may be
 * loaded. library NULL: only takes these out. The caller frees the text, which may be empty. NULL:
 * no memory. */
char *preload_list(const char *now, const char *library);
/* Returns ASAN_OPTIONS so that a program with AddressSanitizer accepts a library before ASan's own.
 * now: the present value; NULL: unset. If `now` names this option already, it stays as it is. The
 * caller frees the result. NULL: no memory. */
char *preload_asan_options(const char *now);
