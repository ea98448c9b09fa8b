/* pages.c: measures how fast pinned host memory of different kinds is made, and how fast the GPU
 * copies to it and from it. It answers which pages the daemon's host pool should have.
 *
 *   pages [--gib N] [--segment MIB] [--threads N] [--rounds N] [--json FILE]
 *
 * Memory is made in segments, as the library's arena does it: threads map and touch a segment each,
 * and pin it one after the other. Memory of a memfd that is "filled" was put there by fallocate()
 * in one thread before, as the daemon does it; the threads follow piece by piece. Prints a table,
 * and writes JSON. The best of the rounds counts. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "cuda/cuda_abi.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args) CUresult symbol params;
#include "cuda/cuda_api.def"

#ifndef MFD_HUGETLB
#define MFD_HUGETLB 4u
#endif

enum { SEGMENTS_MAX = 1024, THREADS_MAX = 64 };

static const struct kind {
        const char *name;
        int advice;
        bool shared, filled, hugetlb;
} kinds[] = {
        {"anonymous, huge pages", MADV_HUGEPAGE, false, false, false},
        {"anonymous, small pages", MADV_NOHUGEPAGE, false, false, false},
        {"memfd, small pages", MADV_NORMAL, true, false, false},
        {"memfd, small pages, filled", MADV_NORMAL, true, true, false},
        {"memfd, advised huge pages, filled", MADV_HUGEPAGE, true, true, false},
        {"memfd, reserved huge pages, filled", MADV_NORMAL, true, true, true},
};

struct figures {
        double fill_gib_s, make_gib_s, unpin_gib_s, out_gb_s, in_gb_s;
};

static uint64_t total = 4 * GIB, segment = 64 * MIB;
static unsigned segments, threads = 8, rounds = 2;
static CUcontext context;
static CUdeviceptr device;
static CUstream stream;

static struct {
        const struct kind *kind;
        int fd;
        char *memory[SEGMENTS_MAX];
        _Atomic unsigned next;   /* the segment that is made next */
        _Atomic unsigned filled; /* segments that were filled */
        uint64_t filled_ns;      /* how long that took */
        pthread_mutex_t pinning;
} made = {.pinning = PTHREAD_MUTEX_INITIALIZER};

static void check(CUresult r, const char *call)
{
        const char *name = "an unknown error";

        if (r == CUDA_SUCCESS)
                return;
        (void)cuGetErrorName(r, &name);
        (void)fprintf(stderr, "pages: %s: %s\n", call, name);
        exit(1);
}
#define CHECK(call) check(call, #call)

static _Noreturn void fail(const char *what)
{
        (void)fprintf(stderr, "pages: %s: %s\n", what, strerror(errno));
        exit(1);
}

/* ---- making memory ---- */

static void *fill(void *unused)
{
        const uint64_t began = clock_now_ns();

        for (unsigned i = 0; i < segments; i++) {
                if (fallocate(made.fd, 0, (off_t)(i * segment), (off_t)segment) < 0)
                        fail("fallocate");
                atomic_store(&made.filled, i + 1);
        }
        made.filled_ns = clock_now_ns() - began;
        return NULL;
}

static char *map(unsigned i)
{
        const int flags = made.kind->shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
        char *raw, *p;

        if (made.kind->shared) {
                raw = mmap(NULL, segment, PROT_READ | PROT_WRITE, flags, made.fd,
                           (off_t)(i * segment));
                p = raw;
        } else {
                raw = mmap(NULL, segment + 2 * MIB, PROT_READ | PROT_WRITE, flags, -1, 0);
                p = (char *)align_up((uint64_t)(uintptr_t)raw, 2 * MIB);
        }
        if (raw == MAP_FAILED)
                fail("mmap");
        (void)madvise(p, segment, made.kind->advice);
        return p;
}

static void *make(void *unused)
{
        unsigned i;

        CHECK(cuCtxSetCurrent(context));
        while ((i = atomic_fetch_add(&made.next, 1)) < segments) {
                while (atomic_load(&made.filled) <= i)
                        (void)usleep(20);
                made.memory[i] = map(i);
                for (uint64_t at = 0; at < segment; at += 4096)
                        ((volatile char *)made.memory[i])[at] = 0;
                (void)pthread_mutex_lock(&made.pinning);
                CHECK(cuMemHostRegister_v2(made.memory[i], segment, CU_MEMHOSTREGISTER_PORTABLE));
                (void)pthread_mutex_unlock(&made.pinning);
        }
        return NULL;
}

