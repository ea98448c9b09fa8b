/* peer_access.h: memory of one GPU, used from another.
 *
 * The driver lets each GPU of a process copy from and to memory that the process has allocated on
 * another GPU; kernels may access it where the program has enabled that. A mapping must name each
 * GPU that may touch it (measured: otherwise only cuMemcpyPeer works). So the heap's memory is
 * mapped for all GPUs on which the process has had a context, as far as they can access each
 * other. */
#pragma once

/* The process has a context on one more GPU. core_lock not held; returns when all resident memory
 * is mapped accordingly. */
void peer_update(void);
