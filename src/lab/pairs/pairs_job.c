/* pairs_job.c: sublet-pairs-job, the program that sublet bench pairs runs: an ordinary program of
 * the driver API that repeats a synthetic kernel, or a sequence of them. It obeys lines on stdin
 * and answers each with one line. Must never count work outside of the time that was asked for.
 *
 *     job NAME LOOPS      prepares a job of kernels.h. LOOPS is how often each kernel's loop runs,
 *                         as numbers with commas; 0: so often that the kernels are as long as the
 *                         job says. Answers "job LOOPS SECONDS", how long one step takes now.
 *     run SECONDS AT      repeats the step from 50 ms before AT (CLOCK_MONOTONIC, in ns) until
 *                         SECONDS after it. Answers "ran COUNT", the steps within the SECONDS; one
 *                         that begins or ends outside counts in part.
 *     describe FILE       writes what is known of the kernels, as JSON. Answers "described".
 *     card FILE           writes what is known of the card. Answers "described".
 *     memory              answers "memory BYTES", what the job uses.
 *     quit                ends. So does the end of stdin.
 *
 * "ready" comes first. "failed TEXT" is an answer, too. After a failed call of the driver the
 * program ends with status 1, because such errors stay. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "lab/pairs/kernels.h"

#define WARM_NS       (50 * NSEC_PER_MSEC)
#define BATCH_S       0.0002 /* launches are observed in groups of at least so long */
#define BATCHES       3      /* batches that are submitted ahead */
#define BATCH_MAX     64
#define LOOPS_MAX     (1U << 30)
#define TRIALS        12 /* most attempts of calibration */
#define NEAR          0.08
#define MEMORY_WORD   0x3c1f5a7bU
#define SMALL_BYTES   (64 * 1024)
#define SHARED_MARGIN 1024 /* bytes, more than the least that keeps another block out */

/* Numbers of the driver API reference. */
#define ATTRIBUTE_PROCESSORS      16
#define ATTRIBUTE_SM_SHARED       81
#define ATTRIBUTE_SM_THREADS      39
#define ATTRIBUTE_RESERVED_SHARED 111
#define ATTRIBUTE_CLOCK           13
#define ATTRIBUTE_MEMORY_CLOCK    36
#define ATTRIBUTE_MEMORY_BITS     37
#define ATTRIBUTE_L2_BYTES        38
#define FUNCTION_SHARED           1
#define FUNCTION_LOCAL            3
#define FUNCTION_REGISTERS        4
#define FUNCTION_MAX_SHARED       8
#define FUNCTION_CARVEOUT         9 /* percent of the SM's cache that is to be shared memory */
#define CONTEXT_SPIN              1
#define STREAM_NON_BLOCKING       1