static double rate(uint64_t ns, double unit)
{
        return (double)total / unit / ((double)ns / (double)NSEC_PER_SEC);
}

static void make_all(struct figures *f)
{
        pthread_t makers[THREADS_MAX], filler;
        const uint64_t began = clock_now_ns();

        atomic_store(&made.next, 0);
        atomic_store(&made.filled, made.kind->filled ? 0 : segments);
        if (made.kind->filled && pthread_create(&filler, NULL, fill, NULL) != 0)
                fail("a thread");
        for (unsigned i = 0; i < threads; i++)
                if (pthread_create(&makers[i], NULL, make, NULL) != 0)
                        fail("a thread");
        for (unsigned i = 0; i < threads; i++)
                (void)pthread_join(makers[i], NULL);
        f->make_gib_s = rate(clock_now_ns() - began, (double)GIB);
        if (made.kind->filled) {
                (void)pthread_join(filler, NULL);
                f->fill_gib_s = rate(made.filled_ns, (double)GIB);
        }
}

static void end_all(struct figures *f)
{
        const uint64_t began = clock_now_ns();

        for (unsigned i = 0; i < segments; i++)
                CHECK(cuMemHostUnregister(made.memory[i]));
        f->unpin_gib_s = rate(clock_now_ns() - began, (double)GIB);
        for (unsigned i = 0; i < segments; i++)
                (void)munmap(made.memory[i], segment);
}

/* ---- copies ---- */

static double copy(bool out)
{
        uint64_t began;

        CHECK(cuStreamSynchronize(stream));
        began = clock_now_ns();
        for (unsigned i = 0; i < segments; i++) {
                const CUdeviceptr at = device + i * segment;

                if (out)
                        CHECK(cuMemcpyDtoHAsync_v2(made.memory[i], at, segment, stream));
                else
                        CHECK(cuMemcpyHtoDAsync_v2(at, made.memory[i], segment, stream));
        }
        CHECK(cuStreamSynchronize(stream));
        return rate(clock_now_ns() - began, 1e9);
}

static void copy_all(struct figures *f, unsigned char mark)
{
        CHECK(cuMemsetD8_v2(device, mark, total));
        CHECK(cuCtxSynchronize());
        f->out_gb_s = copy(true);
        for (unsigned i = 0; i < segments; i++)
                for (uint64_t at = 0; at < segment; at += 4096)
                        if ((unsigned char)made.memory[i][at] != mark) {
                                (void)fprintf(stderr, "pages: the copy differs\n");
                                exit(1);
                        }
        f->in_gb_s = copy(false);
        f->out_gb_s = MAX(f->out_gb_s, copy(true));
        f->in_gb_s = MAX(f->in_gb_s, copy(false));
}

/* ---- the measurement ---- */

/* Returns what prevents this kind; NULL: nothing. */
static const char *obstacle(const struct kind *k)
{
        unsigned long free_pages = 0;
        char line[256];
        FILE *f;

        if (!k->hugetlb)
                return NULL;
        f = fopen("/proc/meminfo", "re");
        while (f && fgets(line, sizeof(line), f))
                (void)sscanf(line, "HugePages_Free: %lu", &free_pages);
        if (f)
                (void)fclose(f);
        return free_pages * 2 * MIB >= total ? NULL
                                             : "the machine has not so many reserved huge pages";
}

static void measure(const struct kind *k, struct figures *best)
{
        for (unsigned round = 0; round < rounds; round++) {
                struct figures f = {0};

                made.kind = k;
                made.fd = -1;
                if (k->shared) {
                        made.fd =
                                memfd_create("pages", MFD_CLOEXEC | (k->hugetlb ? MFD_HUGETLB : 0));
                        if (made.fd < 0 || ftruncate(made.fd, (off_t)total) < 0)
                                fail("memfd");
                }
                make_all(&f);
                copy_all(&f, (unsigned char)(round + 1));
                end_all(&f);
                if (made.fd >= 0)
                        (void)close(made.fd);
                best->fill_gib_s = MAX(best->fill_gib_s, f.fill_gib_s);
                best->make_gib_s = MAX(best->make_gib_s, f.make_gib_s);
                best->unpin_gib_s = MAX(best->unpin_gib_s, f.unpin_gib_s);
                best->out_gb_s = MAX(best->out_gb_s, f.out_gb_s);
                best->in_gb_s = MAX(best->in_gb_s, f.in_gb_s);
        }
}

