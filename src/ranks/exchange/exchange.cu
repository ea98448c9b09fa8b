// exchange.cu: the device side of exchange.h. tools/kernels.sh compiles it. The library embeds the
// result, so the build needs no compiler for GPUs.
//
// The block of a chain that begins first reads the flags. What it has seen stands for all blocks of
// the chain, each of which copies a share. The block that ends last changes the state and the flags,
// so the state does not change while a block may still read it.
// Why: docs/decisions.md, "Sends and receives wait for any peer".

#include "exchange_shared.h"

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u32 u32x4 __attribute__((ext_vector_type(4)));

#define __device__   static __attribute__((device, always_inline))
#define KERNEL       extern "C" __attribute__((global, launch_bounds(EXCHANGE_THREADS)))
#define global_space __attribute__((address_space(1)))

typedef global_space exchange_head *head_pointer;
typedef global_space exchange_chain *chain_pointer;

enum { UNROLL = 4, ALL_PARTS = (1 << EXCHANGE_PARTS) - 1, DECIDED = 1 << EXCHANGE_PARTS };

__device__ u32 thread()
{
        return (u32)__nvvm_read_ptx_sreg_tid_x();
}

__device__ volatile global_space u32 *word(u64 at)
{
        return (volatile global_space u32 *)at;
}

// ---- copies ----

// Copies `count` units; this thread is number `self` of `threads`.
template <class Unit> __device__ void copy_units(u64 to, u64 from, u64 count, u64 self, u64 threads)
{
        global_space Unit *t = (global_space Unit *)to;
        const global_space Unit *f = (const global_space Unit *)from;
        u64 i = self;

        for (; i + (UNROLL - 1) * threads < count; i += UNROLL * threads) {
                Unit l[UNROLL];

#pragma unroll
                for (int k = 0; k < UNROLL; k++)
                        l[k] = f[i + k * threads];
#pragma unroll
                for (int k = 0; k < UNROLL; k++)
                        t[i + k * threads] = l[k];
        }
#pragma unroll 1
        for (; i < count; i += threads)
                t[i] = f[i];
}

// Copies the few bytes before or after the units.
__device__ void copy_edge(u64 to, u64 from, u64 bytes, u64 self)
{
        if (self < bytes)
                ((global_space u8 *)to)[self] = ((const global_space u8 *)from)[self];
}

// Copies bytes in units of a type. Both addresses have the same place in a unit.
template <class Unit> __device__ void copy_as(u64 to, u64 from, u64 bytes, u64 self, u64 threads)
{
        u64 before = -to % sizeof(Unit), body;

        before = before < bytes ? before : bytes;
        body = (bytes - before) / sizeof(Unit) * sizeof(Unit);
        copy_edge(to, from, before, self);
        copy_units<Unit>(to + before, from + before, body / sizeof(Unit), self, threads);
        copy_edge(to + before + body, from + before + body, bytes - before - body, self);
}

__device__ void copy(u64 to, u64 from, u64 bytes)
{
        u64 threads = (u64)__nvvm_read_ptx_sreg_ntid_x() * __nvvm_read_ptx_sreg_nctaid_x();
        u64 self = (u64)__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + thread();

        if ((to ^ from) % 16 == 0)
                copy_as<u32x4>(to, from, bytes, self, threads);
        else if ((to ^ from) % 4 == 0)
                copy_as<u32>(to, from, bytes, self, threads);
        else
                copy_as<u8>(to, from, bytes, self, threads);
}

// ---- what a chain does ----

// What follows from the state of a chain and from a decision.
struct plan {
        u32 taken, given;           // parts whose flags are cleared, and set
        u32 message, piece, in_use; // the state afterwards
        u32 copies;
};

// One thread fills this for all threads of its block. It is volatile because clang 14 moves loads
// of a variable that only this file names across a barrier.
struct copies {
        u32 n;
        u64 to[EXCHANGE_PARTS], from[EXCHANGE_PARTS], bytes[EXCHANGE_PARTS];
};

__device__ bool is_complete(chain_pointer c, u32 message, u32 in_use)
{
        return message == c->end - c->first && in_use == 0;
}

// Sends to each free part, or receives from each part that is sent, as far as the order of the
// pieces allows. So a chain can do no more until the peer sets a flag.
__device__ void make_plan(const exchange_place &place, chain_pointer c, u32 seen, plan &p,
                          volatile copies &out)
{
        const global_space exchange_message *messages =
                (const global_space exchange_message *)((chain_pointer)((head_pointer)place.table +
                                                                        1) +
                                                        __nvvm_read_ptx_sreg_nctaid_y()) +
                c->first;
        u32 open; // parts that may be copied to, or from

        p.message = c->message;
        p.piece = c->piece;
        p.in_use = c->in_use;
        p.taken = c->sends ? seen & p.in_use : 0;
        p.in_use &= ~p.taken;
        p.given = 0;
        p.copies = 0;
        open = c->sends ? ALL_PARTS & ~p.in_use : seen;
#pragma unroll 1
        while (p.message < c->end - c->first && (open >> p.piece % EXCHANGE_PARTS & 1)) {
                u32 part = p.piece % EXCHANGE_PARTS;
                u64 start = p.piece * place.per_piece;
                u64 left = messages[p.message].bytes - start;
                u64 mine = messages[p.message].at + start,
                    area = c->area + part * place.part_stride;

                out.to[p.copies] = c->sends ? area : mine;
                out.from[p.copies] = c->sends ? mine : area;
                out.bytes[p.copies] = left < place.per_piece ? left : place.per_piece;
                p.copies++;
                p.given |= 1u << part;
                open &= ~(1u << part);
                p.piece++;
                if (left <= place.per_piece) {
                        p.message++;
                        p.piece = 0;
                }
        }
        if (c->sends)
                p.in_use |= p.given;
        else
                p.taken = p.given;
        out.n = p.copies;
}

