/* config.c: owns the table of settings, how each is read, and the defaults. Must never apply a
 * value that it does not fully understand: an unknown key or a malformed value is an error with
 * file and line. */
#include "daemon/setup/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ini.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"

#define QUANTUM_LEAST NSEC_PER_MSEC /* shorter than any drain */
#define QUANTUM_MOST  (3600 * NSEC_PER_SEC)

struct key {
        const char *name;
        int (*parse)(struct config *c, size_t offset, const char *text);
        size_t offset;
        const char *kind;     /* the KIND in the message 'malformed KIND "text"' */
        const char *example;  /* an example of a good value */
        const char *fallback; /* the default, as text for people */
        const char *help;
};

static void *field(struct config *c, size_t offset)
{
        return (char *)c + offset;
}

/* ---- the kinds of values ---- */

static int parse_size(struct config *c, size_t offset, const char *text)
{
        return units_parse_size(text, field(c, offset));
}

static int parse_duration(struct config *c, size_t offset, const char *text)
{
        return units_parse_duration(text, field(c, offset));
}

static int parse_quantum(struct config *c, size_t offset, const char *text)
{
        uint64_t ns;
        int r = units_parse_duration(text, &ns);

        if (r < 0 || ns < QUANTUM_LEAST || ns > QUANTUM_MOST)
                return -EINVAL;
        *(uint64_t *)field(c, offset) = ns;
        return 0;
}

/* "auto" is 0 in sched_config. */
static bool take_auto(struct config *c, size_t offset, const char *text)
{
        if (strcmp(text, "auto") != 0)
                return false;
        *(uint64_t *)field(c, offset) = 0;
        return true;
}

static int parse_quantum_or_auto(struct config *c, size_t offset, const char *text)
{
        return take_auto(c, offset, text) ? 0 : parse_quantum(c, offset, text);
}

/* A duration of zero is an error: it would mean "auto". */
static int parse_duration_or_auto(struct config *c, size_t offset, const char *text)
{
        uint64_t ns;
        int r;

        if (take_auto(c, offset, text))
                return 0;
        r = units_parse_duration(text, &ns);
        if (r == 0 && ns == 0)
                r = -EINVAL;
        if (r == 0)
                *(uint64_t *)field(c, offset) = ns;
        return r;
}

static int parse_number(struct config *c, size_t offset, const char *text)
{
        char *end;
        unsigned long v;

        if (!isdigit((unsigned char)text[0]))
                return -EINVAL;
        errno = 0;
        v = strtoul(text, &end, 10);
        if (errno || *end || v == 0 || v > 1000000)
                return -EINVAL;
        *(unsigned *)field(c, offset) = (unsigned)v;
        return 0;
}

/* Parses "5%" or "2.5%" into thousandths. */
static int parse_percent_up_to(double most, struct config *c, size_t offset, const char *text)
{
        char *end;
        double v;

        if (!isdigit((unsigned char)text[0]))
                return -EINVAL;
        v = strtod(text, &end);
        if (strcmp(end, "%") != 0 || !(v >= 0.1 && v <= most))
                return -EINVAL;
        *(unsigned *)field(c, offset) = (unsigned)(v * 10 + 0.5);
        return 0;
}

/* Parses a share of at most 90 %: 100 % would leave nothing. */
static int parse_percent(struct config *c, size_t offset, const char *text)
{
        return parse_percent_up_to(90, c, offset, text);
}

static int parse_half(struct config *c, size_t offset, const char *text)
{
        return parse_percent_up_to(50, c, offset, text);
}

static int parse_part(struct config *c, size_t offset, const char *text)
{
        return parse_percent_up_to(100, c, offset, text);
}

static int parse_bool(struct config *c, size_t offset, const char *text)
{
        bool yes = strcmp(text, "yes") == 0;

        if (!yes && strcmp(text, "no") != 0)
                return -EINVAL;
        *(bool *)field(c, offset) = yes;
        return 0;
}

static int parse_freeze(struct config *c, size_t offset, const char *text)
{
        return wire_parse_freeze(text, field(c, offset));
}

static int parse_mode(struct config *c, size_t offset, const char *text)
{
        return sched_mode_parse(text, field(c, offset));
}

