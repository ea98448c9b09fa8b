/* matcher.h: the helper process that proposes pairs: sublet-pairing serve (its messages stand in
 * src/pairing/command_serve.c).
 *
 * It is a process, so that the daemon links no C++, reads no job file, and goes on if the model's
 * library crashes. It is started when a job with a file comes, and ended when the last one leaves.
 * It never holds up the loop: a question without an answer for 2 s is given up, and the process
 * replaced. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <systemd/sd-event.h>

#include "daemon/queue/queue.h"

struct matcher;

struct matcher_calls {
        /* Offers have come, or none will, because the helper hangs or has ended. */
        void (*offers)(void *userdata, const struct queue_offer *offers, unsigned n);
        /* The helper cannot use the file of this job. */
        void (*refused)(void *userdata, uint32_t id, const char *why);
        /* A new process knows no job: pass each file to matcher_add(). */
        void (*refill)(void *userdata);
        void *userdata;
};

/* Makes a matcher. 0 or -errno. */
int matcher_new(sd_event *event, const struct matcher_calls *calls, struct matcher **ret);
void matcher_free(struct matcher *m); /* NULL is a no-op */

/* Passes a job's file to the helper. gpu: the name of this machine's cards, or "". False: there is
 * no helper now. */
bool matcher_add(struct matcher *m, uint32_t id, const char *file, size_t size, const char *gpu);
void matcher_forget(struct matcher *m, uint32_t id);
/* Asks which jobs go together; offers() gets the answer. capacity_bytes: of the smallest GPU; 0: as
 * the job files say. False: there is no helper now. While a question is open, no other is asked. */
bool matcher_ask(struct matcher *m, const struct queue *q, double capacity_bytes);
/* Call it when no job has a file any more: ends the process. */
void matcher_rest(struct matcher *m);
/* True if a process exists. */
bool matcher_runs(const struct matcher *m);
