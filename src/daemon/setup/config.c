/* config.c: owns the table of settings, the defaults, and how a file is read. Must never apply a
 * value that it does not fully understand: an unknown key or a malformed value is an error with
 * file and line. */
#include "daemon/setup/config.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include <ini.h>

#include "base/clock.h"
#include "base/ini_lines.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/setup/address.h"

/* ---- the kinds of values that only [daemon] has ---- */

static int parse_freeze(void *field, const char *text)
{
        return wire_parse_freeze(text, field);
}

static bool format_freeze(const void *field, char text[static VALUE_TEXT_MAX])
{
        (void)snprintf(text, VALUE_TEXT_MAX, "%s",
                       wire_freeze_name(*(const enum wire_freeze *)field));
        return true;
}

static const struct value_kind freeze = {parse_freeze, format_freeze, "mode", "off, park or move",
                                         NULL};

static int parse_mode(void *field, const char *text)
{
        return sched_mode_parse(text, field);
}

static bool format_mode(const void *field, char text[static VALUE_TEXT_MAX])
{
        (void)snprintf(text, VALUE_TEXT_MAX, "%s",
                       sched_mode_name(*(const enum sched_mode *)field));
        return true;
}

static int parse_names(void *field, const char *text)
{
        const bool all = strcmp(text, "all") == 0;

        if (!all && strcmp(text, "own") != 0)
                return -EINVAL;
        *(bool *)field = all;
        return 0;
}

static bool format_names(const void *field, char text[static VALUE_TEXT_MAX])
{
        (void)snprintf(text, VALUE_TEXT_MAX, "%s", *(const bool *)field ? "all" : "own");
        return true;
}

static const struct value_kind names = {parse_names, format_names, "choice", "all or own", NULL};

static const struct value_kind mode = {parse_mode, format_mode, "mode", "auto, exclusive or off",
                                       NULL};

