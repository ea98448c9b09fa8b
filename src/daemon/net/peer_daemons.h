/* peer_daemons.h: other daemons on this machine that use a card of ours, each with its own user's
 * programs.
 *
 * To a ledger their programs are foreign processes: NVML shows what they hold. So that a program
 * which does nothing does not lock another user out, a daemon whose client waits because of foreign
 * bytes says so (docs/protocol.md, "Between daemons"), and the daemons that hear it let idle
 * clients give way. There is no answer and no promise: a hostile sender moves idle memory, at the
 * pace of YIELD_NS, and nothing else. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct server;
struct peer_daemons;

/* 0, or -errno: no socket; then nobody is told, and nobody is heard. */
int peer_daemons_open(struct server *s);
void peer_daemons_close(struct server *s);

/* Every period: tell what our clients wait for, give way to what was heard. */
void peer_daemons_tick(struct server *s);
/* A client wants to allocate so much in all, foreign bytes are in the way, and there are peer
 * daemons that may have idle clients. */
bool peer_daemons_may_help(struct server *s, unsigned gpu, uint64_t commit);
/* They were waited for in vain: they cannot help for a while. */
void peer_daemons_did_not_help(struct server *s, unsigned gpu);
