/* hidden.h: work on the GPU that no drain can await, because no entry point shows it. A process
 * that has loaded a library with such work keeps its memory on the card. */
#pragma once

/* The name of such a library that is loaded now; NULL: none. The first time one is found a line on
 * stderr says so. core.lock held. */
const char *hidden_library(void);
