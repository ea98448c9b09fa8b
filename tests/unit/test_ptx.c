/* test_ptx.c: kernels give the same bits as plain C: memory, control flow, operations across lanes.
 * It must never compare the interpreter with itself. */
#include "ptx_machine.h"

#include <time.h>

#define GUARD 16 /* elements past the end that must not change */

static uint64_t mix(uint64_t x)
{
        x ^= x >> 30;
        x *= UINT64_C(0xbf58476d1ce4e5b9);
        x ^= x >> 27;
        x *= UINT64_C(0x94d049bb133111eb);
        return x ^ (x >> 31);
}

static void elementwise(struct machine *m)
{
        enum { N = 1000 };
        uint64_t a = machine_allocate(m, N * 4), b = machine_allocate(m, N * 4);
        uint64_t c = machine_allocate(m, (N + GUARD) * 4), state = 1;
        float *pa = machine_at(m, a), *pb = machine_at(m, b), *pc = machine_at(m, c), y[N];
        struct {
                uint64_t a, b, c;
                uint32_t n;
        } add = {a, b, c, N};
        struct {
                float alpha;
                uint64_t x, y, n;
        } saxpy = {1.1F, a, b, N};

        for (unsigned i = 0; i < N; i++) {
                pa[i] = (float)(int32_t)machine_random(&state) * 0.37F;
                pb[i] = (float)(int32_t)machine_random(&state) * 1e-3F;
                y[i] = pb[i];
        }
        machine_run(m, "vecadd", 8, 128, 0, &add);
        for (unsigned i = 0; i < N + GUARD; i++)
                same_float(pc[i], i < N ? pa[i] + pb[i] : 0, i, 0);
        machine_run(m, "saxpy", 3, 96, 0, &saxpy);
        for (unsigned i = 0; i < N; i++)
                same_float(pb[i], fmaf(1.1F, pa[i], y[i]), i, 1);
}

static void element_wise_kernels_compute_what_c_computes(void **state)
{
        WITH_FIXTURE("elementwise", m, elementwise(&m);)
}

static void filled(struct machine *m, uint64_t n)
{
        uint64_t p = machine_allocate(m, (n + GUARD) * 8), errors = machine_allocate(m, 8);
        uint64_t *words = machine_at(m, p), *found = machine_at(m, errors);
        struct {
                uint64_t p, n, first, round, errors;
        } a = {p, n, p, 7, errors};
        struct {
                uint64_t p;
                uint32_t n, round;
        } a32 = {p, (uint32_t)n, 9};

        machine_run(m, "fill", 5, 256, 0, &a);
        for (uint64_t i = 0; i < n + GUARD; i++)
                assert_int_equal(words[i],
                                 i < n ? mix(p + i * 8 + 7 * UINT64_C(0x9e3779b97f4a7c15)) : 0);
        machine_run(m, "verify", 3, 64, 0, &a);
        assert_int_equal(*found, 0);
        words[0] ^= 1;
        words[n / 2] ^= UINT64_C(1) << 63;
        words[n - 1] ^= 2;
        machine_run(m, "verify", 3, 64, 0, &a);
        assert_int_equal(*found, 3);
        machine_run(m, "fill32", 2, 1024, 0, &a32);
        for (uint32_t i = 0; i < n; i++)
                assert_int_equal(((uint32_t *)words)[i],
                                 (i * 2654435761U) ^ (9 * 40503U + (i >> 7)));
}

static void fill_and_verify_agree_with_c_on_every_word(void **state)
{
        WITH_FIXTURE("elementwise", m, filled(&m, 5001);)
}

