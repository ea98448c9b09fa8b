/* hand_page.h: the page that a program and the daemon's hand share.
 *
 * The hand (src/daemon/hand) takes the program's channels off the GPU by their names. The library
 * writes the names here as it learns of them, so the hand finds them all at any moment, also while
 * the program hangs or is stopped. Neither side trusts the other: the hand copies and checks what
 * it reads, and a wrong page harms only the program that wrote it.
 *
 * The kernel driver counts for each channel how often it was disabled; a channel runs when all have
 * been undone (docs/measurements/hand.md). So the library's freezing and the hand need no common
 * owner. Each undoes exactly its own: `off` says which channels the hand's disabling counts for.
 * The library raises a number in `off` before an entry gets another name, so the hand never changes
 * it for a name that has gone.
 *
 * All fields are atomic, and all accesses sequentially consistent. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define HAND_CHANNELS 4096 /* as many as the library's ledger has objects */
#define HAND_CLIENTS  8    /* RM clients of one process */

enum hand_off { /* the lowest bits of `off` */
                HAND_RUNS,
                HAND_OFF,     /* one disabling of the channel is the hand's */
                HAND_PENDING, /* the library is about to disable a new channel for the hand */
                HAND_OFF_MASK,
};

static inline uint32_t hand_off_with(uint32_t word, enum hand_off off)
{
        return (word & ~(uint32_t)HAND_OFF_MASK) | off;
}

struct hand_page {
        /* Written by the hand. */
        _Atomic uint32_t holds; /* 1: the program is off the GPU; a new channel must not run */
        _Atomic uint32_t busy;  /* 1: a control that names the program's channels is under way */

        /* Written by the library. */
        _Atomic uint32_t ready; /* 1: freezing is known to work here, so the hand may act */
        _Atomic uint32_t top;   /* names[top] and later ones are unused */

        /* Proof that a client of RM is the program's: only its owner can make an object in it, so
         * the library makes a device whose handle only the two sides know. */
        struct hand_proof {
                _Atomic uint32_t client; /* hand: the client in question; 0: none */
                _Atomic uint32_t secret; /* hand: the handle of the device to make */
                _Atomic uint32_t made;   /* library: the handle of the device that it has made */
                _Atomic uint32_t proved; /* hand: the device is seen, and may go */
        } proofs[HAND_CLIENTS];

        struct hand_name {
                _Atomic uint64_t name;   /* client << 32 | channel; 0: none */
                _Atomic uint32_t device; /* number of the GPU at RM, its "device instance" */
                _Atomic uint32_t off;    /* enum hand_off, and a number above it */
        } names[HAND_CHANNELS];
};
