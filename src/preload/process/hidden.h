/* hidden.h: libraries whose work on the GPU no drain can await, because no intercepted call submits
 * it. A process that has loaded such a library keeps its memory on the card, unless it is frozen.
 */
#pragma once

/* Returns the name of such a library that is loaded now; NULL: none. core_lock held. */
const char *hidden_library(void);
/* Log once that a drain failed because such a library is loaded. core_lock held. */
void hidden_tell(void);
