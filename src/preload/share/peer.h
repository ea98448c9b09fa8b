/* peer.h: memory of one GPU, used from another.
 *
 * The driver lets any of a process's GPUs copy from and to what it has allocated on another, and
 * kernels where the program has enabled it. What is mapped must name each GPU that may touch it
 * (measured: of the copies only cuMemcpyPeer works without), so the heap's memory is mapped for all
 * GPUs on which the process has had a context, as far as they can access each other. */
#pragma once

/* The process has a context on one more GPU. core_lock not held; returns when all resident memory
 * is mapped accordingly. */
void peer_update(void);
