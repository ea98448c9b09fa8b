/* exchange.h: puts the kernel that sends and receives into a stream, whose context is the current
 * one. A launch advances all messages of a group as far as the flags of their peers allow, and
 * waits for nothing. After it no message can go on before a peer sets a flag, and then a bell.
 * Any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "ranks/exchange/exchange_shared.h"

/* Loads the kernel. The driver may wait for all work of the context meanwhile. */
CUresult exchange_prepare(void);
/* Writes a table of struct exchange_head, exchange_chain and exchange_message, whose bytes are a
 * multiple of 8. Then clears the bells. */
CUresult exchange_begin(const struct exchange_place *place, const void *table, size_t bytes,
                        CUstream stream);
/* Does what is possible. All bells are set afterwards if all chains are complete.
 * largest: the most bytes of a piece. */
CUresult exchange_advance(const struct exchange_place *place, unsigned chains, uint64_t largest,
                          CUstream stream);
