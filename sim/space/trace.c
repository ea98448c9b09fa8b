/* trace.c: owns the trace file. Writes each line with one write(2), so that processes may share a
 * file. */
#include "sim/space/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "sim/space/space.h"

static int trace_fd = -1;
static pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
        uint64_t created, imported, graphs;
        uint64_t inherited; /* part of the imported bytes for which this process is charged */
} has[SESSION_DEVICES];

int trace_setup(void)
{
        const char *path = getenv("SIMCUDA_TRACE");

        if (!path)
                return 0;
        trace_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (trace_fd >= 0)
                return 0;
        sim_say("SIMCUDA_TRACE=%s: %s", path, strerror(errno));
        return -EINVAL;
}

/* Needs the lock. */
static void put(const char *line, int length)
{
        if (write(trace_fd, line, (size_t)length) < 0)
                sim_say("SIMCUDA_TRACE: %s", strerror(errno));
}

/* Needs the lock. */
static void say(unsigned device)
{
        uint64_t charged = session_charged(sim.session, device);
        char line[280];
        int n;

        n = snprintf(line, sizeof(line),
                     "{\"t_ns\":%llu,\"pid\":%d,\"event\":\"card\",\"gpu\":%u,\"bytes\":%llu,"
                     "\"created\":%llu,\"imported\":%llu,\"graphs\":%llu}\n",
                     (unsigned long long)clock_now_ns(), (int)getpid(), device,
                     (unsigned long long)(charged - has[device].inherited),
                     (unsigned long long)has[device].created,
                     (unsigned long long)has[device].imported,
                     (unsigned long long)has[device].graphs);
        put(line, n);
}

static bool begin(void)
{
        if (trace_fd < 0 || atomic_load(&sim.exiting))
                return false;
        pthread_mutex_lock(&trace_lock);
        return true;
}

static void end(unsigned device)
{
        /* say() reads the charge under the lock, so that the later of two lines has the later
         * numbers. */
        say(device);
        pthread_mutex_unlock(&trace_lock);
}

void trace_came(const struct physical *p)
{
        if (!begin())
                return;
        has[p->device].created += p->origin == PHYSICAL_CREATED ? p->bytes : 0;
        has[p->device].imported += p->origin == PHYSICAL_IMPORTED ? p->bytes : 0;
        has[p->device].graphs += p->origin == PHYSICAL_GRAPH ? p->bytes : 0;
        end(p->device);
}

void trace_inherited(const struct physical *p)
{
        if (!begin())
                return;
        has[p->device].inherited += p->bytes;
        end(p->device);
}

void trace_went(const struct physical *p)
{
        if (p->host || !begin())
                return;
        has[p->device].created -= p->origin == PHYSICAL_CREATED ? p->bytes : 0;
        has[p->device].imported -= p->origin == PHYSICAL_IMPORTED ? p->bytes : 0;
        has[p->device].graphs -= p->origin == PHYSICAL_GRAPH ? p->bytes : 0;
        has[p->device].inherited -= p->origin == PHYSICAL_IMPORTED && !p->imported ? p->bytes : 0;
        end(p->device);
}

void trace_card(unsigned device)
{
        if (begin())
                end(device);
}

void trace_lost(unsigned device)
{
        char line[128];

        if (!begin())
                return;
        put(line, snprintf(line, sizeof(line),
                           "{\"t_ns\":%llu,\"pid\":%d,\"event\":\"lost\",\"gpu\":%u}\n",
                           (unsigned long long)clock_now_ns(), (int)getpid(), device));
        pthread_mutex_unlock(&trace_lock);
}
