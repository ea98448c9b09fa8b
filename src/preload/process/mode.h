/* mode.h: how a program's memory is shared (SUBLET_MEMORY, `sublet run --memory`). The
 * setting is read once, at the first call, and is the same for all GPUs. Any thread. */
#pragma once

/* The modes, in the order of the words of SETTING_MEMORY. */
enum memory_mode {
        MEMORY_SWAP,     /* the default: all memory is on the card while the program runs */
        MEMORY_OVERFLOW, /* like swap, but memory that does not fit is mapped from the host */
        MEMORY_MANAGED,  /* managed memory: the driver brings in pages that are touched */
};

enum memory_mode mode_memory(void);
