/* peer_daemons.h: other daemons on this machine that use one of our cards, each with the programs
 * of its own user.
 *
 * To our ledger their programs are foreign processes, which NVML shows. An idle program must not
 * lock another user out. So a daemon whose client waits because of foreign bytes says so
 * (docs/protocol.md, "Between daemons"), and the daemons that hear it let idle clients give way.
 * There is no answer and no promise: a hostile sender can move idle memory, and nothing else. If
 * nobody takes the bytes that became free, he can do so ever less often (REST_NS). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct server;
struct peer_daemons;

/* Opens the socket. 0, or -errno: without a socket no daemon is told, and none is heard. */
int peer_daemons_open(struct server *s);
void peer_daemons_close(struct server *s);

/* Call it in each period: tells what our clients wait for, and gives way to the needs heard. */
void peer_daemons_tick(struct server *s);
/* True if foreign bytes are in the way of this commit, and peer daemons may have idle clients that
 * can give way. */
bool peer_daemons_may_help(struct server *s, unsigned gpu, uint64_t commit);
/* True if there are other daemons on this machine. */
bool peer_daemons_exist(struct server *s);
/* Notes that waiting for peer daemons was in vain: for a while they count as unable to help. */
void peer_daemons_did_not_help(struct server *s, unsigned gpu);
