/* unshared.h: programs that the loader does not load libsublet.so into. */
#pragma once

/* Prints a sentence with the reason to stderr if `sublet run` of this command would not share the
 * GPU. Silent where that cannot be found out, and with SUBLET_QUIET=1. */
void unshared_tell(const char *command);
