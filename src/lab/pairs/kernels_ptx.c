/* kernels_ptx.c: owns the code of the synthetic kernels. Must never write code whose result a
 * compiler can know: it would leave the work out. */
#include "lab/pairs/kernels.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/macros.h"

#define UNROLLED       64 /* instructions of arithmetic in a loop's body without memory */
#define ACCESSES       4  /* accesses of memory in a loop's body without arithmetic */
#define SHARED_BYTES   8192
#define TENSOR_RESULTS 4 /* numbers that a thread has of one product of matrices */

struct text {
        char *buf;
        size_t used, room;
        unsigned next; /* the value that computes next */
};

static __attribute__((format(printf, 2, 3))) void add(struct text *t, const char *format, ...)
{
        va_list arguments;
        int n;

        va_start(arguments, format);
        n = vsnprintf(t->buf + t->used, t->room - t->used, format, arguments);
        va_end(arguments);
        t->used = n < 0 ? t->room : MIN(t->used + (size_t)n, t->room - 1);
}

static bool uses_memory(const struct kernel_job *job)
{
        return job->footprint_kib > 0;
}

/* Values of a thread: v are words, f numbers of 32 bits, d of 64. A tensor product has four f. */
static unsigned values_of(const struct kernel_job *job)
{
        return MAX(job->values, 2U);
}

/* ---- arithmetic ---- */

/* Writes one instruction of the family, or one product of matrices. */
static void compute(struct text *t, const struct kernel_job *job)
{
        const unsigned i = t->next++ % values_of(job), f = i * TENSOR_RESULTS;

        switch (job->family) {
        case KERNEL_FP32:
                add(t, "  fma.rn.f32 %%f%u, %%f%u, %%fa, %%fb;\n", i, i);
                break;
        case KERNEL_FP64:
                add(t, "  fma.rn.f64 %%d%u, %%d%u, %%da, %%db;\n", i, i);
                break;
        case KERNEL_FP16:
                add(t, "  fma.rn.f16x2 %%v%u, %%v%u, %%ha, %%hb;\n", i, i);
                break;
        case KERNEL_INTEGER:
                if (t->next % 3 == 0)
                        add(t, "  xor.b32 %%v%u, %%v%u, %%gid;\n", i, i);
                else
                        add(t, "  mad.lo.u32 %%v%u, %%v%u, %%seed, %%gid;\n", i, i);
                break;
        case KERNEL_SPECIAL:
                add(t, "  rsqrt.approx.ftz.f32 %%f%u, %%f%u;\n", i, i);
                break;
        case KERNEL_TENSOR:
                add(t,
                    "  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%%f%u, %%f%u, %%f%u, "
                    "%%f%u}, {%%t0, %%t1, %%t2, %%t3}, {%%t4, %%t5}, {%%f%u, %%f%u, %%f%u, "
                    "%%f%u};\n",
                    f, f + 1, f + 2, f + 3, f, f + 1, f + 2, f + 3);
                break;
        default:
                break;
        }
}

/* Mixes what was read (%l0 to %l3) into a value, so that it was not read in vain. */
static void absorb(struct text *t, const struct kernel_job *job)
{
        switch (job->family) {
        case KERNEL_FP32:
        case KERNEL_SPECIAL:
                add(t, "  xor.b32 %%l0, %%l0, %%l1;\n  xor.b32 %%l0, %%l0, %%l2;\n"
                       "  xor.b32 %%l0, %%l0, %%l3;\n  cvt.rn.f32.u32 %%fl, %%l0;\n"
                       "  add.f32 %%f0, %%f0, %%fl;\n");
                break;
        case KERNEL_FP64:
                add(t, "  xor.b32 %%l0, %%l0, %%l1;\n  xor.b32 %%l0, %%l0, %%l2;\n"
                       "  xor.b32 %%l0, %%l0, %%l3;\n  cvt.rn.f64.u32 %%dl, %%l0;\n"
                       "  add.f64 %%d0, %%d0, %%dl;\n");
                break;
        case KERNEL_TENSOR:
                add(t, "  and.b32 %%l0, %%l0, 0x3bff3bff;\n  xor.b32 %%l1, %%l1, %%l2;\n"
                       "  xor.b32 %%l1, %%l1, %%l3;\n  and.b32 %%l1, %%l1, 0x3bff3bff;\n"
                       "  mov.b32 %%t0, %%l0;\n  mov.b32 %%t4, %%l1;\n");
                break;
        default:
                add(t, "  xor.b32 %%v0, %%v0, %%l0;\n  xor.b32 %%v1, %%v1, %%l1;\n"
                       "  xor.b32 %%v0, %%v0, %%l2;\n  xor.b32 %%v1, %%v1, %%l3;\n");
        }
}

/* ---- memory ---- */

/* Goes on to the thread's next address, and from the end of the memory to its beginning. */
static void advance(struct text *t)
{
        add(t, "  add.u64 %%at, %%at, %%stride;\n  setp.ge.u64 %%p1, %%at, %%end;\n"
               "  @%%p1 sub.u64 %%at, %%at, %%bytes;\n");
}

