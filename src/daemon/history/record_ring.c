/* record_ring.c: owns the memory of the records. Must never block, nor use a number from it as an
 * index before checking its bound: an earlier worker that crashed may have written anything.
 * Why: docs/decisions.md, "The history is always on, and costs too little to be off". */
#include "daemon/history/record_ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/macros.h"

struct ring {
        uint64_t count; /* records ever appended */
        struct history_program programs[HISTORY_PROGRAMS];
        struct peer peers[HISTORY_PROGRAMS]; /* the processes of the programs; readers do not get
                                                them */
        struct history_record records[HISTORY_RECORDS];
};

struct ring *ring_new(void)
{
        void *p = mmap(NULL, sizeof(struct ring), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        return p == MAP_FAILED ? NULL : p;
}

void ring_free(struct ring *r)
{
        if (r)
                (void)munmap(r, sizeof(*r));
}

void ring_take(struct ring *r, uint64_t now_ns)
{
        (void)madvise(r, sizeof(*r), MADV_DONTFORK);
        for (size_t i = 0; i < HISTORY_PROGRAMS && r->programs[i].began_ns; i++)
                if (!r->programs[i].ended_ns)
                        r->programs[i].ended_ns = now_ns;
}

uint16_t ring_enter(struct ring *r, const struct peer *peer, const char *name, uint64_t now_ns)
{
        struct history_program *best = NULL;

        for (struct history_program *p = r->programs; p < r->programs + HISTORY_PROGRAMS; p++) {
                if ((!p->began_ns || p->ended_ns) && (!best || p->ended_ns < best->ended_ns))
                        best = p;
                if (!p->began_ns) /* no row behind it was ever used */
                        break;
        }
        if (!best)
                return HISTORY_NO_PROGRAM;
        *best = (struct history_program){
                .began_ns = now_ns, .pid = (int32_t)peer->pid, .uid = (uint32_t)peer->uid};
        (void)snprintf(best->name, sizeof(best->name), "%s", name);
        r->peers[best - r->programs] = *peer;
        return (uint16_t)(best - r->programs);
}

struct peer ring_peer(const struct ring *r, size_t program)
{
        return r->peers[program];
}

void ring_leave(struct ring *r, uint16_t program, uint64_t now_ns)
{
        r->programs[program].ended_ns = now_ns;
}

void ring_append(struct ring *r, const struct history_record *record)
{
        r->records[r->count % HISTORY_RECORDS] = *record;
        r->count++;
}

uint64_t ring_count(const struct ring *r)
{
        return r->count;
}

void *ring_copy(const struct ring *r, struct ring_copy *ret)
{
        const size_t n = MIN(r->count, (uint64_t)HISTORY_RECORDS),
                     first = n < HISTORY_RECORDS ? 0 : r->count % HISTORY_RECORDS;
        size_t programs = 0, bytes;
        char *copy, *to;

        while (programs < HISTORY_PROGRAMS && r->programs[programs].began_ns)
                programs++;
        bytes = programs * sizeof(*r->programs) + n * sizeof(*r->records);
        copy = to = malloc(bytes + 1);
        if (!copy)
                return NULL;
        to = mempcpy(to, r->programs, programs * sizeof(*r->programs));
        to = mempcpy(to, r->records + first, (n - first) * sizeof(*r->records));
        memcpy(to, r->records, first * sizeof(*r->records));
        *ret = (struct ring_copy){programs, n, bytes};
        return copy;
}
