/* trace.h: SIMCUDA_TRACE=FILE writes a JSON line whenever what this process has of a card has
 * changed, before the call that changed it returns:
 * {"t_ns":...,"pid":...,"event":"card","gpu":0,"bytes":...,"created":...,"imported":...,"graphs":...}
 * created: what cuMemCreate made, or what was imported when nobody else had it any more; imported:
 * what was imported otherwise, whoever is charged for it now. bytes: all that this process is
 * charged for, but managed and imported memory; graphs: of that, what graphs have allocated.
 * Thread-safe; what the last line says is so. */
#pragma once

struct physical;

int trace_setup(void); /* 0, -EINVAL: the file cannot be opened, which was printed */
/* Memory was made or imported; is charged to us from now on; is gone. Called before other processes
 * can find it. */
void trace_came(const struct physical *p);
void trace_inherited(const struct physical *p);
void trace_went(const struct physical *p);
/* Anything else. */
void trace_card(unsigned device);
/* {"t_ns":...,"pid":...,"event":"lost","gpu":0}: the card is about to vanish, for everybody; from
 * now on nothing is taken back. */
void trace_lost(unsigned device);
