/* room.c: a fake of room.h for unit tests: a GPU takes as many bytes as a test says. */
#include "unit.h"

#include "fakes/preload.h"
#include "preload/pool/room.h"

#define WEAK __attribute__((weak))

uint64_t gpu_room = UINT64_MAX;
WEAK uint64_t room_allowed(const struct gpu *g)
{
        return gpu_room;
}

WEAK int room_commit(struct gpu *g, uint64_t more)
{
        return -1;
}

WEAK bool room_grow(struct gpu *g, uint64_t more)
{
        return false;
}

WEAK void room_tell(const struct gpu *g, uint64_t more)
{
}

WEAK void room_tell_unevictable(const struct gpu *g, uint64_t more)
{
}

WEAK void room_taken(struct gpu *g)
{
}
