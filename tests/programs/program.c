/* program.c: the options, results and life cycle of a test program. */
#include "program.h"

#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/units.h"

struct options options;

static const char *program_name = "?";
static uint64_t began_ns;
static CUdevice device;
static CUcontext context;

uint64_t program_now_ns(void)
{
        struct timespec t;

        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t program_random(uint64_t *state)
{
        uint64_t x = *state;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        return *state = x;
}

/* One write for each line, so that the lines of two threads do not mix. */
__attribute__((format(printf, 2, 0))) static void say(const char *event, const char *format,
                                                      va_list ap)
{
        char line[1024], rest[896];

        (void)vsnprintf(rest, sizeof(rest), format, ap);
        (void)snprintf(line, sizeof(line), "{\"event\":\"%s\"%s%s}\n", event, *rest ? "," : "",
                       rest);
        (void)fputs(line, stdout);
        (void)fflush(stdout);
}

static void handle_interrupt(int number)
{
        static const char text[] = "{\"event\":\"handled\"}\n";

        (void)!write(STDOUT_FILENO, text, sizeof(text) - 1);
}

void program_handle_interrupts(void)
{
        const struct sigaction action = {.sa_handler = handle_interrupt, .sa_flags = SA_RESTART};

        if (options.how && !strcmp(options.how, "handles"))
                (void)sigaction(SIGINT, &action, NULL);
}

void program_say(const char *event, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        say(event, format, ap);
        va_end(ap);
}

void program_fail(enum program_exit status, const char *format, ...)
{
        char text[512];
        va_list ap;

        va_start(ap, format);
        (void)vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        for (char *p = text; *p; p++)
                if (*p == '"' || *p == '\\' || *p == '\n')
                        *p = '\'';
        program_say("error", "\"program\":\"%s\",\"status\":%d,\"text\":\"%s\"", program_name,
                    (int)status, text);
        (void)fprintf(stderr, "%s: %s\n", program_name, text);
        _exit(status);
}

static _Atomic(const char *) last_call = "no call", last_file = "?";
static _Atomic(int) last_line;

void program_calls(const char *call, const char *file, int line)
{
        atomic_store_explicit(&last_line, line, memory_order_relaxed);
        atomic_store_explicit(&last_file, file, memory_order_relaxed);
        atomic_store_explicit(&last_call, call, memory_order_relaxed);
}

static void say_where(int number)
{
        char text[512];
        const int n = snprintf(text, sizeof(text), "%s: %s:%d: in %s\n", program_name, last_file,
                               last_line, last_call);

        (void)!write(STDERR_FILENO, text, (size_t)MIN(n, (int)sizeof(text) - 1));
        (void)signal(number, SIG_DFL);
        (void)raise(number);
}

void program_check(CUresult r, const char *call, const char *file, int line)
{
        const char *name = "?";

        if (r == CUDA_SUCCESS)
                return;
        if (cu.GetErrorName)
                (void)cu.GetErrorName(r, &name);
        program_fail(r == CUDA_ERROR_OUT_OF_MEMORY ? PROGRAM_EXIT_MEMORY : PROGRAM_EXIT_DRIVER,
                     "%s:%d: %s: %s (%d)", file, line, call, name ? name : "?", (int)r);
}

int program_size(const char *text, uint64_t *ret)
{
        return units_parse_count(text, ret) == 0 ? 0 : units_parse_size(text, ret);
}

static uint64_t size_argument(const char *text, const char *option)
{
        uint64_t v;

        if (program_size(text, &v) < 0)
                program_fail(PROGRAM_EXIT_USAGE, "--%s %s: not a size", option, text);
        return v;
}

static double number_argument(const char *text, const char *option)
{
        char *end;
        double v = strtod(text, &end);

        if (end == text || *end || !(v >= 0))
                program_fail(PROGRAM_EXIT_USAGE, "--%s %s: not a number", option, text);
        return v;
}

void program_options(int argc, char **argv, const struct options *defaults)
{
        enum {
                BYTES,
                BLOCK,
                ROUNDS,
                SECONDS,
                UNTIL,
                SEED,
                MS,
                SAMPLE,
                SAMPLE_BYTES,
                COUNT,
                HOW,
                GPU
        };
        static const struct option table[] = {
                {"bytes", required_argument, NULL, BYTES},
                {"block", required_argument, NULL, BLOCK},
                {"rounds", required_argument, NULL, ROUNDS},
                {"seconds", required_argument, NULL, SECONDS},
                {"until", required_argument, NULL, UNTIL},
                {"seed", required_argument, NULL, SEED},
                {"ms", required_argument, NULL, MS},
                {"sample", required_argument, NULL, SAMPLE},
                {"sample-bytes", required_argument, NULL, SAMPLE_BYTES},
                {"count", required_argument, NULL, COUNT},
                {"how", required_argument, NULL, HOW},
                {"gpu", required_argument, NULL, GPU},
                {0},
        };
        int c, index = 0;

        program_name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
        began_ns = program_now_ns();
        (void)signal(SIGQUIT, say_where);
        options = *defaults;
        optind = 1; /* a program may read its options before program_begin() does */
        if (!options.sample_bytes)
                options.sample_bytes = 64 * KIB;
        while ((c = getopt_long(argc, argv, "", table, &index)) != -1) {
                const char *name = table[index].name;

                switch (c) {
                case BYTES:
                        options.bytes = size_argument(optarg, name);
                        break;
                case BLOCK:
                        options.block = size_argument(optarg, name);
                        break;
                case ROUNDS:
                        options.rounds = (uint64_t)number_argument(optarg, name);
                        break;
                case SECONDS:
                        options.seconds = number_argument(optarg, name);
                        break;
                case UNTIL:
                        options.until = optarg;
                        break;
                case SEED:
                        options.seed = (uint64_t)number_argument(optarg, name);
                        break;
                case MS:
                        options.ms = number_argument(optarg, name);
                        break;
                case SAMPLE:
                        options.sample = optarg;
                        break;
                case SAMPLE_BYTES:
                        options.sample_bytes = size_argument(optarg, name);
                        break;
                case COUNT:
                        options.count = (uint64_t)number_argument(optarg, name);
                        break;
                case HOW:
                        options.how = optarg;
                        break;
                case GPU:
                        options.gpu = (int)number_argument(optarg, name);
                        break;
                default:
                        program_fail(PROGRAM_EXIT_USAGE, "unknown option");
                }
        }
        if (optind < argc)
                program_fail(PROGRAM_EXIT_USAGE, "%s: unexpected argument", argv[optind]);
        options.block &= ~UINT64_C(7);
        if (!options.block)
                options.block = 4 * MIB;
}

void program_begin(int argc, char **argv, const struct options *defaults, bool per_thread)
{
        program_options(argc, argv, defaults);
        driver_open(per_thread);
        /* Some programs make this call before cuInit to check whether CUDA is there. */
        if (getenv("PROGRAM_EARLY") &&
            cu.DevicePrimaryCtxRetain(&context, 0) != CUDA_ERROR_NOT_INITIALIZED)
                program_fail(PROGRAM_EXIT_WRONG, "a context before cuInit");
        TRY(cu.Init(0));
        TRY(cu.DeviceGet(&device, options.gpu));
        TRY(cu.DevicePrimaryCtxRetain(&context, device));
        program_thread();
        kernels_load(&kernels);
        program_say("begin",
                    "\"program\":\"%s\",\"pid\":%d,\"bytes\":%llu,\"block\":%llu,\"seed\":%llu",
                    program_name, (int)getpid(), (unsigned long long)options.bytes,
                    (unsigned long long)options.block, (unsigned long long)options.seed);
}

void program_thread(void)
{
        TRY(cu.CtxSetCurrent(context));
}

void program_end(void)
{
        TRY(cu.ModuleUnload(kernels.module));
        TRY(cu.CtxSetCurrent(NULL));
        TRY(cu.DevicePrimaryCtxRelease(device));
        program_say("end", "\"program\":\"%s\",\"ok\":true,\"ms\":%.1f", program_name,
                    (double)(program_now_ns() - began_ns) / 1e6);
        exit(PROGRAM_EXIT_OK);
}

size_t program_how(const char *const names[], size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (!strcmp(options.how, names[i]))
                        return i;
        program_fail(PROGRAM_EXIT_USAGE, "--how %s: unknown", options.how);
}

bool program_more(uint64_t rounds_done)
{
        if (rounds_done < options.rounds)
                return true;
        if (options.until && access(options.until, F_OK) < 0)
                return true;
        return (double)(program_now_ns() - began_ns) < options.seconds * 1e9;
}