typedef uint64_t device_ptr;
#define DRIVER_CALLS(X)                                                                          \
        X(cuInit, "cuInit", (unsigned flags))                                                    \
        X(cuDeviceGet, "cuDeviceGet", (int *device, int ordinal))                                \
        X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, int device)) \
        X(cuDeviceGetName, "cuDeviceGetName", (char *name, int room, int device))                \
        X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t * bytes, int device))                 \
        X(cuDeviceGetUuid, "cuDeviceGetUuid", (unsigned char *uuid, int device))                 \
        X(cuCtxCreate, "cuCtxCreate_v2", (void **context, unsigned flags, int device))           \
        X(cuCtxSynchronize, "cuCtxSynchronize", (void))                                          \
        X(cuModuleLoadData, "cuModuleLoadData", (void **module, const void *image))              \
        X(cuModuleGetFunction, "cuModuleGetFunction",                                            \
          (void **function, void *module, const char *name))                                     \
        X(cuFuncGetAttribute, "cuFuncGetAttribute", (int *value, int attribute, void *function)) \
        X(cuFuncSetAttribute, "cuFuncSetAttribute", (void *function, int attribute, int value))  \
        X(cuOccupancyMaxActiveBlocksPerMultiprocessor,                                           \
          "cuOccupancyMaxActiveBlocksPerMultiprocessor",                                         \
          (int *blocks, void *function, int threads, size_t shared))                             \
        X(cuMemAlloc, "cuMemAlloc_v2", (device_ptr * address, size_t bytes))                     \
        X(cuMemFree, "cuMemFree_v2", (device_ptr address))                                       \
        X(cuMemsetD32, "cuMemsetD32_v2", (device_ptr address, unsigned value, size_t n))         \
        X(cuStreamCreate, "cuStreamCreate", (void **stream, unsigned flags))                     \
        X(cuStreamSynchronize, "cuStreamSynchronize", (void *stream))                            \
        X(cuEventCreate, "cuEventCreate", (void **event, unsigned flags))                        \
        X(cuEventRecord, "cuEventRecord", (void *event, void *stream))                           \
        X(cuEventSynchronize, "cuEventSynchronize", (void *event))                               \
        X(cuEventElapsedTime, "cuEventElapsedTime", (float *ms, void *from, void *to))           \
        X(cuLaunchKernel, "cuLaunchKernel",                                                      \
          (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,      \
           unsigned bz, unsigned shared, void *stream, void **parameters, void **extra))

#include "lab/common/lab_driver.h"

/* A kernel on this card. */
struct ready {
        struct kernel_job job;
        void *function;
        int registers, static_bytes, local_bytes, blocks_per_sm;
        unsigned grid, shared_bytes, loops;
        uint64_t bytes, stride;
        double seconds;
};

/* A job on this card. Prepared jobs stay. */
struct step {
        char name[KERNEL_NAME_MAX];
        unsigned n;
        struct ready parts[KERNEL_PARTS_MAX];
        bool timed;
        double seconds; /* time of all parts together */
};

static struct {
        int device, processors, sm_shared, sm_threads, reserved_shared;
        void *stream, *base, *events[BATCHES];
        device_ptr memory;
        uint64_t memory_bytes;
        struct step *step; /* the step of the present job */
} self;

/* ---- the driver ---- */

static void say_failed(const char *call, int result)
{
        (void)printf("failed %s answered %d\n", call, result);
        (void)fflush(stdout);
        exit(EXIT_FAILURE);
}

static void say_no_driver(const char *why)
{
        (void)printf("failed %.200s\n", why);
        exit(EXIT_FAILURE);
}

static int attribute(int number, int otherwise)
{
        int value;

        return driver.cuDeviceGetAttribute(&value, number, self.device) == 0 && value > 0
                       ? value
                       : otherwise;
}

static void begin_worker(void)
{
        void *context;

        load_driver();
        TRY(cuInit, 0);
        TRY(cuDeviceGet, &self.device, 0);
        TRY(cuCtxCreate, &context, CONTEXT_SPIN, self.device);
        self.processors = attribute(ATTRIBUTE_PROCESSORS, 1);
        self.sm_shared = attribute(ATTRIBUTE_SM_SHARED, 64 * 1024);
        self.sm_threads = attribute(ATTRIBUTE_SM_THREADS, 2048);
        self.reserved_shared = attribute(ATTRIBUTE_RESERVED_SHARED, 0);
        TRY(cuStreamCreate, &self.stream, STREAM_NON_BLOCKING);
        TRY(cuEventCreate, &self.base, 0);
        for (unsigned i = 0; i < BATCHES; i++)
                TRY(cuEventCreate, &self.events[i], 0);
}

static double now(void)
{
        return (double)clock_now_ns() / (double)NSEC_PER_SEC;
}

/* Pauses without giving the processor away if the pause is short: sleep() would be too long. */
static void pause_for(double seconds)
{
        const double end = now() + seconds;

        while (now() < end) {
                const double left = end - now();

                if (left > 0.0005) {
                        const double most = MIN(left, 0.5);
                        const struct timespec t = {.tv_nsec = (long)((most - 0.0003) * 1e9)};

                        (void)nanosleep(&t, NULL);
                }
        }
}

