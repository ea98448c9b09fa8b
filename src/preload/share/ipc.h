/* ipc.h: CUDA IPC for memory of the heap, which the driver's own IPC cannot share.
 *
 * A handle names the process and, by a secret, the allocation. The daemon connects the opening
 * process to the exporter, which sends descriptors of the memory over that connection
 * (docs/protocol.md, "Memory that others have open"). The exporter's side runs in the agent's
 * thread. The importer's side runs in the thread that opens the memory; the agent only receives the
 * messages for it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct heap_place;
struct stretch;
struct gpu;
struct passed;
struct wire_message;

/* Finds the opened memory that holds an address, as core_find() does for the heap's own memory.
 * core_lock held. */
bool ipc_find(CUdeviceptr address, struct heap_place *ret, struct gpu **ret_gpu);
/* Narrows a stretch around an address, as heap_narrow() does for the heap's own memory. core_lock
 * held. */
bool ipc_narrow(CUdeviceptr address, struct stretch *s);
/* True if handles of this process would work in another process. core_lock held. */
bool ipc_works(void);
/* The allocation that began at this address is gone: its handle is invalid from now on. core_lock
 * held. */
void ipc_export_freed(CUdeviceptr start);
/* The context is about to be destroyed: close the memory that was opened in it. No submitted work
 * uses that memory any more. */
void ipc_context_dies(CUcontext context) UNLOCKS(core_lock);
/* More GPUs can access this GPU's memory: map the memory opened on it for them, too. */
void ipc_import_reach(const struct gpu *g) UNLOCKS(core_lock);

/* ---- for the agent; core_lock held ---- */

/* Answer the requests that can be answered now. True: call again soon. */
bool ipc_step(void) UNLOCKS(core_lock);
/* The daemon now knows our figures, except those of GPUs with gpu.usage_dirty set. */
void ipc_told(void) REQUIRES(core_lock);
/* Returns a descriptor to poll for reading; -EBADF: there is none. */
int ipc_poll_fd(void);
/* A new daemon is connected: tell it our name, if we have one. */
void ipc_connected(void);
void ipc_disconnected(void);
void ipc_on_named(const struct wire_message *m);
void ipc_on_peered(const struct wire_message *m, struct passed *came);
void ipc_on_refused(const struct wire_message *m);

/* Call it in the child after fork: the connections belong to the parent. */
void ipc_forget(void);
