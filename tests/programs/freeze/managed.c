/* managed.c: freezing while page faults of managed memory are outstanding, and after a fault
 * of the program itself.
 *
 *   managed [--rounds N]
 *
 * Each thread of a kernel counts in the first word of its own managed page. A thread of the host
 * counts in the second word of every page, so that pages move between card and host; another stream
 * copies pages. At random moments all channels are frozen for 5 ms while the host goes on. At the
 * end each word must have the right count. Then a kernel writes to an unmapped address, and the
 * channels of the failed context are frozen and thawed. 64 MiB of managed memory in all. */
#include "freezing.h"

#define USED(X)                         \
        X(cuInit)                       \
        X(cuDeviceGet)                  \
        X(cuDevicePrimaryCtxRetain)     \
        X(cuCtxCreate_v2)               \
        X(cuCtxSetCurrent)              \
        X(cuCtxSynchronize)             \
        X(cuCtxSetLimit)                \
        X(cuModuleLoadData)             \
        X(cuModuleGetFunction)          \
        X(cuLaunchKernel)               \
        X(cuMemAlloc_v2)                \
        X(cuMemAllocManaged)            \
        X(cuMemcpyDtoH_v2)              \
        X(cuMemcpyDtoDAsync_v2)         \
        X(cuMemGetInfo_v2)              \
        X(cuMemHostAlloc)               \
        X(cuMemHostGetDevicePointer_v2) \
        X(cuStreamCreate)               \
        X(cuStreamQuery)                \
        X(cuStreamSynchronize)          \
        X(cuMemsetD32_v2)
USED(DRIVER_FUNCTION)

#define BLOCKS  128
#define THREADS 128
#define PAGES   (BLOCKS * THREADS)
#define PAGE    4096ul
#define COPIED  64 /* further pages, copied by a stream */

