/* launcher.c: owns what the variables of torchrun, MPI and Slurm say of the process's job. Must
 * never name a job by a value that its ranks do not have in common, or that other jobs have, too.
 */
#include "preload/process/launcher.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/hash.h"
#include "base/macros.h"
#include "base/units.h"

#define IDENTITY_MAX 3
/* Prefix of a variable's name. The variable's value is then a descriptor, and the process that made
 * the descriptor names the job. */
#define MAKER "@"

/* The first launcher whose variables are all set and whose size is above 1 applies. Launchers that
 * start ranks inside another launcher's processes come first. */
static const struct launcher {
        const char *name;
        const char *size;                   /* number of the job's ranks */
        const char *rank;                   /* a process without it is no rank */
        const char *identity[IDENTITY_MAX]; /* together these values name the job */
} launchers[] = {
        /* PyTorch, torch/distributed/elastic/agent/server/local_elastic_agent.py, _start_workers().
         * The run's id is "none" unless the user chooses one; each job has a port of its own. */
        {"torchrun", "WORLD_SIZE", "RANK", {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}},
        /* https://pytorch.org/docs/stable/distributed.html#environment-variable-initialization */
        {"pytorch", "WORLD_SIZE", "RANK", {"MASTER_ADDR", "MASTER_PORT"}},
        /* Lightning, strategies/launchers/subprocess_script.py, _call_children_scripts() */
        {"lightning", "WORLD_SIZE", "LOCAL_RANK", {"MASTER_ADDR", "MASTER_PORT"}},
        /* https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html; the namespace:
         * OpenPMIx, src/server/pmix_server.c, PMIx_server_setup_fork() */
        {"openmpi", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", {"PMIX_NAMESPACE"}},
        /* Open MPI 2 and later, then Open MPI 1 (its ORTE's setup_child()) */
        {"openmpi", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", {"OMPI_MCA_ess_base_jobid"}},
        {"openmpi", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", {"OMPI_MCA_orte_ess_jobid"}},
        /* Intel MPI. libfabric uses the same variable: prov/opx/src/fi_opx_init.c */
        {"intelmpi", "PMI_SIZE", "PMI_RANK", {"I_MPI_HYDRA_UUID"}},
        /* Slurm, src/common/env.c, env_array_for_step() and setup_env(). A batch script lacks the
         * variable for the size of a step. */
        {"slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
        /* Cray PALS; Slurm, src/plugins/mpi/pmi2/mpi_pmi2.c, p_mpi_hook_slurmstepd_task() */
        {"pmi", "PMI_SIZE", "PMI_RANK", {"PMI_JOBID"}},
        /* MPICH with -pmi-port, src/pm/hydra/proxy/pmip_cb.c, launch_procs(). PMI_PORT is a port of
         * the proxy, which starts all ranks of a machine. */
        {"mpich", "MPI_LOCALNRANKS", "PMI_ID", {"PMI_PORT"}},
        /* MPICH without -pmi-port. PMI_FD is one half of a pair of sockets that the proxy made. */
        {"mpich", "PMI_SIZE", "PMI_RANK", {MAKER "PMI_FD"}},
        /* sublet run --ranks, for ranks that no other launcher has started */
        {"sublet", "SUBLET_RANKS", "SUBLET_RANKS_JOB", {"SUBLET_RANKS_JOB"}},
};

/* Hashes the NUL, too: otherwise "ab", "c" and "a", "bc" would give the same hash. */
static uint64_t add_text(uint64_t hash, const char *text)
{
        return hash_add(hash, text, strlen(text) + 1);
}

/* Returns the variable's value; NULL: unset or empty. */
static const char *value_of(const char *name)
{
        const char *text = getenv(name);

        return text && *text ? text : NULL;
}

/* Returns the variable's value as a number; 0: it is unset or no number. */
static uint64_t number_of(const char *name)
{
        const char *text = value_of(name);
        uint64_t n;

        return text && units_parse_count(text, &n) == 0 ? n : 0;
}

/* Returns the process that made this pair of sockets; 0: the descriptor is something else. */
static pid_t maker_of(uint64_t fd)
{
        struct ucred maker;
        socklen_t n = sizeof(maker);

        if (fd == 0 || fd > INT32_MAX ||
            getsockopt((int)fd, SOL_SOCKET, SO_PEERCRED, &maker, &n) < 0)
                return 0;
        return maker.pid;
}

/* Adds one part of the job's identity to the hash. False: the variable is unset, or does not name a
 * pair of sockets. */
static bool identify(const char *name, uint64_t *hash)
{
        const char *text;
        char maker[24];
        pid_t pid;

        if (name[0] != MAKER[0]) {
                text = value_of(name);
                if (!text)
                        return false;
                *hash = add_text(*hash, text);
                return true;
        }
        pid = maker_of(number_of(name + 1));
        if (pid <= 0)
                return false;
        (void)snprintf(maker, sizeof(maker), "%d", (int)pid);
        *hash = add_text(*hash, maker);
        return true;
}

/* True if the process is one of several ranks that this launcher has started. Then the hash stands
 * for the job. */
static bool started_by(const struct launcher *l, uint64_t *ret_hash)
{
        uint64_t hash = HASH_BASIS;

        if (number_of(l->size) < 2 || !value_of(l->rank))
                return false;
        for (unsigned i = 0; i < IDENTITY_MAX && l->identity[i]; i++)
                if (!identify(l->identity[i], &hash))
                        return false;
        *ret_hash = hash;
        return true;
}

void launcher_group(char ret[static WIRE_GROUP_MAX + 1])
{
        uint64_t hash;

        ret[0] = '\0';
        for (unsigned i = 0; i < ARRAY_SIZE(launchers); i++) {
                if (!started_by(&launchers[i], &hash))
                        continue;
                (void)snprintf(ret, WIRE_GROUP_MAX + 1, "%s:%016" PRIx64, launchers[i].name, hash);
                return;
        }
}