// Returns the flags that are set: a bit for each part.
__device__ u32 look(const exchange_place &place, chain_pointer c)
{
        u32 seen = 0;

#pragma unroll
        for (int part = 0; part < EXCHANGE_PARTS; part++)
                if (*word(c->take + part * place.flag_stride))
                        seen |= 1u << part;
        return seen;
}

// Returns what the first block of this chain has seen. That block runs already, so the others wait
// for a moment only. Flags are in host memory, and a fence of the whole system is slow, so one block
// of a chain has both.
__device__ u32 decide(const exchange_place &place, chain_pointer c)
{
        volatile global_space u32 *decision = (volatile global_space u32 *)&c->decision;
        u32 seen = 0;

        if (__nvvm_atom_add_gen_i((int *)&c->begun, 1) == 0) {
                seen = DECIDED | look(place, c);
                __nvvm_membar_sys(); // what the peer wrote before its flags is read after this
                *decision = seen;
        }
        while (!seen)
                seen = *decision;
        __nvvm_membar_gl();
        return seen & ALL_PARTS;
}

// The last block of a chain ends its launch. A flag is cleared before the peer can set it again.
// The bell comes after the flag, so the peer's stream goes on to find the flag.
__device__ void finish(const exchange_place &place, chain_pointer c, const plan &p)
{
        head_pointer h = (head_pointer)place.table;

        __nvvm_membar_gl();
        if ((u32)__nvvm_atom_add_gen_i((int *)&c->arrived, 1) + 1 !=
            (u32)__nvvm_read_ptx_sreg_nctaid_x())
                return;
        c->begun = 0;
        c->decision = 0;
        c->arrived = 0;
        c->message = p.message;
        c->piece = p.piece;
        c->in_use = p.in_use;
#pragma unroll
        for (int part = 0; part < EXCHANGE_PARTS; part++)
                if (p.taken >> part & 1)
                        *word(c->take + part * place.flag_stride) = 0;
        __nvvm_membar_sys();
#pragma unroll
        for (int part = 0; part < EXCHANGE_PARTS; part++)
                if (p.given >> part & 1)
                        *word(c->give + part * place.flag_stride) = 1;
        __nvvm_membar_sys();
        if (p.given)
                *(volatile global_space u8 *)c->bell = 1;
        if (is_complete(c, p.message, p.in_use))
                (void)__nvvm_atom_add_gen_i((int *)&h->left, -1);
}

// ---- the kernels ----

struct exchange_words {
        u64 word[EXCHANGE_WORDS];
};

// Writes a part of the table. Clears the bells.
KERNEL void exchange_write(exchange_words words, u64 to, u32 count, u64 bells)
{
        for (u32 i = thread(); i < count; i += (u32)__nvvm_read_ptx_sreg_ntid_x())
                ((global_space u64 *)to)[i] = words.word[i];
        if (thread() == 0) {
                *(volatile global_space u64 *)bells = 0;
                __nvvm_membar_sys();
        }
}

// Block (x, y) has share x of chain y.
KERNEL void exchange(exchange_place place)
{
        static __attribute__((shared)) volatile copies todo;
        chain_pointer c =
                (chain_pointer)((head_pointer)place.table + 1) + __nvvm_read_ptx_sreg_ctaid_y();
        bool open = false;
        plan p = {};

        if (thread() == 0) {
                todo.n = 0;
                open = !is_complete(c, c->message, c->in_use);
                if (open)
                        make_plan(place, c, decide(place, c), p, todo);
        }
        __syncthreads();
#pragma unroll 1
        for (u32 i = 0; i < todo.n; i++)
                copy(todo.to[i], todo.from[i], todo.bytes[i]);
        __syncthreads();
        if (thread() != 0)
                return;
        if (open)
                finish(place, c, p);
        // When all is done, nobody else rings any more.
        if ((open || __nvvm_read_ptx_sreg_ctaid_x() + __nvvm_read_ptx_sreg_ctaid_y() == 0) &&
            *word(place.table + __builtin_offsetof(exchange_head, left)) == 0) {
                *(volatile global_space u64 *)place.bells = ~0ull;
                __nvvm_membar_sys();
        }
}
