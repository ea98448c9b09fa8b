/* fuzz_config.c: any configuration file leads to an error with a sentence and unchanged settings,
 * or to settings that the daemon can run with. */
#include "fuzz.h"

#include <string.h>

#include "base/cleanup.h"
#include "daemon/setup/config.h"

static void check_settings(const struct config *c)
{
        FUZZ_CHECK(c->sched.clients_max >= 1 && c->sched.clients_max <= 1000000);
        FUZZ_CHECK(c->connections_per_user >= 1);
        FUZZ_CHECK(c->sched.mode <= SCHED_MODE_OFF);
        FUZZ_CHECK(c->sched.handoff_permille >= 1 && c->sched.handoff_permille <= 900);
        FUZZ_CHECK(c->sched.unevictable_permille >= 1 && c->sched.unevictable_permille <= 900);
        FUZZ_CHECK(c->n_capacities <= CONFIG_CAPACITIES);
        for (unsigned i = 0; i < c->n_capacities; i++) {
                FUZZ_CHECK(memchr(c->capacities[i].gpu, '\0', CONFIG_GPU_MAX) != NULL);
                FUZZ_CHECK(c->capacities[i].bytes > 0);
        }
        (void)config_capacity(c, 0, "GPU-00000000-0000-0000-0000-000000000000");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_fclose_ FILE *f = NULL;
        struct config before, c;
        char error[CONFIG_ERROR_MAX] = "";
        int r;

        if (size == 0) /* fmemopen() makes no stream of no bytes */
                return 0;
        f = fmemopen((void *)data, size, "r");
        FUZZ_CHECK(f != NULL);
        /* Clears the padding, too, because the bytes are compared below. */
        memset(&before, 0, sizeof(before));
        config_default(&before);
        memcpy(&c, &before, sizeof(c));
        r = config_read(&c, f, "input", error);
        if (r < 0) {
                FUZZ_CHECK(memchr(error, '\0', sizeof(error)) && error[0]);
                FUZZ_CHECK(memcmp(&c, &before, sizeof(c)) == 0);
                return 0;
        }
        check_settings(&c);
        return 0;
}
