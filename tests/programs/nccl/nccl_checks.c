/* nccl_checks: do the collectives of the NCCL that is loaded give the right results?
 *
 * Starts --ranks processes before any of them uses CUDA. Each takes the device with the number of
 * its rank, modulo the number of devices. Prints a JSON line for each check, and one at the end.
 * Exits 0 only if no check found anything wrong.
 *
 *   --ranks N         (2)
 *   --only A,B,...    these checks only
 *   --without A,...   all but these
 *   --counts A,B,...  numbers of elements (0,1,3,1000,65537)
 *   --big N           elements of 4 bytes in the largest buffers (0: no such check)
 *   --types A,B,...   these types only, where a check goes through all
 *   --fill SIZE       other memory of each rank, which must stay as it is
 *   --rounds N        of the checks that repeat (1)
 *   --seconds N       a check that takes longer is wrong (120)
 *   --patience N      factor for the limits of time within checks (1)
 *   --until FILE      the check `endless` goes on until the file exists
 *   --list            prints the names of the checks */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/units.h"
#include "checks.h"
#include "ranks.h"

struct settings settings = {
        .counts = {0, 1, 3, 1000, 65537},
        .count_n = 5,
        .patience = 1,
        .rounds = 1,
};

const struct check checks[] = {
        {.name = "versions", .run = check_versions},
        {.name = "properties", .run = check_properties},
        {.name = "all-reduce", .run = check_all_reduce},
        {.name = "reduce", .run = check_reduce},
        {.name = "reduce-scatter", .run = check_reduce_scatter},
        {.name = "all-gather", .run = check_all_gather},
        {.name = "broadcast", .run = check_broadcast},
        {.name = "gather-scatter", .run = check_gather_scatter},
        {.name = "all-to-all", .run = check_all_to_all},
        {.name = "ring", .run = check_ring},
        {.name = "exchange", .run = check_exchange},
        {.name = "self", .run = check_self},
        {.name = "send-order", .run = check_send_order},
        {.name = "big", .run = check_big},
        {.name = "random-numbers", .run = check_random_numbers},
        {.name = "special-numbers", .run = check_special_numbers},
        {.name = "repeat", .run = check_repeat},
        {.name = "streams", .run = check_streams},
        {.name = "stream-order", .run = check_stream_order},
        {.name = "groups", .run = check_groups},
        {.name = "two-communicators", .run = check_two_communicators},
        {.name = "mixture", .run = check_mixture},
        {.name = "graph", .run = check_graph},
        {.name = "graph-mixed", .run = check_graph_mixed},
        {.name = "wait-is-idle", .run = check_wait_is_idle},
        {.name = "registered", .run = check_registered},
        {.name = "arguments", .run = check_arguments},
        {.name = "scalars", .run = check_scalars},
        {.name = "single", .run = check_single},
        {.name = "config", .run = check_config},
        {.name = "scalable", .run = check_scalable},
        {.name = "nonblocking", .run = check_nonblocking},
        {.name = "split", .run = check_split},
        {.name = "shrink", .run = check_shrink},
        {.name = "devices", .run = check_devices},
        {.name = "devices-and-processes", .run = check_devices_and_processes},
        {.name = "finalize", .run = check_finalize},
        {.name = "grouped-inits", .run = check_grouped_inits},
        {.name = "many-communicators", .run = check_many_communicators},
        {.name = "absent-at-init", .run = check_absent_at_init, .fresh = true},
        {.name = "absent", .run = check_absent, .fresh = true},
        {.name = "abort-idle", .run = check_abort_idle, .fresh = true},
        {.name = "abort-often", .run = check_abort_often, .fresh = true},
        {.name = "killed", .run = check_killed, .fresh = true},
        {.name = "killed-amid", .run = check_killed_amid, .fresh = true},
        {.name = "left", .run = check_left, .fresh = true},
        {.name = "shrink-absent", .run = check_shrink_absent, .fresh = true},
        {.name = "shrink-killed", .run = check_shrink_killed, .fresh = true},
        {.name = "endless", .run = check_endless, .named = true},
};
const int check_count = ARRAY_SIZE(checks);

static int rank_n = 2;
static double limit_s = 120;
static const char *only, *without;
static unsigned wrong_n, skipped_n, good_n;

static bool listed(const char *list, const char *name)
{
        size_t n = strlen(name);

        for (const char *p = list; p; p = strchr(p, ',')) {
                p += *p == ',';
                if (!strncmp(p, name, n) && (!p[n] || p[n] == ','))
                        return true;
        }
        return false;
}

static bool chosen(const struct check *c)
{
        if (only)
                return listed(only, c->name);
        return !c->named && !listed(without, c->name);
}

/* Prints what the ranks found. text: what is wrong beside, or "". */
static void report(const char *name, const char *text, uint64_t began_ns)
{
        const char *found = text, *noted = "";
        unsigned cases = 0;
        bool skipped = false;
        int from = -1;

        for (int i = lobby->n - 1; i >= 0; i--) {
                struct seat *s = &lobby->seat[i];

                cases += s->cases;
                if (*s->note)
                        noted = s->note;
                if (*s->failure && (from < 0 || skipped || !s->skipped)) {
                        found = s->failure;
                        skipped = s->skipped;
                        from = i;
                }
        }
        if (!*found)
                good_n++;
        else if (skipped)
                skipped_n++;
        else
                wrong_n++;
        program_say(
                "check",
                "\"name\":\"%s\",\"result\":\"%s\",\"rank\":%d,\"text\":\"%.500s\",\"note\":\"%s\","
                "\"cases\":%u,\"ms\":%.0f",
                name,
                !*found   ? "right"
                : skipped ? "skipped"
                          : "wrong",
                from, found, noted, cases, (double)(program_now_ns() - began_ns) / 1e6);
}

