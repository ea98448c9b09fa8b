/* lobby.h: where the ranks and their parent meet, without CUDA and without NCCL.
 *
 * The parent orders one check after another; all ranks do it, and note what they found. The lobby
 * is memory that the parent shares with its children. Waiting looks again every half millisecond:
 * what the checks measure about processor time is measured elsewhere. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RANKS_MAX 16

struct seat {
        char at[192];      /* what the rank does now, for the message when it hangs */
        char failure[384]; /* the first thing that was wrong, or "" */
        char note[96];     /* a figure to print, or "" */
        bool skipped;      /* the failure is a reason why the check cannot be done here */
        _Atomic unsigned cases;
        _Atomic uint64_t digest; /* for comparisons between ranks */
        _Atomic bool leaves;     /* the rank ends on purpose */
};

struct lobby {
        int n;
        _Atomic unsigned order;   /* number of orders given */
        _Atomic unsigned done;    /* ranks that have done the order */
        _Atomic unsigned present; /* ranks that a barrier waits for */
        _Atomic unsigned arrived, generation;
        _Atomic int check;
        _Atomic bool stop; /* for check_endless() */
        struct seat seat[RANKS_MAX];
};

extern struct lobby *lobby;
extern int my_rank; /* in the children */

void lobby_create(int n);
/* Forgets ranks that have ended and what they found. */
void lobby_reset(void);
void lobby_clear_findings(void);

/* All present ranks wait for each other. */
void lobby_meet(void);
/* Ends the caller's part in later meetings. */
void lobby_leave(void);
void lobby_nap(void);

/* Notes what the rank does now. */
void at(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Notes a finding; the first one is kept. */
void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Notes a finding after which the check cannot go on, and ends the rank. */
void fatal(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Notes why the check cannot be done here. */
void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define EXPECT(condition, ...)              \
        do {                                \
                if (!(condition))           \
                        wrong(__VA_ARGS__); \
        } while (0)
void count_case(void);
