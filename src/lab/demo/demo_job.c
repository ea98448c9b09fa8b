/* demo_job.c: sublet-demo-job, the program that the demo runs twice on one card: an ordinary
 * program of the driver API that knows nothing of sublet. It fills SIZE of GPU memory with values
 * computed from position and round. Then it pauses and computes in turn, PHASES times. Each round
 * of computing checks all values before it writes the next ones (lab/common/gpu_work.c).
 *
 *     sublet-demo-job SIZE [KEY [PHASES [SECONDS [ROUNDS]]]]
 *
 * SECONDS is the length of a pause. ROUNDS is the number of rounds in a phase; without it, or if it
 * is 0, the first phase runs the rounds that begin within half of SECONDS, and the others run as
 * many.
 *
 * Prints one line a step to stdout: "allocated BYTES", "pause", "compute", "round N", "done ROUNDS
 * MISMATCHES DIGEST", "memory BYTES" (BYTES were allocated when memory ran out) or "failed CALL
 * RESULT". Exit status 0; 1 after "failed"; 2 for wrong arguments. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "lab/common/gpu_work.h"

#define DEFAULT_KEY     "1"
#define DEFAULT_PHASES  "30"
#define DEFAULT_SECONDS "1"
#define DEFAULT_ROUNDS  "0"

/* Sleeps. For the GPU this is the same as computing on the processor, or waiting for data or a
 * person. */
static void pause_for(double seconds)
{
        struct timespec t = {.tv_sec = (time_t)seconds};

        t.tv_nsec = (long)((seconds - (double)t.tv_sec) * (double)NSEC_PER_SEC);
        (void)printf("pause\n");
        (void)nanosleep(&t, NULL);
}

static void run_round(struct gpu_work *w)
{
        gpu_work_round(w);
        (void)printf("round %" PRIu64 "\n", w->rounds);
}

/* Returns how many rounds begin within the time, after running them. */
static uint64_t run_seconds(struct gpu_work *w, double seconds)
{
        uint64_t begun = clock_now_ns(), first = w->rounds;

        do
                run_round(w);
        while ((double)(clock_now_ns() - begun) < seconds * (double)NSEC_PER_SEC);
        return w->rounds - first;
}

static void run(struct gpu_work *w, uint64_t phases, double seconds, uint64_t rounds)
{
        for (uint64_t phase = 0; phase < phases; phase++) {
                pause_for(seconds);
                (void)printf("compute\n");
                if (!rounds)
                        rounds = run_seconds(w, seconds / 2);
                else
                        for (uint64_t i = 0; i < rounds; i++)
                                run_round(w);
        }
}

int main(int argc, char **argv)
{
        const char *arguments[] = {NULL, DEFAULT_KEY, DEFAULT_PHASES, DEFAULT_SECONDS,
                                   DEFAULT_ROUNDS};
        struct gpu_work work;
        uint64_t bytes;

        for (int i = 1; i < argc && i <= (int)ARRAY_SIZE(arguments); i++)
                arguments[i - 1] = argv[i];
        if (argc < 2 || argc > 1 + (int)ARRAY_SIZE(arguments) ||
            units_parse_size(arguments[0], &bytes) < 0) {
                (void)fprintf(stderr, "usage: sublet-demo-job SIZE [KEY [PHASES [SECONDS "
                                      "[ROUNDS]]]], with a SIZE such as 600MiB\n");
                return 2;
        }
        (void)setvbuf(stdout, NULL, _IOLBF, 0);
        gpu_work_begin(&work, bytes, strtoull(arguments[1], NULL, 0), false);
        (void)printf("allocated %" PRIu64 "\n", gpu_work_bytes(&work));
        gpu_work_fill(&work);
        run(&work, strtoull(arguments[2], NULL, 0), strtod(arguments[3], NULL),
            strtoull(arguments[4], NULL, 0));
        (void)printf("done %" PRIu64 " %" PRIu64 " %016" PRIx64 "\n", work.rounds, work.mismatches,
                     work.digest);
        gpu_work_end(&work);
        return EXIT_SUCCESS;
}