/* Reads bypass the cache of the SM: what is measured is the L2, or the memory behind it. */
static void read_stream(struct text *t, const struct kernel_job *job)
{
        add(t, "  ld.global.cg.v4.u32 {%%l0, %%l1, %%l2, %%l3}, [%%at];\n");
        absorb(t, job);
        if (job->family == KERNEL_UPDATE)
                add(t, "  add.u32 %%l0, %%l0, %%gid;\n"
                       "  st.global.cg.v4.u32 [%%at], {%%l0, %%l1, %%l2, %%l3};\n");
        advance(t);
}

/* Chooses a random word of the memory. Each thread has a sequence of its own. */
static void choose_random(struct text *t)
{
        add(t, "  mad.lo.u32 %%seed, %%seed, 1664525, 1013904223;\n"
               "  mul.hi.u32 %%r0, %%seed, %%words;\n  mul.wide.u32 %%at, %%r0, 4;\n"
               "  add.u64 %%at, %%at, %%base;\n");
}

static void access_random(struct text *t, const struct kernel_job *job)
{
        const unsigned i = t->next++ % values_of(job);

        choose_random(t);
        if (job->family == KERNEL_ATOMIC)
                add(t, "  red.global.add.u32 [%%at], %%gid;\n");
        else
                add(t, "  ld.global.cg.u32 %%l0, [%%at];\n  xor.b32 %%v%u, %%v%u, %%l0;\n", i, i);
}

static void access_shared(struct text *t)
{
        add(t,
            "  ld.shared.v4.u32 {%%l0, %%l1, %%l2, %%l3}, [%%s];\n"
            "  xor.b32 %%v0, %%v0, %%l0;\n  xor.b32 %%v1, %%v1, %%l1;\n"
            "  add.u32 %%l2, %%l2, %%v0;\n  add.u32 %%l3, %%l3, %%v1;\n"
            "  st.shared.v4.u32 [%%s], {%%l0, %%l1, %%l2, %%l3};\n"
            "  add.u32 %%off, %%off, 528;\n  and.b32 %%off, %%off, %u;\n"
            "  add.u32 %%s, %%sbase, %%off;\n",
            SHARED_BYTES - 16);
}

/* ---- the kernel ---- */

static void begin_kernel(struct text *t, const struct kernel_job *job)
{
        const unsigned values = values_of(job);
        char name[KERNEL_NAME_MAX];

        kernel_entry(job, name);
        add(t,
            ".version 7.0\n.target %s\n.address_size 64\n"
            ".visible .entry %s(.param .u64 p_base, .param .u64 p_bytes, .param .u64 p_stride, "
            ".param .u32 p_loops, .param .u32 p_never)\n{\n"
            "  .reg .pred %%p1, %%p2;\n"
            "  .reg .b32 %%r0, %%r1, %%r2, %%gid, %%loops, %%never, %%seed, %%words, %%s, %%sbase, "
            "%%off, %%l0, %%l1, %%l2, %%l3, %%ha, %%hb, %%t<6>, %%v<%u>;\n"
            "  .reg .b64 %%base, %%bytes, %%stride, %%at, %%end, %%size;\n"
            "  .reg .f32 %%fa, %%fb, %%fl, %%f<%u>;\n  .reg .f64 %%da, %%db, %%dl, %%d<%u>;\n",
            job->family == KERNEL_TENSOR ? "sm_80" : "sm_70", name, values, TENSOR_RESULTS * values,
            values);
        if (job->family == KERNEL_SHARED)
                add(t, "  .shared .align 16 .b8 room[%d];\n", SHARED_BYTES);
        add(t, "  ld.param.u64 %%base, [p_base];\n  ld.param.u64 %%bytes, [p_bytes];\n"
               "  ld.param.u64 %%stride, [p_stride];\n  ld.param.u32 %%loops, [p_loops];\n"
               "  ld.param.u32 %%never, [p_never];\n  cvta.to.global.u64 %%base, %%base;\n"
               "  mov.u32 %%r0, %%ctaid.x;\n  mov.u32 %%r1, %%ntid.x;\n  mov.u32 %%r2, %%tid.x;\n"
               "  mad.lo.u32 %%gid, %%r0, %%r1, %%r2;\n"
               "  mul.lo.u32 %%seed, %%gid, 0x9e3779b1;\n  or.b32 %%seed, %%seed, 1;\n");
        if (uses_memory(job))
                add(t, "  mul.wide.u32 %%at, %%gid, 16;\n  rem.u64 %%at, %%at, %%bytes;\n"
                       "  add.u64 %%at, %%at, %%base;\n  add.u64 %%end, %%base, %%bytes;\n"
                       "  shr.u64 %%size, %%bytes, 2;\n  cvt.u32.u64 %%words, %%size;\n");
        if (job->family == KERNEL_SHARED)
                add(t,
                    "  mov.u32 %%sbase, room;\n  shl.b32 %%off, %%r2, 4;\n"
                    "  and.b32 %%off, %%off, %u;\n  add.u32 %%s, %%sbase, %%off;\n"
                    "  st.shared.v4.u32 [%%s], {%%gid, %%seed, %%gid, %%seed};\n",
                    SHARED_BYTES - 16);
}

