/* group.h: calls between ncclGroupStart() and ncclGroupEnd(), of one thread. */
#pragma once

#include "ranks/comm/comm.h"

void group_start(void);
/* Does what the group has collected. */
ncclResult_t group_end(void);
/* As group_end(), but forgets what was collected since the first group_start(). */
void group_drop(void);
/* A call of a communicator of ours: collected in a group, else done at once. */
ncclResult_t group_add(struct comm *c, const struct steps_call *call, CUstream stream);
/* A communicator to make, likewise. */
ncclResult_t group_make(const struct comm_plan *plan, ncclComm_t *ret);
ncclResult_t group_make_child(const struct comm_child *child, ncclComm_t *ret);
