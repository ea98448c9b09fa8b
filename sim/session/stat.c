/* stat.c: simcuda-stat: prints the memory on a session's cards and the bytes moved. Must never
 * change a session, unless told to remove it or to slow its bus. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "sim/session/session.h"

#define EXIT_USAGE 2

static const char usage[] =
        "usage: simcuda-stat [--json] [--session NAME]\n"
        "       simcuda-stat --remove [--force] [--session NAME]\n"
        "       simcuda-stat --slow in|out|both:RATE:SECONDS[:PID] [--session NAME]\n"
        "Prints what the processes of a simulated machine use and have moved. Without --session,\n"
        "the session is SIMCUDA_SESSION's, or \"default\" if that is unset.\n";

static void json_totals(const struct session_totals *t)
{
#define X(name) (void)printf(", \"" #name "\": %llu", (unsigned long long)t->name);
        SESSION_COUNTERS(X)
#undef X
}

/* Escapes a process's name, which comes from /proc/.../comm and may contain any character. */
static void json_string(const char *text)
{
        (void)putchar('"');
        for (const unsigned char *c = (const unsigned char *)text; *c; c++)
                if (*c < 0x20 || *c == '"' || *c == '\\' || *c >= 0x7f)
                        (void)printf("\\u%04x", *c);
                else
                        (void)putchar(*c);
        (void)putchar('"');
}

static void json_process(const struct session_slot *slot, unsigned d)
{
        struct session_totals t;

        session_slot_totals(slot, d, &t);
        (void)printf("{\"pid\": %d, \"name\": ", (int)slot->pid);
        json_string(slot->name);
        (void)printf(", \"live\": %s, \"contexts\": %u, \"used\": %llu, \"peak\": %llu",
                     atomic_load(&slot->state) == SLOT_LIVE ? "true" : "false",
                     atomic_load(&slot->device[d].contexts),
                     (unsigned long long)atomic_load(&slot->device[d].used),
                     (unsigned long long)atomic_load(&slot->device[d].peak));
        json_totals(&t);
        (void)printf("}");
}

static void print_json(struct session *s, const char *name)
{
        (void)printf("{\"session\": \"%s\", \"devices\": [", name);
        for (unsigned d = 0; d < session_device_count(s); d++) {
                struct session_device *dev = session_device(s, d);
                struct session_totals t;
                bool first = true;

                session_totals(s, d, &t);
                (void)printf("%s{\"index\": %u, \"total\": %llu, \"used\": %llu, \"peak\": %llu, "
                             "\"bus_bytes_per_s\": %llu, \"context_bytes\": %llu",
                             d ? ", " : "", d, (unsigned long long)dev->total,
                             (unsigned long long)session_used(s, d),
                             (unsigned long long)atomic_load(&dev->peak),
                             (unsigned long long)dev->bus_bytes_per_s,
                             (unsigned long long)dev->context_bytes);
                json_totals(&t);
                (void)printf(", \"processes\": [");
                for (unsigned i = 0; i < SESSION_SLOTS; i++) {
                        const struct session_slot *slot = session_slot(s, i);

                        if (atomic_load(&slot->state) == SLOT_FREE || !atomic_load(&slot->cuda))
                                continue;
                        (void)printf("%s", first ? "" : ", ");
                        json_process(slot, d);
                        first = false;
                }
                (void)printf("]}");
        }
        (void)printf("]}\n");
}

static void print_line(const char *what, uint64_t used, uint64_t peak,
                       const struct session_totals *t)
{
        char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX], in[UNITS_TEXT_MAX], out[UNITS_TEXT_MAX];

        (void)printf("%-26s %10s %10s %10s %10s %9llu %7llu %7llu %7llu\n", what,
                     units_format_size(used, a), units_format_size(peak, b),
                     units_format_size(t->h2d_bytes, in), units_format_size(t->d2h_bytes, out),
                     (unsigned long long)t->launches, (unsigned long long)t->creates,
                     (unsigned long long)t->maps, (unsigned long long)t->unmaps);
}

static void print_managed_line(const char *what, uint64_t used, uint64_t peak,
                               const struct session_totals *t)
{
        char in[UNITS_TEXT_MAX], out[UNITS_TEXT_MAX];

        (void)printf("%-26s %10s %10s %10llu %10llu %9llu\n", what,
                     units_format_size(t->managed_h2d_bytes, in),
                     units_format_size(t->managed_d2h_bytes, out),
                     (unsigned long long)t->gpu_faults, (unsigned long long)t->cpu_faults,
                     (unsigned long long)t->evictions);
}

/* Prints a line for each card, and a line for each process on it. */
static void print_lines(struct session *s,
                        void (*line)(const char *what, uint64_t used, uint64_t peak,
                                     const struct session_totals *t))
{
        for (unsigned d = 0; d < session_device_count(s); d++) {
                char what[64], size[UNITS_TEXT_MAX];
                struct session_totals t;

                session_totals(s, d, &t);
                (void)snprintf(what, sizeof(what), "card %u (%s)", d,
                               units_format_size(session_device(s, d)->total, size));
                line(what, session_used(s, d), atomic_load(&session_device(s, d)->peak), &t);
                for (unsigned i = 0; i < SESSION_SLOTS; i++) {
                        const struct session_slot *slot = session_slot(s, i);
                        const struct session_use *use = &slot->device[d];

                        if (atomic_load(&slot->state) == SLOT_FREE || !atomic_load(&slot->cuda))
                                continue;
                        session_slot_totals(slot, d, &t);
                        (void)snprintf(what, sizeof(what), "  %d %s%s", (int)slot->pid, slot->name,
                                       atomic_load(&slot->state) == SLOT_LIVE ? "" : " (ended)");
                        line(what, atomic_load(&use->used), atomic_load(&use->peak), &t);
                }
        }
}