/* The values at the beginning depend on the thread. */
static void set_values(struct text *t, const struct kernel_job *job)
{
        const unsigned values = values_of(job);

        add(t, "  cvt.rn.f32.u32 %%fa, %%never;\n  mul.f32 %%fa, %%fa, 0f2f000000;\n"
               "  cvt.rn.f32.u32 %%fb, %%seed;\n  cvt.f64.f32 %%da, %%fa;\n"
               "  cvt.f64.f32 %%db, %%fb;\n"
               "  and.b32 %%ha, %%never, 0x3bff3bff;\n  and.b32 %%hb, %%seed, 0x3bff3bff;\n");
        for (unsigned i = 0; i < values; i++) {
                add(t, "  add.u32 %%v%u, %%seed, %u;\n", i, i);
                if (job->family == KERNEL_FP16)
                        add(t, "  and.b32 %%v%u, %%v%u, 0x3bff3bff;\n", i, i);
                if (job->family == KERNEL_FP64)
                        add(t, "  cvt.rn.f64.u32 %%d%u, %%v%u;\n", i, i);
        }
        if (job->family == KERNEL_FP32 || job->family == KERNEL_SPECIAL)
                for (unsigned i = 0; i < values; i++)
                        add(t, "  cvt.rn.f32.u32 %%f%u, %%v%u;\n", i, i);
        if (job->family == KERNEL_TENSOR) {
                for (unsigned i = 0; i < TENSOR_RESULTS * values; i++)
                        add(t, "  cvt.rn.f32.u32 %%f%u, %%v%u;\n", i, i / TENSOR_RESULTS);
                for (unsigned i = 0; i < 6; i++)
                        add(t,
                            "  mad.lo.u32 %%t%u, %%seed, 1664525, %u;\n"
                            "  and.b32 %%t%u, %%t%u, 0x3bff3bff;\n",
                            i, 1013904223U + i, i, i);
        }
}

static void body(struct text *t, const struct kernel_job *job)
{
        const unsigned values = values_of(job);

        add(t, "LOOP:\n");
        switch (job->family) {
        case KERNEL_SHARED:
                for (unsigned i = 0; i < ACCESSES; i++)
                        access_shared(t);
                break;
        case KERNEL_GATHER:
        case KERNEL_ATOMIC:
                for (unsigned i = 0; i < ACCESSES; i++)
                        access_random(t, job);
                break;
        case KERNEL_READ:
        case KERNEL_UPDATE:
                for (unsigned i = 0; i < ACCESSES; i++)
                        read_stream(t, job);
                break;
        default:
                if (job->intensity)
                        read_stream(t, job);
                for (unsigned i = 0;
                     i < (job->intensity                 ? job->intensity
                          : job->family == KERNEL_TENSOR ? values
                                                         : MAX(values, (unsigned)UNROLLED));
                     i++)
                        compute(t, job);
        }
        add(t, "  sub.u32 %%loops, %%loops, 1;\n  setp.ne.u32 %%p2, %%loops, 0;\n"
               "  @%%p2 bra LOOP;\n");
}

static void end(struct text *t, const struct kernel_job *job)
{
        const unsigned values = values_of(job);

        add(t, "  mov.u32 %%r1, %%seed;\n");
        for (unsigned i = 0; i < values; i++)
                switch (job->family) {
                case KERNEL_FP32:
                case KERNEL_SPECIAL:
                        add(t, "  mov.b32 %%r0, %%f%u;\n  xor.b32 %%r1, %%r1, %%r0;\n", i);
                        break;
                case KERNEL_TENSOR:
                        for (unsigned k = 0; k < TENSOR_RESULTS; k++)
                                add(t, "  mov.b32 %%r0, %%f%u;\n  xor.b32 %%r1, %%r1, %%r0;\n",
                                    TENSOR_RESULTS * i + k);
                        break;
                case KERNEL_FP64:
                        add(t,
                            "  cvt.rn.f32.f64 %%fl, %%d%u;\n  mov.b32 %%r0, %%fl;\n"
                            "  xor.b32 %%r1, %%r1, %%r0;\n",
                            i);
                        break;
                default:
                        add(t, "  xor.b32 %%r1, %%r1, %%v%u;\n", i);
                }
        add(t, "  setp.ne.u32 %%p1, %%r1, %%never;\n  @%%p1 bra END;\n"
               "  st.global.u32 [%%base], %%r1;\nEND:\n  ret;\n}\n");
}

int kernel_ptx(const struct kernel_job *job, char *buf, size_t room)
{
        struct text t = {.buf = buf, .room = room};

        begin_kernel(&t, job);
        set_values(&t, job);
        body(&t, job);
        end(&t, job);
        return t.used + 1 < room ? 0 : -ENOSPC;
}
