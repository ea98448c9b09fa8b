/* answer.h: the answers to orders. */
#pragma once

#include <jansson.h>

/* Makes the answer to an order that is not carried out: one sentence. */
__attribute__((format(printf, 1, 2))) json_t *answer_error(const char *format, ...);
/* The same for an order that may be given again after a second. */
json_t *answer_later(const char *why);
