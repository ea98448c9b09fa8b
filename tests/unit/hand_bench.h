/* hand_bench.h: a hand that acts on the fake RM (rm_bench.h), and offers itself to the library. It
 * uses the daemon's hand_names.c. */
#pragma once

#include "rm_bench.h"
#include "daemon/hand/hand_names.h"
#include "wire/hand_page.h"

/* The hand's view of the page, and its end of the line. */
extern struct hand_page *bench_page;
extern int bench_line;
/* The clients that the hand takes for proved. */
extern struct hand_clients bench_proved;

/* Offers a hand to the library. True: the library has taken it. */
bool bench_hand_offered(void);
/* The hand that is meant by all functions here. */
struct hand_bench {
        struct hand_page *page;
        int line, far;
};
struct hand_bench bench_hand_is(void);
void bench_hand_be(const struct hand_bench *b);
/* The hand's descriptors are closed; the library need not know. */
void bench_hand_forgets(void);
/* The hand is gone, as if it were killed. Returns when the library knows. */
void bench_hand_dies(void);
int bench_hand_off(void);
int bench_hand_on(void);
/* Rings, so that the library looks at the page. */
void bench_hand_rings(void);
/* True if the library rings within a second. */
bool bench_hand_is_rung(void);
