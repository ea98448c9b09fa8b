/* ipc.h: handles that name a file of a living process. */
#pragma once

#include <stdint.h>

#include "cuda/cuda_abi.h"

enum { IPC_MEMORY = 0x4d504953, IPC_EVENT = 0x45504953 };

struct ipc_handle {
        uint32_t kind;
        int32_t pid, fd;
        uint32_t zero;
        uint64_t inode;
        uint64_t offset, bytes; /* place of the allocation in the file */
        uint64_t all;           /* length of the file */
        uint64_t reserved[2];
};
_Static_assert(sizeof(struct ipc_handle) == sizeof(CUipcMemHandle), "64 bytes");
_Static_assert(sizeof(CUipcEventHandle) == sizeof(CUipcMemHandle), "64 bytes");

/* Returns the inode of an open file; 0: fd is not open. */
uint64_t ipc_inode(int fd);
/* Returns a descriptor, or -1 if the process or its file is gone. */
int ipc_open(const struct ipc_handle *h);
