/* doctor_configuration.c: owns what doctor says of the daemon's configuration. Must never read its
 * files: subletd alone does, also for doctor. */
#include "client/doctor/doctor_configuration.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "client/common/cli.h"
#include "client/doctor/doctor_line.h"
#include "client/doctor/finding.h"
#include "client/common/part_paths.h"

#define SENTENCE_MAX 768

/* Asks subletd what is wrong with the files. False: they are good, or cannot be read from here. */
static bool ask(const char *dir, bool on_demand, const char *file, char ret[static SENTENCE_MAX])
{
        const char *argv[8] = {NULL, "--check", "--dir", dir};
        char path[PATH_MAX];
        size_t n = 4;

        if (parts_find(PART_DAEMON, path) < 0)
                return false; /* look_at_parts() has reported it */
        argv[0] = path;
        if (on_demand)
                argv[n++] = "--private";
        /* subletd accepts that its usual file is missing, but not a file that --config names. */
        if (file && access(file, F_OK) == 0) {
                argv[n++] = "--config";
                argv[n++] = file;
        }
        return line_of(argv, NULL, ret, SENTENCE_MAX) == CLI_USAGE;
}

/* Returns the daemon's sentence, without the name of the program that said it. */
static const char *sentence(const char *line)
{
        static const char name[] = "subletd: ";

        return strncmp(line, name, sizeof(name) - 1) == 0 ? line + sizeof(name) - 1 : line;
}

static bool judge_daemon(const json_t *c, const char *wrong)
{
        const char *state = json_string_value(json_object_get(c, "state"));
        const char *error = json_string_value(json_object_get(c, "error"));

        if (!state || strcmp(state, "good") == 0)
                return true;
        if (strcmp(state, "none") == 0)
                finding_add(FAIL,
                            "the daemon gives no program a turn, because of its "
                            "configuration: %s",
                            error ? error : "it has a mistake");
        else
                finding_add(WARN,
                            "the daemon goes on with its last good configuration, because of "
                            "the present one: %s",
                            error ? error : "it has a mistake");
        finding_remedy(wrong ? "correct it, then: sublet reload"
                             : "the files have no mistake now: sublet reload");
        return false;
}

bool configuration_look(const char *dir, bool on_demand, const json_t *status)
{
        const json_t *c = json_object_get(status, "configuration");
        const char *file = json_string_value(json_object_get(c, "file"));
        const char *told = json_string_value(json_object_get(c, "error"));
        char line[SENTENCE_MAX];
        const char *wrong = ask(dir, on_demand, file, line) ? sentence(line) : NULL;
        const bool good = judge_daemon(c, wrong);

        if (!wrong)
                return good;
        if (!status) {
                finding_add(FAIL, "the daemon's configuration has a mistake: %s", wrong);
                finding_remedy("correct it: until then a daemon goes on with its last good "
                               "configuration, and without one no program gets a turn");
        } else if (!told || strcmp(told, wrong) != 0) {
                finding_add(WARN, "the daemon would not take the files as they are now: %s", wrong);
                finding_remedy("correct them before the next sublet reload");
        }
        return false;
}
