/* daemon.h: the connection to the daemon, for any thread that holds core_lock. The agent makes the
 * connection, receives on it and closes it (agent_talk.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

enum link_state {
        LINK_DOWN,  /* no daemon: the agent looks for one */
        LINK_HELLO, /* connected, but WELCOME has not come yet */
        LINK_UP,
        LINK_LOST,    /* the connection has failed, and the agent has not handled that yet */
        LINK_REFUSED, /* the daemon speaks another version: pass all calls through */
};

struct daemon_line {
        enum link_state link;
        int fd, error;     /* error: why the link is LINK_LOST, as -errno */
        uint64_t instance; /* instance number of the last daemon; 0: there never was one */
        uint32_t sequence; /* sequence number of the last message */
        bool warned;       /* the message that there is no daemon was printed */
        bool held;         /* in LINK_HELLO: a faulty configuration keeps the daemon from WELCOME */
};

extern struct daemon_line daemon_line;

/* True while a daemon answers. */
bool daemon_is_up(void);
/* True while a daemon is connected, or was connected and may come back. */
bool daemon_may_answer(void);

/* Fills in the header and sends a message with descriptors, which stay the caller's. gpu:
 * WIRE_NO_GPU for the whole process. Waits for 0.1 s at most. 0, even if the connection is lost
 * (the link is then LINK_LOST); -EPERM: the daemon takes no descriptors from us, so nothing was
 * sent. */
int daemon_send_with(struct wire_message *m, unsigned type, unsigned gpu, const int *fds,
                     unsigned n_fds);
void daemon_send(struct wire_message *m, unsigned type, unsigned gpu);
/* daemon_send() for the whole process. Returns the message's sequence number; 0: no daemon. */
uint32_t daemon_say(struct wire_message *m, unsigned type);
