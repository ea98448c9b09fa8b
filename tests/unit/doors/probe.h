/* probe.h: functions of the libraries that test_dlsym.c runs programs with. */
#pragma once

#define PROBE __attribute__((visibility("default")))

PROBE int probe_which(void);
/* What probe_which() of the library behind the first one returns. */
PROBE int probe_next(void);

/* 1: dlsym() in a constructor of a malloc replacement worked and did not come back for memory. */
PROBE int probe_malloc_ok(void);

/* How often dlopen() has come by the preloaded library that also stands in for getppid(). */
PROBE int probe_opens(void);

#define PROBE_PPID_OFFSET 1000000