/* Parses SIZE or GPU=SIZE; the setting may be given several times. */
static int parse_capacity(void *field, const char *text)
{
        struct config *c = (void *)((char *)field - offsetof(struct config, capacities));
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

/* Writes all capacities in one line, with commas. This is only for people: parse_capacity() takes
 * one capacity. */
static bool format_capacity(const void *field, char text[static VALUE_TEXT_MAX])
{
        const struct config *c =
                (const void *)((const char *)field - offsetof(struct config, capacities));
        size_t used = 0;

        for (unsigned i = 0; i < c->n_capacities && used < VALUE_TEXT_MAX; i++) {
                const struct config_capacity *e = &c->capacities[i];
                char size[VALUE_TEXT_MAX];

                (void)value_size.format(&e->bytes, size);
                used += (size_t)snprintf(text + used, VALUE_TEXT_MAX - used, "%s%s%s%s",
                                         i ? ", " : "", e->gpu, e->gpu[0] ? "=" : "", size);
        }
        return c->n_capacities > 0;
}

static const struct value_kind capacity = {parse_capacity, format_capacity, "size",
                                           VALUE_SIZES ", or GPU=SIZE with an index or a UUID",
                                           NULL};

/* Takes only an absolute path, because a private daemon changes its folder. */
static int parse_path(void *field, const char *text)
{
        if (text[0] != '/' || strlen(text) >= CONFIG_PATH_MAX)
                return -EINVAL;
        (void)snprintf(field, CONFIG_PATH_MAX, "%s", text);
        return 0;
}

static bool format_path(const void *field, char text[static VALUE_TEXT_MAX])
{
        (void)snprintf(text, VALUE_TEXT_MAX, "%s", (const char *)field);
        return true;
}

static const struct value_kind path = {parse_path, format_path, "path", "an absolute path", NULL};

static int parse_address(void *field, const char *text)
{
        struct sockaddr_storage address;
        socklen_t size;
        int r = strlen(text) < ADDRESS_TEXT_MAX ? address_parse(text, &address, &size) : -EINVAL;

        if (r < 0)
                return r;
        memset(field, 0, ADDRESS_TEXT_MAX); /* values are compared as a whole */
        memcpy(field, text, strlen(text));
        return 0;
}

static const struct value_kind address = {parse_address, format_path, "address", ADDRESS_FORMS,
                                          NULL};

#define AT(member) offsetof(struct config, member), sizeof(((struct config *)0)->member)
#define CAPACITIES                                                                   \
        offsetof(struct config, capacities), offsetof(struct config, n_capacities) + \
                                                     sizeof(unsigned) -              \
                                                     offsetof(struct config, capacities)

static const struct value_key keys[] = {
        {"mode", &mode, AT(sched.mode), "auto", "how the GPU is shared", VALUE_AT_ONCE},
        {"quantum", &value_quantum_or_auto, AT(sched.quantum_ns), "auto",
         "the longest turn while others wait", VALUE_AT_ONCE},
        {"quantum_min", &value_quantum, AT(sched.quantum_min_ns), "200ms",
         "the shortest quantum that auto chooses", VALUE_AT_ONCE},
        {"quantum_max", &value_quantum, AT(sched.quantum_max_ns), "60s",
         "the longest quantum that auto chooses", VALUE_AT_ONCE},
        {"handoff_share", &value_percent_90, AT(sched.handoff_permille), "5%",
         "auto: the share of the time that hand-offs may cost", VALUE_AT_ONCE},
        {"priority_floor", &value_percent_50, AT(sched.floor_permille), "5%",
         "the share of the time for clients of lower priorities", VALUE_AT_ONCE},
        {"share_window", &value_quantum, AT(sched.window_ns), "100ms",
         "in each such time a program has its share of the GPU", VALUE_AT_ONCE},
        {"grace", &value_duration, AT(sched.grace_ns), "5s",
         "how long a client may take to give way before it is overdue", VALUE_AT_ONCE},
        {"patience", &value_duration, AT(sched.patience_ns), "2s",
         "how long a drain may go without progress, the first time", VALUE_AT_ONCE},
        {"idle_release", &value_duration_or_auto, AT(sched.idle_release_ns), "auto",
         "how long a client is idle before it gives way", VALUE_AT_ONCE},
        {"unevictable_share", &value_percent_90, AT(sched.unevictable_permille), "5%",
         "the share of the card kept for contexts and the like", VALUE_AT_START},
        {"capacity", &capacity, CAPACITIES, "what the driver says", "bytes of the card to use",
         VALUE_AT_START},
        {"host_memory", &value_size, AT(host_memory_bytes), "half of the machine's memory",
         "host memory that may be promised to clients", VALUE_AT_START},
        {"host_pool", &value_size, AT(host_pool_bytes), "none",
         "memory of the daemon that one container or user may be evicted to", VALUE_AT_ONCE},
        {"clients_max", &value_number, AT(sched.clients_max), "1024",
         "processes served at the same time", VALUE_AT_START},
        {"connections_per_user", &value_number, AT(connections_per_user), "256",
         "connections of one user", VALUE_AT_START},
        {"unevictable_per_user", &value_percent_100, AT(unevictable_per_user_permille), "25%",
         "the share of a card that one user may hold in contexts and the like", VALUE_AT_ONCE},
        {"host_memory_per_user", &value_percent_100, AT(host_per_user_permille), "50%",
         "the share of the host memory that one user may be promised", VALUE_AT_ONCE},
        {"linger", &value_duration, AT(linger_ns), "30s",
         "a private daemon, and an MPS server, end this long after their last client",
         VALUE_AT_ONCE},
        {"freeze", &freeze, AT(freeze), "move",
         "the most that programs may be frozen for: park to be paused, move to give way, too",
         VALUE_AT_ONCE},
        {"kill_overdue", &value_bool, AT(kill_overdue), "no",
         "kill a client that does not give way within its grace", VALUE_AT_ONCE},
        {"names", &names, AT(names), "all",
         "who is told users and names of programs: all on the machine, or each user his own",
         VALUE_AT_ONCE},
        {"mps", &value_bool, AT(mps), "no",
         "start MPS servers for programs that ask for one (sublet run --way shared)",
         VALUE_AT_ONCE},
        {"require", &value_bool, AT(require), "no",
         "programs wait for the daemon and never run unshared; only in " CONFIG_SYSTEM_FILE,
         VALUE_AT_RELOAD},
        {"resource_config", &path, AT(resource_config), "none",
         "a file with one line \"ID REQUEST LIMIT GPU_MEM\" a class", VALUE_AT_RELOAD},
        {"metrics", &address, AT(metrics), "none",
         "where metrics are served: ADDRESS:PORT of this machine, or the path of a socket",
         VALUE_AT_ONCE},
        {"metrics_names", &value_bool, AT(metrics_names), "no",
         "tell every reader of metrics over TCP users and names of programs", VALUE_AT_ONCE},
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
        c->names = true;
        classes_init(&c->classes);
}

void config_free(struct config *c)
{
        classes_free(&c->classes);
}

int config_set(struct config *c, const char *key, const char *value,
               char error[static CONFIG_ERROR_MAX])
{
        return values_set(keys, ARRAY_SIZE(keys), c, key, value, false, error);
}

void config_keep_at_start(struct config *to, const struct config *from,
                          void (*differs)(const char *key, void *user), void *user)
{
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
                char *mine = (char *)to + keys[i].offset;
                const char *theirs = (const char *)from + keys[i].offset;

                if (keys[i].when != VALUE_AT_START || memcmp(mine, theirs, keys[i].size) == 0)
                        continue;
                differs(keys[i].name, user);
                memcpy(mine, theirs, keys[i].size);
        }
}

