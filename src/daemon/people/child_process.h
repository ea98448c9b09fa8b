/* child_process.h: a process that the daemon forks, and the socket to it. The process ends with the
 * daemon, and the loop never waits for it. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include <systemd/sd-event.h>

#define CHILD_FD 3 /* the child's end of the socket, after child_process_begin() */

struct child_process {
        sd_event_source *io;
        int fd;    /* -EBADF: not in use */
        pid_t pid; /* 0: none; after SIGKILL the process may still exist */
        struct child_process *next;
};

void child_process_init(struct child_process *c);
void child_process_free(struct child_process *c); /* not the structure itself */

/* Forks. run is called in the child and must not return. 0 or -errno; -EBUSY: the process before
 * exists even after SIGKILL, and the number of such processes must not grow without bound. */
int child_process_start(struct child_process *c, sd_event *event, int socket_type,
                        sd_event_io_handler_t on_io,
                        void (*run)(int fd, pid_t parent, void *userdata), void *userdata);
/* For the child, after all changes of its user: lets it end with the daemon, and closes the
 * daemon's descriptors. */
void child_process_begin(int fd, pid_t parent);
/* For the child: gives up all capabilities. exec() gives none back. */
void child_process_drop_capabilities(void);
/* Closes the socket and kills the process, if there is one. */
void child_process_drop(struct child_process *c);
/* Handles the end of a child of the daemon. False: the child was none of these. */
bool child_process_reaped(pid_t pid);
