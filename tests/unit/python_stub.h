/* python_stub.h: see python_stub.c. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default)
extern bool stub_finished;
extern bool stub_noted; /* a signal that Python has not acted on */
extern unsigned stub_handled;
extern uint32_t stub_rings; /* how often the bell had rung when it was called last */
extern _Atomic uint32_t *stub_bell;

int stub_is_initialized(void);
void stub_handler(int number);
void stub_detailed(int number, siginfo_t *info, void *context);
#pragma GCC visibility pop
