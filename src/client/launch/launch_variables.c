/* launch_variables.c: owns the list of a launch's variables. Must never know what a variable means.
 */
#include "client/launch/launch.h"

#include <stdlib.h>
#include <string.h>

#include "base/settings.h"

const char *launch_value(const struct launch *l, const char *variable)
{
        for (unsigned i = 0; i < l->n_variables; i++)
                if (strcmp(l->variables[i].name, variable) == 0)
                        return l->variables[i].value;
        return NULL;
}

void launch_clear(struct launch *l)
{
        for (unsigned i = 0; i < l->n_variables; i++)
                free(l->variables[i].value);
        l->n_variables = 0;
}

int launch_set(struct launch *l, const char *name, char *value)
{
        struct launch_variable *v = l->variables;

        if (!value)
                return cli_fail(CLI_FAILED, "out of memory");
        while (v < l->variables + l->n_variables && strcmp(v->name, name) != 0)
                v++;
        if (v == l->variables + l->n_variables) {
                v->name = name;
                l->n_variables++;
        } else {
                free(v->value);
        }
        v->value = value;
        return CLI_OK;
}

void launch_unset(struct launch *l, const char *name)
{
        if (launch_set(l, name, strdup("")) == CLI_OK)
                for (unsigned i = 0; i < l->n_variables; i++)
                        if (strcmp(l->variables[i].name, name) == 0) {
                                free(l->variables[i].value);
                                l->variables[i].value = NULL;
                        }
}

int launch_apply(const struct launch *l)
{
        for (unsigned i = 0; i < l->n_variables; i++) {
                const struct launch_variable *v = &l->variables[i];

                if ((v->value ? setenv(v->name, v->value, 1) : unsetenv(v->name)) < 0)
                        return cli_fail(CLI_FAILED, "%s: %m", v->name);
        }
        return CLI_OK;
}

const char *launch_gpus_variable(const struct launch *l)
{
        return launch_value(l, settings[SETTING_RANKS].name) ? settings[SETTING_RANKS_GPUS].name
                                                             : "CUDA_VISIBLE_DEVICES";
}
