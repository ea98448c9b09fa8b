/* event_values.h: lets one stream wait for another one without holding the card.
 *
 * A program's stream that waits for an event keeps its process on the GPU until the end of its time
 * slice, although nothing runs. A stream that waits for a value in memory gives the rest of the
 * slice away. So an event behind work that may wait for other ranks gets a value, which the stream
 * writes behind the event, and a stream that is to wait for the event first waits for this value.
 * The wait for the event itself stays, so a missing value costs time, never order. Source:
 * docs/measurements/slices.md. Any thread. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"

/* Begins to give values to events: this process shares the card with other ranks. */
void events_begin(void);
/* Says that work which may wait for other ranks goes into a stream. captured: into a graph. */
void events_note_wait(CUstream stream, bool captured);
/* Work like cuEventRecord(), cuStreamWaitEvent(), cuEventDestroy() and cuStreamDestroy(). */
CUresult events_record(CUevent event, CUstream stream);
CUresult events_wait(CUstream stream, CUevent event);
CUresult events_destroy(CUevent event);
CUresult events_destroy_stream(CUstream stream);
/* True if the stream has passed the event, as far as the event's value tells. Calls no function of
 * the driver, and waits for nothing. */
bool events_has_passed(CUevent event);
/* Returns what the program gets for a function of the driver; NULL: that function itself. */
void *events_replace(const char *symbol);
