/* bus.c: measures the best possible hand-off, without sublet. Two processes have pinned host
 * memory. One process copies its memory out of the GPU while the other copies its own into the GPU,
 * in units of --unit MiB. Each unit is copied in as soon as another unit was copied out.
 *
 *   bus [--gib N] [--unit MIB]
 *
 * Prints one JSON line for each way of moving memory: "copies" (only copies), "given back" (memory
 * is released to the driver and created anew), "passed on" (memory is passed as a descriptor). */
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/macros.h"
#include "base/units.h"
#include "cuda/cuda_abi.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args) CUresult symbol params;
#include "cuda/cuda_api.def"

enum { UNITS_MAX = 4096, DEPTH = 8, TOUCHERS = 16, REGISTER_AT_ONCE_MIB = 1024 };
enum way { COPIES, GIVEN_BACK, PASSED_ON, WAYS };

static const char *const way_names[WAYS] = {"copies", "given back", "passed on"};

/* Memory that the two processes share. */
static struct shared {
        _Atomic unsigned arrived; /* arrivals of both processes at the barrier, so far */
        _Atomic unsigned out;     /* units that have left the card */
        uint64_t begin_ns, out_ns, in_ns;
} * shared;

static uint64_t total = 34 * GIB, unit = 128 * MIB;
static unsigned units;
static int sockets[2];
static char *arena;
static CUdeviceptr address;
static CUmemGenericAllocationHandle handles[UNITS_MAX];
static CUevent done[UNITS_MAX];

static void check(CUresult r, const char *call)
{
        const char *name = "an unknown error";

        if (r == CUDA_SUCCESS)
                return;
        (void)cuGetErrorName(r, &name);
        (void)fprintf(stderr, "bus: %s: %s\n", call, name);
        exit(1);
}
#define CHECK(call) check(call, #call)

static void barrier(void)
{
        static unsigned rounds;

        rounds++;
        atomic_fetch_add(&shared->arrived, 1);
        while (atomic_load(&shared->arrived) < 2 * rounds)
                (void)usleep(50);
}

static void *touch(void *part)
{
        for (uint64_t i = 0; i < total / TOUCHERS; i += 4096)
                *(uint64_t *)((char *)part + i) = i * 2654435761u;
        return NULL;
}

static void make_arena(void)
{
        pthread_t threads[TOUCHERS];

        arena = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (arena == MAP_FAILED) {
                perror("bus: host memory");
                exit(1);
        }
        (void)madvise(arena, total, MADV_HUGEPAGE);
        for (unsigned i = 0; i < TOUCHERS; i++)
                (void)pthread_create(&threads[i], NULL, touch, arena + total / TOUCHERS * i);
        for (unsigned i = 0; i < TOUCHERS; i++)
                (void)pthread_join(threads[i], NULL);
        CHECK(cuMemHostRegister_v2(arena, total, 0));
}

static void create(unsigned i)
{
        const CUmemAllocationProp prop = {
                .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
        };

        CHECK(cuMemCreate(&handles[i], unit, &prop, 0));
}

static void map(unsigned i)
{
        const CUmemAccessDesc access = {
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };

        CHECK(cuMemMap(address + i * unit, unit, 0, handles[i], 0));
        CHECK(cuMemSetAccess(address + i * unit, unit, &access, 1));
}

static void unmap(unsigned i)
{
        CHECK(cuMemUnmap(address + i * unit, unit));
}

