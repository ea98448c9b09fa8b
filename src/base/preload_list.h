/* preload_list.h: the variables by which programs load sublet's library. Pure but for malloc. */
#pragma once

/* Returns `now` (NULL: the variable is unset) with the library first. Libraries of the user stay; a
 * libsublet.so of this or another installation goes, because only one may be loaded, and a
 * libsublet-ranks.so goes with it. library NULL: only takes them out. The caller frees the text,
 * which may be empty. NULL: no memory. */
char *preload_list(const char *now, const char *library);
/* Returns ASAN_OPTIONS so that a program with AddressSanitizer accepts a library before ASan's own.
 * now: the present value; NULL: unset. If it names this option already, that stays. The caller
 * frees the result. NULL: no memory. */
char *preload_asan_options(const char *now);
