/* unshared.h: programs into which the loader does not load libsublet.so. */
#pragma once

/* If `sublet run` of this command would not share the GPU, prints a sentence with the reason to
 * stderr. Prints nothing if that cannot be found out, or with SUBLET_QUIET=1. */
void unshared_tell(const char *command);
