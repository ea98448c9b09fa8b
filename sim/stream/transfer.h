/* transfer.h: what copies, fills and values in memory do, and the time that they take. */
#pragma once

#include "sim/queue/work.h"

CUresult copy_run(CUcontext c, const struct work_copy *w);
CUresult set_run(CUcontext c, const struct work_set *w);
CUresult value_write(CUcontext c, const struct work_value *w);
CUresult value_wait(CUcontext c, const struct work_value *w);
/* Wait until about the time at which the bus would be done. */
void transfer_keep_pace(uint64_t ready_ns);
/* Sleep for part of the time. False: it is over. */
bool transfer_nap(uint64_t ready_ns);
