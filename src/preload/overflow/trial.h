/* trial.h: which buffer is tried next, and what the times say.
 *
 * All samples time the same work. In a ground sample all tried buffers lie on the host. After each
 * ground sample comes a sample with one of the buffers on the card. The time that this buffer saves
 * is the mean of the ground samples before and after its sample, less the time of its sample: a
 * slow drift affects both alike. There are TRIAL_ROUNDS rounds of all samples, and the median
 * counts, so that one disturbed sample has no effect. Buffers of one kind, such as the layers of a
 * network, often save the same small time. Chance would make some of them look useless. So each
 * result is moved towards the mean of its kind, by the part of the variance that the scatter
 * explains (B. Efron, C. Morris, Stein's Estimation Rule and Its Competitors, 1973). After that, a
 * result within the scatter counts as zero.
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
        unsigned round, /* the round of the next sample */
                buffer; /* the buffer of the next sample */
        bool with;      /* the next sample has the buffer on the card; false: a ground sample */
        int64_t ground_ns[TRIAL_ROUNDS * TRIAL_BUFFERS_MAX]; /* taken before each sample; 0: none */
        int64_t with_ns[TRIAL_ROUNDS * TRIAL_BUFFERS_MAX];
};

#define TRIAL_GROUND (-1) /* no buffer on the card */
#define TRIAL_OVER   (-2)

/* Begin a trial of at most TRIAL_BUFFERS_MAX buffers. kinds: buffers of one kind have the same
 * number. */
void trial_begin(struct trial *t, unsigned buffers, const unsigned *kinds);
/* Returns the buffer on the card in the next sample, or TRIAL_GROUND or TRIAL_OVER. */
int trial_next(const struct trial *t);
/* Record the time of the next sample. */
void trial_sample(struct trial *t, uint64_t ns);
/* Skip the next sample: its buffer was freed, or does not move. */
void trial_skip(struct trial *t);
/* True at the beginning of each round but the first: the results so far are worth writing down. */
bool trial_round_is_over(const struct trial *t);

/* Computes the time that a buffer saves, and the scatter of its samples. False: the buffer was
 * never tried. *ret_saved_ns: 0 if the time cannot be told from the scatter. */
bool trial_result(const struct trial *t, unsigned buffer, uint64_t *ret_saved_ns,
                  uint64_t *ret_noise_ns);
/* Returns the median of the samples with all tried buffers on the host; 0: there is none. */
uint64_t trial_ground_ns(const struct trial *t);