static void launch(struct ready *r)
{
        const uint32_t never = MEMORY_WORD ^ 0x5bd1e995U;
        device_ptr base = self.memory;
        void *parameters[] = {&base, &r->bytes, &r->stride, &r->loops, (void *)&never};

        TRY(cuLaunchKernel, r->function, r->grid, 1, 1, r->job.threads, 1, 1, r->shared_bytes,
            self.stream, parameters, NULL);
}

static void launch_step(void)
{
        for (unsigned i = 0; i < self.step->n; i++)
                launch(&self.step->parts[i]);
}

/* ---- to prepare a job ---- */

/* Returns the least shared memory for each block that lets no more blocks than the bound fit. So
 * other programs' blocks keep a part of it. */
static unsigned padding(const struct kernel_job *job, const struct ready *r)
{
        const int bound = (int)job->blocks_per_sm;
        int bytes;

        if (!bound || r->blocks_per_sm <= bound)
                return 0;
        bytes = self.sm_shared / (bound + 1) - self.reserved_shared - r->static_bytes +
                SHARED_MARGIN;
        return bytes > 0 ? (unsigned)bytes : 0;
}

static void count_blocks(struct ready *r, unsigned threads)
{
        TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, &r->blocks_per_sm, r->function,
            (int)threads, r->shared_bytes);
}

/* More than 48 KiB of shared memory must be allowed first. On a card with less, blocks stay
 * unbounded. */
static void bound_blocks(const struct kernel_job *job, struct ready *r)
{
        const unsigned bytes = padding(job, r);

        if (!bytes || driver.cuFuncSetAttribute(r->function, FUNCTION_MAX_SHARED, (int)bytes) != 0)
                return;
        (void)driver.cuFuncSetAttribute(r->function, FUNCTION_CARVEOUT, 100);
        r->shared_bytes = bytes;
        count_blocks(r, job->threads);
        if (r->blocks_per_sm > 0)
                return;
        r->shared_bytes = 0;
        count_blocks(r, job->threads);
}

static void take_memory(uint64_t bytes)
{
        if (bytes <= self.memory_bytes)
                return;
        if (self.memory) {
                TRY(cuCtxSynchronize);
                TRY(cuMemFree, self.memory);
                self.memory_bytes = 0;
        }
        TRY(cuMemAlloc, &self.memory, bytes);
        TRY(cuMemsetD32, self.memory, MEMORY_WORD, bytes / sizeof(uint32_t));
        TRY(cuCtxSynchronize);
        self.memory_bytes = bytes;
}

static bool load(struct ready *r)
{
        const struct kernel_job *job = &r->job;
        static char code[KERNEL_PTX_MAX];
        char name[KERNEL_NAME_MAX];
        uint64_t threads;
        void *module;
        int result;

        if (kernel_ptx(job, code, sizeof(code)) < 0) {
                (void)printf("failed the code is too long\n");
                return false;
        }
        result = driver.cuModuleLoadData(&module, code);
        if (result != 0) {
                (void)printf("failed cuModuleLoadData answered %d\n", result);
                return false;
        }
        kernel_entry(job, name);
        TRY(cuModuleGetFunction, &r->function, module, name);
        TRY(cuFuncGetAttribute, &r->registers, FUNCTION_REGISTERS, r->function);
        TRY(cuFuncGetAttribute, &r->static_bytes, FUNCTION_SHARED, r->function);
        TRY(cuFuncGetAttribute, &r->local_bytes, FUNCTION_LOCAL, r->function);
        count_blocks(r, job->threads);
        bound_blocks(job, r);
        if (r->blocks_per_sm <= 0) {
                (void)printf("failed no block fits an SM\n");
                return false;
        }
        r->grid = job->grid > 0 ? (unsigned)(job->grid * r->blocks_per_sm * self.processors)
                                : (unsigned)(-job->grid * self.processors / 100);
        r->grid = MAX(r->grid, 1U);
        r->bytes = MAX((uint64_t)job->footprint_kib * 1024, UINT64_C(4096));
        threads = (uint64_t)r->grid * job->threads * 16;
        r->stride = threads % r->bytes;
        if (r->stride == 0 && job->footprint_kib)
                r->stride = 16 * 33;
        take_memory(MAX(r->bytes, (uint64_t)SMALL_BYTES));
        return true;
}

