/* reader.h: the process that asks NVML, so that no call of NVML can hold up the daemon.
 *
 * A process, not a thread: a call that hangs in the driver cannot be ended, and a crash in NVIDIA's
 * library must not end the daemon. At most one such process exists, even if one hangs after
 * SIGKILL. The daemon's loop owns the reader and never waits for it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <systemd/sd-event.h>

#include "daemon/cards/card_nvml.h"

struct reader;

/* Called from the loop. look: the cards as read after asked_ns, valid until the next call; NULL:
 * unknown, because NVML is missing or has not answered for 2 s. */
typedef void (*reader_told)(void *userdata, const struct nvml_look *look, uint64_t asked_ns);

/* Makes a reader. 0 or -errno. */
int reader_new(sd_event *event, reader_told told, void *userdata, struct reader **ret);
void reader_free(struct reader *r); /* NULL is a no-op */

/* Requests a look that begins no sooner than now; the callback gets it, or NULL. False: no callback
 * will come soon, because NVML is missing or hangs. A missing NVML is tried again now and then. */
bool reader_ask(struct reader *r);
/* Loads the library anew. Call it if NVML answers but lists no card any more, as after the driver
 * was unloaded. */
void reader_restart(struct reader *r);
