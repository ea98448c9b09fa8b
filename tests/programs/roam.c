/* roam: does random work on a GPU: uses some of its memory, allocates more, frees some (also while
 * it is in use), copies, launches many small kernels, does nothing for a while. Checks every piece
 * before it rewrites or frees it. Holds at most --bytes in pieces of at most --block, idles for
 * up to --ms at a time, and prints its progress twice a second. Out of memory is no failure. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

enum { PIECES = 64, SMALL_KERNELS = 100, LOOK_BYTES = 65536 };

#define SAY_EVERY_NS UINT64_C(500000000)

struct piece {
        CUdeviceptr at;
        uint64_t bytes, origin, round;
};

static struct {
        struct piece piece[PIECES];
        size_t n;
        uint64_t held, random, serial;
        CUdeviceptr verdict, counter;
        CUstream stream;
        uint64_t checked, actions, refused, worst_ns, said_ns;
} roam;

static volatile sig_atomic_t continued;

static void on_continue(int signal_number)
{
        (void)signal_number;
        continued = 1;
}

static uint64_t below(uint64_t limit)
{
        return program_random(&roam.random) % limit;
}

static uint64_t key_of(const struct piece *p)
{
        return pattern_key(options.seed, p->round);
}

static void step(struct piece *p)
{
        uint64_t key = key_of(p);

        p->round++;
        launch_step(p->at, p->bytes, p->origin, key, key_of(p), roam.verdict, roam.stream);
        roam.checked += p->bytes;
}

static void look_at_verdict(void)
{
        (void)verdict_take(roam.verdict, roam.actions, roam.stream);
}

/* ---- actions ---- */

static void work(void)
{
        uint64_t times = 1 + below(3), some = 1 + below(roam.n);

        while (times-- > 0)
                for (uint64_t i = 0; i < some; i++)
                        step(&roam.piece[i]);
        look_at_verdict();
}

static void take(void)
{
        struct piece *p = &roam.piece[roam.n];
        uint64_t bytes = (options.block / 8 + below(options.block)) & ~UINT64_C(7);
        CUresult r;

        bytes = MIN(bytes, options.block);
        if (roam.n == PIECES || roam.held + bytes > options.bytes)
                return;
        r = cu.MemAlloc(&p->at, bytes);
        if (r == CUDA_ERROR_OUT_OF_MEMORY) {
                roam.refused++;
                return;
        }
        TRY(r);
        p->bytes = bytes;
        p->origin = pattern_origin(roam.serial++);
        p->round = 0;
        launch_fill(p->at, p->bytes, p->origin, key_of(p), roam.stream);
        roam.held += bytes;
        roam.n++;
}

/* Frees memory directly behind a kernel that uses it. */
static void give_back(void)
{
        size_t i = (size_t)below(roam.n);
        struct piece *p = &roam.piece[i];

        step(p);
        TRY(cu.MemFree(p->at));
        roam.held -= p->bytes;
        *p = roam.piece[--roam.n];
        look_at_verdict();
}

/* Copies memory out, and checks it on the processor, too. */
static void copy_out(void)
{
        static uint64_t buffer[LOOK_BYTES / 8];
        const struct piece *p = &roam.piece[below(roam.n)];
        uint64_t bytes = MIN(p->bytes, (uint64_t)LOOK_BYTES);
        uint64_t offset = below((p->bytes - bytes) / 8 + 1) * 8, wrong = 0;

        TRY(cu.StreamSynchronize(roam.stream));
        TRY(cu.MemcpyDtoH(buffer, p->at + offset, bytes));
        for (uint64_t i = 0; i < bytes / 8; i++)
                wrong += buffer[i] != pattern_word(p->origin + offset + 8 * i, key_of(p));
        roam.checked += bytes;
        if (wrong)
                program_fail(PROGRAM_EXIT_WRONG, "copied out: %llu words wrong",
                             (unsigned long long)wrong);
}

static void small_kernels(void)
{
        for (unsigned i = 0; i < SMALL_KERNELS; i++)
                launch_tiny(roam.counter, roam.stream);
        TRY(cu.StreamSynchronize(roam.stream));
}

static void rest(void)
{
        (void)usleep((useconds_t)(below((uint64_t)(options.ms * 1000) + 1)));
}

static const struct {
        void (*act)(void);
        unsigned share; /* how often the action is chosen, in percent */
        bool waits;     /* true if the action may wait for the GPU */
} acts[] = {
        {work, 45, true},     {take, 17, true},          {give_back, 10, true},
        {copy_out, 10, true}, {small_kernels, 10, true}, {rest, 8, false},
};

static void act(void)
{
        uint64_t choice = below(100), began = program_now_ns();
        size_t i = 0;

        while (choice >= acts[i].share)
                choice -= acts[i++].share;
        continued = 0;
        acts[i].act();
        roam.actions++;
        /* A program that was stopped did not wait for the GPU in that time. */
        if (acts[i].waits && !continued)
                roam.worst_ns = MAX(roam.worst_ns, program_now_ns() - began);
}

static void say(const char *event)
{
        program_say(event,
                    "\"checked\":%llu,\"held\":%llu,\"actions\":%llu,\"refused\":%llu,"
                    "\"worst_ms\":%.1f",
                    (unsigned long long)roam.checked, (unsigned long long)roam.held,
                    (unsigned long long)roam.actions, (unsigned long long)roam.refused,
                    (double)roam.worst_ns / 1e6);
        roam.worst_ns = 0;
        roam.said_ns = program_now_ns();
}

int main(int argc, char **argv)
{
        (void)signal(SIGCONT, on_continue);
        program_begin(
                argc, argv,
                &(struct options){.bytes = 48 * MIB, .block = 8 * MIB, .seconds = 2, .ms = 500},
                false);
        for (roam.random = options.seed + 1; roam.serial < 16; roam.serial++)
                (void)program_random(&roam.random); /* similar seeds begin with similar numbers */
        roam.verdict = verdict_new();
        roam.counter = verdict_new();
        TRY(cu.StreamCreate(&roam.stream, CU_STREAM_NON_BLOCKING));
        for (unsigned i = 0; i < PIECES && roam.held < options.bytes / 2; i++)
                take();
        while (program_more(0)) {
                if (roam.n <= 1)
                        take();
                if (roam.n)
                        act();
                else
                        rest();
                if (program_now_ns() - roam.said_ns > SAY_EVERY_NS)
                        say("progress");
        }
        for (size_t i = 0; i < roam.n; i++)
                step(&roam.piece[i]);
        look_at_verdict();
        say("roamed");
        for (size_t i = 0; i < roam.n; i++)
                TRY(cu.MemFree(roam.piece[i].at));
        TRY(cu.MemFree(roam.verdict));
        TRY(cu.MemFree(roam.counter));
        TRY(cu.StreamDestroy(roam.stream));
        program_end();
}
