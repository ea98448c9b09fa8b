/* simulator_dir.c: owns the place of the simulator's daemon. Must never make a directory.
 * Why: docs/decisions.md, "The simulator has a directory of its own". */
#include "client/talk/simulator_dir.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "client/common/cli.h"

int simulator_session_is_good(const char *text)
{
        size_t n;

        text += text[0] == '+';
        n = strlen(text);
        for (size_t i = 0; i < n; i++)
                if (!isalnum((unsigned char)text[i]) && !strchr("_-", text[i]))
                        return 0;
        return n > 0 && n <= 32;
}

int simulator_dir(const char *session, char ret[static PATHS_DIR_MAX])
{
        const struct paths_input in = paths_input_here();
        char suffix[64];

        if (session && session[0] && !simulator_session_is_good(session))
                return cli_fail(CLI_USAGE,
                                "a simulator's session is " SIMULATOR_SESSION_FORM ", not '%s'",
                                session);
        (void)snprintf(suffix, sizeof(suffix), "-sim%s%s", session && session[0] ? "-" : "",
                       session ? session : "");
        if (paths_private_dir(&in, suffix, ret, PATHS_DIR_MAX) < 0)
                return cli_fail(CLI_FAILED,
                                "the name of the directory '%s...' is too long for a socket: "
                                "choose a shorter one",
                                ret);
        return CLI_OK;
}
