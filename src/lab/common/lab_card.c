/* lab_card.c: owns the way to a card, and what is removed after its use. Must never accept a GPU
 * that somebody else uses. */
#include "lab/common/lab_card.h"

#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/common/cli.h"
#include "client/common/part_paths.h"

int lab_card_simulate(const struct launch *l, const char *command,
                      char ret_session[static LAB_SESSION_MAX], char ret_folder[static PATH_MAX])
{
        const char *session = launch_value(l, "SIMCUDA_SESSION");

        if (parts_find(PART_SIMULATOR, ret_folder) < 0)
                return cli_fail(CLI_FAILED, "the simulated driver is missing: no %s", ret_folder);
        if (session)
                (void)snprintf(ret_session, LAB_SESSION_MAX, "%s", session);
        else
                (void)snprintf(ret_session, LAB_SESSION_MAX, "%s-%d", command, (int)getpid());
        for (unsigned i = 0; i < l->n_variables; i++)
                (void)setenv(l->variables[i].name, l->variables[i].value, 1);
        (void)setenv("SIMCUDA_SESSION", ret_session, 1);
        return CLI_OK;
}

int lab_card_ask(const char *simulator, struct driver_report *ret)
{
        const struct driver_gpu *gpu = &ret->gpus[0];

        if (driver_ask(simulator, ret) < 0 || ret->stage != DRIVER_ANSWERED || ret->n_gpus == 0)
                return cli_fail(CLI_FAILED, "no GPU answers here: see sublet doctor, or measure a "
                                            "simulated one with --sim");
        if (!simulator && gpu->used_bytes != DRIVER_UNKNOWN && gpu->used_bytes > LAB_UNUSED_BYTES)
                return cli_fail(CLI_FAILED,
                                "another program uses this GPU: wait for its end, or choose "
                                "another one with CUDA_VISIBLE_DEVICES");
        return CLI_OK;
}

/* What a daemon that is still ending removes meanwhile does not stop the walk. */
static void remove_folder(const char *folder)
{
        FTS *walk =
                fts_open((char *const[]){(char *)folder, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
        const FTSENT *e;

        while (walk && (e = fts_read(walk)))
                if (e->fts_info != FTS_D) /* a folder comes again after what it contains */
                        (void)remove(e->fts_path);
        if (walk)
                (void)fts_close(walk);
}

void lab_card_leave(const char *session, const char *folder)
{
        char path[PATH_MAX], command[PATH_MAX + 64];

        if (session && parts_find(PART_SIMULATOR_STAT, path) == 0) {
                (void)snprintf(command, sizeof(command), "'%s' --remove --force --session %s", path,
                               session);
                if (system(command) != 0)
                        (void)cli_fail(0, "the simulated card %s was not removed", session);
        }
        remove_folder(folder);
}
