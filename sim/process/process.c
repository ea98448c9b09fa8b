/* process.c: owns the driver's state in this process, and prints its lines on stderr. */
#include "sim/process/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct sim sim = {.lock = PTHREAD_MUTEX_INITIALIZER};
__thread bool sim_in_callback;
__thread unsigned sim_per_thread;

void sim_say(const char *format, ...)
{
        char line[512] = "simcuda: ";
        size_t n = strlen(line);
        va_list ap;
        int r;

        va_start(ap, format);
        r = vsnprintf(line + n, sizeof(line) - n - 1, format, ap);
        va_end(ap);
        if (r < 0)
                return;
        n = strlen(line);
        line[n++] = '\n';
        /* One write, so that lines of several processes do not mix. */
        if (write(STDERR_FILENO, line, n) < 0)
                return;
}
