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

/* The opened memory that holds an address, as core_find() for the heap's own. core_lock held. */
bool ipc_find(CUdeviceptr address, struct heap_place *ret, struct gpu **ret_gpu);
/* Whether its handles would work in another process. core_lock held. */
bool ipc_works(void);
/* The allocation that began at this address is gone: its handle is invalid from now on. core_lock
 * held. */
void ipc_export_freed(CUdeviceptr start);
/* The context is about to be destroyed, and with it the memory opened in it; no submitted work uses
 * it any more. */
void ipc_context_dies(CUcontext context) UNLOCKS(core_lock);
/* More GPUs can use this GPU's memory: map what was opened of it for them, too. */
void ipc_import_reach(const struct gpu *g) UNLOCKS(core_lock);

/* ---- for the agent; core_lock held ---- */

/* Answer the requests that can be answered now. True: call again soon. */
bool ipc_step(void) UNLOCKS(core_lock);
/* The daemon has our figures, except those of GPUs that still have unsent ones. */
void ipc_told(void) REQUIRES(core_lock);
/* A descriptor to poll for reading; -EBADF: there is none. */
int ipc_poll_fd(void);
/* A new daemon is connected: tell it again what the last one knew. */
void ipc_connected(void);
void ipc_disconnected(void);
void ipc_on_named(const struct wire_message *m);
void ipc_on_peered(const struct wire_message *m, struct passed *came);
void ipc_on_refused(const struct wire_message *m);

/* In the child after fork. */
void ipc_forget(void);
