/* lent.h: host memory that the daemon lends this process, for its arenas (docs/protocol.md, "The
 * host pool").
 *
 * The daemon fills a memfd with memory from offset 0 on, as far as the library asks. Each offset is
 * used once: memory given back becomes a hole in the memfd. A restarted daemon sends a new memfd;
 * memory of the old one stays mapped. The process has one lender. No function here waits for the
 * daemon: the agent sends the requests and receives the answers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* ---- for arenas ---- */

enum lent {
        LENT_NONE,  /* the daemon lends nothing now: use other memory */
        LENT_ASKED, /* the daemon was asked, or is about to be: try again when it has answered */
        LENT_READY, /* some of the bytes can be mapped now */
};
/* Request this many bytes, a multiple of 2 MiB, besides those that are mapped. For the agent, which
 * sends the request later. */
enum lent lent_want(uint64_t bytes);
/* Returns how many bytes can be mapped now. */
uint64_t lent_ready(void);
/* True if the daemon lends memory, even if none is ready now. */
bool lent_is_there(void);
/* Returns how many more bytes the daemon may lend, if other processes take none. *ret_most: how
 * many it lends in all. */
uint64_t lent_left(uint64_t *ret_most);
/* Map this many ready bytes, aligned to 2 MiB. *ret_pool names their memfd for lent_unmap(). NULL:
 * fewer bytes are ready, or they cannot be mapped. Any thread. */
char *lent_map(uint64_t bytes, uint32_t *ret_pool);
/* Give memory back, to the daemon's cgroup. Any thread. */
void lent_unmap(char *memory, uint64_t bytes, uint32_t pool);

/* Give back the ready bytes that are not mapped, and request no more. Returns their number. For the
 * agent. */
uint64_t lent_give_back(void);

/* ---- for the agent ---- */

/* The daemon has said that it lends at most `most` bytes, and has filled the memfd up to `filled`.
 * fd: the memfd, which the lender closes; -EBADF: the daemon has sent none. */
void lent_told(int fd, uint64_t most, uint64_t filled);
void lent_filled(uint64_t filled, bool refused);
/* The connection to the daemon has ended. */
void lent_parted(void);
/* True if the daemon is to be told these figures now (FILL). */
bool lent_to_say(uint64_t *ret_end, uint64_t *ret_kept);
/* Call it in the child after fork, which has no lent memory. */
void lent_forget(void);
