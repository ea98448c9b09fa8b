/* fault.c: owns the list of injected faults. While the list is empty, a call must cost only one
 * load. */
#include "sim/session/fault.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"

#define FAULTS_MAX 16

enum fault_action {
        FAULT_RETURNS,
        FAULT_KILLS,
        FAULT_STOPS,
        FAULT_HANGS,
        FAULT_LOSES,
        FAULT_SLOWS,
        FAULT_AWAITS,
        FAULT_FORBIDS,
        FAULT_PARTS,
};

struct fault {
        char function[64];
        unsigned first, last; /* the first and the last call with the fault */
        bool after, control;
        char thread[16]; /* only calls of threads with this name; empty: of all threads */
        enum fault_action action;
        unsigned value; /* a result, milliseconds, or a number of channels */
        _Atomic unsigned calls;
};

static struct fault fault_list[FAULTS_MAX];
static unsigned fault_count;
static const struct fault_acts *fault_acts;

/* Copies the next part of the text, up to the separator or the end. */
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
#include "sim/session/fault_points.def"
        };

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (strcmp(names[i], function) == 0)
                        return true;
        return false;
}

/* Parses the whole text as a number. */
static bool fault_number(const char *text, unsigned *ret)
{
        char *end;
        unsigned long n = strtoul(text, &end, 0);

        *ret = (unsigned)n;
        return isdigit(*text) && !*end && n <= INT_MAX;
}

static int fault_parse_action(const char *text, struct fault *f)
{
        static const struct {
                const char *name;
                enum fault_action action;
                bool control; /* the action is only for controls of channels */
        } actions[] = {
                {"kill", FAULT_KILLS, false},    {"stop", FAULT_STOPS, false},
                {"hang", FAULT_HANGS, false},    {"lost", FAULT_LOSES, false},
                {"slow=", FAULT_SLOWS, false},   {"frozen", FAULT_AWAITS, false},
                {"forbid", FAULT_FORBIDS, true}, {"part=", FAULT_PARTS, true},
                {"idle", FAULT_RETURNS, true}, /* returns OK and does nothing */
        };

        for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
                size_t n = strlen(actions[i].name);
                bool valued = actions[i].name[n - 1] == '=';

                if (strncmp(text, actions[i].name, n) != 0)
                        continue;
                f->action = actions[i].action;
                if ((actions[i].control && !f->control) ||
                    (valued ? !fault_number(text + n, &f->value) : text[n] != '\0'))
                        return -EINVAL;
                return 0;
        }
        f->action = FAULT_RETURNS;
        return fault_number(text, &f->value) && !f->after ? 0 : -EINVAL;
}

/* True if the fault names the function. "cuMemAlloc" also names "cuMemAlloc_v2". */
static bool fault_names(const struct fault *f, const char *function)
{
        size_t n = strlen(f->function);

        return strncmp(f->function, function, n) == 0 &&
               (!function[n] ||
                (function[n] == '_' && function[n + 1] == 'v' && isdigit(function[n + 2])));
}

static bool fault_is_control(const char *function)
{
        static const char *const names[] = {
#define RM_POINT(name) #name,
#include "sim/session/fault_points.def"
        };

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (strcmp(names[i], function) == 0)
                        return true;
        return false;
}

/* True if a function of that name exists. A misspelt name must be reported, because its fault would
 * never happen. */
static bool fault_exists(const struct fault *f)
{
        static const char *const symbols[] = {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) #symbol,
#include "cuda/cuda_api.def"
#define NVML_POINT(name) #name,
#include "sim/session/fault_points.def"
        };

        for (size_t i = 0; i < ARRAY_SIZE(symbols); i++)
                if (fault_names(f, symbols[i]))
                        return true;
        return f->control;
}

/* Parses the numbers of the calls: "3", "3+" or "3-5". */
static bool fault_calls(char *text, struct fault *f)
{
        char *end;

        f->first = f->last = (unsigned)strtoul(text, &end, 10);
        if (strcmp(end, "+") == 0)
                f->last = UINT_MAX;
        else if (*end == '-' && !fault_number(end + 1, &f->last))
                return false;
        else if (*end && *end != '-')
                return false;
        return f->first > 0 && f->first <= f->last;
}

/* Parses FUNCTION[@after | @THREAD]:CALLS:ACTION. */
static int fault_parse(const char *text, struct fault *f)
{
        char number[16], action[16], *at;

        if (!fault_part(&text, ':', f->function, sizeof(f->function)) ||
            !fault_part(&text, ':', number, sizeof(number)) ||
            !fault_part(&text, ':', action, sizeof(action)) || *text)
                return -EINVAL;
        at = strchr(f->function, '@');
        if (at) {
                *at = '\0';
                f->after = strcmp(at + 1, "after") == 0;
                if (f->after ? !fault_has_after(f->function)
                             : strlen(at + 1) == 0 || strlen(at + 1) >= sizeof(f->thread))
                        return -EINVAL;
                if (!f->after)
                        (void)strcpy(f->thread, at + 1);
        }
        f->control = fault_is_control(f->function);
        if (!fault_exists(f) || !fault_calls(number, f))
                return -EINVAL;
        return fault_parse_action(action, f);
}

int fault_setup(const struct fault_acts *acts)
{
        const char *text = getenv("SIMCUDA_FAIL");

        fault_acts = acts;
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

static void fault_sleep(unsigned ms)
{
        struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * (long)NSEC_PER_MSEC};

        while (nanosleep(&left, &left) < 0 && errno == EINTR)
                ;
}

/* Causes the effects of a fault, except its result. */
static void fault_act(const struct fault *f)
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
                fault_acts->lose_card();
                break;
        case FAULT_SLOWS:
                fault_sleep(f->value);
                break;
        case FAULT_AWAITS:
                if (fault_acts->await_thaw)
                        fault_acts->await_thaw();
                break;
        case FAULT_RETURNS:
        case FAULT_FORBIDS:
        case FAULT_PARTS:
                break;
        }
}

static bool fault_is_mine(const struct fault *f)
{
        char name[16] = "";

        return !f->thread[0] || (prctl(PR_GET_NAME, name) == 0 && strcmp(name, f->thread) == 0);
}

/* Counts a call and causes its faults. Returns the fault that determines the result; NULL: none. */
static const struct fault *fault_look(const char *function, bool after)
{
        for (unsigned i = 0; i < fault_count; i++) {
                struct fault *f = &fault_list[i];
                unsigned call;

                if (f->after != after || !fault_names(f, function) || !fault_is_mine(f))
                        continue;
                call = atomic_fetch_add(&f->calls, 1) + 1;
                if (call < f->first || call > f->last)
                        continue;
                fault_act(f);
                if (f->action == FAULT_FORBIDS || f->action == FAULT_PARTS ||
                    (f->action == FAULT_RETURNS && (f->value || f->control)))
                        return f;
        }
        return NULL;
}

int fault_check(const char *function)
{
        const struct fault *f = fault_look(function, false);

        return f ? (int)f->value : 0;
}

enum fault_control fault_control(bool disable, unsigned *ret_value)
{
        const struct fault *f = fault_look(disable ? "freeze" : "thaw", false);

        if (!f)
                return CONTROL_WHOLE;
        *ret_value = f->value;
        return f->action == FAULT_FORBIDS ? CONTROL_FORBIDDEN
               : f->action == FAULT_PARTS ? CONTROL_PART
                                          : CONTROL_REFUSED;
}

void fault_after(const char *const *function)
{
        (void)fault_look(*function, true);
}
