/* trace.h: SIMCUDA_TRACE=FILE writes a JSON line when this process's memory on a card has changed,
 * before the call that changed it returns:
 * {"t_ns":...,"pid":...,"event":"card","gpu":0,"bytes":...,"created":...,"imported":...,"graphs":...}
 * created: bytes from cuMemCreate, and imported bytes that no other process had any more at the
 * import; imported: all other imported bytes, even if this process is charged for them now. bytes:
 * charged bytes without managed and imported memory; graphs: the part of them that graphs have
 * allocated. The last line is always up to date. Thread-safe. */
#pragma once

struct physical;

int trace_setup(void); /* 0, or -EINVAL after a message that the file cannot be opened */
/* Writes a line after memory was made or imported. Call it before other processes can use the
 * memory. */
void trace_came(const struct physical *p);
/* Writes a line after this process was charged for imported memory. */
void trace_inherited(const struct physical *p);
/* Writes a line after memory was freed. */
void trace_went(const struct physical *p);
/* Writes a line after any other change. */
void trace_card(unsigned device);
/* Writes {"t_ns":...,"pid":...,"event":"lost","gpu":0}: the card is about to vanish for all
 * processes. After this line no memory is freed. */
void trace_lost(unsigned device);
