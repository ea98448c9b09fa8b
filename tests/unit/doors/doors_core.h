/* doors_core.h: records the calls that the doors made to the fakes in doors_core.c. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"
#include "preload/stream/gate.h"
#include "preload/rm/rm.h"

struct doors_core {
        unsigned slow;  /* calls of gate_enter_slow() */
        unsigned hooks; /* calls of hooks that only pass the call on */
        unsigned room;  /* how many times room may be made for a failed call */
        unsigned rooms; /* how many times room was made */
        bool inside_while_making_room;
        unsigned looks;  /* calls that look up the owner of an address */
        bool again;      /* the fake says that a failed call is to be made again */
        unsigned failed; /* failed calls for which the doors asked the fake */
        CUdeviceptr
                past; /* a range that contains this address leaves its allocation; 0: none does */
        unsigned refused; /* ranges refused for that */
        CUstream stream;  /* stream of the last slow pass */
        uint64_t work;    /* the work that was named to the last slow pass */
};

extern struct doors_core doors_core;
extern struct gate_thread doors_looking;
