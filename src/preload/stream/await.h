/* await.h: waits for the GPU's work that Ctrl-C, or a notebook's interrupt, can end.
 *
 * The driver's waits end when the work ends, and no signal ends them. But the work of a program
 * that stands still may not end for minutes. So the main thread of a Python program asks for the
 * end of the work again and again, before the driver's wait. While the program stands still, an
 * interrupt ends the wait with CUDA_ERROR_OPERATING_SYSTEM (interrupt.h). The work goes on when the
 * program runs again.
 *
 * No lock is held. In all other threads and programs these functions return at once. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"

/* True: an interrupt ended the wait, so the call must end. False: make the driver's call. */
bool await_stream(CUstream stream);
bool await_event(CUevent event);
bool await_context(CUcontext context); /* NULL: the current one */
