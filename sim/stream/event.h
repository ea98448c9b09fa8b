/* event.h: what others need of events. */
#pragma once

#include "sim/call/objects.h"

/* Of, and for, all streams of a context, those of other threads and of no name included. */
CUresult context_record(CUcontext c, CUevent event);
CUresult context_await(CUcontext c, CUevent event);
/* Its work has been reached; records: which of its records it was. */
void event_stamp(CUevent event, uint64_t records);
