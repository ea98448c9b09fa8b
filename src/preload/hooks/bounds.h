/* bounds.h: a copy or fill must not leave the allocation in which it begins.
 *
 * The driver refuses such a call with CUDA_ERROR_INVALID_VALUE, and touches nothing (measured). For
 * our memory it cannot: several allocations lie in one mapping, so the call would change the bytes
 * of a neighbour. The wrappers of driver calls (doors.c) therefore check both ends of each copy and
 * fill before the gate.
 *
 * Each thread remembers the stretches that it looked up last, so most checks take no lock. In a
 * process that is passive every call goes to the driver unchecked. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "cuda/cuda_abi.h"
#include "preload/heap/heap.h"

#define BOUNDS_KNOWN 8u

/* What one thread knows. `looked` counts look-ups, each of which replaces an entry: a signal
 * handler that copies memory may replace the entry that its thread is just reading. */
struct bounds_thread {
        uint32_t looked;
        struct bounds_known {
                uint64_t changes; /* heap_changes at the look-up; 0: nothing is known */
                struct stretch stretch;
        } known[BOUNDS_KNOWN];
};
extern __thread struct bounds_thread bounds_thread __attribute__((tls_model("initial-exec")));

/* Looks a range up under the lock. False: the call must be refused. The driver's own error comes
 * first: if it refuses every call of this thread, the answer is true. */
bool bounds_look(CUdeviceptr at, uint64_t bytes);

/* False: a call that reads or writes these bytes must be refused. Any address may be asked about;
 * the driver checks those that are not ours. */
static ALWAYS_INLINE bool bounds_hold(CUdeviceptr at, uint64_t bytes)
{
        const struct bounds_thread *t = &bounds_thread;
        const uint64_t now = atomic_load_explicit(&heap_changes, memory_order_relaxed);
        const uint32_t looked = t->looked;

        atomic_signal_fence(memory_order_seq_cst);
        for (unsigned i = 0; i < BOUNDS_KNOWN; i++) {
                const struct stretch *s = &t->known[i].stretch;

                if (at < s->from || at >= s->to || t->known[i].changes != now)
                        continue;
                if (bytes > s->to - at)
                        break;
                atomic_signal_fence(memory_order_seq_cst);
                if (likely(t->looked == looked))
                        return true;
                break;
        }
        return bounds_look(at, bytes);
}

/* ---- calls with addresses ----
 *
 * A door chooses one of these functions by the type of its driver function, and passes a 0 and its
 * own arguments. The 0 is there because a variadic function, such as bounds_none(), needs a
 * parameter with a name. */

static ALWAYS_INLINE bool bounds_none(int zero, ...)
{
        return true;
}

static ALWAYS_INLINE bool bounds_copy(int zero, CUdeviceptr to, CUdeviceptr from, size_t bytes, ...)
{
        return bounds_hold(to, bytes) && bounds_hold(from, bytes);
}

static ALWAYS_INLINE bool bounds_to_device(int zero, CUdeviceptr to, const void *from, size_t bytes,
                                           ...)
{
        return bounds_hold(to, bytes) && bounds_hold((uintptr_t)from, bytes);
}

static ALWAYS_INLINE bool bounds_to_host(int zero, void *to, CUdeviceptr from, size_t bytes, ...)
{
        return bounds_hold((uintptr_t)to, bytes) && bounds_hold(from, bytes);
}

static inline bool bounds_peer(int zero, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                               CUcontext from_context, size_t bytes, ...)
{
        return bounds_hold(to, bytes) && bounds_hold(from, bytes);
}

static inline bool bounds_device_to_array(int zero, CUarray to, size_t offset, CUdeviceptr from,
                                          size_t bytes)
{
        return bounds_hold(from, bytes);
}

static inline bool bounds_array_to_device(int zero, CUdeviceptr to, CUarray from, size_t offset,
                                          size_t bytes)
{
        return bounds_hold(to, bytes);
}

static inline bool bounds_host_to_array(int zero, CUarray to, size_t offset, const void *from,
                                        size_t bytes, ...)
{
        return bounds_hold((uintptr_t)from, bytes);
}

static inline bool bounds_array_to_host(int zero, void *to, CUarray from, size_t offset,
                                        size_t bytes, ...)
{
        return bounds_hold((uintptr_t)to, bytes);
}

/* If a copy of a batch is refused, *ret_failed is its index, as the driver reports it. */
bool bounds_batch(int zero, const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                  size_t count, CUmemcpyAttributes *attributes, size_t *indices,
                  size_t attribute_count, size_t *ret_failed, CUstream stream);
bool bounds_batch_v2(int zero, const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                     size_t count, ...);
bool bounds_3d_batch(int zero, size_t count, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t *ret_failed,
                     unsigned long long flags, CUstream stream);
bool bounds_3d_batch_v2(int zero, size_t count, const CUDA_MEMCPY3D_BATCH_OP *ops,
                        unsigned long long flags, CUstream stream);
bool bounds_3d_one(int zero, const CUDA_MEMCPY3D_BATCH_OP *op, ...);

/* Like bounds_hold(), for rows of `width` elements that begin `pitch` bytes apart. */
bool bounds_hold_rows(CUdeviceptr at, size_t pitch, size_t element, size_t width, size_t height);

#define BOUNDS_SET(bits, type)                                                                   \
        static inline bool bounds_set_##bits(int zero, CUdeviceptr to, type value, size_t width, \
                                             ...)                                                \
        {                                                                                        \
                return bounds_hold_rows(to, 0, (bits) / 8, width, 1);                            \
        }                                                                                        \
        static inline bool bounds_set_2d_##bits(int zero, CUdeviceptr to, size_t pitch,          \
                                                type value, size_t width, size_t height, ...)    \
        {                                                                                        \
                return bounds_hold_rows(to, pitch, (bits) / 8, width, height);                   \
        }
BOUNDS_SET(8, unsigned char)
BOUNDS_SET(16, unsigned short)
BOUNDS_SET(32, unsigned int)
#undef BOUNDS_SET

/* ---- descriptors ----
 *
 * A door passes each of its arguments that has one of these types, unless it is NULL. */

bool bounds_of_2d(const CUDA_MEMCPY2D *copy);
bool bounds_of_3d(const CUDA_MEMCPY3D *copy);
bool bounds_of_peer(const CUDA_MEMCPY3D_PEER *copy);
bool bounds_of_set(const CUDA_MEMSET_NODE_PARAMS *set);
bool bounds_of_node(const CUgraphNodeParams *node);
