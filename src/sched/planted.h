/* planted.h: mistakes that the scheduler's own tests must notice.
 *
 * A test that never fails proves nothing. Each mistake is one that a programmer could really make.
 * A build with -DSCHED_BUG=n contains the n-th mistake, and one of the scheduler's tests has to
 * report it (tests/unit/planted.cmake). A usual build contains none of them. */
#pragma once

#ifndef SCHED_BUG
#define SCHED_BUG 0
#endif

enum planted {
        PLANTED_NONE,
        PLANTED_ALLOWED_NOT_CHARGED, /* allowed unevictable bytes are charged only once used */
        PLANTED_HEADROOM_OFF_BY_ONE, /* one byte of the headroom is given away */
        PLANTED_PROMISED_BYTES,      /* a lowered limit frees its bytes before they are released */
        PLANTED_GRANT_TOO_EARLY,     /* a lease is granted before its memory is restored */
        PLANTED_LOST_NOT_CHARGED,    /* a lost connection is taken for a death */
        PLANTED_LATEST_FIRST,        /* the latest deadline is served first */
        PLANTED_STALE_LEASE,         /* DRAINED of an old lease ends the current one */
        PLANTED_STALE_USAGE,         /* a USAGE that was sent before a LIMIT counts as its answer */
        PLANTED_DRAINING_IS_GONE,    /* a lease counts as given back as soon as it is asked for */
        PLANTED_PROGRESS_IGNORED,    /* an eviction must end within the grace period */
        PLANTED_NO_WAKE,             /* no wake-up when a turn ends */
        PLANTED_HOST_ROOM_TWICE,     /* each GPU promises all of the host's room */
        PLANTED_IDLE_IS_FREE,        /* memory that idles on the card costs nothing */
        PLANTED_BYTES_IGNORED,       /* clients that run together pay alike, whatever their bytes */
        PLANTED_DEBT_FORGOTTEN,      /* a user's debt ends with his last process */
        PLANTED_OVERRUN_IS_FREE,     /* work past the end of a turn costs nothing */
        PLANTED_NO_FLOOR,            /* a higher priority that always works starves the others */
        PLANTED_UNKNOWN_INTERRUPTS,  /* a client of which nothing is known interrupts turns */
        PLANTED_SLOWEST_COUNTS,      /* one slow hand-off stretches the turns after it */
        PLANTED_TOO_FEW_VICTIMS,     /* a busy client gives way although its bytes do not suffice */
        PLANTED_A_BYTE_IS_PROGRESS,  /* any byte that moves renews the grace period */
        PLANTED_ASKING_IS_WORK,      /* a request without RUN begins an idle time anew */
        PLANTED_FAILURE_IS_ANSWER,   /* a failed drain counts as an answer to REVOKE */
        PLANTED_SLOW_KEEPS_ROOM,     /* a client that restores too slowly keeps its room */
        PLANTED_COMMITS_APART,       /* clients that run together may each fill the card */
        PLANTED_FIRST_COUNTS,        /* a holder has a lease while the first of its clients has */
        PLANTED_LAST_IDLES,          /* a holder is idle if the last of its clients is */
        PLANTED_NO_CONTAINERS,       /* a container's programs count as programs of their own */
        PLANTED_NO_MINIMUM,          /* a minimum has no effect */
        PLANTED_NO_MAXIMUM,          /* a maximum ends no turn */
        PLANTED_WEIGHTS_IGNORED,     /* every share has the same weight */
        PLANTED_JOBS_APART,          /* an exclusive card runs one rank of a job at a time */
        PLANTED_PREEMPTED_DRAINS, /* a preempted client is asked to drain, and stays off the GPU */
        PLANTED_IDLE_STAYS_OFF,   /* a preempted client that idles stays off the GPU */
        PLANTED_PREEMPTIBLE_FOR_GOOD, /* a client that can no longer be preempted counts as off */
        PLANTED_PARTS_ALIKE,          /* each side has the same part of a window */
        PLANTED_LENT_FOR_GOOD,        /* a side that begins to work waits for the others' windows */
        PLANTED_LOWER_STARVES,        /* a higher priority that works keeps others off the GPU */
        PLANTED_OVERDUE_RUNS, /* an overdue client goes on beside those that it keeps waiting */
        PLANTED_EXCLUSIVE_RUNS_ALL, /* mode exclusive with several leases runs all of them */
        PLANTED_PREEMPTED_PAYS,     /* time in which a client is preempted uses up its maximum */
        PLANTED_NO_TURNS,           /* programs without gaps run beside each other for ever */
        PLANTED_END
};

#define PLANTED(name) (SCHED_BUG == PLANTED_##name)

_Static_assert(SCHED_BUG >= 0 && SCHED_BUG < PLANTED_END, "there is no such bug");
