/* command_logs.c: sublet logs. Must never read a log itself: tail(1) and journalctl(1) do. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "client/common/cli.h"
#include "client/talk/control_order.h"

#define LINES_UNLESS_SAID "50"

struct request {
        struct target target;
        bool follow;
        const char *lines;
};

static int set_lines(const struct option_row *row, void *lines, const char *value)
{
        uint64_t n;

        *(const char **)lines = value;
        return units_parse_count(value, &n);
}

const struct option_row logs_options[] = {
        TARGET_OPTION_ROWS(offsetof(struct request, target)),
        {"follow", NULL, "print new lines as they come, until Ctrl-C", options_set_true,
         offsetof(struct request, follow), .letter = 'f'},
        {"lines", "N", "the last N lines (" LINES_UNLESS_SAID ")", set_lines,
         offsetof(struct request, lines), .form = "a number of lines", .letter = 'n'},
        {0},
};

static int become(char **argv)
{
        (void)execvp(argv[0], argv);
        return cli_fail(CLI_FAILED, "cannot run %s, which shows the log: %s", argv[0],
                        strerror(errno));
}

/* Runs tail(1). Its option -F goes on when the daemon shortens its log. */
static int show_file(const struct request *q, const char *path)
{
        char *argv[] = {"tail", "-n", (char *)q->lines, "--", (char *)path, NULL};
        char *following[] = {"tail", "-F", "-n", (char *)q->lines, "--", (char *)path, NULL};

        return become(q->follow ? following : argv);
}

static int show_journal(const struct request *q)
{
        char *argv[] = {
                "journalctl", "-u", "subletd", "-n", (char *)q->lines, q->follow ? "-f" : NULL,
                NULL};

        return become(argv);
}

int logs_main(const struct cli_command *self, int argc, char **argv)
{
        struct request q = {.lines = LINES_UNLESS_SAID};
        char dir[PATHS_DIR_MAX], path[PATHS_DIR_MAX + sizeof(PATHS_LOG) + 1];
        enum paths_kind kind;
        int r;

        r = cli_parse(self, argc, argv, OPTIONS_NO_WORDS, &q, NULL);
        if (r != CLI_OK)
                return cli_parsed(r);
        r = target_dir(&q.target, dir, &kind);
        if (r != CLI_OK)
                return r;
        if (kind == PATHS_SYSTEM)
                return show_journal(&q);
        (void)paths_join(dir, PATHS_LOG, path, sizeof(path));
        if (access(path, R_OK) == 0)
                return show_file(&q, path);
        if (errno != ENOENT)
                return cli_fail(CLI_FAILED, "cannot read the log %s: %s", path, strerror(errno));
        return cli_fail(CLI_FAILED,
                        "there is no log in %s: a private daemon writes one when it starts, and "
                        "any other daemon writes to where its stderr goes",
                        dir);
}
