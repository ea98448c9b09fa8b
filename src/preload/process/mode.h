/* mode.h: how a program's memory is shared (SUBLET_MEMORY, `sublet run --memory`). Read once, at
 * the first question; the same for all GPUs. Any thread. */
#pragma once

/* As the words of SETTING_MEMORY stand. */
enum memory_mode {
        MEMORY_SWAP, /* the default: moved in bulk; all of it is on the card whenever the program
                        runs */
        MEMORY_OVERFLOW, /* like swap, but what does not fit stays on the host, mapped */
        MEMORY_MANAGED,  /* managed memory: the driver brings in pages that are touched */
};

enum memory_mode mode_memory(void);
