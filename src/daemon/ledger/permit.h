/* permit.h: whether a client may have what it requests, by what the owner gives it and by what its
 * user may hold. Whether the card has room is the scheduler's question. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct client;

/* True if the client may have this commit on the GPU. If not, why says what stands against it.
 * only_asks: nothing is requested yet, and the answer still holds after NVML's next sample. */
bool permit_commit(struct client *c, unsigned gpu, uint64_t commit, bool only_asks,
                   char why[static 160]);
/* True if the client may have so many unevictable bytes on the GPU. spare: some of them are for a
 * second context. */
bool permit_unevictable(struct client *c, unsigned gpu, uint64_t bytes, bool spare,
                        char why[static 160]);
/* The reason why a user's programs get no more unevictable or exported bytes. */
extern const char permit_share_text[];
