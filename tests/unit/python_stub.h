/* python_stub.h: the variables and functions of python_stub.c that tests use. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default)
extern bool stub_finished;
extern bool stub_noted; /* a signal has arrived that Python has not handled yet */
extern unsigned stub_handled;
extern uint32_t stub_rings; /* value of the bell at the last call */
extern _Atomic uint32_t *stub_bell;

int stub_is_initialized(void);
void stub_handler(int number);
void stub_detailed(int number, siginfo_t *info, void *context);
#pragma GCC visibility pop
