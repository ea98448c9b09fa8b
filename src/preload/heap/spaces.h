/* spaces.h: a tree of a heap's free blocks, which finds the lowest one that is large enough in a
 * few steps: each block knows the largest size in its subtree.
 *
 * The tree is a treap: sorted by address, and ordered like a binary heap by a hash of the address,
 * which keeps it shallow. Between spaces_add() and spaces_remove() a block's address and size must
 * not change. The caller holds core_lock. */
#pragma once

#include "base/macros.h"
#include "preload/heap/heap.h"

static inline uint64_t spaces_rank(const struct block *b)
{
        return (b->address / HEAP_GRANULARITY) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline uint64_t spaces_largest(const struct block *root)
{
        return root ? root->largest : 0;
}

static inline void spaces_measure(struct block *root)
{
        root->largest =
                MAX(root->bytes, MAX(spaces_largest(root->lower), spaces_largest(root->higher)));
}

/* Splits a tree into the blocks below an address and the others. */
static inline void spaces_split(struct block *root, CUdeviceptr address, struct block **ret_below,
                                struct block **ret_above)
{
        if (!root) {
                *ret_below = *ret_above = NULL;
                return;
        }
        if (root->address < address) {
                spaces_split(root->higher, address, &root->higher, ret_above);
                *ret_below = root;
        } else {
                spaces_split(root->lower, address, ret_below, &root->lower);
                *ret_above = root;
        }
        spaces_measure(root);
}

/* Joins two trees; all blocks of the first one must lie below those of the second. */
static inline struct block *spaces_join(struct block *below, struct block *above)
{
        if (!below || !above)
                return below ? below : above;
        if (spaces_rank(below) > spaces_rank(above)) {
                below->higher = spaces_join(below->higher, above);
                spaces_measure(below);
                return below;
        }
        above->lower = spaces_join(below, above->lower);
        spaces_measure(above);
        return above;
}

static inline void spaces_add(struct block **root, struct block *b)
{
        struct block *below, *above;

        spaces_split(*root, b->address, &below, &above);
        b->lower = b->higher = NULL;
        b->largest = b->bytes;
        *root = spaces_join(spaces_join(below, b), above);
}

static inline void spaces_remove(struct block **root, const struct block *b)
{
        struct block *below, *rest, *self, *above;

        spaces_split(*root, b->address, &below, &rest);
        spaces_split(rest, b->address + 1, &self, &above);
        *root = spaces_join(below, above);
}

/* Returns the lowest block of at least this many bytes, or NULL. */
static inline struct block *spaces_fit(struct block *root, uint64_t bytes)
{
        while (root && root->largest >= bytes) {
                if (spaces_largest(root->lower) >= bytes)
                        root = root->lower;
                else if (root->bytes >= bytes)
                        return root;
                else
                        root = root->higher;
        }
        return NULL;
}
