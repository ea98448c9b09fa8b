/* hidden.h: work on the GPU that no drain can await, because no entry point shows it. A process
 * that has loaded a library with such work keeps its memory on the card, unless it is frozen. */
#pragma once

/* The name of such a library that is loaded now; NULL: none. core_lock held. */
const char *hidden_library(void);
/* Log once that a drain failed for that reason. core_lock held. */
void hidden_tell(void);
