/* card.h: what NVML says of one card while a job is measured on it: its utilisation by windows of
 * 0.1 s (GPM, from Hopper on), power, clock, the processes on it.
 *
 * All figures are of the whole card. A figure that the card or the driver does not give is NAN.
 * NVML is loaded at run time, and no function waits. One thread. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CARD_WINDOW_NS (100u * 1000 * 1000)

struct card;

struct card_figures {
        double busy, sm, occupancy, dram, tensor, fp64, fp32, fp16, integer; /* fractions */
        double sm_p90, dram_p90;
        double to_device_gb_s, to_host_gb_s; /* over PCIe */
        double power_w, clock_mhz;
        double bus_gb_s; /* what copies reach in one direction */
        char driver[32];
        unsigned windows; /* how many windows the means are of */
};

#define CARD_FIGURES_NONE                                                                       \
        ((struct card_figures){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, \
                               NAN, NAN, NAN, "", 0})

/* Loads NVML, from this folder or, if it is NULL, by the usual search. NULL: there is none. */
struct card *card_open(const char *folder);
void card_close(struct card *card);
/* Chooses the card by its UUID. False: NVML does not know it. */
bool card_choose(struct card *card, const uint8_t uuid[static 16]);
/* Ends a window and begins the next. */
void card_look(struct card *card);
/* Forgets the windows so far. */
void card_reset(struct card *card);
void card_figures(const struct card *card, struct card_figures *ret);
/* Returns how many processes other than these have a context on the card; -1: not known. In a
 * container, NVML may give other pids, and none of ours is found: then only the number of processes
 * counts. */
int card_others(const struct card *card, const pid_t *own, unsigned n_own);
