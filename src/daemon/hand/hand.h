/* hand.h: the daemon's side of its hand, the process that takes programs off the GPUs
 * (hand_process.h).
 *
 * The process runs while a program is known to it. The daemon's loop owns the hand and never waits
 * for the process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <systemd/sd-event.h>

struct hand;

struct hand_calls {
        /* The program can be taken off the GPUs, or it cannot any more; then it runs. */
        void (*ready)(void *userdata, uint64_t id, bool ready);
        /* An order was carried out, in so much time. */
        void (*done)(void *userdata, uint64_t id, uint64_t took_ns);
        /* The process is gone, and no program is known to it. It may be offered again. */
        void (*lost)(void *userdata);
};

enum hand_state {
        HAND_UNTRIED, /* no program has needed it yet */
        HAND_WORKS,
        HAND_MISSING, /* there is none now; the daemon tries again */
};

/* Makes a hand without a process. 0 or -errno. */
int hand_new(sd_event *event, const struct hand_calls *calls, void *userdata, struct hand **ret);
void hand_free(struct hand *h); /* NULL is a no-op */

/* Makes the program known, and starts the process if there is none. 0 and two descriptors for the
 * program, which the caller closes: a page (wire/hand_page.h) and a socket; or -errno: there is no
 * hand now. */
int hand_add(struct hand *h, uint64_t id, int ret_fds[static 2]);
/* Lets the program run, and forgets it. Unknown ids are ignored, here and below. */
void hand_drop(struct hand *h, uint64_t id);
/* ret_why: why it is missing, as a sentence without a full stop; else "". Valid until the loop goes
 * on. */
enum hand_state hand_state(const struct hand *h, const char **ret_why);
/* Takes the program off the GPUs, or lets it run. */
void hand_order(struct hand *h, uint64_t id, bool off);
