/* doctor_programs.h: programs under sublet whose memory stays on the card, or that run without
 * sublet. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#define PROGRAM_NAME_MAX 64

/* A process that has loaded the driver and not libsublet.so, or that has no thread of ours. */
struct program_unshared {
        int pid;
        uid_t uid;
        char name[PROGRAM_NAME_MAX];
        bool loaded;         /* it has loaded libsublet.so, and has no thread of ours */
        bool musl;           /* it runs on the C library musl */
        bool preloads, ours; /* it began with LD_PRELOAD; libsublet.so was in it */
        char preload[160];   /* the value of LD_PRELOAD; clean */
};

/* Looks at each process that this user may look at. If the process has loaded both libsublet.so and
 * a library of hidden_libraries.def, calls has_hidden() with the name and the purpose of that
 * library. If struct program_unshared describes the process, calls is_unshared(). simulated: only
 * the simulated driver in `folder` counts, and only this session; false: only other drivers count.
 * Returns the number of processes that this user may not look at. */
unsigned programs_look(const char *folder, bool simulated,
                       void (*has_hidden)(int pid, const char *library, const char *what),
                       void (*is_unshared)(const struct program_unshared *u));
