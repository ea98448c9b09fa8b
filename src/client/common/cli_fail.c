/* cli_fail.c: owns the message of a failed subcommand. Must never end the process. */
#include "client/common/cli.h"

#include <stdarg.h>

#include "base/standard.h"

int cli_fail(int status, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        standard_say("sublet", format, args);
        va_end(args);
        return status;
}
