/* uuid.h: UUIDs of GPUs and of MIG instances, as CUDA's 16 bytes and as NVML's text. Pure. */
#pragma once

#include <stdint.h>

#define UUID_TEXT_MAX 41 /* "GPU-01234567-89ab-…", with the NUL */

/* Reads a UUID with or without "GPU-" or "MIG-" before it, and with or without its hyphens. 0 or
 * -EINVAL. */
int uuid_parse(const char *text, uint8_t ret[static 16]);
/* Writes a GPU's UUID. Returns ret. */
const char *uuid_format(const uint8_t uuid[static 16], char ret[static UUID_TEXT_MAX]);
