/* door.c: measures the time that sublet's doors add to a call. Its ioctl() adds to a call for
 * another device, to a control call of the GPU's kernel driver, and to making and freeing a channel
 * while a thousand channels exist. The check of both ends of a copy (bounds.h) adds to a copy whose
 * addresses the thread knows, and to a copy after memory was freed, whose addresses are looked up
 * among a thousand allocations. Prints one JSON line.
 *
 * at_once() and copied() stand in for the real calls and do almost nothing, so the measured time is
 * sublet's. */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "base/macros.h"
#include "cuda/rm_abi.h"
#include "preload/driver/real.h"
#include "preload/hooks/bounds.h"
#include "preload/process/cpus.h"
#include "preload/process/libc_compat.h"
#include "preload/rm/rm.h"
#include "preload/share/ipc.h"
#include "preload/state/core.h"
#include "preload/state/poison.h"

enum { CALLS = 20000, RUNS = 25, CHANNELS = 1000, ALLOCATIONS = 1000 };

#define CLIENT   0xc1d00001u
#define DEVICE   0x5c000001u
#define GROUP    0x5c000010u
#define CHANNEL  0x5c001000u
#define ALLOC    _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_ALLOC, struct rm_alloc_long)
#define FREE     _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_FREE, struct rm_free)
#define CONTROL  _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_CONTROL, struct rm_control)
#define NOT_OURS _IOWR('T', 1, int)

_Atomic(real_ioctl_fn *) real_ioctl;

/* There is no daemon's hand here, so no thread hears it. */
int compat_thread_start(void *(*start)(void *), void *argument)
{
        return ENOSYS;
}

void cpus_settle(void)
{
}

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

/* ---- copies, with what bounds.c needs of the library ---- */

struct core core = {.gpu_count = 1};
struct lock core_lock;
struct real_driver real;
static CUdeviceptr ours[ALLOCATIONS];
static char host[4096];

bool core_holds(CUdeviceptr address, uint64_t bytes)
{
        return heap_holds(&core.gpus[0].heap, address);
}

bool ipc_find(CUdeviceptr address, struct heap_place *ret, struct gpu **ret_gpu)
{
        return false;
}

bool ipc_narrow(CUdeviceptr address, struct stretch *s)
{
        return true;
}

CUresult poison_current(void)
{
        return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                        unsigned long long flags)
{
        *ptr = UINT64_C(1) << 40;
        return CUDA_SUCCESS;
}

static void allocate(void)
{
        uint64_t cost;

        real.cuMemAddressReserve = reserve;
        heap_init(&core.gpus[0].heap, GIB);
        core.gpus[0].managed = true;
        for (size_t i = 0; i < ALLOCATIONS; i++)
                (void)heap_allocate(&core.gpus[0].heap, i % 2 ? 3 * MIB : 5000, NULL, UINT64_MAX,
                                    &ours[i], &cost);
}

static NOINLINE void copied(CUdeviceptr to, const void *from, size_t bytes)
{
        __asm__ volatile("" : : "r"(to), "r"(from), "r"(bytes) : "memory");
}

static void copy_unchecked(uint32_t i)
{
        copied(ours[0], host, sizeof(host));
}

static void copy(uint32_t i)
{
        if (likely(bounds_to_device(0, ours[0], host, sizeof(host))))
                copied(ours[0], host, sizeof(host));
}

static void copy_after_free(uint32_t i)
{
        heap_note_change();
        copy(i);
}

/* As copy(), but the thread knows both ends last. */
static void copy_among_others(uint32_t i)
{
        if (i == 0) {
                heap_note_change();
                for (unsigned k = 1; bounds_thread.looked % BOUNDS_KNOWN != BOUNDS_KNOWN - 2; k++)
                        (void)bounds_hold(ours[k], 1);
        }
        copy(i);
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
        void (*const each[])(uint32_t) = {
                nothing,        other, control,         make_and_free,
                copy_unchecked, copy,  copy_after_free, copy_among_others};
        double ns[ARRAY_SIZE(each)];

        atomic_store(&real_ioctl, at_once);
        make(0, CLIENT, RM_CLASS_CLIENT_USER);
        make(CLIENT, DEVICE, RM_CLASS_DEVICE);
        make(DEVICE, GROUP, RM_CLASS_GROUP);
        for (uint32_t i = 0; i < CHANNELS; i++)
                make(GROUP, CHANNEL + i, 0xc86f);
        allocate();
        measure(each, ARRAY_SIZE(each), ns);
        (void)printf("{\"channels\":%u,\"other_ns\":%.1f,\"control_ns\":%.1f,"
                     "\"make_and_free_ns\":%.1f,\"copy_ns\":%.1f,\"copy_among_others_ns\":%.1f,"
                     "\"copy_after_free_ns\":%.1f}\n",
                     rm_channels(), ns[1] - ns[0], ns[2] - ns[0], (ns[3] - ns[0]) / 2,
                     ns[5] - ns[4], ns[7] - ns[4], ns[6] - ns[4]);
        return 0;
}
