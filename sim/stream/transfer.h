/* transfer.h: runs copies, fills and values in memory, and models their time. */
#pragma once

#include "sim/queue/work.h"

CUresult copy_run(CUcontext c, const struct work_copy *w);
CUresult set_run(CUcontext c, const struct work_set *w);
CUresult value_write(CUcontext c, const struct work_value *w);
CUresult value_wait(CUcontext c, const struct work_value *w);
/* Sleeps until about ready_ns, the time at which the modelled bus is done. */
void transfer_keep_pace(uint64_t ready_ns);
/* Sleeps for a part of the time until ready_ns. Returns false if that time has passed. */
bool transfer_nap(uint64_t ready_ns);
