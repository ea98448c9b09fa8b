/* lent.h: host memory that the daemon lends this process, for its arenas (docs/protocol.md, "The
 * host pool").
 *
 * The daemon puts memory behind the offsets of a memfd, in their order, as far as it was asked to.
 * Each offset is used once; memory that is given back is taken away from the memfd, so the kernel
 * has it. After a restart of the daemon there is a new memfd; memory of the old one stays. There is
 * one lender for the process. Nothing here waits for the daemon: the agent asks and listens. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* ---- for arenas ---- */

enum lent {
        LENT_NONE,  /* the daemon lends nothing now: use other memory */
        LENT_ASKED, /* the daemon was asked, or is about to be: try again when it has answered */
        LENT_READY, /* some of the bytes can be mapped now */
};
/* Have so many bytes lent besides those that are mapped. Bytes are multiples of 2 MiB. For the
 * agent, which sends the request later. */
enum lent lent_want(uint64_t bytes);
/* Returns how many bytes can be mapped now. */
uint64_t lent_ready(void);
/* True if the daemon lends memory, at times. */
bool lent_is_there(void);
/* Returns how many more bytes the daemon may lend, if other processes take none, and in *ret_most
 * how many in all. */
uint64_t lent_left(uint64_t *ret_most);
/* Map so many bytes that are ready, aligned to 2 MiB. *ret_pool names their memfd for lent_unmap().
 * NULL: there are no longer so many, or they cannot be mapped. Any thread. */
char *lent_map(uint64_t bytes, uint32_t *ret_pool);
/* Give memory back, to the daemon's cgroup. Any thread. */
void lent_unmap(char *memory, uint64_t bytes, uint32_t pool);

/* Give back what is ready, and ask for nothing. Returns the bytes. For the agent. */
uint64_t lent_give_back(void);

/* ---- for the agent ---- */

/* The daemon lends at most so many bytes, and has filled its memfd so far. fd: the memfd, taken
 * over; -EBADF: none came. */
void lent_told(int fd, uint64_t most, uint64_t filled);
void lent_filled(uint64_t filled, bool refused);
/* The connection to the daemon has ended. */
void lent_parted(void);
/* True if the daemon is to be told these figures now (FILL). */
bool lent_to_say(uint64_t *ret_end, uint64_t *ret_kept);
/* In the child after fork: it has no lent memory. */
void lent_forget(void);
