/* set.c: sublet set. Checks a setting before it is sent. Must never know what a setting does. */
#include <string.h>

#include "base/macros.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/control.h"

static int check_mode(const char *text)
{
        return strcmp(text, "auto") == 0 || strcmp(text, "exclusive") == 0 ||
               strcmp(text, "off") == 0;
}

static int check_quantum(const char *text)
{
        uint64_t ns;

        return strcmp(text, "auto") == 0 || (units_parse_duration(text, &ns) == 0 && ns > 0);
}

static const struct {
        const char *name;
        int (*check)(const char *text);
        const char *wanted;
} settings[] = {
        {"mode", check_mode, "auto, exclusive or off"},
        {"quantum", check_quantum, "auto or a duration such as 2s"},
};

int set_main(const struct cli_command *self, int argc, char **argv)
{
        struct target target = {0};
        json_t *answer;
        int words, r;

        r = cli_parse(self, argc, argv, 0, target_take, &target, &words);
        if (r != CLI_OK)
                return cli_parsed(r);
        if (words > 2)
                return cli_fail(CLI_USAGE, "set takes one setting and its value, not also '%s'",
                                argv[2]);
        if (words == 0)
                return cli_fail(CLI_USAGE, "set what? There are mode and quantum");
        for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
                if (strcmp(settings[i].name, argv[0]) != 0)
                        continue;
                if (words == 1)
                        return cli_fail(CLI_USAGE, "set %s to what? It is %s", argv[0],
                                        settings[i].wanted);
                if (!settings[i].check(argv[1]))
                        return cli_fail(CLI_USAGE, "%s is %s, not '%s'", argv[0],
                                        settings[i].wanted, argv[1]);
                r = control_order(&target, json_pack("{ssss}", "order", "set", argv[0], argv[1]),
                                  &answer);
                if (r == CLI_OK)
                        json_decref(answer);
                return r;
        }
        return cli_fail(CLI_USAGE, "there is no setting '%s'; there are mode and quantum", argv[0]);
}
