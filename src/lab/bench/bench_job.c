/* bench_job.c: sublet-bench-job, the program that sublet bench runs: an ordinary program of the
 * driver API that knows nothing of sublet. Its working set is all of its memory, as that of a
 * training step. Must never compute on the GPU before it is told to.
 *
 *     sublet-bench-job BYTES SEED CPU PAUSE SECONDS ROUNDS PHASES [managed]
 *
 * It fills BYTES of GPU memory, prints "filled" and waits for a line on stdin. In each of PHASES
 * phases (0: until stdin ends) it computes CPU seconds on the processor, sleeps 0.5 to 1.5 times
 * PAUSE seconds, drawn by SEED, and does ROUNDS rounds on the GPU. If ROUNDS is 0, the first phase
 * does the rounds that begin within SECONDS, and the others do as many. "phase S" says how many
 * seconds the GPU part took. "done ROUNDS MISMATCHES DIGEST" comes last; then the program waits for
 * the end of stdin, so that somebody can look at it before it is gone. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "lab/common/gpu_work.h"

struct shape {
        double cpu, pause, seconds;
        uint64_t seed, rounds, phases;
};

static double now(void)
{
        return (double)clock_now_ns() / (double)NSEC_PER_SEC;
}

/* Computes on one processor, as a data loader does. */
static void compute(double seconds)
{
        const double end = now() + seconds;
        volatile uint64_t x = 1;

        while (now() < end)
                for (int i = 0; i < 10000; i++)
                        x = gpu_work_mix(x, 1);
}

/* Waits until stdin has something to read, or has ended. */
static bool input_within(double seconds)
{
        struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};

        return poll(&fd, 1, seconds < 0 ? -1 : (int)(seconds * 1000)) > 0;
}

static double pause_length(const struct shape *s, uint64_t phase)
{
        return s->pause *
               (0.5 + (double)(gpu_work_mix(s->seed, phase) >> 11) / (double)(UINT64_C(1) << 53));
}

static void run_phase(struct gpu_work *w, struct shape *s)
{
        const double begun = now();
        const uint64_t first = w->rounds;

        do
                gpu_work_round(w);
        while (s->rounds ? w->rounds - first < s->rounds : now() - begun < s->seconds);
        s->rounds = w->rounds - first;
        (void)printf("phase %.6f\n", now() - begun);
}

static void wait_for_end_of_input(void)
{
        char text[64];

        while (read(STDIN_FILENO, text, sizeof(text)) > 0)
                ;
}

int main(int argc, char **argv)
{
        struct gpu_work work;
        struct shape s;
        char line[8];

        if (argc < 8) {
                (void)fprintf(stderr, "usage: sublet-bench-job BYTES SEED CPU PAUSE SECONDS ROUNDS "
                                      "PHASES [managed]\n");
                return 2;
        }
        s = (struct shape){.seed = strtoull(argv[2], NULL, 0),
                           .cpu = strtod(argv[3], NULL),
                           .pause = strtod(argv[4], NULL),
                           .seconds = strtod(argv[5], NULL),
                           .rounds = strtoull(argv[6], NULL, 0),
                           .phases = strtoull(argv[7], NULL, 0)};
        (void)setvbuf(stdout, NULL, _IOLBF, 0);
        gpu_work_begin(&work, strtoull(argv[1], NULL, 0), s.seed,
                       argc > 8 && strcmp(argv[8], "managed") == 0);
        gpu_work_fill(&work);
        (void)printf("filled\n");
        if (read(STDIN_FILENO, line, sizeof(line)) <= 0)
                return EXIT_FAILURE;
        for (uint64_t phase = 0; s.phases == 0 || phase < s.phases; phase++) {
                compute(s.cpu);
                if (input_within(pause_length(&s, phase)) && s.phases == 0)
                        break;
                run_phase(&work, &s);
        }
        (void)printf("done %" PRIu64 " %" PRIu64 " %016" PRIx64 "\n", s.rounds, work.mismatches,
                     work.digest);
        wait_for_end_of_input();
        gpu_work_end(&work);
        return EXIT_SUCCESS;
}
