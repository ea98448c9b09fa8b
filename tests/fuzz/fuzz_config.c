/* fuzz_config.c: any configuration file leads to an error with a sentence, or to settings that the
 * daemon can run with. */
#include "fuzz.h"

#include <string.h>

#include "base/cleanup.h"
#include "daemon/setup/config.h"

static void check_classes(const struct config *c)
{
        const struct tenant pod = {TENANT_POD, "12345678-9abc-def0-1234-56789abcdef0"};
        const struct class_subject who = {
                .uid = 1000, .name = "train", .cgroup = "/a/b.slice/c", .tenant = &pod};
        unsigned sum = 0;

        for (unsigned i = 0; i < c->classes.n; i++) {
                const struct class_settings *s = &c->classes.list[i].settings;

                FUZZ_CHECK(s->minimum_permille <= s->maximum_permille);
                FUZZ_CHECK(s->maximum_permille >= 10 && s->maximum_permille <= 1000);
                FUZZ_CHECK(s->weight_permille >= 10 && s->weight_permille <= 100000);
                FUZZ_CHECK(s->priority >= -20 && s->priority <= s->priority_max);
                FUZZ_CHECK(classes_is_name(c->classes.list[i].name));
                sum += s->minimum_permille;
        }
        FUZZ_CHECK(sum + c->sched.handoff_permille <= 1000);
        (void)classes_find(&c->classes, &who);
        (void)classes_pod(&c->classes, &pod);
}

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
        check_classes(c);
        (void)config_capacity(c, 0, "GPU-00000000-0000-0000-0000-000000000000");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_fclose_ FILE *f = NULL;
        struct config c;
        char error[CONFIG_ERROR_MAX] = "";

        if (size == 0) /* fmemopen() makes no stream of no bytes */
                return 0;
        f = fmemopen((void *)data, size, "r");
        FUZZ_CHECK(f != NULL);
        config_default(&c);
        if (config_read(&c, f, "input", error) < 0 || config_check(&c, true, "input", error) < 0)
                FUZZ_CHECK(memchr(error, '\0', sizeof(error)) && error[0]);
        else
                check_settings(&c);
        config_free(&c);
        return 0;
}
