/* client_words.h: what people read of a client in the daemon's JSON, besides its figures. Pure. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "base/stop.h"
#include "client/figures/figures.h"

/* True if a field of the object, a list of texts, contains this text. */
bool client_lists(const json_t *object, const char *field, const char *text);

/* Returns the program's entry on any GPU, the one of its living connection if it has several; NULL:
 * the program is not there. */
const json_t *clients_find(const json_t *status, int pid);

/* True if a program is under the daemon, or a job waits there. */
bool clients_use(const json_t *status);
/* True if a user has paused the program and it is frozen; its state is then shown as "paused". */
bool client_is_paused(const json_t *client);
/* Writes how a program that is stopped goes on again, as stop_text() does. NULL: it is not
 * stopped. */
const char *client_stopped(const json_t *client, char text[static STOP_TEXT_MAX]);
/* Writes a field. "state" and "since_s" are those of the pause if the program is paused. */
void client_put(const json_t *client, const char *field, enum figure kind,
                char cell[static FIGURE_MAX]);

/* Prints what the states mean. */
void clients_explain(FILE *out);

/* Writes how many clients are in which kind of state, such as "3 run, 8 wait". */
#define CLIENTS_SUMMARY_MAX 80
void clients_summary(json_t *const *clients, size_t n, char ret[static CLIENTS_SUMMARY_MAX]);
/* Returns the bytes that the client has moved in both directions. */
double client_moved(const json_t *client);

/* Writes who a process outside of the daemon is, and what it holds, such as
 * "pid 12, train.py of bob, 5.0G". */
#define OTHER_MAX (4 * FIGURE_MAX)
void other_put(const json_t *other, char text[static OTHER_MAX]);

/* Compares for qsort() of json_t *. Running clients come first. Of waiting clients, the one that
 * has waited longest comes first. */
int clients_compare(const void *a, const void *b);

/* What client_notes() prints in addition to what stands in the way of a client's work. */
#define NOTES_FIGURES  1u /* the memory mode, shares and caps, the bytes that were not copied */
#define NOTES_FREEZING 2u /* why the program is drained: for a daemon that allows freezing */

/* Prints what stands in the way of a client's work: flags, freezing, the client that this one waits
 * for, a maximum. beside: the clients of the card. more: NOTES_…. Most clients have no notes.
 * width: the most columns in a line; 0: all notes are one line. */
void client_notes(const json_t *client, const json_t *beside, unsigned more, const char *indent,
                  int width, FILE *out);