static void pass(unsigned i)
{
        union descriptors room;
        char byte = 0;
        struct iovec data = {&byte, 1};
        struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};
        int fd;

        CHECK(cuMemExportToShareableHandle(&fd, handles[i],
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        descriptors_attach(&h, &room, &fd, 1);
        if (sendmsg(sockets[0], &h, 0) != 1) {
                perror("bus: sendmsg");
                exit(1);
        }
        (void)close(fd);
}

static void adopt(unsigned i)
{
        union descriptors room;
        char byte;
        struct iovec data = {&byte, 1};
        struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};
        int fds[DESCRIPTORS_MAX];

        descriptors_expect(&h, &room);
        if (recvmsg(sockets[1], &h, 0) != 1 || descriptors_take(&h, DESCRIPTORS_MAX, fds) != 1) {
                perror("bus: recvmsg");
                exit(1);
        }
        CHECK(cuMemImportFromShareableHandle(&handles[i], (void *)(intptr_t)fds[0],
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        (void)close(fds[0]);
}

static bool has_ended(unsigned i)
{
        CUresult r = cuEventQuery(done[i]);

        if (r == CUDA_ERROR_NOT_READY)
                return false;
        check(r, "a copy");
        return true;
}

static void copy_out(enum way way, CUstream stream)
{
        unsigned begun = 0;

        shared->begin_ns = clock_now_ns();
        for (unsigned ended = 0; ended < units;) {
                while (begun < units && begun - ended < DEPTH) {
                        CHECK(cuMemcpyDtoHAsync_v2(arena + begun * unit, address + begun * unit,
                                                   unit, stream));
                        CHECK(cuEventRecord(done[begun++], stream));
                }
                if (!has_ended(ended)) {
                        (void)usleep(20);
                        continue;
                }
                if (way != COPIES)
                        unmap(ended);
                if (way == PASSED_ON)
                        pass(ended);
                if (way != COPIES)
                        CHECK(cuMemRelease(handles[ended]));
                atomic_store(&shared->out, ++ended);
        }
        shared->out_ns = clock_now_ns();
}

static void copy_in(enum way way, CUstream stream)
{
        unsigned begun = 0;

        for (unsigned ended = 0; ended < units;) {
                if (begun < units && begun - ended < DEPTH && begun < atomic_load(&shared->out)) {
                        if (way == GIVEN_BACK)
                                create(begun);
                        if (way == PASSED_ON)
                                adopt(begun);
                        if (way != COPIES)
                                map(begun);
                        CHECK(cuMemcpyHtoDAsync_v2(address + begun * unit, arena + begun * unit,
                                                   unit, stream));
                        CHECK(cuEventRecord(done[begun++], stream));
                } else if (ended < begun && has_ended(ended)) {
                        ended++;
                } else {
                        (void)usleep(20);
                }
        }
        shared->in_ns = clock_now_ns();
}

static double rate(uint64_t end_ns)
{
        return (double)total / (double)(end_ns - shared->begin_ns);
}

static void run(enum way way, bool outward)
{
        CUstream stream;

        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuMemAddressReserve(&address, total, 0, 0, 0));
        for (unsigned i = 0; i < units && (outward || way == COPIES); i++) {
                create(i);
                map(i);
        }
        /* Wait, because the driver may still be clearing memory that the last measurement gave
         * back. */
        (void)usleep(700 * 1000);
        barrier();
        if (outward)
                copy_out(way, stream);
        else
                copy_in(way, stream);
        barrier();
        for (unsigned i = 0; i < units && (!outward || way == COPIES); i++) {
                unmap(i);
                CHECK(cuMemRelease(handles[i]));
        }
        CHECK(cuMemAddressFree(address, total));
        CHECK(cuStreamDestroy_v2(stream));
        if (outward) {
                (void)printf("{\"way\": \"%s\", \"gib\": %.2f, \"unit_mib\": %llu, \"out_gb_s\": "
                             "%.1f, \"both_gb_s\": %.1f}\n",
                             way_names[way], (double)total / (double)GIB,
                             (unsigned long long)(unit / MIB), rate(shared->out_ns),
                             rate(MAX(shared->in_ns, shared->out_ns)));
                (void)fflush(stdout);
                atomic_store(&shared->out, 0);
        }
        barrier();
}

int main(int argc, char *argv[])
{
        static const struct option options[] = {
                {"gib", required_argument, NULL, 'g'}, {"unit", required_argument, NULL, 'u'}, {0}};
        CUcontext context;
        bool outward;
        int c;

        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
                if (c == 'g')
                        total = strtoull(optarg, NULL, 10) * GIB;
                else if (c == 'u')
                        unit = strtoull(optarg, NULL, 10) * MIB;
                else
                        return 2;
        }
        units = unit ? (unsigned)(total / unit) : 0;
        if (units == 0 || units > UNITS_MAX || total % unit || unit % (2 * MIB)) {
                (void)fprintf(stderr,
                              "bus: --gib has to be a multiple of --unit, at most %d of "
                              "them\n",
                              UNITS_MAX);
                return 2;
        }
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0);
        if (shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) < 0) {
                perror("bus");
                return 1;
        }
        outward = fork() != 0; /* before cuInit, because a driver does not work after a fork */
        CHECK(cuInit(0));
        CHECK(cuDevicePrimaryCtxRetain(&context, 0));
        CHECK(cuCtxSetCurrent(context));
        make_arena();
        for (unsigned i = 0; i < units; i++)
                CHECK(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
        for (enum way way = 0; way < WAYS; way++)
                run(way, outward);
        return outward && (wait(&c) < 0 || c != 0);
}
