/* ipc_export_bench.h: memory of this process that two other processes open. A test sets the answers
 * of exports, gate and driver; the bench records the messages to the two processes. */
#pragma once

#include "fakes/preload.h"
#include "preload/share/ipc_state.h"
#include "preload/move/export.h"

#define PIECES    10u /* pieces of an allocation, two more than one message brings */
#define SENT_MOST 16u

static struct gpu *const gpu = &core.gpus[0];

extern uint64_t clock_ns;
extern bool no_export;
extern int named, replace_error;    /* results of ipc_be_named() and extent_replace() */
extern CUdeviceptr freed_meanwhile; /* address that another thread frees while we get our name */
extern CUdeviceptr second;  /* address that another thread exports while extent_replace() runs */
extern unsigned held_again; /* GATE_HELD after that export; 0: the gate was open */
extern enum export_state state_of_exports;
extern unsigned exports, given, replaced, of_driver;
extern unsigned exported, export_fails_at; /* number of the piece whose export fails; 0: none */

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
extern CUdeviceptr start; /* start of the handle's block */

CUdeviceptr resident(uint64_t bytes);
/* Calls ipc_export_step() as the agent does. True: a message was answered. */
bool step(void);
/* The peer asks for pieces from this one on, or sends another message; all consequences are handled
 * on return. */
void ask(struct ipc_link *l, uint32_t from);
void say(struct ipc_link *l, unsigned type);
void free_it(void);

int one_allocation(void **state);
int no_allocation(void **state);

#define IPC_TEST(name) cmocka_unit_test_setup_teardown(name, one_allocation, no_allocation)
