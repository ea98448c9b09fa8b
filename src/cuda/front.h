/* front.h: what a library in front of libsublet.so tells it. libsublet-ranks.so, which lets several
 * ranks share a card, is the only one: it is preloaded before libsublet.so and exports
 * sublet_front.
 */
#pragma once

struct front {
        /* Returns the function that the program gets when it looks up this name. found: the result
         * of the look-up so far, or NULL. Returns found for names that it does not replace. Any
         * thread; does not allocate. */
        void *(*replace)(const char *symbol, void *found);
        /* While work that this process has submitted waits for another rank, returns a number that
         * differs from that of the next wait. Otherwise returns 0. Any thread; does not block. */
        unsigned (*waits)(void);
};

/* The address is NULL if no such library is loaded. */
extern const struct front sublet_front __attribute__((weak));