/* Returns how long one launch of the part takes. NULL: of all parts of the step, one after the
 * other. */
static double time_once(struct ready *part)
{
        float ms;

        TRY(cuEventRecord, self.base, self.stream);
        if (part)
                launch(part);
        else
                launch_step();
        TRY(cuEventRecord, self.events[0], self.stream);
        TRY(cuEventSynchronize, self.events[0]);
        TRY(cuEventElapsedTime, &ms, self.base, self.events[0]);
        return (double)ms / 1000;
}

static double time_thrice(struct ready *part)
{
        double a = time_once(part), b = time_once(part), c = time_once(part);

        return MAX(MIN(a, b), MIN(MAX(a, b), c));
}

/* Finds how often the loop has to run. */
static void calibrate(struct ready *r)
{
        const double goal = (double)r->job.us / 1e6;

        r->loops = 1;
        (void)time_once(r); /* the first launch loads the code */
        for (unsigned i = 0; i < TRIALS; i++) {
                double factor, more;

                r->seconds = time_thrice(r);
                factor = goal / MAX(r->seconds, 1e-7);
                if (factor > 1 - NEAR && factor < 1 + NEAR)
                        return;
                if (r->loops == 1 && factor < 1)
                        return; /* the kernel cannot be shorter */
                more = (double)r->loops * MIN(MAX(factor, 0.02), 50);
                r->loops = (unsigned)MIN(MAX(more + 0.5, 1), LOOPS_MAX);
        }
}

/* Finds the job among those that were prepared, or loads it. NULL after an answer. */
static struct step *find_step(const char *name)
{
        static struct step **all;
        static size_t n, room;
        struct kernel_step job;
        struct step *s;

        for (size_t i = 0; i < n; i++)
                if (strcmp(all[i]->name, name) == 0)
                        return all[i];
        if (n == room) {
                struct step **more = reallocarray(all, 2 * room + 64, sizeof(*all));

                if (more) {
                        all = more;
                        room = 2 * room + 64;
                }
        }
        s = n < room && kernel_find(name, &job) == 0 ? calloc(1, sizeof(*s)) : NULL;
        if (!s) {
                (void)printf("failed no such job\n");
                return NULL;
        }
        (void)snprintf(s->name, sizeof(s->name), "%s", name);
        s->n = job.n;
        for (unsigned i = 0; i < s->n; i++) {
                s->parts[i].job = job.kernels[i];
                if (!load(&s->parts[i])) {
                        free(s);
                        return NULL;
                }
        }
        all[n++] = s;
        return s;
}

/* Takes the loops of all parts. True: they have changed. */
static bool take_loops(struct step *s, const char *loops)
{
        bool changed = false;

        for (unsigned i = 0; i < s->n; i++) {
                char *end;
                const unsigned long number = strtoul(loops, &end, 10);
                const unsigned wanted = (unsigned)MIN(MAX(number, 1UL), (unsigned long)LOOPS_MAX);

                changed |= s->parts[i].loops != wanted;
                s->parts[i].loops = wanted;
                loops = *end == ',' ? end + 1 : end;
        }
        return changed;
}

