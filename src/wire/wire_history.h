/* wire_history.h: what has happened on the GPUs, as the daemon keeps it and as it answers the order
 * `trace`: an array of programs, then an array of records.
 *
 * All numbers are in the byte order of the machine, because both ends are on one machine. A reader
 * must check every number: a daemon that crashed may have written anything. */
#pragma once

#include <stdint.h>

#define HISTORY_SCHEMA     1 /* raise it when a layout or a meaning changes */
#define HISTORY_PROGRAMS   4096u
#define HISTORY_RECORDS    (96u * 1024u)
#define HISTORY_NO_PROGRAM 0xffffu /* the record is about the daemon */

enum history_kind {
        HISTORY_START =
                1,        /* a daemon begins: state is its mode, value its quantum (0: automatic) */
        HISTORY_SETTINGS, /* settings have changed: state and value as for START */
        HISTORY_STATE,    /* a program enters a state on a GPU: value is the bytes that it has
                             there, more the bytes that it waits for */
        HISTORY_OUT,      /* value: bytes evicted since the last OUT; more: bytes on the GPU now */
        HISTORY_IN,       /* value: bytes restored since the last IN; more: bytes on the GPU now */
        HISTORY_MEMORY,   /* the program has value bytes on the GPU */
        HISTORY_REFUSED,  /* a request was refused: state is an enum wire_refusal */
        HISTORY_ORDER,    /* a person's order: state is an enum history_order, value his uid, more
                             the process that gave it; (uint32_t)-1 and 0: the viewer may not know */
};

enum history_order {
        HISTORY_PAUSE = 1,
        HISTORY_RESUME,
        HISTORY_EVICT,
        HISTORY_SET, /* a setting: of the program or, without a program, of the daemon */
        HISTORY_RELOAD,
        HISTORY_STOP,
};

enum history_state {
        HISTORY_IDLE,
        HISTORY_WAITING,
        HISTORY_RESTORING,
        HISTORY_RUNNING,
        HISTORY_DRAINING,
        HISTORY_EVICTING,
        HISTORY_ABSENT, /* it has not come yet, or has left */
};

enum history_marks {
        HISTORY_UNUSED = 1 << 0,      /* it runs, with nothing in flight */
        HISTORY_GROWS = 1 << 1,       /* it runs, and an allocation waits for room */
        HISTORY_UNEVICTABLE = 1 << 2, /* it waits for bytes that cannot be moved */
        HISTORY_FROZEN = 1 << 3,      /* its channels are off the GPU */
        HISTORY_PAUSED = 1 << 4,      /* it is paused by a person's order */
        HISTORY_OVERDUE = 1 << 5,     /* it was asked to give way, and has not */
        HISTORY_LOST = 1 << 6,        /* its connection is gone */
};

/* A record of another kind than STATE has no marks and no state before. */
struct history_record {
        uint64_t time_ns; /* CLOCK_MONOTONIC; records of one program are in order */
        uint64_t value, more;
        uint16_t program; /* index of its row; valid if the row's time includes this time */
        uint8_t gpu;
        uint8_t kind;                 /* enum history_kind */
        uint8_t state, marks;         /* enum history_state, enum history_marks */
        uint8_t before, before_marks; /* the same, before this record */
};

/* One connection of a process that uses a GPU. After the connection has ended, the row may hold
 * another one. */
struct history_program {
        uint64_t began_ns; /* 0: the row is empty */
        uint64_t ended_ns; /* 0: it has not ended */
        int32_t pid;
        uint32_t uid;  /* (uint32_t)-1: the viewer may not know it */
        char name[64]; /* empty: the viewer may not know it */
};

_Static_assert(sizeof(struct history_record) == 32, "no padding");
_Static_assert(sizeof(struct history_program) == 88, "no padding");
