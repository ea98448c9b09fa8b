/* answer.c: owns the form of an answer that is an error. */
#include "daemon/state/answer.h"

#include <stdarg.h>
#include <stdio.h>

json_t *answer_error(const char *format, ...)
{
        char sentence[512];
        va_list args;

        va_start(args, format);
        (void)vsnprintf(sentence, sizeof(sentence), format, args);
        va_end(args);
        return json_pack("{s:s}", "error", sentence);
}

json_t *answer_later(const char *why)
{
        return json_pack("{s:s, s:b}", "error", why, "later", 1);
}
