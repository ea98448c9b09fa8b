/* command_run.c: sublet run. Owns the steps from its arguments to exec. Must print nothing if all
 * is well: the terminal belongs to the program. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client/common/cli.h"
#include "client/launch/launch.h"
#include "client/launch/unshared.h"

int run_main(const struct cli_command *self, int argc, char **argv)
{
        struct launch l = {0};
        int words, r;

        r = cli_parse(self, argc, argv, OPTIONS_COMMAND, &l, &words);
        if (r == CLI_OK && words == 0)
                r = cli_fail(CLI_USAGE, "run needs a command to run");
        if (r == CLI_OK)
                r = launch_complete(&l);
        if (r == CLI_OK)
                r = launch_apply(&l);
        launch_clear(&l);
        if (r != CLI_OK)
                return cli_parsed(r);

        unshared_tell(argv[0]);
        (void)execvp(argv[0], argv);
        if (errno == ENOENT && !strchr(argv[0], '/'))
                return cli_fail(CLI_NO_COMMAND, "there is no command '%s' in PATH", argv[0]);
        return cli_fail(errno == ENOENT ? CLI_NO_COMMAND : CLI_NO_EXECUTE, "cannot run '%s': %s",
                        argv[0], strerror(errno));
}
