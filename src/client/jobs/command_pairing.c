/* command_pairing.c: sublet predict, pair and train. Owns their options and the start of
 * sublet-pairing, a program of its own, because the libraries that it needs are large. Must never
 * predict. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/common/cli.h"
#include "client/common/part_paths.h"

/* sublet-pairing reads the values. */
#define OPTIONAL true
#define REQUIRED false
#define NONE     false
#define ROW(id, name_, argument_, placeholder, help_, letter_) \
        {name_, placeholder, help_, .letter = letter_, .optional = argument_},

const struct option_row predict_options[] = {
#define PREDICT ROW
#include "pairing/options.def"
        {0}};

const struct option_row pair_options[] = {
#define PAIR ROW
#include "pairing/options.def"
        {0}};

const struct option_row train_options[] = {
#define TRAIN ROW
#include "pairing/options.def"
        {0}};

static int start(const struct cli_command *self, int argc, char **argv)
{
        _cleanup_free_ char **checked = calloc((size_t)argc + 1, sizeof(*checked));
        _cleanup_free_ char **given = calloc((size_t)argc + 2, sizeof(*given));
        char path[PATH_MAX];
        int words, r;

        if (!checked || !given)
                return cli_fail(CLI_FAILED, "no memory for the arguments");
        memcpy(checked, argv, (size_t)argc * sizeof(*argv));
        r = cli_parse(self, argc, checked, OPTIONS_WORDS, NULL, &words);
        if (r != CLI_OK)
                return cli_parsed(r);
        if (parts_find(PART_PAIRING, path) < 0)
                return cli_fail(CLI_FAILED,
                                "%s needs sublet-pairing, which is not installed: install the "
                                "package sublet-pairing",
                                self->name);
        given[0] = path;
        given[1] = (char *)self->name;
        memcpy(given + 2, argv + 1, (size_t)(argc - 1) * sizeof(*argv));
        (void)execv(path, given);
        return cli_fail(CLI_FAILED, "cannot run %s: %s", path, strerror(errno));
}

int predict_main(const struct cli_command *self, int argc, char **argv)
{
        return start(self, argc, argv);
}

int pair_main(const struct cli_command *self, int argc, char **argv)
{
        return start(self, argc, argv);
}

int train_main(const struct cli_command *self, int argc, char **argv)
{
        return start(self, argc, argv);
}
