/* trace_model.h: the daemon's records as a list of what each program did, without I/O. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/wire_history.h"

#define TRACE_GPUS_MAX  16
#define TRACE_NO_TRACK  UINT16_MAX
#define TRACE_LABEL_MAX 96

enum trace_what {
        TRACE_WAITS,
        TRACE_WAITS_UNEVICTABLE,
        TRACE_RESTORES,
        TRACE_RUNS,
        TRACE_GROWS,
        TRACE_UNUSED,
        TRACE_PAUSED,
        TRACE_GIVES_WAY,
        TRACE_EVICTS,
        TRACE_SPANS, /* the ones above have a duration; the ones below happen at one moment */
        TRACE_COMES = TRACE_SPANS,
        TRACE_LEAVES,
        TRACE_MOVES,
        TRACE_MEMORY,
        TRACE_REFUSED,
        TRACE_STARTS,
        TRACE_SETTINGS,
        TRACE_ORDERED,
};

struct trace_event {
        enum trace_what what;
        uint64_t begin_ns, end_ns;
        uint16_t track;      /* the program: index of its first row; TRACE_NO_TRACK: the daemon */
        uint8_t gpu, detail; /* detail: the reason of REFUSED, the mode of STARTS and SETTINGS, the
                                enum history_order of ORDERED */
        uint8_t marks;       /* all enum history_marks in this time */
        bool going_on;
        uint64_t out, in; /* bytes evicted and restored */
        uint64_t lacks;   /* most bytes that it waited for */
        uint64_t value;  /* MEMORY: bytes on the GPU; STARTS, SETTINGS: the quantum; ORDERED: uid of
                            the person who gave the order, UINT32_MAX: unknown */
        size_t made_way; /* event of another program that let this turn begin, plus 1; 0: none */
};

struct trace_input {
        const struct history_program *programs;
        const struct history_record *records;
        size_t n_programs, n_records;
        uint64_t now_ns;
        uint64_t from_ns; /* events that ended before this time are left out */
};

struct trace {
        struct trace_event *events; /* in the order of their begins */
        size_t n;
};

/* Checks every number. 0 or -ENOMEM. The caller frees ret->events. */
int trace_read(const struct trace_input *in, struct trace *ret);

/* Returns the words for what a program does, and for TRACE_MEMORY. */
const char *trace_what_text(enum trace_what what);
/* Return the words for a refusal, and for an order. */
const char *trace_refusal_text(uint8_t code);
const char *trace_order_text(uint8_t order);
/* Writes "NAME (PID)"; a name that the viewer may not know is left out. */
void trace_label(const struct trace_input *in, uint16_t track, char ret[static TRACE_LABEL_MAX]);
