/* talk.h: what the simulated driver, the simulated control daemon of MPS and its server say to one
 * another: packets on a Unix socket, of one size. */
#pragma once

#include <stdint.h>

#define TALK_CLIENTS 48
#define TALK_TEXT    504

enum talk {
        TALK_CLIENT = 1, /* a program asks to take part; brings a connection, to the server */
        TALK_WELCOME,    /* the program takes part */
        TALK_FULL,       /* the server has no room for the program */
        TALK_ORDER,      /* text: an order, as nvidia-cuda-mps-control reads it */
        TALK_ANSWER,     /* text: the lines that the order prints */
        TALK_FAULT,      /* work of one program has failed: so has the work of all */
        TALK_TERMINATED, /* this program may not go on */
};

struct talk_packet {
        uint32_t what;
        int32_t pid; /* CLIENT: the program's pid, as the kernel says */
        char text[TALK_TEXT];
};
