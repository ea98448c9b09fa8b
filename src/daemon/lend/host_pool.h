/* host_pool.h: host memory of the daemon that programs are evicted to, so that it does not count
 * against the limits of their containers.
 *
 * A process gets one memfd, of nearly endless size. When the process asks for it, the daemon puts
 * memory behind its offsets, from the lowest on and once for each. So the memory is charged to the
 * daemon's cgroup. The process frees memory that it needs no longer, and never uses those offsets
 * again. No two processes share a memfd, so nobody sees another's bytes. Only what the memfds
 * really hold counts, whatever clients say. A pool lives until its process has ended, even without
 * a connection. For the loop's thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

struct client;
struct host_pools;
struct server;

#define HOST_POOL_SIZE  (UINT64_C(1) << 56) /* size of a memfd: its process cannot change it */
#define HOST_POOL_PIECE (UINT64_C(64) << 20)

/* Makes server->host_pools. 0 or -errno. */
int host_pools_new(struct server *s);
void host_pools_free(struct server *s);

/* Call it when the client has attached a GPU: gives it the pool of its process, or a new one. */
void host_pool_attached(struct client *c);
/* Handles FILL. 0, or -EINVAL. */
int host_pool_fill(struct client *c, const struct wire_message *m);
/* Call it when the client's record ends. If its process has ended, its pool's memory is given
 * back. */
void host_pool_left(struct client *c);
/* Call it when the setting host_pool has changed. */
void host_pool_changed(struct server *s);

/* Returns the bytes of the client's pool, and of all pools. */
uint64_t host_pool_held(const struct client *c);
uint64_t host_pools_held(const struct server *s);

/* Whose pools must give something back before the client's pool may grow by so many bytes. */
enum host_pool_lack {
        HOST_POOL_LACKS_NOTHING, /* no pool must give back; or the client has no pool */
        HOST_POOL_LACKS_OF_TENANT,
        HOST_POOL_LACKS_OF_ALL,
};
/* Looks at every pool, so call it once for a message, not once for each client. */
enum host_pool_lack host_pool_lack(const struct client *c, uint64_t bytes);
/* True if host memory that `other` gives back may help c, which lacks it in this way. Also true for
 * an `other` without memory of a pool: it looks itself whether the host is short of memory. */
bool host_pool_helps(const struct client *other, const struct client *c, enum host_pool_lack lack);
