/* nvml.h: what NVIDIA's management library says about the cards, loaded at run time if it is there.
 *
 * Not linked: subletd runs where there is no driver, too. The daemon's loop owns it; every call may
 * take some milliseconds. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define NVML_UUID_TEXT_MAX 96
#define NVML_NAME_MAX      96

struct nvml;

struct nvml_process {
        uint32_t pid;
        uint64_t used_bytes; /* UINT64_MAX: NVML does not say */
};

/* 0, -ENOENT: no library here; -ENOSYS: one that lacks what we need; -EIO: it does not start. */
int nvml_open(struct nvml **ret);
void nvml_close(struct nvml *n); /* NULL is a no-op */

unsigned nvml_count(const struct nvml *n);
int nvml_describe(const struct nvml *n, unsigned gpu, char ret_uuid[static NVML_UUID_TEXT_MAX],
                  char ret_name[static NVML_NAME_MAX]);
int nvml_memory(const struct nvml *n, unsigned gpu, uint64_t *ret_total, uint64_t *ret_used);
/* At most max processes. 0, -ENODATA: not known here, -EIO. */
int nvml_processes(const struct nvml *n, unsigned gpu, unsigned max, struct nvml_process *ret_list,
                   unsigned *ret_n);

/* "GPU-01234567-89ab-..." to its 16 bytes. 0 or -EINVAL. Pure. */
int nvml_parse_uuid(const char *text, uint8_t ret_uuid[static 16]);
/* And back. */
void nvml_format_uuid(const uint8_t uuid[static 16], char ret_text[static NVML_UUID_TEXT_MAX]);
