/* cards.h: the cards that the job may use, as NVML lists them: whole GPUs, or the MIG instances of
 * those that have some. Needs no CUDA. */
#pragma once

#include "ranks/devices/map.h"
#include "ranks/real/real_functions.h"

struct cards {
        unsigned n;
        bool mig; /* the cards are instances; a CUDA process can use only one */
        struct card {
                nvmlDevice_t handle;
                char text[96]; /* the UUID as NVML writes it */
                struct identity identity;
        } card[DEVICES_MAX];
};

/* The number of devices of the job: SUBLET_RANKS; 0: the job has no devices of its own. */
unsigned cards_ranks(void);
/* Returns the value that CUDA_VISIBLE_DEVICES had before `sublet run --ranks` took it over; NULL:
 * unset. */
const char *cards_visible(void);

/* Returns the cards, which it reads once and keeps. There are none without NVML. Any thread. */
const struct cards *cards_get(void);
/* The identity of a device of the job. cards: cards_get(), not empty. */
struct identity cards_identity(const struct cards *cards, unsigned device);
