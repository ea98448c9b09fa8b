/* stop.h: why none of a process's threads runs, and how it goes on. Pure; no glibc symbol past 2.17
 * is used, because the preload library calls these functions. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

enum stop {
        STOP_NONE,     /* it goes on */
        STOP_SIGNAL,   /* Ctrl-Z, SIGSTOP */
        STOP_DEBUGGER, /* a debugger holds it */
        STOP_CGROUP,   /* its cgroup is frozen, as by docker pause */
};

/* Returns "signal", "debugger", "cgroup"; NULL: it goes on, or the number is unknown. */
const char *stop_name(unsigned stop);
/* Returns the reason of which stop_name() gives this name; STOP_NONE: there is none. */
enum stop stop_of_name(const char *name);

#define STOP_TEXT_MAX 96

/* Writes how the process goes on, such as "stopped (Ctrl-Z): `fg`, or `kill -CONT 12`". Returns
 * text; NULL: it goes on, or the number is unknown. */
const char *stop_text(unsigned stop, pid_t pid, char text[static STOP_TEXT_MAX]);