static void strided(struct machine *m)
{
        const struct ptx_memory memory = {.resolve = machine_resolve, .context = m};
        enum { ROWS = 13, COLUMNS = 37, STRIDE = 50 };
        uint64_t p = machine_allocate(m, ROWS * STRIDE * 8);
        double *d = machine_at(m, p), before[ROWS * STRIDE];
        struct {
                uint64_t p;
                int32_t rows, columns, stride;
        } a = {p, ROWS, COLUMNS, STRIDE};
        struct ptx_launch l = {.grid = {5, 2, 1}, .block = {8, 8, 1}, .parameters = &a};

        for (unsigned i = 0; i < ROWS * STRIDE; i++)
                before[i] = d[i] = (double)i * 0.1;
        if (ptx_run(ptx_module_kernel(m->module, "strided"), &l, &memory, m->error) != 0)
                fail_msg("%s", m->error);
        for (int r = 0; r < ROWS; r++)
                for (int c = 0; c < STRIDE; c++) {
                        double x = before[r * STRIDE + c];

                        /* The compiler fuses the multiplication and the addition. */
                        if (c < COLUMNS)
                                x = fma(x, 0.5, (double)(r - c) / (double)(c + 1));
                        same_double(d[r * STRIDE + c], x, (unsigned)r, (unsigned)c);
                }
}

static void two_dimensional_blocks_reach_their_rows_and_columns(void **state)
{
        WITH_FIXTURE("elementwise", m, strided(&m);)
}

struct pair {
        float a[4];
        int32_t b[4];
};

static void structs(struct machine *m)
{
        enum { N = 45 };
        uint64_t out = machine_allocate(m, N * sizeof(struct pair)), bytes = machine_allocate(m, N);
        uint64_t shorts = machine_allocate(m, N * 2), state = 2;
        struct pair *p = machine_at(m, out), before[N];
        uint8_t *b = machine_at(m, bytes), bytes_before[N];
        int16_t *s = machine_at(m, shorts), shorts_before[N];
        struct {
                struct pair by_value;
                uint64_t out, bytes, shorts;
        } a = {{{1.5F, -2.25F, 0, 0}, {0, 0, 17, 3}}, out, bytes, shorts};

        for (unsigned i = 0; i < N; i++) {
                for (unsigned k = 0; k < 4; k++) {
                        p[i].a[k] = (float)(int16_t)machine_random(&state);
                        p[i].b[k] = (int32_t)machine_random(&state);
                }
                before[i] = p[i];
                bytes_before[i] = b[i] = (uint8_t)machine_random(&state);
                shorts_before[i] = s[i] = (int16_t)machine_random(&state);
        }
        machine_run(m, "structs", 1, N, 0, &a);
        for (unsigned i = 0; i < N; i++) {
                same_float(p[i].a[0], before[i].a[0] + 1.5F, i, 0);
                same_float(p[i].a[3], before[i].a[3] * -2.25F, i, 3);
                same_integer(p[i].b[0], (int32_t)((uint32_t)before[i].b[0] - 17), i, 4);
                same_integer(p[i].b[1], before[i].b[1] % (int)(i + 1), i, 5);
                same_integer(p[i].b[2], before[i].b[2], i, 6);
                same_integer(p[i].b[3], before[i].b[3] / 3, i, 7);
                same_integer(b[i], (uint8_t)(bytes_before[i] * 3 + i), i, 8);
                same_integer(s[i], (int16_t)(shorts_before[i] - (int16_t)i * 7), i, 9);
        }
}

static void structs_bytes_and_shorts_are_read_and_written_whole(void **state)
{
        WITH_FIXTURE("elementwise", m, structs(&m);)
}

static void reductions(struct machine *m)
{
        enum { N = 20000, BLOCKS = 6 };
        uint64_t p = machine_allocate(m, N * 4), out = machine_allocate(m, 64), state = 3, sum = 0;
        uint32_t *words = machine_at(m, p);
        float *floats = machine_at(m, p), *maxima = machine_at(m, out), want[BLOCKS];
        struct {
                uint64_t p;
                uint32_t n;
                uint64_t out;
        } a = {p, N, out};

        for (unsigned i = 0; i < N; i++)
                sum += words[i] = (uint32_t)machine_random(&state);
        machine_run(m, "sum_static", 7, 256, 0, &a);
        assert_int_equal(*(uint64_t *)machine_at(m, out), sum);
        for (unsigned b = 0; b < BLOCKS; b++)
                want[b] = -INFINITY;
        for (unsigned i = 0; i < N; i++) {
                unsigned b = i / 128 % BLOCKS;

                floats[i] = (float)(int32_t)machine_random(&state);
                want[b] = fmaxf(want[b], floats[i]);
        }
        machine_run(m, "max_dynamic", BLOCKS, 128, 128 / 32 * 4, &a);
        for (unsigned b = 0; b < BLOCKS; b++)
                same_float(maxima[b], want[b], b, 0);
}