/* Parses SIZE or GPU=SIZE; the setting may be given several times. */
static int parse_capacity(struct config *c, size_t offset, const char *text)
{
        struct config_capacity *entry;
        const char *size = strchr(text, '=');
        uint64_t bytes;
        int r;

        if (c->n_capacities == CONFIG_CAPACITIES)
                return -E2BIG;
        entry = &c->capacities[c->n_capacities];
        r = units_parse_size(size ? size + 1 : text, &bytes);
        if (r < 0 || bytes == 0)
                return -EINVAL;
        if (size && (size == text || (size_t)(size - text) >= sizeof(entry->gpu)))
                return -EINVAL;
        memset(entry->gpu, 0, sizeof(entry->gpu));
        if (size)
                memcpy(entry->gpu, text, (size_t)(size - text));
        entry->bytes = bytes;
        c->n_capacities++;
        return 0;
}

#define AT(member) offsetof(struct config, member)
#define SIZES      "such as 512MiB or 1.5GiB"
#define DURATIONS  "such as 250ms, 5s or 2min"
#define QUANTA     DURATIONS ", from 1ms to 1h"
#define MOST       "from 0.1% to 90%"
#define HALF       "from 0.1% to 50%"
#define ALL        "from 0.1% to 100%"

static const struct key keys[] = {
        {"mode", parse_mode, AT(sched.mode), "mode", "auto, exclusive or off", "auto",
         "how the GPU is shared"},
        {"quantum", parse_quantum_or_auto, AT(sched.quantum_ns), "quantum", "auto, or " QUANTA,
         "auto", "how long a lease is safe from equals"},
        {"quantum_min", parse_quantum, AT(sched.quantum_min_ns), "duration", QUANTA, "200ms",
         "the shortest quantum that auto chooses"},
        {"quantum_max", parse_quantum, AT(sched.quantum_max_ns), "duration", QUANTA, "60s",
         "the longest quantum that auto chooses"},
        {"handoff_share", parse_percent, AT(sched.handoff_permille), "share", MOST, "5%",
         "auto: the share of the time that hand-offs may cost"},
        {"priority_floor", parse_half, AT(sched.floor_permille), "share", HALF, "5%",
         "the share of the time for clients of lower priorities"},
        {"grace", parse_duration, AT(sched.grace_ns), "duration", DURATIONS, "5s",
         "how long a client may take to give way before it is overdue"},
        {"patience", parse_duration, AT(sched.patience_ns), "duration", DURATIONS, "2s",
         "how long a drain may go without progress, the first time"},
        {"idle_release", parse_duration_or_auto, AT(sched.idle_release_ns), "duration",
         "auto, or " DURATIONS, "auto", "how long a client is idle before it gives way"},
        {"unevictable_share", parse_percent, AT(sched.unevictable_permille), "share", MOST, "5%",
         "the share of the card kept for contexts and the like"},
        {"capacity", parse_capacity, 0, "size", SIZES ", or GPU=SIZE with an index or a UUID",
         "what the driver says", "bytes of the card to use"},
        {"host_memory", parse_size, AT(host_memory_bytes), "size", SIZES,
         "half of the machine's memory", "host memory that may be promised to clients"},
        {"clients_max", parse_number, AT(sched.clients_max), "number", "from 1 to 1000000", "1024",
         "processes served at the same time"},
        {"connections_per_user", parse_number, AT(connections_per_user), "number",
         "from 1 to 1000000", "256", "connections of one user"},
        {"unevictable_per_user", parse_part, AT(unevictable_per_user_permille), "share", ALL, "25%",
         "the share of a card that one user may hold in contexts and the like"},
        {"host_memory_per_user", parse_part, AT(host_per_user_permille), "share", ALL, "50%",
         "the share of the host memory that one user may be promised"},
        {"linger", parse_duration, AT(linger_ns), "duration", DURATIONS, "30s",
         "a private daemon leaves this long after its last client"},
        {"freeze", parse_freeze, AT(freeze), "mode", "off, park or move", "move",
         "the most that programs may be frozen for: park to be paused, move to give way, too"},
        {"kill_overdue", parse_bool, AT(kill_overdue), "answer", "yes or no", "no",
         "kill a client that does not give way within its grace"},
};

void config_default(struct config *c)
{
        memset(c, 0, sizeof(*c));
        sched_config_default(&c->sched);
        c->host_memory_bytes = UINT64_MAX;
        c->connections_per_user = 256;
        c->unevictable_per_user_permille = 250;
        c->host_per_user_permille = 500;
        c->linger_ns = 30 * NSEC_PER_SEC;
        c->freeze = WIRE_FREEZE_MOVE;
}

