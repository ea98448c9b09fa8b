/* event.h: events, for other files. */
#pragma once

#include "sim/call/objects.h"

/* For all streams of a context, including those of other threads and the default ones. */
CUresult context_record(CUcontext c, CUevent event);
CUresult context_await(CUcontext c, CUevent event);
/* The work before the record has ended; records: which record of the event it was. */
void event_stamp(CUevent event, uint64_t records);
