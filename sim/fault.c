/* fault.c: owns the list of injected faults. Must cost one load where there are none. */
#include "fault.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"

#define FAULTS_MAX 16

enum fault_action { FAULT_RETURNS, FAULT_KILLS, FAULT_STOPS, FAULT_HANGS, FAULT_LOSES };

struct fault {
        char function[64];
        unsigned nth;
        bool after, onwards;
        enum fault_action action;
        int result;
        _Atomic unsigned calls;
};

static struct fault fault_list[FAULTS_MAX];
static unsigned fault_count;

/* The next part of text up to the separator, or all of it. */
static bool fault_part(const char **text, char separator, char *part, size_t room)
{
        const char *end = strchr(*text, separator);
        size_t n = end ? (size_t)(end - *text) : strlen(*text);

        if (n == 0 || n >= room)
                return false;
        memcpy(part, *text, n);
        part[n] = '\0';
        *text += n + (end != NULL);
        return true;
}

static bool fault_has_after(const char *function)
{
        static const char *const names[] = {
#define FAULT_POINT(name) #name,
#include "fault_points.def"
        };

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (strcmp(names[i], function) == 0)
                        return true;
        return false;
}

static int fault_parse_action(const char *text, struct fault *f)
{
        static const struct {
                const char *name;
                enum fault_action action;
        } actions[] = {{"kill", FAULT_KILLS},
                       {"stop", FAULT_STOPS},
                       {"hang", FAULT_HANGS},
                       {"lost", FAULT_LOSES}};
        char *end;

        for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
                if (strcmp(text, actions[i].name) == 0) {
                        f->action = actions[i].action;
                        return 0;
                }
        f->action = FAULT_RETURNS;
        f->result = (int)strtol(text, &end, 10);
        return *end || f->after ? -EINVAL : 0;
}

/* "cuMemAlloc_v2" is meant by "cuMemAlloc" too. */
static bool fault_names(const struct fault *f, const char *function)
{
        size_t n = strlen(f->function);

        return strncmp(f->function, function, n) == 0 &&
               (!function[n] ||
                (function[n] == '_' && function[n + 1] == 'v' && isdigit(function[n + 2])));
}

/* A fault in a call that nobody makes would be none, unseen. */
static bool fault_exists(const struct fault *f)
{
        static const char *const symbols[] = {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) #symbol,
#include "cuda/cuda_api.def"
#undef CU
#define NVML_POINT(name) #name,
#include "fault_points.def"
        };

        for (size_t i = 0; i < ARRAY_SIZE(symbols); i++)
                if (fault_names(f, symbols[i]))
                        return true;
        return false;
}

/* FUNCTION[@after]:N[+]:ACTION */
static int fault_parse(const char *text, struct fault *f)
{
        char number[16], action[16], *at, *end;

        if (!fault_part(&text, ':', f->function, sizeof(f->function)) ||
            !fault_part(&text, ':', number, sizeof(number)) ||
            !fault_part(&text, ':', action, sizeof(action)) || *text)
                return -EINVAL;
        at = strchr(f->function, '@');
        if (at) {
                *at = '\0';
                f->after = true;
                if (strcmp(at + 1, "after") != 0 || !fault_has_after(f->function))
                        return -EINVAL;
        }
        if (!fault_exists(f))
                return -EINVAL;
        f->nth = (unsigned)strtoul(number, &end, 10);
        f->onwards = *end == '+';
        if (f->nth == 0 || strcmp(end, f->onwards ? "+" : "") != 0)
                return -EINVAL;
        return fault_parse_action(action, f);
}

int fault_setup(void)
{
        const char *text = getenv("SIMCUDA_FAIL");

        while (text && *text && fault_count < FAULTS_MAX) {
                const char *rest = text;
                char one[128];

                if (!fault_part(&rest, ',', one, sizeof(one)) ||
                    fault_parse(one, &fault_list[fault_count]) < 0) {
                        (void)fprintf(stderr, "simcuda: malformed SIMCUDA_FAIL at '%s'\n", text);
                        return -EINVAL;
                }
                fault_count++;
                text = rest;
        }
        return 0;
}

static int fault_act(const struct fault *f)
{
        switch (f->action) {
        case FAULT_KILLS:
                (void)kill(getpid(), SIGKILL);
                break;
        case FAULT_STOPS:
                (void)kill(getpid(), SIGSTOP);
                break;
        case FAULT_HANGS:
                for (;;)
                        (void)pause();
        case FAULT_LOSES:
                fault_lose_card();
                break;
        case FAULT_RETURNS:
                return f->result;
        }
        return 0;
}

static int fault_look(const char *function, bool after)
{
        int r = 0;

        for (unsigned i = 0; i < fault_count && r == 0; i++) {
                struct fault *f = &fault_list[i];
                unsigned call;

                if (f->after != after || !fault_names(f, function))
                        continue;
                call = atomic_fetch_add(&f->calls, 1) + 1;
                if (call == f->nth || (f->onwards && call > f->nth))
                        r = fault_act(f);
        }
        return r;
}

int fault_check(const char *function)
{
        return fault_look(function, false);
}

void fault_after(const char *const *function)
{
        (void)fault_look(*function, true);
}