static bool is_ordered(const struct value_key *k, const struct config *now,
                       const struct config *files)
{
        return k->when == VALUE_AT_ONCE &&
               memcmp((const char *)now + k->offset, (const char *)files + k->offset, k->size) != 0;
}

void config_keep_orders(struct config *next, const struct config *now, const struct config *files)
{
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                if (is_ordered(&keys[i], now, files) && !is_ordered(&keys[i], next, files))
                        memcpy((char *)next + keys[i].offset, (const char *)now + keys[i].offset,
                               keys[i].size);
}

void config_orders(const struct config *now, const struct config *files,
                   void (*ordered)(const char *key, const char *value, void *user), void *user)
{
        char text[VALUE_TEXT_MAX];

        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                if (is_ordered(&keys[i], now, files))
                        ordered(keys[i].name, values_text(&keys[i], now, text), user);
}

const struct value_key *config_keys(size_t *ret_n)
{
        *ret_n = ARRAY_SIZE(keys);
        return keys;
}

/* ---- the files ---- */

#define CLASS_SECTION "class "
#define POD_SECTION   "pod "

struct reading {
        struct config *config;
        struct ini_lines lines;
        const char *name;      /* name of the file, as classes keep it */
        struct class *class;   /* the class whose section is being read, if `section` names it */
        struct class_pod *pod; /* or the pod; one of the two is NULL */
        char section[64];
        int error_line; /* line of the first error; 0: there is none */
        char error[CONFIG_ERROR_MAX];
};

static int fail(struct reading *r)
{
        if (!r->error_line)
                r->error_line = r->lines.number;
        return 0;
}

#define SECTIONS "settings belong under [daemon], [default], [class NAME] or [pod UID]"

