/* special.c: the check of infinities and NaNs in reductions.
 *
 * As in NCCL's kernels, sums and products follow IEEE 754. The minimum and the maximum of a number
 * and a NaN are the number, so NaNs remain only where all ranks have one. Fp8 has no infinite
 * results: they become the largest number. Which bits a NaN has is not said, but all ranks get the
 * same. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/splitmix.h"
#include "checks.h"

/* The special numbers at a place, by the place's number modulo KINDS. */
enum kind {
        UPPER,   /* ranks with inf among numbers */
        LOWER,   /* -inf */
        NANS,    /* NaN */
        ALL_NAN, /* on all ranks */
        BOTH,    /* inf, -inf and zero */
        ALL,     /* these and NaN */
        KINDS,
};

static bool is_fp8(int type)
{
        return types[type].bytes == 1;
}

/* Roundings to the largest fp8 number make the order of BOTH and ALL matter. E4m3 has no infinity.
 */
static enum kind kind_of(int type, size_t i)
{
        const enum kind kind = (enum kind)(i % KINDS);

        if (is_fp8(type) && kind > ALL_NAN)
                return NANS;
        return type == ncclFloat8e4m3 && kind < NANS ? NANS : kind;
}

/* A quiet NaN of any sign and payload. */
static void write_nan(int type, uint64_t random, void *out)
{
        const struct type *t = &types[type];
        const int sign = t->exponent_bits + t->mantissa_bits;
        const uint64_t quiet = ((UINT64_C(1) << (t->exponent_bits + 1)) - 1)
                               << (t->mantissa_bits - 1);
        uint64_t bits = random & ((UINT64_C(1) << t->mantissa_bits) - 1);

        bits |= type == ncclFloat8e4m3 ? 0x7f : quiet;
        bits |= (random >> 63) << sign;
        memcpy(out, &bits, t->bytes);
}

static void write_input(int type, int rank, int n, size_t i, void *out)
{
        const uint64_t random = splitmix(splitmix(i * RANKS_MAX + (uint64_t)rank) + 1);
        const enum kind kind = kind_of(type, i);
        /* One rank always has something special. */
        const bool special = (int)(i / KINDS % (size_t)n) == rank || random % 4 == 0;
        const double number = random >> 8 & 1 ? 1 : -1;
        const uint64_t which = random >> 16 & 3;
        double v = number;

        if (kind == ALL_NAN || (special && (kind == NANS || (kind == ALL && which == 3)))) {
                write_nan(type, splitmix(random), out);
                return;
        }
        if (special && kind == UPPER)
                v = INFINITY;
        else if (special && kind == LOWER)
                v = -INFINITY;
        else if (special && kind != NANS)
                v = which == 0 ? 0 : number * INFINITY;
        value_encode(type, v, out);
}

static double combine(enum op op, double a, double b)
{
        switch (op) {
        case PROD:
                return a * b;
        case MAX:
                return fmax(a, b);
        case MIN:
                return fmin(a, b);
        default:
                return a + b;
        }
}

static double expected(int type, enum op op, int n, size_t i)
{
        double all = 0;

        for (int rank = 0; rank < n; rank++) {
                uint64_t bits;
                double v;

                write_input(type, rank, n, i, &bits);
                v = value_decode(type, &bits);
                all = rank ? combine(op, all, v) : v;
        }
        /* One rank's elements are only copied. */
        return n > 1 ? value_limited(type, all) : all;
}

static void judge(const struct operation *o, const unsigned char *got, size_t first)
{
        for (size_t i = 0; i < o->count; i++) {
                const double v = value_decode(o->type, got + i * types[o->type].bytes);
                const double want = expected(o->type, o->op, o->n, first + i);

                if (v == want || (isnan(v) && isnan(want)))
                        continue;
                wrong("%s %s %s of special numbers: element %zu is %g, not %g",
                      collective_names[o->what], types[o->type].name, op_names[o->op], first + i, v,
                      want);
                return;
        }
}

static uint64_t hash_of(const unsigned char *data, size_t bytes)
{
        uint64_t h = 1;

        for (size_t i = 0; i < bytes; i++)
                h = splitmix(h ^ data[i]);
        return h;
}

static void write_inputs(const struct operation *o, unsigned char *data)
{
        const size_t size = types[o->type].bytes;

        for (size_t i = 0; i < o->send_bytes / size; i++)
                write_input(o->type, o->rank, o->n, i, data + i * size);
        CUDA(cu.MemcpyHtoD(o->send, data, o->send_bytes));
}

static void try_special(const struct rank *r, enum collective what, int type, enum op op,
                        bool in_place)
{
        struct operation o = {.what = what,
                              .type = type,
                              .op = op,
                              .count = 333,
                              .root = r->n - 1,
                              .in_place = in_place,
                              .comm = r->comm,
                              .rank = r->rank,
                              .n = r->n,
                              .stream = r->stream[in_place]};
        unsigned char *data;

        operation_prepare(&o);
        data = malloc(MAX(o.send_bytes, o.recv_bytes) + 8);
        if (!data)
                fatal("no host memory");
        write_inputs(&o, data);
        operation_call(&o);
        CUDA(cu.StreamSynchronize(o.stream));
        CUDA(cu.MemcpyDtoH(data, o.recv, o.recv_bytes));
        if (o.receives)
                judge(&o, data, what == REDUCE_SCATTER ? (size_t)o.rank * o.count : 0);
        EXPECT(what != ALL_REDUCE || equal_on_all_ranks(r, hash_of(data, o.recv_bytes)),
               "%s %s of special numbers differs between ranks", types[type].name, op_names[op]);
        count_case();
        free(data);
        operation_free(&o);
}

void check_special_numbers(struct rank *r)
{
        static const enum collective all[] = {ALL_REDUCE, REDUCE, REDUCE_SCATTER};

        for (int type = ncclFloat16; type < ncclNumTypes; type++)
                for (enum op op = SUM; op <= MIN && settings.types[type]; op++)
                        for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
                                try_special(r, all[i], type, op, false);
                                try_special(r, all[i], type, op, true);
                        }
}
