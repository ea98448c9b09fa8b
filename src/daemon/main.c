/* main.c: owns the command line of subletd: one table drives parsing and help.
 * Must never start anything before the whole command line and the configuration are understood. */
#include <errno.h>
#include <grp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"
#include "base/options.h"
#include "base/daemon_paths.h"
#include "base/settings.h"
#include "base/standard.h"
#include "base/units.h"
#include "daemon/history/record_ring.h"
#include "daemon/setup/config.h"
#include "daemon/setup/log_form.h"
#include "daemon/setup/daemon_folder.h"
#include "daemon/setup/sources.h"
#include "daemon/private.h"
#include "daemon/state/server.h"
#include "daemon/loop.h"

#define AT(field) offsetof(struct options, field)

struct options {
        struct config config;
        struct sources sources;
        const char *config_path, *dir, *group, *linger;
        char resource_config[CONFIG_PATH_MAX];
        bool private, shared, check;
        char error[CONFIG_ERROR_MAX];
};

static int set_dir(const struct option_row *row, void *field, const char *value)
{
        *(const char **)field = value;
        return value[0] ? 0 : -EINVAL;
}

static int set_any_text(const struct option_row *row, void *field, const char *value)
{
        *(const char **)field = value;
        return 0;
}

static int set_capacity(const struct option_row *row, void *options, const char *value)
{
        struct options *o = options;

        return sources_override(&o->sources, "capacity", value, o->error);
}

static int set_host_memory(const struct option_row *row, void *options, const char *value)
{
        struct options *o = options;

        return sources_override(&o->sources, "host_memory", value, o->error);
}

static int set_resource_config(const struct option_row *row, void *options, const char *value)
{
        struct options *o = options;

        if (!value[0] || sources_absolute(value, o->resource_config) < 0)
                return -EINVAL;
        return sources_override(&o->sources, "resource_config", o->resource_config, o->error);
}

static int set_linger(const struct option_row *row, void *options, const char *value)
{
        struct options *o = options;

        o->linger = value;
        return sources_override(&o->sources, "linger", value, o->error);
}

static const struct option_row rows[] = {
        {"dir", "DIR",
         "the directory of the sockets (" PATHS_SYSTEM_DIR " for root,\n"
         "else $XDG_RUNTIME_DIR/sublet, /run/user/UID/sublet\n"
         "or /tmp/sublet-UID)",
         set_dir, AT(dir), NULL},
        {"config", "FILE",
         "settings, with those in FILE.d/*.conf over them (else\n" SOURCES_SYSTEM_FILE
         " for the daemon in " PATHS_SYSTEM_DIR ";\n"
         "$XDG_CONFIG_HOME/sublet/subletd.conf for a private one\n"
         "and for one that is not root's)",
         set_any_text, AT(config_path), NULL},
        {"resource-config", "FILE",
         "classes: a line with their number, then as many lines\n"
         "\"ID REQUEST LIMIT GPU_MEM\"",
         set_resource_config, 0, NULL},
        {"capacity", "[GPU=]SIZE",
         "use this much of the card, such as 8GiB or 1=8GiB;\n"
         "GPU is an index or a UUID; may be repeated",
         set_capacity, 0, NULL},
        {"host-memory", "SIZE", "host memory that may be promised to clients", set_host_memory, 0,
         NULL},
        {"private", NULL,
         "serve one user from the background; leave when the\n"
         "last client has",
         options_set_true, AT(private), NULL},
        {"linger", "DURATION", "with --private: how long to stay without clients (30s)", set_linger,
         0, NULL},
        {"shared", NULL, "let other users connect (in " PATHS_SYSTEM_DIR ": always)",
         options_set_true, AT(shared), NULL},
        {"group", "GROUP", "with --shared: only the members of this group (name or number)",
         set_any_text, AT(group), NULL},
        {"check", NULL,
         "read the configuration that the other options name, say\n"
         "what is wrong with it, and start nothing",
         options_set_true, AT(check), NULL},
        {0},
};

static void print_variables(void)
{
        (void)printf("\nVariables of the environment (and what they are unless set):\n");
        for (unsigned s = 0; s < SETTING_COUNT; s++) {
                const struct setting_row *row = &settings[s];
                char form[SETTING_FORM_MAX];

                if (strcmp(row->readers, "all") != 0)
                        continue;
                (void)printf("  %-21s %s: %s", row->name, row->help,
                             setting_form((enum setting)s, form));
                (void)printf(*row->initial ? " (%s)\n" : "\n", row->initial);
        }
}

static void print_help(const struct options_table *t)
{
        (void)printf("usage: subletd [OPTION]...\n\n"
                     "Shares GPUs among the processes that run under sublet: keeps the ledger of\n"
                     "their memory and decides who may run.\n\n");
        options_print(t);
        (void)printf("\nSettings, one \"key = value\" a line under [daemon] (and what they are "
                     "unless set):\n");
        config_print_help(stdout);
        (void)printf(
                "\nClasses, under [class NAME]; those from maximum on also under [default], for "
                "programs in\nno class:\n");
        classes_print_help(stdout);
        (void)printf("\nWhat people call a Kubernetes pod, under [pod UID]:\n");
        classes_print_pod_help(stdout);
        print_variables();
        (void)printf("\nExit status: 0 stopped, 1 failed or already served, 2 bad usage;\n"
                     "with --check: 0 good, 1 a file cannot be read, 2 a mistake.\n");
}

static const struct options_table table = {"subletd", rows, 23, print_help};

/* Finds the configuration files. Options of the command line win over them. dir: the daemon's own
 * directory. */
