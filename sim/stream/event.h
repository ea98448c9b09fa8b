/* event.h: events, for other files. */
#pragma once

#include "sim/call/objects.h"

/* Both functions act on all streams of a context, default streams and those of other threads
 * included. */
CUresult context_record(CUcontext c, CUevent event);
CUresult context_await(CUcontext c, CUevent event);
/* Stamps the time when the work before a record has ended. records: the number of that record. */
void event_stamp(CUevent event, uint64_t records);