static void take_job(const char *name, const char *loops)
{
        struct step *s = find_step(name);
        bool changed = false;

        if (!s)
                return;
        self.step = s;
        if (strcmp(loops, "0") != 0) {
                changed = take_loops(s, loops);
                for (unsigned i = 0; changed && i < s->n; i++) {
                        (void)time_once(&s->parts[i]);
                        s->parts[i].seconds = time_thrice(&s->parts[i]);
                }
        } else {
                for (unsigned i = 0; !s->timed && i < s->n; i++)
                        calibrate(&s->parts[i]);
        }
        if (changed || !s->timed)
                s->seconds = s->n == 1 ? s->parts[0].seconds : time_thrice(NULL);
        s->timed = true;
        (void)printf("job ");
        for (unsigned i = 0; i < s->n; i++)
                (void)printf("%s%u", i ? "," : "", s->parts[i].loops);
        (void)printf(" %.9f\n", s->seconds);
}

/* ---- to run it ---- */

/* What was submitted and what of it is known to be done. Times are seconds since base. */
struct window {
        double begins, ends;
        double done_until; /* when the last batch that is done was done */
        double count;
        unsigned size[BATCHES], first, n; /* batches in flight */
};

/* Counts the oldest batch, as if its work were even over the time since the batch before. That time
 * may include another program's work: a batch is short. */
static void finish_oldest(struct window *w)
{
        double at, from, until;
        float ms;

        TRY(cuEventSynchronize, self.events[w->first]);
        TRY(cuEventElapsedTime, &ms, self.base, self.events[w->first]);
        at = (double)ms / 1000;
        from = MAX(w->done_until, w->begins);
        until = MIN(at, w->ends);
        if (until > from && at > w->done_until)
                w->count += w->size[w->first] * (until - from) / (at - w->done_until);
        w->done_until = at;
        w->first = (w->first + 1) % BATCHES;
        w->n--;
}

static void submit(struct window *w, unsigned size)
{
        const unsigned place = (w->first + w->n) % BATCHES;

        for (unsigned i = 0; i < size; i++)
                launch_step();
        TRY(cuEventRecord, self.events[place], self.stream);
        w->size[place] = size;
        w->n++;
}

static void run(double seconds, uint64_t at_ns)
{
        const double kernel = MAX(self.step->seconds, 1e-6),
                     gap = (double)self.step->parts[0].job.gap / 100,
                     pause = gap > 0 ? kernel * gap / (1 - gap) : 0;
        const double size = BATCH_S / kernel;
        const unsigned batch = pause > 0 ? 1 : (unsigned)MIN(MAX(size, 1), BATCH_MAX);
        const double at = (double)at_ns / (double)NSEC_PER_SEC;
        struct window w = {0};
        double base;

        pause_for(at - (double)WARM_NS / (double)NSEC_PER_SEC - now());
        TRY(cuEventRecord, self.base, self.stream);
        TRY(cuEventSynchronize, self.base);
        base = now();
        w.begins = at - base;
        w.ends = w.begins + seconds;
        while (now() < at + seconds) {
                if (w.n == BATCHES)
                        finish_oldest(&w);
                submit(&w, batch);
                if (pause > 0) {
                        finish_oldest(&w);
                        pause_for(pause);
                }
        }
        while (w.n)
                finish_oldest(&w);
        (void)printf("ran %.6f\n", w.count);
}

/* ---- what is known of it ---- */

static uint64_t bytes_used(void)
{
        uint64_t most = 0;

        for (unsigned i = 0; i < self.step->n; i++)
                most = MAX(most, self.step->parts[i].bytes); /* all parts use the same memory */
        return most;
}

static void describe_kernel(FILE *file, const struct ready *r, double all_s)
{
        char name[KERNEL_NAME_MAX];

        kernel_name(&r->job, name);
        (void)fprintf(file,
                      "{\"name\": \"%s\", \"grid\": [%u, 1, 1], \"block\": [%u, 1, 1], "
                      "\"registers\": %d, \"shared_bytes\": %u, \"local_bytes\": %d, "
                      "\"blocks_per_sm\": %d, \"occupancy\": %.4f, \"waves\": %.4f, "
                      "\"launches_per_step\": 1, \"seconds\": %.9f, \"share\": %.4f, "
                      "\"graph\": false}",
                      name, r->grid, r->job.threads, r->registers,
                      r->shared_bytes + (unsigned)r->static_bytes, r->local_bytes, r->blocks_per_sm,
                      (double)r->blocks_per_sm * r->job.threads / self.sm_threads,
                      (double)r->grid / r->blocks_per_sm / self.processors, r->seconds,
                      r->seconds / all_s);
}