static void reductions_through_shared_memory_and_shuffles_are_exact(void **state)
{
        WITH_FIXTURE("reduce", m, reductions(&m);)
}

static void warp_words(struct machine *m)
{
        enum { N = 128 };
        uint64_t in = machine_allocate(m, N * 4), out = machine_allocate(m, 5 * N * 4), state = 4;
        int32_t *v = machine_at(m, in), or_all = 0, and_all = 1;
        uint32_t *o = machine_at(m, out), count = 0;
        struct {
                uint64_t in, out;
        } a = {in, out};

        for (unsigned i = 0; i < N; i++) {
                v[i] = i == 40 ? 7 : (int32_t)(machine_random(&state) % 300) - 50;
                count += v[i] > 3;
                or_all |= v[i] == 12345;
                and_all &= v[i] < 1000;
        }
        machine_run(m, "warp_words", 1, N, 0, &a);
        for (unsigned t = 0; t < N; t++) {
                const int32_t *w = v + (t & ~31U);
                uint32_t lane = t & 31, ballot = 0, any = 0, all = 1, sum = 0, max = 0, same = 0, r;

                for (unsigned i = 0; i < 32; i++) {
                        ballot |= (uint32_t)(w[i] > 0) << i;
                        any |= w[i] == 7;
                        all &= w[i] > -100;
                        sum += (uint32_t)w[i];
                        max = max > (uint32_t)w[i] ? max : (uint32_t)w[i];
                        same |= (uint32_t)((w[i] & 3) == (w[lane] & 3)) << i;
                }
                r = ballot + (any ? 1000 : 0) + (all ? 2000 : 0);
                r ^= (uint32_t)w[lane < 3 ? lane : lane - 3] << 1;
                r ^= (uint32_t)w[lane ^ 5] << 2;
                r ^= (uint32_t)w[(lane & 24) | ((t * 7 + 3) & 7)] << 3;
                r += t & 1;
                same_integer(o[t], r, t, 0);
                same_integer(o[N + t], count, t, 1);
                same_integer(o[2 * N + t], or_all + 2 * and_all, t, 2);
                same_integer(o[3 * N + t], sum ^ max, t, 3);
                same_integer(o[4 * N + t], same, t, 4);
        }
}

static void votes_shuffles_and_matches_see_the_whole_warp(void **state)
{
        WITH_FIXTURE("reduce", m, warp_words(&m);)
}

