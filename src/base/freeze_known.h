/* freeze_known.h: what is known of freezing on a driver and a GPU, in a file of the user's.
 *
 * $XDG_CACHE_HOME/sublet/freeze, or ~/.cache/sublet/freeze: a line a driver and GPU. Without a home
 * nothing is kept. Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define FREEZE_WHY_MAX 96

enum freeze_known { FREEZE_NOT_KNOWN, FREEZE_WORKS, FREEZE_FAILS };

/* ret_why: why it fails. */
enum freeze_known freeze_known(const char *driver, const uint8_t uuid[static 16],
                               char ret_why[static FREEZE_WHY_MAX]);
/* why "": it works. What was known before of the same two is replaced. */
void freeze_learn(const char *driver, const uint8_t uuid[static 16], const char *why);

/* The self-test that libsublet.so offers in a process with SUBLET_FREEZE=test: at once, whatever is
 * known, and the file is kept up to it. 0: it works; -ENXIO: no context of the process's is there;
 * -EPERM: the driver or a sandbox refuses; -EOPNOTSUPP: the driver does not offer it; -EPROTO: a
 * driver that is not known; -ENODEV: no channels of its own; -ENOEXEC: the kernel did not load;
 * -EBUSY: it could not tell now; -EIO and others: it fails. */
#define FREEZE_TEST_ONLY   "test"
#define FREEZE_TEST_SYMBOL "sublet_freeze_test"
struct freeze_answer {
        char driver[32];          /* "580.159.04"; empty: it did not say */
        char why[FREEZE_WHY_MAX]; /* it does not work */
        enum freeze_known known;  /* before */
        char known_why[FREEZE_WHY_MAX];
};
typedef int freeze_test_fn(unsigned gpu, struct freeze_answer *ret);
