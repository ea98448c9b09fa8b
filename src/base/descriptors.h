/* descriptors.h: file descriptors that travel with a message of a UNIX socket (SCM_RIGHTS).
 *
 * Fills and reads a struct msghdr only; the caller makes the system call, with the flags that it
 * needs. Pure and thread-safe. */
#pragma once

#include <sys/socket.h>

#define DESCRIPTORS_MAX 8u

/* Room for the descriptors of one message, aligned as the kernel requires. Must live as long as the
 * msghdr that it is attached to. */
union descriptors {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
};

/* Attaches n descriptors to the message, at most DESCRIPTORS_MAX. The caller still has to close
 * them. */
void descriptors_attach(struct msghdr *h, union descriptors *room, const int *fds, unsigned n);
/* Prepares h to receive as many descriptors as the room holds. */
void descriptors_expect(struct msghdr *h, union descriptors *room);
/* Puts the received descriptors into ret_fds, which has room for `most` of them, and returns their
 * number. The caller closes them. */
unsigned descriptors_take(struct msghdr *h, unsigned most, int *ret_fds);
