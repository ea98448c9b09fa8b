/* freeze_known.h: the file in which a user's programs remember on which drivers and GPUs freezing
 * works.
 *
 * The file is $XDG_CACHE_HOME/sublet/freezing or ~/.cache/sublet/freezing, with one line for each
 * driver and GPU. Without XDG_CACHE_HOME and HOME nothing is recorded. Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define FREEZE_WHY_MAX 96

enum freeze_known {
        FREEZE_NOT_KNOWN,
        FREEZE_WORKS,
        FREEZE_WORKS_ALONE, /* but the driver does not count, so the daemon's hand must not act */
        FREEZE_FAILS,
};

/* Returns what the file says of this driver and GPU. ret_why: why freezing fails; else empty. */
enum freeze_known freeze_known(const char *driver, const uint8_t uuid[static 16],
                               char ret_why[static FREEZE_WHY_MAX]);
/* Records a result, in place of the earlier one for the same driver and GPU. why: why freezing
 * fails; else it is not used. */
void freeze_learn(const char *driver, const uint8_t uuid[static 16], enum freeze_known result,
                  const char *why);

/* The self-test that libsublet.so offers in a process with SUBLET_FREEZE=test. It always runs,
 * whatever the file says, and updates the file. 0: freezing works; -ENXIO: the process has no
 * context; -EPERM: the driver or a sandbox refuses; -EOPNOTSUPP: the driver cannot freeze; -EPROTO:
 * the driver is unknown; -ENODEV: the process has no channels; -ENOEXEC: the test's kernel could
 * not be run; -EBUSY: this time the test gave no result; -EIO and others: freezing fails. */
#define FREEZE_TEST_ONLY   "test"
#define FREEZE_TEST_SYMBOL "sublet_freeze_test"
/* Passed instead of a GPU, before cuInit(): the process joins no daemon, so it must not wait for
 * one, whatever the machine's owner requires. */
#define FREEZE_TEST_BEGIN 0xffffffffu
struct freeze_answer {
        char driver[32];          /* "580.159.04"; empty: the driver's version is unknown */
        char why[FREEZE_WHY_MAX]; /* why freezing does not work */
        bool counts; /* freezing works, and the driver counts, as the daemon's hand needs it */
        enum freeze_known known; /* what the file said before the test */
        char known_why[FREEZE_WHY_MAX];
};
typedef int freeze_test_fn(unsigned gpu, struct freeze_answer *ret);