static int find_files(struct options *o, const char *dir, bool system)
{
        enum sources_of whose = o->private || geteuid() != 0 ? SOURCES_USER : SOURCES_NONE;
        int r;

        o->sources.shared = o->shared;
        r = sources_choose(&o->sources, o->config_path, system ? SOURCES_SYSTEM : whose, o->error);
        if (r == 0)
                r = sources_in(&o->sources, dir, system);
        return r < 0 ? options_fail(&table, "%s", o->error) : 0;
}

/* Carries out --check. A user who may not look into conf.d checks only the other files; the daemon
 * itself tells what is wrong in conf.d. */
static int check(struct options *o)
{
        char folder[PATHS_DIR_MAX + sizeof("/" PATHS_CONFIG)];
        int r;

        (void)snprintf(folder, sizeof(folder), "%.*s/" PATHS_CONFIG, PATHS_DIR_MAX, o->sources.dir);
        if (access(folder, R_OK | X_OK) < 0 && errno == EACCES)
                o->sources.dir[0] = '\0';
        o->sources.kept.folder[0] = '\0'; /* check the files, not the last good configuration */
        r = sources_read(&o->sources, &o->config);
        if (r >= 0)
                config_free(&o->config);
        if (!o->sources.error[0])
                return EXIT_SUCCESS;
        (void)options_fail(&table, "%s", o->sources.error);
        return r == -EACCES ? EXIT_FAILURE : OPTIONS_EXIT_USAGE;
}

/* Parses a group's number, for groups that have no name on this machine. */
static int parse_id(const char *text, gid_t *ret)
{
        uint64_t v;

        if (units_parse_count(text, &v) < 0 || v >= UINT32_MAX)
                return -EINVAL;
        *ret = (gid_t)v;
        return 0;
}

static int find_group(struct options *o, gid_t *ret)
{
        const struct group *g;

        *ret = (gid_t)-1;
        if (!o->group)
                return 0;
        if (!o->shared)
                return options_fail(&table, "--group goes with --shared");
        g = getgrnam(o->group);
        if (!g && parse_id(o->group, ret) == 0)
                return 0;
        if (!g)
                return options_fail(&table, "unknown group \"%.100s\"", o->group);
        *ret = g->gr_gid;
        return 0;
}

static int choose_dir(const struct options *o, char dir[static PATHS_DIR_MAX])
{
        const char *named = o->dir ? o->dir : setting_text(SETTING_DIR);
        struct paths_input in = {
                .named = named                           ? named
                         : geteuid() == 0 && !o->private ? PATHS_SYSTEM_DIR
                                                         : NULL,
                .runtime = getenv("XDG_RUNTIME_DIR"),
                .logins = PATHS_LOGINS_DIR,
                .uid = geteuid(),
        };

        if (paths_choose(&in, dir, PATHS_DIR_MAX, NULL) == 0)
                return 0;
        return options_fail(&table,
                            "socket path too long: %.300s/%s does not fit a socket address (the "
                            "directory may have %d characters)",
                            in.named ? in.named : in.runtime, PATHS_CONTROL_SOCKET,
                            PATHS_DIR_MAX - 1);
}

static int serve(struct options *o, const struct place_options *where)
{
        struct place place = PLACE_INIT;
        char error[PLACE_ERROR_MAX];
        struct ring *history;
        int r;

        loop_block_signals();
        r = place_open(where, &place, error);

        if (r < 0) {
                (void)fprintf(stderr, "subletd: %s\n", error);
                return r == -EALREADY ? EXIT_FAILURE : OPTIONS_EXIT_USAGE;
        }
        log_form_open();
        history = ring_new();
        do {
                sources_read_first(&o->sources, &o->config);
                r = loop_run(&o->config, &o->sources, &place, history, false);
        } while (r == SERVER_AFRESH);
        ring_free(history);
        if (r >= 0)
                place_keep(&place, "");
        place_close(&place, true);
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int serve_private(struct options *o, const struct place_options *where)
{
        char error[PLACE_ERROR_MAX];
        int r;

        sources_read_first(&o->sources, &o->config);
        if (o->sources.error[0]) /* the program that starts the daemon has no other log */
                (void)fprintf(stderr, "subletd: %s\n", o->sources.error);
        r = private_start(&o->config, &o->sources, where, error);
        if (r == 0)
                return EXIT_SUCCESS;
        (void)fprintf(stderr, "subletd: %s\n", error);
        return r == -EALREADY ? EXIT_FAILURE : OPTIONS_EXIT_USAGE;
}

int main(int argc, char *argv[])
{
        static struct options o;
        struct place_options where = {0};
        char dir[PATHS_DIR_MAX];
        bool system;
        int r;

        standard_open();
        log_open("subletd", LOG_LEVEL_WARNING);
        r = options_parse(&table, &o, argc, argv, o.error, sizeof(o.error));
        if (r)
                return r == OPTIONS_HELPED ? EXIT_SUCCESS : r;
        if (o.private && o.shared)
                return options_fail(&table, "--private and --shared exclude each other");
        if (o.linger && !o.private)
                return options_fail(&table, "--linger goes with --private");
        r = choose_dir(&o, dir);
        system = strcmp(dir, PATHS_SYSTEM_DIR) == 0 && !o.private;
        if (system)
                o.shared = true;
        if (!r)
                r = find_group(&o, &where.group);
        if (!r)
                r = find_files(&o, dir, system);
        if (r || o.check)
                return r ? r : check(&o);
        where.dir = dir;
        where.shared = o.shared;
        return o.private ? serve_private(&o, &where) : serve(&o, &where);
}
