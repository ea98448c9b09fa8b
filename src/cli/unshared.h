/* unshared.h: programs that the loader does not load libsublet.so into. */
#pragma once

/* If `sublet run` of this command would run it without sharing the GPU, say so and why in a
 * sentence on stderr. Silent where that cannot be found out, and with SUBLET_QUIET=1. */
void unshared_tell(const char *command);
