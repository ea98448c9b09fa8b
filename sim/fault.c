/* fault.c: owns the list of injected faults. Must cost one load where there are none. */
#include "fault.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "sim.h"

#define FAULTS_MAX  16
#define FAULT_KILLS (-1)

struct fault {
        char function[64];
        unsigned nth;
        bool onwards;
        int result;
        _Atomic unsigned calls;
};

static struct fault fault_list[FAULTS_MAX];
static unsigned fault_count;

static int fault_parse(const char *text, size_t length, struct fault *f)
{
        const char *colon = memchr(text, ':', length);
        char *end;

        if (!colon || colon == text || (size_t)(colon - text) >= sizeof(f->function))
                return -EINVAL;
        memcpy(f->function, text, (size_t)(colon - text));
        f->nth = (unsigned)strtoul(colon + 1, &end, 10);
        if (end == colon + 1 || f->nth == 0)
                return -EINVAL;
        if (*end == '+') {
                f->onwards = true;
                end++;
        }
        if (*end != ':')
                return -EINVAL;
        if (strncmp(end + 1, "kill", 4) == 0) {
                f->result = FAULT_KILLS;
                end += 5;
        } else {
                const char *number = end + 1;

                f->result = (int)strtol(number, &end, 10);
                if (end == number)
                        return -EINVAL;
        }
        return end == text + length ? 0 : -EINVAL;
}

int fault_setup(void)
{
        const char *text = getenv("SIMCUDA_FAIL");

        while (text && *text && fault_count < FAULTS_MAX) {
                size_t length = strcspn(text, ",");

                if (fault_parse(text, length, &fault_list[fault_count]) < 0) {
                        sim_say("malformed SIMCUDA_FAIL at '%s'", text);
                        return -EINVAL;
                }
                fault_count++;
                text += length + (text[length] == ',');
        }
        return 0;
}

/* "cuMemAlloc_v2" is meant by "cuMemAlloc" too. */
static bool fault_names(const struct fault *f, const char *function)
{
        size_t n = strlen(f->function);

        return strncmp(f->function, function, n) == 0 &&
               (!function[n] ||
                (function[n] == '_' && function[n + 1] == 'v' && isdigit(function[n + 2])));
}

CUresult fault_check(const char *function)
{
        for (unsigned i = 0; i < fault_count; i++) {
                struct fault *f = &fault_list[i];
                unsigned call;

                if (!fault_names(f, function))
                        continue;
                call = atomic_fetch_add(&f->calls, 1) + 1;
                if (call != f->nth && !(f->onwards && call > f->nth))
                        continue;
                if (f->result == FAULT_KILLS)
                        (void)kill(getpid(), SIGKILL);
                return (CUresult)f->result;
        }
        return CUDA_SUCCESS;
}
