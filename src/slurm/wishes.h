/* wishes.h: what a job asks for with --sublet=KEY=VALUE,... Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WISHES_ERROR_MAX 256

struct wishes {
        bool off; /* --sublet=off: not under sublet */
        bool has_priority;
        int priority;
        unsigned minimum, maximum; /* thousandths of the GPU's time; 0: not asked for */
        unsigned weight;           /* thousandths; 0: not asked for */
        uint64_t cap;              /* bytes on a GPU; 0: not asked for */
};

/* Reads the argument of --sublet; NULL and "" ask for nothing. 0, or -EINVAL with a sentence. */
int wishes_parse(const char *text, struct wishes *ret, char error[static WISHES_ERROR_MAX]);
