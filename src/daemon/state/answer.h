/* answer.h: the answers to orders. */
#pragma once

#include <jansson.h>

struct client;
struct peer;
struct server;

/* Makes the answer to an order that is not carried out: one sentence. */
__attribute__((format(printf, 1, 2))) json_t *answer_error(const char *format, ...);
/* Makes such an answer to an order that may be given again after a second. */
json_t *answer_later(const char *why);

/* Returns the program whose "pid" the order names; NULL with an answer: there is none to which the
 * peer has a right. no_pid: the answer to an order without a number. may: what only others may
 * do. */
struct client *answer_program(const struct server *s, const json_t *order, const struct peer *by,
                              const char *no_pid, const char *may, json_t **ret_answer);