static int enter_section(struct reading *r, const char *section)
{
        const char *name = section + strlen(CLASS_SECTION);

        r->class = NULL;
        r->pod = NULL;
        (void)snprintf(r->section, sizeof(r->section), "%s", section);
        if (strncmp(section, POD_SECTION, strlen(POD_SECTION)) == 0)
                return classes_begin_pod(&r->config->classes, section + strlen(POD_SECTION),
                                         &r->pod, r->error);
        if (strncmp(section, CLASS_SECTION, strlen(CLASS_SECTION)) != 0) {
                if (*section)
                        (void)snprintf(r->error, sizeof(r->error),
                                       "unknown section \"%.100s\": " SECTIONS, section);
                else
                        (void)snprintf(r->error, sizeof(r->error),
                                       "the line stands before the first section: " SECTIONS);
                return -EINVAL;
        }
        if (!classes_is_name(name)) {
                (void)snprintf(r->error, sizeof(r->error),
                               "malformed class \"%.100s\": its name is 1 to 31 letters, digits, "
                               "'-', '_' or '.'",
                               name);
                return -EINVAL;
        }
        return classes_begin(&r->config->classes, name, &r->class, r->error);
}

static int on_class_pair(struct reading *r, const char *section, const char *key, const char *value)
{
        if (((!r->class && !r->pod) || strcmp(section, r->section) != 0) &&
            enter_section(r, section) < 0)
                return fail(r);
        if (r->pod)
                return class_set_pod(r->pod, key, value, r->error) == 0 ? 1 : fail(r);
        r->class->file = r->name;
        r->class->line = (unsigned)r->lines.number;
        return class_set(r->class, key, value, r->lines.continued, r->error) == 0 ? 1 : fail(r);
}

static int on_pair(void *user, const char *section, const char *key, const char *value)
{
        struct reading *r = user;
        const char *problem = ini_lines_problem(
                &r->lines, value,
                strncmp(section, CLASS_SECTION, strlen(CLASS_SECTION)) == 0 && class_has_list(key));

        if (r->error_line)
                return 0;
        if (problem) {
                (void)snprintf(r->error, sizeof(r->error), "%s", problem);
                return fail(r);
        }
        if (strcmp(section, "daemon") == 0)
                return config_set(r->config, key, value, r->error) == 0 ? 1 : fail(r);
        if (strcmp(section, "default") == 0)
                return class_set_unmatched(&r->config->classes.unmatched, key, value, r->error) == 0
                               ? 1
                               : fail(r);
        return on_class_pair(r, section, key, value);
}

int config_read(struct config *c, FILE *file, const char *name, char error[static CONFIG_ERROR_MAX])
{
        struct reading r = {.config = c, .lines.file = file};
        int bad;

        r.name = classes_keep_file(&c->classes, name);
        if (!r.name) {
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.300s: no memory for it", name);
                return -ENOMEM;
        }
        bad = ini_parse_stream(ini_lines_read, &r.lines, on_pair, &r);
        if (r.lines.too_long && !r.error_line) {
                (void)snprintf(r.error, sizeof(r.error), INI_LINES_TOO_LONG);
                (void)fail(&r);
        }
        /* A directory can be opened like a file; only reading from it fails. */
        if (ferror(file)) {
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.300s: cannot be read", name);
                return -EIO;
        }
        if (bad == 0 && !r.error_line)
                return 0;
        if (r.error_line && (bad <= 0 || r.error_line <= bad))
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.200s:%d: %.280s", name, r.error_line,
                               r.error);
        else
                (void)snprintf(error, CONFIG_ERROR_MAX,
                               "%.200s:%d: neither a line \"key = value\" nor \"[section]\"", name,
                               MAX(bad, 1));
        return -EINVAL;
}

int config_check(struct config *c, bool shared, const char *name,
                 char error[static CONFIG_ERROR_MAX])
{
        if (c->sched.quantum_min_ns > c->sched.quantum_max_ns) {
                (void)snprintf(error, CONFIG_ERROR_MAX, "%.200s: quantum_min is above quantum_max",
                               name);
                return -EINVAL;
        }
        return classes_check(&c->classes, 1000 - c->sched.handoff_permille, shared, error);
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
        values_print_help(keys, ARRAY_SIZE(keys), out);
}
