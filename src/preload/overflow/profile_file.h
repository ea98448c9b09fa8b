/* profile_file.h: the file that `sublet run --profile` writes and later runs read, as text.
 *
 *     sublet profile 1
 *     # a comment
 *     gpu=0 bytes=1073741824 nth=3 saved_ns=1234567 noise_ns=1200
 *
 * A line identifies a buffer by its GPU as the program counts, its requested bytes, and its number
 * (from 1) among the buffers of that size there. saved_ns: the time that a step saves when the
 * buffer lies on the card. noise_ns: the scatter of the samples. Unknown words, which a later
 * release may write, are ignored.
 *
 * Pure: no file is touched. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PROFILE_BUFFERS_MAX 4096u
#define PROFILE_TEXT_MAX    (1u << 20)
#define PROFILE_LINE_MAX    192u /* length of the longest line that is written */

struct profile_buffer {
        unsigned gpu;
        uint64_t bytes, nth;
        uint64_t saved_ns, noise_ns;
};

struct profile_list {
        struct profile_buffer *buffers;
        size_t count;
};

/* Lines of the text that were ignored. */
struct profile_bad {
        unsigned lines, /* number of ignored lines */
                first;  /* line number of the first one */
        char text[48];  /* beginning of that line, fit to be shown */
};

/* Returns 0 or an error. -EINVAL: the text is no profile. -EPROTONOSUPPORT: it has another version.
 * -ENOMEM: no memory. The caller frees the contents of ret. */
int profile_parse(const char *text, size_t length, struct profile_list *ret,
                  struct profile_bad *ret_bad);

/* Returns the text of a profile; the buffer most worth its place on the card comes first. NULL: no
 * memory. The caller frees the text. */
char *profile_format(const char *program, uint64_t step_ns, struct profile_list *list);

/* Returns the rank of a buffer: nanoseconds saved for each MiB, at least 1; -1: the buffer was
 * tried, and saves nothing. */
int64_t profile_use(const struct profile_buffer *b);
