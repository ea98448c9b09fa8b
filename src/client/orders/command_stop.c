/* command_stop.c: sublet stop. Must never send a signal to a process: it asks the daemon to end. */
#include <stdio.h>

#include "client/common/cli.h"
#include "client/talk/control_order.h"

int stop_main(const struct cli_command *self, int argc, char **argv)
{
        struct target target = {0};
        json_t *answer;
        int r;

        r = cli_parse(self, argc, argv, OPTIONS_NO_WORDS, &target, NULL);
        if (r != CLI_OK)
                return cli_parsed(r);
        r = control_order(&target, json_pack("{ss}", "order", "stop"), &answer);
        if (r != CLI_OK)
                return r;
        json_decref(answer);
        (void)printf("subletd stops; running programs go on\n");
        return CLI_OK;
}
