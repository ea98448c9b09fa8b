/* checker: reads another program's output (JSON lines, on stdin) or samples of its memory, and
 * recomputes the contents that the memory must have had. It uses no GPU, and shares only the
 * pattern with the other programs.
 *
 *   checker [--every N] < LINES   checks the sums of all rounds, or of every Nth
 *   checker --sample FILE         checks every word of every piece */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "pattern.h"
#include "program.h"

/* These lines are copied from blocks.c, so that this program needs no driver. */
struct job {
        uint64_t bytes, block, key, first, step;
        uint64_t sum;
};

static void *sum_run(void *argument)
{
        struct job *j = argument;
        uint64_t n = (j->bytes + j->block - 1) / j->block;

        for (uint64_t i = j->first; i < n; i += j->step) {
                uint64_t bytes = MIN(j->block, j->bytes - i * j->block) & ~UINT64_C(7);

                for (uint64_t w = 0; w < bytes / 8; w++)
                        j->sum += pattern_word(pattern_origin(i) + 8 * w, j->key);
        }
        return NULL;
}

/* Computes with one thread for each processor, because the memory may be 90 GiB. */
static uint64_t expected_sum(uint64_t bytes, uint64_t block, uint64_t key)
{
        enum { THREADS_MAX = 32 };
        struct job jobs[THREADS_MAX];
        pthread_t thread[THREADS_MAX];
        bool started[THREADS_MAX];
        long processors = sysconf(_SC_NPROCESSORS_ONLN);
        unsigned n = processors < 1 ? 1 : (unsigned)MIN(processors, (long)THREADS_MAX);
        uint64_t sum = 0;

        for (unsigned i = 0; i < n; i++) {
                jobs[i] = (struct job){bytes, block, key, i, n, 0};
                started[i] = pthread_create(&thread[i], NULL, sum_run, &jobs[i]) == 0;
                if (!started[i]) /* too many threads on this machine */
                        (void)sum_run(&jobs[i]);
        }
        for (unsigned i = 0; i < n; i++) {
                if (started[i])
                        (void)pthread_join(thread[i], NULL);
                sum += jobs[i].sum;
        }
        return sum;
}

static int check_samples(const char *path)
{
        struct sample_header h;
        uint64_t pieces = 0, words = 0;
        FILE *f = fopen(path, "rb");

        if (!f) {
                perror(path);
                return 2;
        }
        while (fread(&h, sizeof(h), 1, f) == 1) {
                uint64_t *data = h.magic == SAMPLE_MAGIC ? malloc(h.bytes) : NULL;

                if (!data || fread(data, h.bytes, 1, f) != 1) {
                        (void)fprintf(stderr, "checker: %s: not a sample file\n", path);
                        return 2;
                }
                for (uint64_t i = 0; i < h.bytes / 8; i++) {
                        uint64_t want = pattern_word(h.origin + 8 * i, h.key);

                        if (data[i] == want)
                                continue;
                        (void)fprintf(stderr,
                                      "checker: %s: at %#" PRIx64 ": %016" PRIx64
                                      " where %016" PRIx64 " must be\n",
                                      path, h.origin + 8 * i, data[i], want);
                        return 1;
                }
                pieces++;
                words += h.bytes / 8;
                free(data);
        }
        (void)fclose(f);
        (void)printf("{\"event\":\"checked\",\"pieces\":%" PRIu64 ",\"words\":%" PRIu64 "}\n",
                     pieces, words);
        return pieces ? 0 : 2;
}

/* Finds "key":123 in a JSON line of a test program. */
static bool number(const char *line, const char *key, uint64_t *ret_value)
{
        char quoted[32];
        const char *p;

        (void)snprintf(quoted, sizeof(quoted), "\"%s\":", key);
        p = strstr(line, quoted);
        if (!p)
                return false;
        p += strlen(quoted);
        if (*p == '"')
                *ret_value = strtoull(p + 1, NULL, 16);
        else
                *ret_value = strtoull(p, NULL, 10);
        return true;
}

int main(int argc, char **argv)
{
        uint64_t bytes = 0, block = 0, seed = 0, round, sum, rounds = 0, every = 1;
        char line[1024];

        if (argc == 3 && !strcmp(argv[1], "--sample"))
                return check_samples(argv[2]);
        if (argc == 3 && !strcmp(argv[1], "--every"))
                every = strtoull(argv[2], NULL, 10);
        else if (argc != 1)
                every = 0;
        if (!every) {
                (void)fprintf(stderr, "usage: checker [--every N | --sample FILE] < LINES\n");
                return 2;
        }
        while (fgets(line, sizeof(line), stdin)) {
                if (strstr(line, "\"event\":\"begin\"")) {
                        if (!number(line, "bytes", &bytes) || !number(line, "block", &block) ||
                            !number(line, "seed", &seed) || !block)
                                return 2;
                } else if (strstr(line, "\"event\":\"round\"")) {
                        uint64_t want;

                        if (!block || !number(line, "round", &round) || !number(line, "sum", &sum))
                                return 2;
                        if (round % every)
                                continue;
                        want = expected_sum(bytes, block, pattern_key(seed, round));
                        if (want != sum) {
                                (void)fprintf(stderr,
                                              "checker: round %" PRIu64 ": sum %016" PRIx64
                                              " where %016" PRIx64 " must be\n",
                                              round, sum, want);
                                return 1;
                        }
                        rounds++;
                }
        }
        (void)printf("{\"event\":\"checked\",\"rounds\":%" PRIu64 "}\n", rounds);
        if (!rounds)
                (void)fprintf(stderr, "checker: no round to check\n");
        return rounds ? 0 : 2;
}
