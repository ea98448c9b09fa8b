/* owner.h: does the owner of this machine require that programs share the GPU? The daemon is not
 * asked, because it may be dead. No glibc symbol past 2.17 is used, because the preload library
 * calls these functions. Thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define OWNER_FILE     "/etc/sublet/subletd.conf"
#define OWNER_REQUIRES "the owner of this machine requires sharing (" OWNER_FILE ")"

enum owner_says {
        OWNER_NOT_KNOWN, /* the process has no descriptor left to read the file */
        OWNER_SAYS_NO,
        OWNER_SAYS_YES,
        OWNER_IN_DOUBT, /* the file says yes, but others than root may write it */
};

enum owner_says owner_requires(void);
/* True if the text of the file has `require = yes` under [daemon]; the last such key counts. */
bool owner_text_requires(const char *text, size_t n);
