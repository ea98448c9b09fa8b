/* exchange_shared.h: what exchange.cu and its callers must agree on. It must include nothing:
 * exchange.cu is compiled without any other header. */
#pragma once

#define EXCHANGE_THREADS 512 /* threads of a block */
#define EXCHANGE_WORDS   480 /* words that one launch writes: its parameters are at most 4 KiB */
#define EXCHANGE_PARTS   2   /* RING_PARTS */

/* The table of a group: one head, then the chains, then the messages. Kernels of the group read it
 * in the memory of the GPU, and keep their state there. */
struct exchange_head {
        unsigned left; /* chains that are not complete */
        unsigned unused;
};

/* The messages to one rank, or from one rank, in their order. All addresses are the device's. */
struct exchange_chain {
        unsigned long long area;       /* where the sender's ring has part 0 */
        unsigned long long take, give; /* flags of part 0: one that the peer sets, the peer's */
        unsigned long long bell;       /* a byte of the peer, set after its flag */
        unsigned sends;                /* 0: receives */
        unsigned first, end;           /* its messages */
        /* The rest is 0 at first. */
        unsigned message;  /* the current one, counted from `first` */
        unsigned piece;    /* the next piece of this message */
        unsigned in_use;   /* a bit for each part that the peer has not read yet */
        unsigned begun;    /* blocks that have begun a launch */
        unsigned decision; /* what the blocks of a launch do: see exchange.cu */
        unsigned arrived;  /* blocks that have done it */
};

struct exchange_message {
        unsigned long long at, bytes;
};

/* How all chains of a group use the memory. */
struct exchange_place {
        unsigned long long table;
        unsigned long long per_piece;   /* the most bytes of a piece */
        unsigned long long part_stride; /* from an area to the one of the next part */
        unsigned long long flag_stride; /* from a flag to the one of the next part */
        unsigned long long bells;       /* eight bytes: this rank's stream waits for some of them */
};
