/* daemon.h: the line to the daemon, as any thread that holds core_lock may use it. The agent makes
 * it, listens on it and sees to its end (agent_talk.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

enum link_state {
        LINK_DOWN,  /* none: the agent looks for one */
        LINK_HELLO, /* connected, WELCOME awaited */
        LINK_UP,
        LINK_LOST,    /* it has failed; the agent has not seen to that yet */
        LINK_REFUSED, /* the daemon does not speak our version: plain pass-through */
};

struct daemon_line {
        enum link_state link;
        int fd, error;     /* LINK_LOST: -errno */
        uint64_t instance; /* of the last daemon; 0: there never was one */
        uint32_t sequence; /* of the last message */
        bool warned;       /* a person was told that there is none */
};

extern struct daemon_line daemon_line;

/* It answers. */
bool daemon_is_up(void);
/* There is one, or there was and it may come back. */
bool daemon_may_answer(void);

/* Send a message, whose header this fills, and the descriptors that go with it, which stay the
 * caller's. 0 also where the daemon is lost (LINK_LOST); -EPERM: it takes no descriptors from us,
 * and nothing was sent. Waits for a moment at most. gpu: WIRE_NO_GPU for the process as a whole. */
int daemon_send_with(struct wire_message *m, unsigned type, unsigned gpu, const int *fds,
                     unsigned n_fds);
void daemon_send(struct wire_message *m, unsigned type, unsigned gpu);
/* The same for the process as a whole. The message's sequence; 0: nobody there. */
uint32_t daemon_say(struct wire_message *m, unsigned type);
