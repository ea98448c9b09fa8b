/* finding.c: owns the form of doctor's findings. */
#include "cli/doctor/finding.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/macros.h"

static enum finding worst;

void print_finding(enum finding finding, const char *format, ...)
{
        static const char *const words[] = {"ok", "warn", "FAIL"};
        va_list args;

        worst = MAX(worst, finding);
        (void)printf("%-5s ", words[finding]);
        va_start(args, format);
        (void)vprintf(format, args);
        va_end(args);
        (void)putchar('\n');
}

void print_remedy(const char *format, ...)
{
        va_list args;

        (void)printf("      -> ");
        va_start(args, format);
        (void)vprintf(format, args);
        va_end(args);
        (void)putchar('\n');
}

enum finding finding_worst(void)
{
        return worst;
}
