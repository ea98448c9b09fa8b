/* notice.h: when the user of a program is told that it waits for its turn.
 *
 * A person who runs the cell of a notebook must see soon why nothing happens. A program that
 * computes for hours beside others waits many times, and must not fill its log. Pure: the caller
 * passes the times. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* All zero: nothing has been told yet. */
struct notice {
        uint64_t waits_since_ns; /* 0: the program does not wait */
        uint64_t rests_since_ns; /* 0: the program does not rest */
        uint64_t asked_ns;       /* when the daemon was asked who is in the way; 0: not yet */
        uint64_t told_ns;        /* when a wait was last told; 0: never */
        bool told;               /* the present wait has been told */
        bool rested;             /* the program has rested since a wait was last told */
};

enum notice_doing {
        NOTICE_RESTS, /* the program has no work */
        NOTICE_RUNS,
        NOTICE_WAITS,
};

enum notice_act {
        NOTICE_NOTHING,
        NOTICE_ASK,  /* ask the daemon who is in the way; `known` says that it has answered */
        NOTICE_TELL, /* tell the wait */
        NOTICE_OVER, /* tell that the wait, which was told, is over */
};

/* Call it whenever one of the arguments has changed, and at *ret_next_ns. *ret_waited_ns: how long
 * the program has waited. */
enum notice_act notice_step(struct notice *n, enum notice_doing doing, bool known, uint64_t now_ns,
                            uint64_t *ret_waited_ns, uint64_t *ret_next_ns);
