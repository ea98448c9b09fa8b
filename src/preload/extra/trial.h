/* trial.h: which buffer is tried next, and what the times say.
 *
 * Each sample is the time of the same work, with all buffers that are tried on the host (the
 * ground) or with one of them on the card; the two take turns. What a buffer saves is the mean of
 * the grounds before and after it less the time with it: what drifts is in both. All of it is done
 * ROUNDS times, and the median counts: one disturbed sample is none. Buffers of one kind that are
 * apart by no more than the scatter makes them are taken to save the same: many layers of a network
 * are alike, and where each of them saves little, chance would take some of them for useless. So
 * each is drawn to the mean of its kind by that part of their variance which the scatter explains
 * (B. Efron, C. Morris, Stein's Estimation Rule and Its Competitors, 1973). What does not rise out
 * of the scatter then counts as nothing.
 *
 * Pure: no clock, no allocation, no lock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define TRIAL_BUFFERS_MAX 64u
#define TRIAL_ROUNDS      3u

struct trial {
        unsigned buffers;
        unsigned kind[TRIAL_BUFFERS_MAX];
        unsigned round, buffer; /* the next sample: of this buffer, ... */
        bool with;              /* ... or of the ground before it */
        int64_t ground_ns[TRIAL_ROUNDS * TRIAL_BUFFERS_MAX]; /* before each; 0: none */
        int64_t with_ns[TRIAL_ROUNDS * TRIAL_BUFFERS_MAX];
};

#define TRIAL_GROUND (-1) /* no buffer on the card */
#define TRIAL_OVER   (-2)

/* At most TRIAL_BUFFERS_MAX buffers. kinds: buffers of one kind have the same number. */
void trial_begin(struct trial *t, unsigned buffers, const unsigned *kinds);
/* The buffer on the card in the next sample. */
int trial_next(const struct trial *t);
/* The result of that sample. */
void trial_sample(struct trial *t, uint64_t ns);
/* The sample is impossible: its buffer was freed, or does not move. */
void trial_skip(struct trial *t);
/* At the beginning of each round but the first: the results so far are worth writing down. */
bool trial_round_is_over(const struct trial *t);

/* What a buffer saves, and the scatter of its samples. False: it was never tried. saved: 0 if it
 * cannot be told from the scatter. */
bool trial_result(const struct trial *t, unsigned buffer, uint64_t *ret_saved_ns,
                  uint64_t *ret_noise_ns);
/* The median of the ground samples. 0: there is none. */
uint64_t trial_ground_ns(const struct trial *t);