static void atomics(struct machine *m)
{
        enum { BLOCKS = 5, BLOCK = 96, N = BLOCKS * BLOCK };
        uint64_t in = machine_allocate(m, N * 4), i32 = machine_allocate(m, 64);
        uint64_t u32 = machine_allocate(m, 256), u64 = machine_allocate(m, (N + 2) * 8);
        uint64_t f32 = machine_allocate(m, 8), f64 = machine_allocate(m, 8), state = 5;
        int32_t *v = machine_at(m, in), *i = machine_at(m, i32), least = 0, most = 0;
        uint32_t sum = 0;
        uint32_t *u = machine_at(m, u32), and = UINT32_MAX, or = 0, xor = 0,
                 bins[16] = {
                         0};
        uint32_t inc = 0, dec = 0, minimum = 0x80000000U, chain = 1;
        uint64_t *w = machine_at(m, u64), most64 = 0, sum64 = 0, exchanged = 0, want = 0;
        float floats = 0;
        double doubles = 0;
        struct {
                uint64_t in, i32, u32, u64, f32, f64;
        } a = {in, i32, u32, u64, f32, f64};

        for (unsigned k = 0; k < N; k++) {
                v[k] = (int32_t)machine_random(&state);
                sum += (uint32_t)v[k];
                least = v[k] < least ? v[k] : least;
                most = v[k] > most ? v[k] : most;
                and &= (uint32_t)v[k] | 0xffff0000U;
                or |= (uint32_t)v[k];
                xor ^= (uint32_t)v[k];
                bins[v[k] & 15]++;
                inc = inc >= 100 ? 0 : inc + 1;
                dec = dec == 0 || dec > 50 ? 50 : dec - 1;
                minimum = (uint32_t)v[k] < minimum ? (uint32_t)v[k] : minimum;
                most64 = (uint64_t)(uint32_t)v[k] << 8 > most64 ? (uint64_t)(uint32_t)v[k] << 8
                                                                : most64;
                sum64 += (uint64_t)(int64_t)v[k];
                floats += (float)(v[k] & 7);
                doubles += (double)(v[k] & 15);
                chain = chain * 3 + 1;
        }
        u[0] = UINT32_MAX;
        u[5] = 0x80000000U;
        u[6] = 1;
        u[7] = 99999;
        machine_run(m, "atomics", BLOCKS, BLOCK, 0, &a);
        same_integer(i[0], (int32_t)sum, 0, 0);
        same_integer(i[1], least, 0, 1);
        same_integer(i[2], most, 0, 2);
        same_integer(i[3], (int32_t)(0 - sum), 0, 3);
        same_integer(u[0], and, 0, 4);
        same_integer(u[1], or, 0, 5);
        same_integer(u[2], xor, 0, 6);
        same_integer(u[3], inc, 0, 7);
        same_integer(u[4], dec, 0, 8);
        same_integer(u[5], minimum, 0, 9);
        same_integer(u[6], chain, 0, 10);
        for (unsigned k = 0; k < 16; k++)
                same_integer(u[8 + k], bins[k], k, 11);
        same_integer((int64_t)w[0], (int64_t)sum64, 0, 12);
        same_integer((int64_t)w[1], (int64_t)most64, 0, 13);
        same_float(*(float *)machine_at(m, f32), floats, 0, 14);
        same_double(*(double *)machine_at(m, f64), doubles, 0, 15);
        /* The exchanges return the initial value and every value stored except the last. */
        for (unsigned k = 0; k < N; k++) {
                exchanged += w[2 + k];
                want += k;
        }
        same_integer((int64_t)(exchanged + u[7]), (int64_t)(want + 99999), 0, 16);
}

static void atomics_of_all_lanes_add_up(void **state)
{
        WITH_FIXTURE("reduce", m, atomics(&m);)
}

static void diverged(struct machine *m)
{
        static const int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
        static const float weights[4] = {0.5F, 1.5F, -2.0F, 0};
        enum { N = 300, CASES = 64 };
        uint64_t in = machine_allocate(m, N * 4), out = machine_allocate(m, N * 4), state = 6;
        uint32_t *v = machine_at(m, in), *steps = machine_at(m, out);
        int32_t *r = machine_at(m, out);
        struct {
                uint64_t in, out;
                uint32_t n;
        } a = {in, out, N};

        for (unsigned i = 0; i < N; i++)
                v[i] = (uint32_t)(machine_random(&state) % 100000);
        machine_run(m, "collatz", 3, 128, 0, &a);
        for (unsigned i = 0; i < N; i++) {
                uint64_t x = v[i];
                uint32_t s = 0;

                for (; x > 1; s++)
                        x = x & 1 ? 3 * x + 1 : x / 2;
                same_integer(steps[i], s, i, 0);
        }
        machine_run(m, "cases", 1, CASES, 0, &a);
        for (unsigned i = 0; i < CASES; i++) {
                int32_t x = (int32_t)v[i];
                const int32_t want[8] = {
                        x * 3,
                        x / 7,
                        x ^ 0x55,
                        -x,
                        table[x >> 3 & 7],
                        7,
                        (int32_t)(weights[x >> 3 & 3] * 16.0F),
                        __builtin_popcount((uint32_t)x) + (x ? __builtin_clz((uint32_t)x) : 32) +
                                __builtin_ffs(x),
                };

                same_integer(r[i], want[x & 7], i, 1);
        }
}

