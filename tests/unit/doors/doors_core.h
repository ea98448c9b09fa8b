/* doors_core.h: what the fakes in doors_core.c have seen of the doors. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"
#include "preload/stream/gate.h"
#include "preload/rm/rm.h"

struct doors_core {
        unsigned slow;  /* calls of gate_enter_slow() */
        unsigned hooks; /* calls of hooks that only pass the call on */
        unsigned room;  /* how often a call may get more room */
        unsigned rooms; /* how often it got more room */
        bool inside_while_making_room;
        unsigned looks;  /* calls that look up the owner of an address */
        bool again;      /* whether a failed call is to be made again, as after a freeze */
        unsigned failed; /* failed calls for which the doors asked this */
        CUstream stream; /* stream of the last slow pass */
        uint64_t work;   /* the work that was to be submitted */
};

extern struct doors_core doors_core;
extern struct gate_thread doors_looking;
