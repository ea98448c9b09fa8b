/* ranks.h: the processes of the ranks, as their parent sees them. */
#pragma once

#include <stdbool.h>

/* Starts all ranks. They wait for orders; their CUDA and NCCL begin in them, after the fork. */
void ranks_start(int n);
/* Lets all ranks do the check. True if all have done it. Otherwise none is left: *ret_text says
 * why. */
bool ranks_do(int check, double seconds, const char **ret_text);
/* Lets the ranks end. True if all ended well. */
bool ranks_end(double seconds, const char **ret_text);
bool ranks_running(void);

#define CHECK_START (-1) /* makes the context and the communicator of all ranks */
#define CHECK_END   (-2)
