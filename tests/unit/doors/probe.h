/* probe.h: functions of the libraries with which test_dlsym.c runs programs. */
#pragma once

#define PROBE __attribute__((visibility("default")))

PROBE int probe_which(void);
/* Returns what probe_which() of the library behind the first one returns. */
PROBE int probe_next(void);

/* Returns 1 if dlsym() worked in the constructor of a malloc replacement, and allocated nothing. */
PROBE int probe_malloc_ok(void);

/* Returns the number of calls of dlopen() that passed interpose_getppid.c. */
PROBE int probe_opens(void);

#define PROBE_PPID_OFFSET 1000000
