/* ipc.h: CUDA IPC for memory of the heap, which the driver's own handles do not know.
 *
 * A handle names the process and, by a secret, the allocation. Who opens it is introduced to the
 * exporter by the daemon, and gets descriptors of the memory over a connection of their own
 * (docs/protocol.md, "Memory that others have open"). The exporter's side runs in the agent's
 * thread; the importer's in the thread that opens, but that the agent listens for it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct heap_place;
struct gpu;
struct passed;
struct wire_message;

/* What an address lies in that was opened; as for the heap's own. core_lock held. */
bool ipc_find(CUdeviceptr address, struct heap_place *ret, struct gpu **ret_gpu);
/* Its handles would reach somebody. core_lock held. */
bool ipc_works(void);
/* The allocation that began there is gone: its handle means nothing any more. core_lock held. */
void ipc_export_freed(CUdeviceptr start);
/* The context is about to be destroyed, and what was opened in it with it; nothing that was
 * submitted uses it any more. core_lock held, given up meanwhile. */
void ipc_context_dies(CUcontext context) REQUIRES(core_lock);
/* More GPUs can use the memory of this one: what was opened of it is mapped for them, too.
 * core_lock held, given up meanwhile. */
void ipc_import_reach(const struct gpu *g) REQUIRES(core_lock);

/* ---- for the agent; core_lock held ---- */

/* Answer what can be answered now; given up meanwhile. True: look again soon. */
bool ipc_step(void) REQUIRES(core_lock);
/* The daemon has been told our figures, but for those of GPUs that are still to be told. */
void ipc_told(void) REQUIRES(core_lock);
/* To be polled for reading; -EBADF: nothing to listen to. */
int ipc_poll_fd(void);
/* A daemon is there; what it knows of us has to be said again. */
void ipc_connected(void);
void ipc_disconnected(void);
void ipc_on_named(const struct wire_message *m);
void ipc_on_peered(const struct wire_message *m, struct passed *came);
void ipc_on_refused(const struct wire_message *m);

/* In the child after fork. */
void ipc_forget(void);