static void diverged_lanes_follow_their_own_branches(void **state)
{
        WITH_FIXTURE("control", m, diverged(&m);)
}

static void calls(struct machine *m)
{
        enum { N = 70 };
        uint64_t in = machine_allocate(m, N * 4), out = machine_allocate(m, N * 4);
        int32_t *v = machine_at(m, in), *r = machine_at(m, out);
        struct {
                uint64_t in, out;
        } a = {in, out};

        for (int i = 0; i < N; i++)
                v[i] = i * 37 % 101;
        machine_run(m, "calls", 1, N, 0, &a);
        for (int t = 0; t < N; t++) {
                int32_t stack[8], want, factorial = 1;

                for (int i = 0; i < 8; i++)
                        stack[i] = v[t] + i;
                stack[t & 7] += t;
                want = stack[(t + 1) & 7] + 2;
                if (t & 1) {
                        stack[v[t] & 7] += v[t];
                        want += stack[(v[t] + 1) & 7] - 1;
                }
                for (int i = 2; i <= (t & 7) + 1; i++)
                        factorial *= i;
                same_integer(r[t], want + factorial + stack[t & 7], (unsigned)t, 0);
        }
}

static void functions_are_called_with_their_own_frames_and_local_memory(void **state)
{
        WITH_FIXTURE("control", m, calls(&m);)
}

