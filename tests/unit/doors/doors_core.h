/* doors_core.h: what the doors asked of the rest of the library (doors_core.c). */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"
#include "preload/stream/gate.h"
#include "preload/rm/rm.h"

struct doors_core {
        unsigned slow;  /* times that gate_enter_slow() ran */
        unsigned hooks; /* calls of hooks that only hand on */
        unsigned room;  /* how often a call gets more */
        unsigned rooms; /* that were had */
        bool inside_while_making_room;
        unsigned looks;  /* calls that look up whose an address is */
        bool again;      /* what failed may come of the program's having been frozen */
        unsigned failed; /* calls of which that was asked */
        CUstream stream; /* of the last slow pass, ... */
        uint64_t work;   /* ... and what was to be submitted */
};

extern struct doors_core doors_core;
extern struct gate_thread doors_looking;