static void describe(const char *path)
{
        const struct step *s = self.step;
        FILE *file = fopen(path, "we");
        double all_s = 1e-9;

        if (!file) {
                (void)printf("failed %s: %m\n", path);
                return;
        }
        for (unsigned i = 0; i < s->n; i++)
                all_s += s->parts[i].seconds;
        (void)fprintf(file, "{\"kernels\": [");
        for (unsigned i = 0; i < s->n; i++) {
                (void)fprintf(file, "%s", i ? ", " : "");
                describe_kernel(file, &s->parts[i], all_s);
        }
        (void)fprintf(file,
                      "], \"launches_per_step\": %u, \"memory\": {\"peak_bytes\": %" PRIu64
                      "}, \"gap\": %.3f}\n",
                      s->n, bytes_used(), (double)s->parts[0].job.gap / 100);
        (void)fclose(file);
        (void)printf("described\n");
}

static void describe_card(const char *path)
{
        unsigned char uuid[16] = {0};
        char name[96] = "";
        size_t bytes = 0;
        FILE *file = fopen(path, "we");

        if (!file) {
                (void)printf("failed %s: %m\n", path);
                return;
        }
        TRY(cuDeviceGetName, name, sizeof(name), self.device);
        TRY(cuDeviceTotalMem, &bytes, self.device);
        TRY(cuDeviceGetUuid, uuid, self.device);
        (void)fprintf(file,
                      "{\"gpu\": \"%.95s\", \"memory_bytes\": %zu, \"sms\": %d, \"l2_bytes\": %d, "
                      "\"clock_mhz\": %.1f, \"dram_gb_s\": %.1f, \"uuid\": \"",
                      name, bytes, self.processors, attribute(ATTRIBUTE_L2_BYTES, 0),
                      attribute(ATTRIBUTE_CLOCK, 0) / 1e3,
                      2.0 * attribute(ATTRIBUTE_MEMORY_CLOCK, 0) *
                              attribute(ATTRIBUTE_MEMORY_BITS, 0) / 8 / 1e6);
        for (size_t i = 0; i < sizeof(uuid); i++)
                (void)fprintf(file, "%02x", uuid[i]);
        (void)fprintf(file, "\"}\n");
        (void)fclose(file);
        (void)printf("described\n");
}

static void obey(char *line)
{
        char name[KERNEL_NAME_MAX], loops[64], *end;
        uint64_t at_ns;
        double seconds;

        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "job %63s %63s", name, loops) == 2) {
                take_job(name, loops);
        } else if (strncmp(line, "card ", 5) == 0) {
                describe_card(line + 5);
        } else if (!self.step) {
                (void)printf("failed no job\n");
        } else if (strncmp(line, "run ", 4) == 0) {
                seconds = strtod(line + 4, &end);
                at_ns = strtoull(end, NULL, 10);
                run(seconds, at_ns);
        } else if (strcmp(line, "memory") == 0) {
                (void)printf("memory %" PRIu64 "\n", bytes_used());
        } else if (strncmp(line, "describe ", 9) == 0) {
                describe(line + 9);
        } else {
                (void)printf("failed no such order\n");
        }
}

int main(void)
{
        char line[512];

        (void)setvbuf(stdout, NULL, _IOLBF, 0);
        begin_worker();
        (void)printf("ready\n");
        while (fgets(line, sizeof(line), stdin) && strcmp(line, "quit\n") != 0)
                obey(line);
        return EXIT_SUCCESS;
}
