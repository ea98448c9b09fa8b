/* measure.h: what the doors told the fake of measure.c. */
#pragma once

#include "preload/extra/measure.h"

struct measure_fake {
        const char *call; /* the function that began the last call */
        CUstream stream;  /* of struct measure_call */
        uint64_t work;
        bool launches_graph;
        uint64_t numbers[8]; /* its arguments, as far as they are handles or numbers */
        unsigned begun, ended;
        CUresult result;
};

extern struct measure_fake measure_fake;
