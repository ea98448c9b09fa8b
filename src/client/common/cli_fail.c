/* cli_fail.c: owns the message of a failed subcommand. Must never end the process. */
#include "client/common/cli.h"

#include <stdarg.h>
#include <stdio.h>

int cli_fail(int status, const char *format, ...)
{
        char line[1024];
        va_list args;

        va_start(args, format);
        (void)vsnprintf(line, sizeof(line), format, args);
        va_end(args);
        (void)fprintf(stderr, "sublet: %s\n", line);
        return status;
}
