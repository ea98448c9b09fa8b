/* finding.c: owns the findings of doctor, their order and their form. */
#include "client/doctor/finding.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"

struct noted {
        enum finding finding;
        char *text, *remedy; /* remedy: NULL: there is nothing to do */
};

static struct noted *all;
static size_t n_all;

/* If there is no memory for a finding, it is left out. */
void finding_add(enum finding finding, const char *format, ...)
{
        struct noted *more = realloc(all, (n_all + 1) * sizeof(*all));
        va_list args;

        if (!more)
                return;
        all = more;
        all[n_all] = (struct noted){.finding = finding};
        va_start(args, format);
        if (vasprintf(&all[n_all].text, format, args) >= 0)
                n_all++;
        va_end(args);
}

void finding_remedy(const char *format, ...)
{
        va_list args;

        va_start(args, format);
        if (n_all > 0 && vasprintf(&all[n_all - 1].remedy, format, args) < 0)
                all[n_all - 1].remedy = NULL;
        va_end(args);
}

enum finding finding_worst(void)
{
        enum finding worst = OK;

        for (size_t i = 0; i < n_all; i++)
                worst = MAX(worst, all[i].finding);
        return worst;
}

void findings_print(void)
{
        static const char *const words[] = {"ok", "warn", "FAIL"};

        for (int finding = FAIL; finding >= OK; finding--)
                for (size_t i = 0; i < n_all; i++)
                        if ((int)all[i].finding == finding)
                                (void)printf("%-5s %s%s%s\n", words[finding], all[i].text,
                                             all[i].remedy ? " -> " : "",
                                             all[i].remedy ? all[i].remedy : "");
}
