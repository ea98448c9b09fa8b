/* profile_file.h: the file that `sublet run --profile` writes and later runs read, as text.
 *
 *     sublet profile 1
 *     # a comment
 *     gpu=0 bytes=1073741824 nth=3 saved_ns=1234567 noise_ns=1200
 *
 * A line a buffer: on which of the program's GPUs, of how many bytes as it was asked for, the how
 * manieth of that size there (from 1), what a step of the program is shorter by when it lies on the
 * card, and the scatter that this was told from. By the first three a buffer is known again; what
 * is not known of a line (a later release's words) is passed over.
 *
 * Pure: no file is touched. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PROFILE_BUFFERS_MAX 4096u
#define PROFILE_TEXT_MAX    (1u << 20)
#define PROFILE_LINE_MAX    192u /* of what is written */

struct profile_buffer {
        unsigned gpu;
        uint64_t bytes, nth;
        uint64_t saved_ns, noise_ns;
};

struct profile_list {
        struct profile_buffer *buffers;
        size_t count;
};

/* What was passed over. */
struct profile_bad {
        unsigned lines, first; /* how many, and the number of the first one; */
        char text[48];         /* its beginning, printable */
};

/* 0; -EINVAL: it does not begin as a profile does; -EPROTONOSUPPORT: another version; -ENOMEM. The
 * caller frees the contents of ret. */
int profile_parse(const char *text, size_t length, struct profile_list *ret,
                  struct profile_bad *ret_bad);

/* The text of a profile; the buffer most worth its place comes first. NULL: no memory. The caller
 * frees it. */
char *profile_format(const char *program, uint64_t step_ns, struct profile_list *list);

/* The rank of a buffer: nanoseconds saved for each MiB, at least 1; -1: it was tried, and saves
 * nothing. */
int64_t profile_use(const struct profile_buffer *b);
