/* command_reload.c: sublet reload. Must never read a configuration itself: the daemon does. */
#include <stdio.h>

#include "client/common/cli.h"
#include "client/talk/control_order.h"

static void print_restart(const json_t *keys)
{
        json_t *key;
        size_t i;

        json_array_foreach (keys, i, key)
                (void)printf("%s%s", i ? ", " : "restart the daemon for: ", json_string_value(key));
        if (json_array_size(keys) > 0)
                (void)printf("\n");
}

int reload_main(const struct cli_command *self, int argc, char **argv)
{
        struct target target = {0};
        const char *wrong;
        json_t *answer;
        json_int_t n;
        int r;

        r = cli_parse(self, argc, argv, OPTIONS_NO_WORDS, &target, NULL);
        if (r != CLI_OK)
                return cli_parsed(r);
        r = control_order(&target, json_pack("{ss}", "order", "reload"), &answer);
        if (r != CLI_OK)
                return r;
        wrong = json_string_value(json_object_get(answer, "wrong"));
        if (wrong) {
                r = cli_fail(CLI_FAILED, "%s", wrong);
                json_decref(answer);
                return r;
        }
        n = json_integer_value(json_object_get(answer, "classes"));
        (void)printf("reloaded: %lld class%s\n", (long long)n, n == 1 ? "" : "es");
        print_restart(json_object_get(answer, "restart"));
        json_decref(answer);
        return CLI_OK;
}
