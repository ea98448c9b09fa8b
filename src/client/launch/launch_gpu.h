/* launch_gpu.h: --gpu and --verbose of `run` and `env`: which GPUs the program sees. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/daemon_paths.h"

struct launch;

/* Sets CUDA_VISIBLE_DEVICES to the GPUs that text names: "auto", or a list of NVML's numbers and of
 * beginnings of UUIDs. The value has full UUIDs or, where CUDA counts as NVML does, numbers, and
 * then CUDA_DEVICE_ORDER is set, too. Call it last: it starts a private daemon with the launch's
 * variables if there is none. CLI_OK, or an exit status after a message. */
int gpu_choose(struct launch *l, const char *text);

/* Sets CUDA_VISIBLE_DEVICES to one GPU that the daemon has named. If the daemon has just ended, the
 * value is the UUID. */
int gpu_show(struct launch *l, const char *dir, enum paths_kind kind, const char *uuid);

/* Writes how many programs share each GPU that CUDA_VISIBLE_DEVICES shows, and how much of the GPU
 * is free. visible: the variable's value; NULL: unset. Pure. */
void gpu_line(const json_t *status, const char *visible, char *line, size_t n);

/* r: what an order to a daemon has returned. Starts a private daemon with the launch's variables,
 * as the library does, if there is none. False: it makes no sense to give the order again. */
bool gpu_daemon_comes(const struct launch *l, const char *dir, enum paths_kind kind, int r);
/* Sleeps before the order is given again for the n-th time. False: give it no more. */
bool gpu_await_daemon(int r, unsigned n);

/* Prints the line of gpu_line() to stderr, for a program that is about to start. If the daemon does
 * not answer, prints why. Starts a private daemon as gpu_choose() does. */
void gpu_tell(const struct launch *l);