/* A start or an end is printed only if it went wrong. */
static bool quietly(const char *name, bool good, const char *text, uint64_t began)
{
        if (!good)
                report(name, *text ? text : "a rank ended", began);
        return good;
}

static void end_ranks(void)
{
        uint64_t began = program_now_ns();
        const char *text;
        bool good;

        if (!ranks_running())
                return;
        lobby_clear_findings();
        good = ranks_end(limit_s, &text);
        (void)quietly("end", good, text, began);
}

static bool start_ranks(void)
{
        uint64_t began = program_now_ns();
        const char *text;
        bool good;

        if (ranks_running())
                return true;
        ranks_start(rank_n);
        good = ranks_do(CHECK_START, limit_s, &text);
        return quietly("start", good, text, began);
}

/* False if the ranks cannot be started at all. */
static bool run(int check)
{
        const struct check *c = &checks[check];
        const char *text;
        uint64_t began;
        bool good;

        if (c->fresh)
                end_ranks();
        if (!start_ranks())
                return false;
        lobby_clear_findings();
        began = program_now_ns();
        good = ranks_do(check, c->named ? 1e6 : limit_s, &text);
        report(c->name, good ? "" : *text ? text : "a rank ended", began);
        if (c->fresh)
                end_ranks();
        return true;
}

static void read_counts(const char *list)
{
        settings.count_n = 0;
        for (const char *p = list; p; p = strchr(p, ',')) {
                p += *p == ',';
                if (settings.count_n < (int)ARRAY_SIZE(settings.counts))
                        settings.counts[settings.count_n++] = strtoull(p, NULL, 10);
        }
}

static void read_types(const char *list)
{
        for (int i = 0; i < ncclNumTypes; i++)
                settings.types[i] = !list || listed(list, types[i].name);
}

static void read_options(int argc, char **argv)
{
        enum { N, ONLY, WITHOUT, COUNTS, BIG, TYPES, FILL, ROUNDS, LIMIT, PATIENCE, UNTIL, LIST };
        static const struct option table[] = {
                {"ranks", required_argument, NULL, N},
                {"only", required_argument, NULL, ONLY},
                {"without", required_argument, NULL, WITHOUT},
                {"counts", required_argument, NULL, COUNTS},
                {"big", required_argument, NULL, BIG},
                {"types", required_argument, NULL, TYPES},
                {"fill", required_argument, NULL, FILL},
                {"rounds", required_argument, NULL, ROUNDS},
                {"seconds", required_argument, NULL, LIMIT},
                {"patience", required_argument, NULL, PATIENCE},
                {"until", required_argument, NULL, UNTIL},
                {"list", no_argument, NULL, LIST},
                {0},
        };
        int c;

        read_types(NULL);
        while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
                switch (c) {
                case N:
                        rank_n = atoi(optarg);
                        break;
                case ONLY:
                        only = optarg;
                        break;
                case WITHOUT:
                        without = optarg;
                        break;
                case COUNTS:
                        read_counts(optarg);
                        break;
                case BIG:
                        settings.big = strtoull(optarg, NULL, 10);
                        break;
                case TYPES:
                        read_types(optarg);
                        break;
                case FILL:
                        if (units_parse_size(optarg, &settings.fill) < 0)
                                program_fail(PROGRAM_EXIT_USAGE, "--fill %s: not a size", optarg);
                        break;
                case ROUNDS:
                        settings.rounds = atoi(optarg);
                        break;
                case LIMIT:
                        limit_s = atof(optarg);
                        break;
                case PATIENCE:
                        settings.patience = atof(optarg);
                        break;
                case UNTIL:
                        settings.until = optarg;
                        break;
                case LIST:
                        for (int i = 0; i < check_count; i++)
                                program_say("name", "\"name\":\"%s\"", checks[i].name);
                        exit(PROGRAM_EXIT_OK);
                default:
                        program_fail(PROGRAM_EXIT_USAGE, "unknown option");
                }
        }
        if (rank_n < 1 || rank_n > 8) /* more would make sums of the small types inexact */
                program_fail(PROGRAM_EXIT_USAGE, "--ranks is not in 1 to 8");
        if (!settings.count_n)
                program_fail(PROGRAM_EXIT_USAGE, "no counts");
}

int main(int argc, char **argv)
{
        read_options(argc, argv);
        lobby_create(rank_n);
        for (int i = 0; i < check_count; i++)
                if (chosen(&checks[i]) && !run(i))
                        break;
        end_ranks();
        program_say("end", "\"right\":%u,\"wrong\":%u,\"skipped\":%u", good_n, wrong_n, skipped_n);
        return wrong_n || !good_n ? PROGRAM_EXIT_WRONG : PROGRAM_EXIT_OK;
}
