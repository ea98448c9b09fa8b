/* review.h: the answer to an AdmissionReview (admission.k8s.io/v1 and v1beta1).
 *
 * Pure: text in, text out. No descriptor, no clock, nothing kept between calls. Whatever is inside
 * a review, the answer allows the pod: sublet is no reason to keep one out. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define REVIEW_ERROR_MAX 256
/* Values in one review. Each becomes up to 200 bytes of memory, whatever its text is. */
#define REVIEW_VALUES_MAX 200000u

struct review_options {
        const char *from, *to; /* names of resources: nvidia.com/gpu, sublet.dev/gpu */
        bool all;              /* pods need not opt in, and may still opt out */
};

/* Writes the answer, which the caller frees. 0; -EINVAL: the text is no review that can be
 * answered, and the error says why; -ENOMEM. */
int review_answer(const char *text, size_t size, const struct review_options *options,
                  char **ret_answer, char error[static REVIEW_ERROR_MAX]);
