/* gpu.h: --gpu of `run` and `env`: which GPUs the program sees. */
#pragma once

struct launch;

/* Sets CUDA_VISIBLE_DEVICES to the full UUIDs of the GPUs that text names: "auto", or a list of
 * NVML's numbers and of beginnings of UUIDs. Call it last: it starts a private daemon with the
 * launch's variables if there is none. CLI_OK, or an exit status after a message. */
int gpu_choose(struct launch *l, const char *text);
