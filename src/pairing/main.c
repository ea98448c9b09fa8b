/* main.c: owns the subcommands of sublet-pairing, which sublet starts. Must never know what one
 * does. */
#include "pairing/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/standard.h"

static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
} commands[] = {{"predict", predict_main},
                {"pair", pair_main},
                {"train", train_main},
                {"serve", serve_main}};

/* Threads of libgomp, which xgboost uses, spin while they wait: on a busy machine training takes
 * twenty times as long. The library reads the variable when it is loaded. */
static void let_threads_sleep(char **argv)
{
        if (!getenv("OMP_WAIT_POLICY") && setenv("OMP_WAIT_POLICY", "PASSIVE", 1) == 0)
                (void)execv("/proc/self/exe", argv); /* if this fails, training is only slower */
}

int main(int argc, char **argv)
{
        standard_open();
        let_threads_sleep(argv);
        for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(commands); i++)
                if (strcmp(argv[1], commands[i].name) == 0) {
                        int status = commands[i].run(argc - 1, argv + 1);

                        /* Output that could not be written is a failure. */
                        if ((ferror(stdout) || fflush(stdout) != 0) && status == STATUS_OK)
                                return command_fail(STATUS_FAILED, "cannot write to stdout");
                        return status;
                }
        return command_fail(STATUS_USAGE, "sublet predict, sublet pair and sublet train start this "
                                          "program");
}
