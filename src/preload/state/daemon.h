/* daemon.h: the connection to the daemon, for any thread that holds core_lock. The agent makes the
 * connection, receives on it and closes it (agent_talk.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

enum link_state {
        LINK_DOWN,  /* none: the agent looks for one */
        LINK_HELLO, /* connected, WELCOME awaited */
        LINK_UP,
        LINK_LOST,    /* the connection has failed, and the agent has not handled that yet */
        LINK_REFUSED, /* the daemon speaks another version: pass all calls through */
};

struct daemon_line {
        enum link_state link;
        int fd, error;     /* LINK_LOST: -errno */
        uint64_t instance; /* of the last daemon; 0: there never was one */
        uint32_t sequence; /* of the last message */
        bool warned;       /* the message that there is no daemon was printed */
};

extern struct daemon_line daemon_line;

/* It answers. */
bool daemon_is_up(void);
/* A daemon is connected, or was and may come back. */
bool daemon_may_answer(void);

/* Send a message and the descriptors that go with it, which stay the caller's; fills the header. 0
 * also where the daemon is lost (LINK_LOST); -EPERM: the daemon takes no descriptors from us,
 * nothing was sent. Waits for a moment at most. gpu: WIRE_NO_GPU for the process as a whole. */
int daemon_send_with(struct wire_message *m, unsigned type, unsigned gpu, const int *fds,
                     unsigned n_fds);
void daemon_send(struct wire_message *m, unsigned type, unsigned gpu);
/* The same for the process as a whole. Returns the message's sequence; 0: no daemon. */
uint32_t daemon_say(struct wire_message *m, unsigned type);