static void print_file(FILE *out, const char *key, const char *path)
{
        FILE *f = fopen(path, "re");
        char line[128] = "unknown";

        if (f && fgets(line, sizeof(line), f))
                line[strcspn(line, "\n")] = '\0';
        if (f)
                (void)fclose(f);
        (void)fprintf(out, " \"%s\": \"%s\",\n", key, line);
}

static void measure_all(FILE *json)
{
        (void)fprintf(
                json, "{\"gib\": %.2f, \"segment_mib\": %llu, \"threads\": %u, \"rounds\": %u,\n",
                (double)total / (double)GIB, (unsigned long long)(segment / MIB), threads, rounds);
        print_file(json, "anonymous_huge_pages", "/sys/kernel/mm/transparent_hugepage/enabled");
        print_file(json, "shared_huge_pages", "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        (void)fprintf(json, " \"kinds\": [\n");
        (void)printf("%-36s %10s %10s %10s %8s %8s\n", "pinned host memory", "fill GiB/s",
                     "make GiB/s", "unpin", "out GB/s", "in GB/s");
        for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
                const char *why = obstacle(&kinds[i]),
                           *comma = i + 1 < ARRAY_SIZE(kinds) ? "," : "";
                struct figures f = {0};

                if (why) {
                        (void)printf("%-36s %s\n", kinds[i].name, why);
                        (void)fprintf(json, "  {\"kind\": \"%s\", \"why_not\": \"%s\"}%s\n",
                                      kinds[i].name, why, comma);
                        continue;
                }
                measure(&kinds[i], &f);
                (void)printf("%-36s %10.1f %10.1f %10.1f %8.1f %8.1f\n", kinds[i].name,
                             f.fill_gib_s, f.make_gib_s, f.unpin_gib_s, f.out_gb_s, f.in_gb_s);
                (void)fflush(stdout);
                (void)fprintf(json,
                              "  {\"kind\": \"%s\", \"fill_gib_s\": %.2f, \"make_gib_s\": %.2f, "
                              "\"unpin_gib_s\": %.2f, \"out_gb_s\": %.2f, \"in_gb_s\": %.2f}%s\n",
                              kinds[i].name, f.fill_gib_s, f.make_gib_s, f.unpin_gib_s, f.out_gb_s,
                              f.in_gb_s, comma);
        }
        (void)fprintf(json, " ]}\n");
}

int main(int argc, char *argv[])
{
        static const struct option options[] = {{"gib", required_argument, NULL, 'g'},
                                                {"segment", required_argument, NULL, 's'},
                                                {"threads", required_argument, NULL, 't'},
                                                {"rounds", required_argument, NULL, 'r'},
                                                {"json", required_argument, NULL, 'j'},
                                                {0}};
        const char *path = "/dev/null";
        FILE *json;
        int c;

        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
                if (c == 'g')
                        total = strtoull(optarg, NULL, 10) * GIB;
                else if (c == 's')
                        segment = strtoull(optarg, NULL, 10) * MIB;
                else if (c == 't')
                        threads = (unsigned)strtoul(optarg, NULL, 10);
                else if (c == 'r')
                        rounds = (unsigned)strtoul(optarg, NULL, 10);
                else if (c == 'j')
                        path = optarg;
                else
                        return 2;
        }
        segments = segment ? (unsigned)(total / segment) : 0;
        if (segments == 0 || segments > SEGMENTS_MAX || total % segment || segment % (2 * MIB) ||
            threads == 0 || threads > THREADS_MAX || rounds == 0) {
                (void)fprintf(stderr,
                              "pages: --gib has to be a multiple of --segment, at most %d "
                              "of them, and --threads at most %d\n",
                              SEGMENTS_MAX, THREADS_MAX);
                return 2;
        }
        json = fopen(path, "we");
        if (!json)
                fail(path);
        CHECK(cuInit(0));
        CHECK(cuDevicePrimaryCtxRetain(&context, 0));
        CHECK(cuCtxSetCurrent(context));
        CHECK(cuMemAlloc_v2(&device, total));
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        measure_all(json);
        return fclose(json) == 0 ? 0 : 1;
}
