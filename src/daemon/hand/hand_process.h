/* hand_process.h: the daemon's hand: a process that takes programs off the GPUs and lets them run
 * again, without their help.
 *
 * Orders and reports are packets on a SOCK_SEQPACKET pair with the daemon. The process has no
 * capabilities, and after its start it can make no request to a device but two of RM's. It keeps no
 * descriptor of a program's. A call that hangs in the kernel driver holds up one of its threads,
 * never the daemon. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum hand_what {
        /* Orders. */
        HAND_ADD,  /* brings two descriptors: a page (wire/hand_page.h) and a socket to the program
                    */
        HAND_DROP, /* the program runs again, and is forgotten */
        HAND_TAKE, /* takes the program off the GPUs */
        HAND_LET_GO, /* lets it run */

        /* Reports. */
        HAND_BEGUN,     /* the first one. `error` 0: the process serves orders; otherwise it ends:
                           -EPROTO: the driver is unknown, -EIO: RM gives no GPU, -ENOTSUP: no
                           filter, -EAGAIN: no thread, others: /dev/nvidiactl cannot be opened */
        HAND_READY,     /* the program's names are proved: it can be taken */
        HAND_NOT_READY, /* it cannot any more, and runs, unless `error` says otherwise */
        HAND_DONE,      /* the last order is carried out; `ns` is how long it took */
        HAND_LATE,      /* an order for it has not returned for HAND_LATE_NS */
};

#define HAND_LATE_NS UINT64_C(1000000000)

struct hand_packet {
        uint64_t id; /* the daemon's name of the program */
        uint64_t ns;
        uint32_t what; /* enum hand_what */
        int32_t error;
};

/* Serves orders on this socket. Called in the child; does not return. */
void hand_process(int fd, pid_t parent, void *userdata);