static void print_text(struct session *s)
{
        bool managed = false;

        (void)printf("%-26s %10s %10s %10s %10s %9s %7s %7s %7s\n", "", "used", "peak", "to device",
                     "to host", "launches", "creates", "maps", "unmaps");
        print_lines(s, print_line);
        for (unsigned d = 0; d < session_device_count(s); d++) {
                struct session_totals t;

                session_totals(s, d, &t);
                managed = managed || t.gpu_faults || t.cpu_faults || t.managed_h2d_bytes;
        }
        if (!managed)
                return;
        (void)printf("\n%-26s %10s %10s %10s %10s %9s\n", "of that, managed memory", "to device",
                     "to host", "GPU faults", "CPU faults", "evictions");
        print_lines(s, print_managed_line);
}

/* Slows the bus as DIRECTION:RATE:SECONDS[:PID] says. */
static int slow_down(struct session *s, const char *text)
{
        char direction[8], rate[32];
        uint64_t bytes_per_s;
        double seconds;
        int pid = 0, end = 0, n;

        n = sscanf(text, "%7[a-z]:%31[^:]:%lf%n:%d%n", direction, rate, &seconds, &end, &pid, &end);
        if (n < 3 || text[end] || pid < 0 || !(seconds >= 0 && seconds <= 86400) ||
            units_parse_rate(rate, &bytes_per_s) < 0 || bytes_per_s == 0 ||
            (strcmp(direction, "in") != 0 && strcmp(direction, "out") != 0 &&
             strcmp(direction, "both") != 0))
                return -EINVAL;
        if (strcmp(direction, "out") != 0)
                session_bus_slow(s, SESSION_TO_DEVICE, bytes_per_s, (uint64_t)(seconds * 1e9), pid);
        if (strcmp(direction, "in") != 0)
                session_bus_slow(s, SESSION_TO_HOST, bytes_per_s, (uint64_t)(seconds * 1e9), pid);
        return 0;
}

struct arguments {
        bool json, remove, force;
        const char *slow;
        char session[SESSION_NAME_MAX];
};

/* Returns false if the program must exit with *ret_status. */
static bool read_options(int argc, char *argv[], struct arguments *a, int *ret_status)
{
        static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                                {"session", required_argument, NULL, 's'},
                                                {"remove", no_argument, NULL, 'r'},
                                                {"force", no_argument, NULL, 'f'},
                                                {"help", no_argument, NULL, 'h'},
                                                {"slow", required_argument, NULL, 'b'},
                                                {0}};
        int c;

        while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
                switch (c) {
                case 'j':
                        a->json = true;
                        break;
                case 's':
                        if (setenv("SIMCUDA_SESSION", optarg, 1) < 0) {
                                *ret_status = EXIT_FAILURE;
                                return false;
                        }
                        break;
                case 'r':
                        a->remove = true;
                        break;
                case 'b':
                        a->slow = optarg;
                        break;
                case 'f':
                        a->force = true;
                        break;
                case 'h':
                        (void)fputs(usage, stdout);
                        *ret_status = EXIT_SUCCESS;
                        return false;
                default:
                        (void)fputs(usage, stderr);
                        *ret_status = EXIT_USAGE;
                        return false;
                }
        }
        return true;
}

static bool check_arguments(int argc, char *argv[], struct arguments *a)
{
        if (optind < argc) {
                (void)fprintf(stderr, "simcuda-stat: unexpected argument '%s'\n", argv[optind]);
                return false;
        }
        if (session_name(a->session) < 0) {
                (void)fprintf(stderr, "simcuda-stat: not a session's name: '%s'\n",
                              getenv("SIMCUDA_SESSION"));
                return false;
        }
        return true;
}

static void print_session_error(const char *session, int error)
{
        const char *why = strerror(-error);

        if (error == -ENOENT)
                why = "there is none";
        else if (error == -EBUSY)
                why = "processes live in it (--force removes it all the same)";
        (void)fprintf(stderr, "simcuda-stat: session '%s': %s\n", session, why);
}

/* Slows the session or prints it. Returns the exit status. */
static int use_session(struct session *s, const struct arguments *a)
{
        if (a->slow && slow_down(s, a->slow) < 0) {
                (void)fprintf(stderr, "simcuda-stat: not a DIRECTION:RATE:SECONDS[:PID]: '%s'\n",
                              a->slow);
                return EXIT_USAGE;
        }
        if (a->slow)
                return EXIT_SUCCESS;
        session_reap(s);
        if (a->json)
                print_json(s, a->session);
        else
                print_text(s);
        return EXIT_SUCCESS;
}

int main(int argc, char *argv[])
{
        struct arguments a = {0};
        struct session *s;
        int r, status;

        if (!read_options(argc, argv, &a, &status))
                return status;
        if (!check_arguments(argc, argv, &a))
                return EXIT_USAGE;
        r = a.remove ? session_remove(a.session, a.force) : session_attach(a.session, &s);
        if (r < 0) {
                print_session_error(a.session, r);
                return EXIT_FAILURE;
        }
        if (a.remove)
                return EXIT_SUCCESS;
        status = use_session(s, &a);
        session_detach(s);
        return status;
}
