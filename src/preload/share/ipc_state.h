/* ipc_state.h: shared by ipc_link.c (connections to other processes), ipc_export.c (our memory that
 * others have open) and ipc_import.c (memory of others that we have open). No other file includes
 * it. core_lock is held in all functions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/state/core.h"
#include "preload/share/ipc.h"
#include "preload/process/passed.h"
#include "wire/wire.h"

#define IPC_NAME 16 /* bytes of a process's name, and of an allocation's secret */

/* The 64 bytes of a CUipcMemHandle. */
struct ipc_handle {
        uint8_t magic[8];
        uint8_t name[IPC_NAME];
        uint8_t secret[IPC_NAME];
        uint8_t uuid[16]; /* UUID of the card */
        uint8_t zero[8];
};
_Static_assert(sizeof(struct ipc_handle) == sizeof(CUipcMemHandle),
               "one in the place of the other");
#define IPC_MAGIC "\x9b\x1bsublet\x02"

struct ipc_link {
        struct ipc_link *next;
        int fd;
        bool exporter; /* true: the other process opens our memory */
        bool lost;
        uint8_t name[IPC_NAME]; /* name of the exporter */
        unsigned imports;
};

/* Functions of ipc_link.c. */
extern uint8_t ipc_name[IPC_NAME];
bool ipc_random(uint8_t bytes[static IPC_NAME]);
/* Make sure that this process has a name that the daemon knows or will know. Returns 0, or
 * -errno. */
int ipc_be_named(void) UNLOCKS(core_lock);
/* Returns the connection to the process of this name. NULL: none can be made. */
struct ipc_link *ipc_meet(const uint8_t name[static IPC_NAME]) REQUIRES(core_lock);
void ipc_send(struct ipc_link *l, struct wire_message *m, unsigned type, const int *fds,
              unsigned n_fds);
/* Close a connection that is no longer needed. */
void ipc_part(struct ipc_link *l);

/* Functions of ipc_export.c. */
void ipc_export_handle(struct ipc_link *l, const struct wire_message *m) REQUIRES(core_lock);
void ipc_export_lost(struct ipc_link *l) REQUIRES(core_lock);
bool ipc_export_step(void) UNLOCKS(core_lock);

/* Functions of ipc_import.c. */
void ipc_import_handle(struct ipc_link *l, const struct wire_message *m, struct passed *came)
        REQUIRES(core_lock);
void ipc_import_lost(struct ipc_link *l) REQUIRES(core_lock);
