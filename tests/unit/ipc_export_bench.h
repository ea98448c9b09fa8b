/* ipc_export_bench.h: memory of this process that two others open. A test sets the answers of
 * exports, gate and driver; messages to the others are recorded. */
#pragma once

#include "fakes/neighbours.h"
#include "preload/share/ipc_state.h"
#include "preload/move/export.h"

#define PIECES    10u /* of an allocation, two more than a message brings */
#define SENT_MOST 16u

static struct gpu *const gpu = &core.gpus[0];

extern uint64_t clock_ns;
extern bool inside, busy; /* threads in the driver, work in flight */
extern bool no_daemon, no_export;
extern int named, replace_error;    /* of ipc_be_named(), of extent_replace() */
extern CUdeviceptr freed_meanwhile; /* by another thread, while we get our name */
extern CUdeviceptr second;  /* a request of another thread while the first one is replaced */
extern unsigned held_again; /* the gate, then */
extern enum export_state state_of_exports;
extern unsigned exports, given, released, replaced, of_driver;
extern unsigned exported, export_fails_at; /* the number of the piece; 0: none does */

extern struct sent {
        const struct ipc_link *to;
        struct wire_message m;
        unsigned fds;
} sent[SENT_MOST];
extern unsigned sent_count;
const struct wire_message *last_said(const struct ipc_link *l);
unsigned said(const struct ipc_link *l, unsigned type);

extern struct ipc_link first, other;
extern struct ipc_handle handle;
extern CUdeviceptr start; /* of the block of the handle */

CUdeviceptr resident(uint64_t bytes);
/* As the agent calls it. True: a message was answered. */
bool step(void);
/* It asks for pieces from this one on, or sends another message; all consequences are handled on
 * return. */
void ask(struct ipc_link *l, uint32_t from);
void say(struct ipc_link *l, unsigned type);
void free_it(void);

int one_allocation(void **state);
int no_allocation(void **state);

#define IPC_TEST(name) cmocka_unit_test_setup_teardown(name, one_allocation, no_allocation)
