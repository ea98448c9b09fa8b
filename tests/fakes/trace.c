/* trace.c: a fake for unit tests: remembers the events of the trace. */
#include "unit.h"

#include "fakes/preload.h"
#include "preload/process/trace.h"

#define WEAK   __attribute__((weak))
#define EVENTS 32u

struct trace_seen trace_last;
static struct {
        const char *event;
        unsigned count;
} seen[EVENTS];

WEAK void trace_event(const char *event, unsigned gpu, uint64_t bytes)
{
        unsigned i = 0;

        while (i < EVENTS && seen[i].event && strcmp(seen[i].event, event) != 0)
                i++;
        assert_true(i < EVENTS);
        seen[i].event = event;
        seen[i].count++;
        trace_last = (struct trace_seen){event, bytes};
}

unsigned trace_count(const char *event)
{
        for (unsigned i = 0; i < EVENTS && seen[i].event; i++)
                if (strcmp(seen[i].event, event) == 0)
                        return seen[i].count;
        return 0;
}

void trace_reset(void)
{
        memset(seen, 0, sizeof(seen));
}