static void timers(struct machine *m)
{
        uint64_t out = machine_allocate(m, 8);
        struct {
                uint64_t ns, out;
        } a = {3000000, out};
        struct timespec before, after;

        (void)clock_gettime(CLOCK_MONOTONIC, &before);
        machine_run(m, "spin_time", 2, 64, 0, &a);
        (void)clock_gettime(CLOCK_MONOTONIC, &after);
        assert_true(*(uint64_t *)machine_at(m, out) >= 3000000);
        assert_true((after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec >=
                    3000000);
}

static void a_kernel_that_spins_on_the_clock_ends_when_its_time_has_come(void **state)
{
        WITH_FIXTURE("control", m, timers(&m);)
}

/* Sets the flag once the kernel has been seen running. */
struct host {
        struct machine *m;
        uint64_t flag;
        unsigned polls;
};

static struct host host;

static bool set_flag_at_the_tenth_poll(void *context)
{
        if (++host.polls == 10)
                __atomic_store_n((uint32_t *)machine_at(host.m, host.flag), 42, __ATOMIC_RELEASE);
        return false;
}

static void flags(struct machine *m)
{
        uint64_t flag = machine_allocate(m, 4), out = machine_allocate(m, 64 * 8);
        struct {
                uint64_t flag, out;
        } a = {flag, out};

        m->cancelled = set_flag_at_the_tenth_poll;
        host = (struct host){.m = m, .flag = flag};
        machine_run(m, "spin_flag", 1, 64, 0, &a);
        for (unsigned i = 0; i < 64; i++)
                same_integer(((uint32_t *)machine_at(m, out))[i], 42, i, 0);
        assert_true(host.polls >= 10);
        *(uint32_t *)machine_at(m, flag) = 0;
        host.polls = 0;
        machine_run(m, "spin_sleep", 2, 32, 0, &a);
        assert_true(host.polls >= 10);
}

static void a_kernel_that_waits_for_the_host_sees_what_the_host_writes(void **state)
{
        WITH_FIXTURE("control", m, flags(&m);)
}

static void waits(struct machine *m)
{
        uint64_t p = machine_allocate(m, 8), out = machine_allocate(m, 100 * 32 * 4);
        struct {
                uint64_t mutex, guarded;
        } lock = {p, p + 4};
        struct {
                uint64_t arrived, out;
        } wait = {p, out};

        machine_run(m, "lock", 3, 64, 0, &lock);
        same_integer(((uint32_t *)machine_at(m, p))[1], 192, 0, 0);
        machine_run(m, "grid_wait", 100, 32, 0, &wait);
        for (unsigned i = 0; i < 3200; i++)
                same_integer(((uint32_t *)machine_at(m, out))[i], 100, i, 1);
}

static void lanes_and_blocks_that_wait_for_each_other_make_progress(void **state)
{
        WITH_FIXTURE("control", m, waits(&m);)
}

static void a_barrier_that_cannot_be_reached_is_a_deadlock(void **state)
{
        WITH_FIXTURE("control", m, {
                uint64_t out = machine_allocate(&m, 64 * 4);

                assert_int_equal(machine_try(&m, "stuck", 1, 64, 0, &out), -EDEADLK);
                assert_non_null(strstr(m.error, "barrier.sync"));
        })
}

static void a_trap_ends_the_launch_and_names_the_thread(void **state)
{
        WITH_FIXTURE("control", m, {
                uint64_t out = machine_allocate(&m, 64 * 4);

                assert_int_equal(machine_try(&m, "trap", 1, 64, 0, &out), -EILSEQ);
                assert_non_null(strstr(m.error, "thread 5,0,0"));
        })
}

static void branch_tables_and_labels_in_braces_reach_their_targets(void **state)
{
        static const uint32_t want[4] = {100, 8, 301, 1};
        struct machine m;
        uint64_t out;

        machine_open(&m, "hand.ptx");
        out = machine_allocate(&m, 32 * 4);
        machine_run(&m, "jumps", 1, 32, 0, &out);
        for (unsigned i = 0; i < 32; i++)
                same_integer(((uint32_t *)machine_at(&m, out))[i], want[i & 3], i, 0);
        machine_close(&m);
}

static void variables_and_generic_addresses_reach_every_space(void **state)
{
        struct machine m;
        uint64_t out;
        struct {
                uint64_t out;
                int8_t s[12];
        } a = {0, {0, 0, 0, -7, 0, 0, 0, 0, 1, 2, 3, 4}};

        machine_open(&m, "hand.ptx");
        a.out = out = machine_allocate(&m, 64);
        machine_run(&m, "variables", 1, 1, 0, &a);
        same_float(*(float *)machine_at(&m, out), 3.0F + 2.5F, 0, 0);
        for (unsigned k = 1; k < 7; k++) {
                const uint32_t want[7] = {0, 300, 300, 305, 0x04030201, (uint32_t)-7, 1};

                same_integer(((uint32_t *)machine_at(&m, out))[k], want[k], 0, k);
        }
        assert_int_equal(machine_try(&m, "variables", 1, 65, 0, &a), -EINVAL);
        machine_close(&m);
}

static bool after_some_polls(void *context)
{
        return ++host.polls > 20;
}

static void a_launch_that_would_never_end_can_be_cancelled(void **state)
{
        WITH_FIXTURE("control", m, {
                uint64_t a[2] = {machine_allocate(&m, 4), machine_allocate(&m, 4 * 1024)};

                host.polls = 0;
                m.cancelled = after_some_polls;
                assert_int_equal(machine_try(&m, "spin_flag", 1000, 1024, 0, a), -ECANCELED);
        })
}

static void invalid_and_misaligned_addresses_are_faults(void **state)
{
        struct {
                uint64_t a, b, c;
                uint32_t n;
        } p = {MACHINE_BASE, MACHINE_BASE, MACHINE_BASE + MACHINE_BYTES - 64, 32};

        WITH_FIXTURE("elementwise", m, {
                p.c = MACHINE_BASE + MACHINE_BYTES - 64;
                assert_int_equal(machine_try(&m, "vecadd", 1, 32, 0, &p), -EFAULT);
                assert_non_null(strstr(m.error, "st.global.f32"));
                assert_non_null(strstr(m.error, "0x7f0000800000"));
                assert_non_null(strstr(m.error, "thread 16,0,0"));
                p.c = MACHINE_BASE + 2;
                assert_int_equal(machine_try(&m, "vecadd", 1, 32, 0, &p), -EFAULT);
                assert_non_null(strstr(m.error, "misaligned"));
                p.c = 0;
                assert_int_equal(machine_try(&m, "vecadd", 1, 32, 0, &p), -EFAULT);
        })
}

static void launches_of_impossible_shape_are_refused(void **state)
{
        uint64_t p[4] = {0};

        WITH_FIXTURE("elementwise", m, {
                assert_int_equal(machine_try(&m, "vecadd", 0, 32, 0, p), -EINVAL);
                assert_int_equal(machine_try(&m, "vecadd", 1, 0, 0, p), -EINVAL);
                assert_int_equal(machine_try(&m, "vecadd", 1, 1025, 0, p), -EINVAL);
                assert_int_equal(machine_try(&m, "vecadd", 1, 32, 1 << 20, p), -EINVAL);
                assert_int_equal(machine_try(&m, "vecadd", 1, 32, 0, NULL), -EINVAL);
        })
}

static void forms_that_only_sm_100_gets_are_known(void **state)
{
        struct machine m;
        struct {
                float f[4];
                uint32_t u[4];
                uint64_t p;
        } a = {{1.5F, -2.0F, 4.0F, NAN}, {7, (uint32_t)-5, 40000, 1U << 31}, 0};
        const uint8_t *out;
        int64_t wide[2];
        double d;
        float f[6];
        uint32_t w[8];

        machine_open(&m, "hand.ptx");
        a.p = machine_allocate(&m, 96);
        out = machine_at(&m, a.p);
        *(int32_t *)machine_at(&m, a.p) = -9;
        machine_run(&m, "sm100", 1, 1, 0, &a);
        memcpy(wide, out + 16, sizeof(wide));
        memcpy(&d, out + 32, sizeof(d));
        memcpy(f, out + 40, sizeof(f));
        memcpy(w, out + 64, sizeof(w));
        same_integer(wide[0], -26, 0, 0);
        same_integer(wide[1], -9, 0, 1); /* as unsigned numbers, the larger one */
        same_double(d, 2147483648.0, 0, 2);
        for (unsigned i = 0; i < 6; i++)
                same_float(f[i], a.f[(i + 2) % 4], i, 3);
        same_integer(w[0], 5, 0, 4);
        same_integer(w[1], (uint16_t)(40000 * -7 + 7), 0, 5);
        same_integer(*(int32_t *)machine_at(&m, a.p), 5, 0, 6);
        same_integer((int32_t)w[4], -9, 0, 7);
        same_integer(w[5], 0, 0, 8);
        same_integer(w[6], 0, 0, 9);  /* a NaN is no number, */
        same_integer(w[7], 1, 0, 10); /* and unequal to any */
        machine_close(&m);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(element_wise_kernels_compute_what_c_computes),
                cmocka_unit_test(forms_that_only_sm_100_gets_are_known),
                cmocka_unit_test(fill_and_verify_agree_with_c_on_every_word),
                cmocka_unit_test(two_dimensional_blocks_reach_their_rows_and_columns),
                cmocka_unit_test(structs_bytes_and_shorts_are_read_and_written_whole),
                cmocka_unit_test(reductions_through_shared_memory_and_shuffles_are_exact),
                cmocka_unit_test(votes_shuffles_and_matches_see_the_whole_warp),
                cmocka_unit_test(atomics_of_all_lanes_add_up),
                cmocka_unit_test(diverged_lanes_follow_their_own_branches),
                cmocka_unit_test(functions_are_called_with_their_own_frames_and_local_memory),
                cmocka_unit_test(a_kernel_that_spins_on_the_clock_ends_when_its_time_has_come),
                cmocka_unit_test(a_kernel_that_waits_for_the_host_sees_what_the_host_writes),
                cmocka_unit_test(lanes_and_blocks_that_wait_for_each_other_make_progress),
                cmocka_unit_test(a_barrier_that_cannot_be_reached_is_a_deadlock),
                cmocka_unit_test(a_trap_ends_the_launch_and_names_the_thread),
                cmocka_unit_test(branch_tables_and_labels_in_braces_reach_their_targets),
                cmocka_unit_test(variables_and_generic_addresses_reach_every_space),
                cmocka_unit_test(a_launch_that_would_never_end_can_be_cancelled),
                cmocka_unit_test(invalid_and_misaligned_addresses_are_faults),
                cmocka_unit_test(launches_of_impossible_shape_are_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
