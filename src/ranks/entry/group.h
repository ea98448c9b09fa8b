/* group.h: calls between ncclGroupStart() and ncclGroupEnd(), of one thread. */
#pragma once

#include "ranks/comm/comm.h"

void group_start(void);
/* Runs the calls that the group has collected. */
ncclResult_t group_end(void);
/* Ends the group like group_end(), but forgets what was collected since the first group_start(). */
void group_drop(void);
/* Within a group, collects a call of one of our communicators; otherwise runs it at once. */
ncclResult_t group_add(struct comm *c, const struct steps_call *call, CUstream stream);
/* Within a group, collect a communicator to make; otherwise make it at once. */
ncclResult_t group_make(const struct comm_plan *plan, ncclComm_t *ret);
ncclResult_t group_make_child(const struct comm_child *child, ncclComm_t *ret);