static const char ptx[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n"
        ".visible .entry count(.param .u64 pages, .param .u64 out, .param .u64 told)\n{\n"
        " .reg .b64 %a, %o, %t, %n, %v, %i;\n .reg .b32 %x, %y, %z;\n .reg .pred %p;\n"
        " ld.param.u64 %a, [pages];\n ld.param.u64 %o, [out];\n ld.param.u64 %t, [told];\n"
        " mov.u32 %x, %tid.x;\n mov.u32 %y, %ctaid.x;\n mov.u32 %z, %ntid.x;\n"
        " mad.lo.u32 %x, %y, %z, %x;\n cvt.u64.u32 %i, %x;\n"
        " mad.lo.u64 %a, %i, 4096, %a;\n mad.lo.u64 %o, %i, 8, %o;\n mov.u64 %n, 0;\n"
        "again:\n add.u64 %n, %n, 1;\n ld.volatile.global.u64 %v, [%a];\n add.u64 %v, %v, 1;\n"
        " st.volatile.global.u64 [%a], %v;\n st.volatile.global.u64 [%t], %n;\n"
        " ld.volatile.global.u64 %v, [%t+8];\n setp.eq.u64 %p, %v, 0;\n @%p bra again;\n"
        " st.global.u64 [%o], %n;\n ret;\n}\n"
        ".visible .entry fail()\n{\n .reg .b64 %a;\n mov.u64 %a, 4096;\n st.volatile.global.u64 "
        "[%a], %a;\n ret;\n}\n";

static volatile uint64_t *told; /* [0]: the kernel's progress; [1] not 0: the kernel may end */
static volatile uint64_t *pages;
static uint64_t touched; /* rounds of the host over all pages */
static _Atomic bool stop;
static _Atomic uint64_t longest_ns; /* the longest time of a touch since the last reset */

static void *touch(void *unused)
{
        while (!stop) {
                for (size_t i = 0; i < PAGES; i++) {
                        uint64_t at = clock_now_ns(), took;

                        pages[i * PAGE / 8 + 1]++;
                        took = clock_now_ns() - at;
                        if (took > longest_ns)
                                longest_ns = took;
                }
                touched++;
        }
        return unused;
}

static double ms(uint64_t ns)
{
        return (double)ns / 1e6;
}

int main(int argc, char **argv)
{
        unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 200, bad = 0, went_on = 0,
                 refused = 0;
        uint64_t freeze_max = 0, thaw_max = 0, touch_frozen = 0, touch_free = 0, at, free_before,
                 *counted;
        void *library = open_driver();
        CUdevice device;
        CUcontext mover, program;
        CUmodule module;
        CUfunction count, fail;
        CUstream busy, copier;
        CUdeviceptr managed, out, told_at;
        void *args[3] = {&managed, &out, &told_at};
        pthread_t thread;
        size_t available, total;
        uint32_t status;

        (void)alarm(100);
        USED(FIND_DRIVER_FUNCTION)
        TRY(cuInit, 0);
        TRY(cuDeviceGet, &device, 0);
        TRY(cuDevicePrimaryCtxRetain, &program, device);
        TRY(cuCtxSetCurrent, program);
        TRY(cuMemGetInfo_v2, &available, &total);
        free_before = available;
        owner = CHANNELS_MOVER;
        TRY(cuCtxCreate_v2, &mover, 0, device);
        TRY(cuMemGetInfo_v2, &available, &total);
        printf("{\"mover_mib\":%.1f", (double)(free_before - available) / (1 << 20));
        (void)p_cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 0);
        (void)p_cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 0);
        (void)p_cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 0);
        TRY(cuMemGetInfo_v2, &available, &total);
        printf(",\"mover_small_limits_mib\":%.1f}\n",
               (double)(free_before - available) / (1 << 20));
        owner = CHANNELS_PROGRAM;
        TRY(cuCtxSetCurrent, program);
        TRY(cuModuleLoadData, &module, ptx);
        TRY(cuModuleGetFunction, &count, module, "count");
        TRY(cuModuleGetFunction, &fail, module, "fail");
        TRY(cuStreamCreate, &busy, CU_STREAM_NON_BLOCKING);
        TRY(cuStreamCreate, &copier, CU_STREAM_NON_BLOCKING);
        TRY(cuMemAllocManaged, &managed, (PAGES + 2 * COPIED) * PAGE, CU_MEM_ATTACH_GLOBAL);
        TRY(cuMemAlloc_v2, &out, PAGES * 8);
        TRY(cuMemHostAlloc, (void **)&told, 4096,
            CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
        TRY(cuMemHostGetDevicePointer_v2, &told_at, (void *)told, 0);
        pages = (volatile uint64_t *)(uintptr_t)managed;
        memset((void *)pages, 0, (PAGES + 2 * COPIED) * PAGE);
        memset((void *)told, 0, 4096);
        TRY(cuLaunchKernel, count, BLOCKS, 1, 1, THREADS, 1, 1, 0, busy, args, NULL);
        (void)pthread_create(&thread, NULL, touch, NULL);
        while (told[0] < 10)
                (void)usleep(100);
        for (unsigned i = 0; i < rounds; i++) {
                uint64_t before, looked;

                for (unsigned k = 0; k < 4; k++) /* copies pages that the host has just written */
                        TRY(cuMemcpyDtoDAsync_v2, managed + (PAGES + COPIED) * PAGE,
                            managed + PAGES * PAGE, COPIED * PAGE, copier);
                for (unsigned k = 0; k < COPIED; k++)
                        pages[(PAGES + k) * PAGE / 8] = i;
                (void)usleep((unsigned)random() % 4000);
                touch_free = MAX(touch_free, atomic_exchange(&longest_ns, 0));
                at = clock_now_ns();
                status = freeze();
                freeze_max = MAX(freeze_max, clock_now_ns() - at);
                refused += status != 0;
                before = told[0];
                (void)atomic_exchange(&longest_ns, 0);
                (void)usleep(5000);
                looked = told[0];
                went_on += status == 0 && looked != before;
                touch_frozen = MAX(touch_frozen, atomic_exchange(&longest_ns, 0));
                at = clock_now_ns();
                (void)thaw();
                thaw_max = MAX(thaw_max, clock_now_ns() - at);
        }
        told[1] = 1;
        stop = true;
        TRY(cuStreamSynchronize, busy);
        (void)pthread_join(thread, NULL);
        TRY(cuStreamSynchronize, copier);
        counted = malloc(PAGES * 8);
        TRY(cuMemcpyDtoH_v2, counted, out, PAGES * 8);
        for (size_t i = 0; i < PAGES; i++)
                bad += pages[i * PAGE / 8] != counted[i] || pages[i * PAGE / 8 + 1] != touched;
        printf("{\"freezes\":%u,\"refused\":%u,\"went_on\":%u,\"wrong_pages\":%u,\"host_rounds\":%"
               "lu,\"freeze_most_ms\":%.2f,"
               "\"thaw_most_ms\":%.2f,\"touch_most_ms\":%.2f,\"touch_most_while_frozen_ms\":%.2f}"
               "\n",
               rounds, refused, went_on, bad, (unsigned long)touched, ms(freeze_max), ms(thaw_max),
               ms(touch_free), ms(touch_frozen));
        (void)fflush(stdout);

        TRY(cuLaunchKernel, fail, 1, 1, 1, 1, 1, 1, 0, busy, NULL, NULL);
        at = clock_now_ns();
        status = freeze();
        printf("{\"freeze_right_behind_the_fault\":\"%#x\",\"ms\":%.2f", status,
               ms(clock_now_ns() - at));
        (void)usleep(50000);
        at = clock_now_ns();
        status = thaw();
        printf(",\"thaw\":\"%#x\",\"thaw_ms\":%.2f,\"stream\":%d", status, ms(clock_now_ns() - at),
               (int)p_cuStreamSynchronize(busy));
        at = clock_now_ns();
        status = freeze();
        printf(",\"again\":\"%#x\",\"again_ms\":%.2f", status, ms(clock_now_ns() - at));
        at = clock_now_ns();
        status = thaw();
        printf(",\"thaw_again\":\"%#x\",\"thaw_again_ms\":%.2f}\n", status,
               ms(clock_now_ns() - at));
        (void)fflush(stdout);
        _exit(0);
}