int config_set(struct config *c, const char *key, const char *value,
               char error[static CONFIG_ERROR_MAX])
{
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
                const struct key *k = &keys[i];
                int r;

                if (strcmp(k->name, key) != 0)
                        continue;
                r = k->parse(c, k->offset, value);
                if (r == -ERANGE)
                        (void)snprintf(error, CONFIG_ERROR_MAX, "%s \"%.200s\" is too large",
                                       k->kind, value);
                else if (r == -E2BIG)
                        (void)snprintf(error, CONFIG_ERROR_MAX, "%s is set more than %d times", key,
                                       CONFIG_CAPACITIES);
                else if (r < 0)
                        (void)snprintf(error, CONFIG_ERROR_MAX, "malformed %s \"%.200s\": write %s",
                                       k->kind, value, k->example);
                return r < 0 ? -EINVAL : 0;
        }
        (void)snprintf(error, CONFIG_ERROR_MAX, "unknown key \"%.200s\"", key);
        return -ENOENT;
}

/* ---- the file ---- */

struct reading {
        struct config *config;
        FILE *file;
        int line;       /* the line that is being read */
        int error_line; /* line of the first error; 0: there is none */
        char error[CONFIG_ERROR_MAX];
};

/* Counts the lines, because libinih as packaged does not tell its handler the line. */
static char *read_line(char *buf, int size, void *stream)
{
        struct reading *r = stream;

        r->line++;
        return fgets(buf, size, r->file);
}

static int on_pair(void *user, const char *section, const char *name, const char *value)
{
        struct reading *r = user;

        if (r->error_line)
                return 0;
        if (strcmp(section, "daemon") != 0)
                (void)snprintf(r->error, sizeof(r->error),
                               "unknown section \"%.100s\": settings belong under [daemon]",
                               section);
        else if (config_set(r->config, name, value, r->error) == 0)
                return 1;
        r->error_line = r->line;
        return 0;
}

int config_read(struct config *c, FILE *file, const char *name, char error[static CONFIG_ERROR_MAX])
{
        struct config copy = *c;
        struct reading r = {.config = &copy, .file = file};
        /* &r is both the stream and the handler's data; ini_parse_stream passes it to each. */
        int bad = ini_parse_stream(read_line, &r, on_pair, &r);

        /* A directory can be opened like a file; only reading from it fails. */
        if (bad == 0 && ferror(file)) {
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.300s: cannot be read", name);
                return -EIO;
        }
        if (bad == 0 && copy.sched.quantum_min_ns <= copy.sched.quantum_max_ns) {
                *c = copy;
                return 0;
        }
        if (bad == 0) {
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.200s: quantum_min is above quantum_max",
                               name);
                return -EINVAL;
        }
        if (r.error_line && (bad < 0 || r.error_line <= bad))
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.200s:%d: %.280s", name, r.error_line,
                               r.error);
        else
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.200s:%d: not a line \"key = value\"",
                               name, MAX(bad, 1));
        return -EINVAL;
}

int config_load(struct config *c, const char *path, char error[static CONFIG_ERROR_MAX])
{
        _cleanup_fclose_ FILE *file = fopen(path, "re");
        int r;

        if (file)
                return config_read(c, file, path, error);
        r = -errno;
        (void)snprintf(error, CONFIG_ERROR_MAX, "%.300s: %s", *path ? path : "''", strerror(-r));
        return r;
}

bool config_is_for(const struct config_capacity *e, unsigned index, const char *uuid_text)
{
        char number[16];

        (void)snprintf(number, sizeof(number), "%u", index);
        return !e->gpu[0] || strcmp(e->gpu, number) == 0 || strcmp(e->gpu, uuid_text) == 0;
}

uint64_t config_capacity(const struct config *c, unsigned index, const char *uuid_text)
{
        uint64_t bytes = 0;

        for (unsigned i = 0; i < c->n_capacities; i++)
                if (config_is_for(&c->capacities[i], index, uuid_text))
                        bytes = c->capacities[i].bytes;
        return bytes;
}

void config_print_help(FILE *out)
{
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                (void)fprintf(out, "  %-21s %s (%s)\n", keys[i].name, keys[i].help,
                              keys[i].fallback);
}
