/* door.c: measures the time that sublet's ioctl() adds to a call: to a call for another device, to
 * a control call of the GPU's kernel driver, and to making and freeing a channel while a thousand
 * channels exist. Prints one JSON line.
 *
 * at_once() stands in for the real ioctl() and does almost nothing, so the measured time is that of
 * sublet's ioctl(). */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "base/macros.h"
#include "cuda/rm_abi.h"
#include "preload/rm/rm.h"
#include "preload/driver/real.h"

enum { CALLS = 20000, RUNS = 25, CHANNELS = 1000 };

#define CLIENT   0xc1d00001u
#define DEVICE   0x5c000001u
#define GROUP    0x5c000010u
#define CHANNEL  0x5c001000u
#define ALLOC    _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_ALLOC, struct rm_alloc_long)
#define FREE     _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_FREE, struct rm_free)
#define CONTROL  _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_CONTROL, struct rm_control)
#define NOT_OURS _IOWR('T', 1, int)

_Atomic(real_ioctl_fn *) real_ioctl;

static int at_once(int fd, unsigned long request, ...)
{
        va_list list;
        struct rm_version *v;

        if (_IOC_NR(request) != RM_ESCAPE_CHECK_VERSION)
                return 0;
        va_start(list, request);
        v = va_arg(list, struct rm_version *);
        va_end(list);
        (void)strcpy(v->text, "580.159.04");
        return 0;
}

static void make(uint32_t parent, uint32_t object, uint32_t class)
{
        struct rm_group_params group = {.engine = RM_ENGINE_GRAPHICS};
        struct rm_alloc_long a = {.alloc = {CLIENT, parent, object, class, (uintptr_t)&group}};

        (void)ioctl(3, ALLOC, &a);
}

static void other(uint32_t i)
{
        (void)ioctl(3, NOT_OURS, &i);
}

static void control(uint32_t i)
{
        struct rm_control k = {.client = CLIENT, .object = DEVICE, .command = 0x20801234};

        (void)ioctl(3, CONTROL, &k);
}

static void make_and_free(uint32_t i)
{
        struct rm_free f = {.client = CLIENT, .object = CHANNEL + CHANNELS};

        make(GROUP, f.object, 0xc86f);
        (void)ioctl(3, FREE, &f);
}

static void nothing(uint32_t i)
{
        (void)at_once(3, NOT_OURS, &i);
}

static int by_value(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return x < y ? -1 : x > y;
}

/* Runs the functions in turn, RUNS times. ret[k]: the median time of a call of each[k], in
 * nanoseconds. */
static void measure(void (*const each[])(uint32_t), size_t n, double ret[])
{
        double ns[8][RUNS];

        for (unsigned run = 0; run < RUNS; run++)
                for (size_t k = 0; k < n; k++) {
                        uint64_t began = clock_now_ns();

                        for (uint32_t i = 0; i < CALLS; i++)
                                each[k](i);
                        ns[k][run] = (double)(clock_now_ns() - began) / CALLS;
                }
        for (size_t k = 0; k < n; k++) {
                qsort(ns[k], RUNS, sizeof(ns[k][0]), by_value);
                ret[k] = ns[k][RUNS / 2];
        }
}

int main(void)
{
        void (*const each[])(uint32_t) = {nothing, other, control, make_and_free};
        double ns[ARRAY_SIZE(each)];

        atomic_store(&real_ioctl, at_once);
        make(0, CLIENT, RM_CLASS_CLIENT_USER);
        make(CLIENT, DEVICE, RM_CLASS_DEVICE);
        make(DEVICE, GROUP, RM_CLASS_GROUP);
        for (uint32_t i = 0; i < CHANNELS; i++)
                make(GROUP, CHANNEL + i, 0xc86f);
        measure(each, ARRAY_SIZE(each), ns);
        (void)printf("{\"channels\":%u,\"other_ns\":%.1f,\"control_ns\":%.1f,"
                     "\"make_and_free_ns\":%.1f}\n",
                     rm_channels(), ns[1] - ns[0], ns[2] - ns[0], (ns[3] - ns[0]) / 2);
        return 0;
}
