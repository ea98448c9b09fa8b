/* test_launcher.c: ranks of one job get one group's name, and ranks of different jobs get different
 * names. A process that its launcher started alone, or that no launcher started, gets none. */
#include "unit.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"
#include "preload/process/launcher.h"

/* Names the job of a process with these variables, and no others. */
static const char *job_of(const char *const variables[], char ret[static WIRE_GROUP_MAX + 1])
{
        assert_int_equal(clearenv(), 0);
        for (unsigned i = 0; variables[i]; i++)
                assert_int_equal(putenv((char *)variables[i]), 0);
        (void)memset(ret, '?', WIRE_GROUP_MAX + 1);
        launcher_group(ret);
        return ret;
}
#define JOB(...) job_of((const char *const[]){__VA_ARGS__, NULL}, (char[WIRE_GROUP_MAX + 1]){0})
#define NONE     ""

static void a_program_without_a_launcher_is_in_no_job(void **state)
{
        assert_string_equal(JOB("PATH=/bin"), NONE);
}

/* A rank of each launcher. The first variable is the rank, the second one the size, the others name
 * the job. */
#define VARIABLES_MAX 6
static const struct {
        const char *name, *rank, *size;
        const char *identity[VARIABLES_MAX - 2];
} ranks[] = {
        {"torchrun:", "RANK", "WORLD_SIZE", {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}},
        {"pytorch:", "RANK", "WORLD_SIZE", {"MASTER_ADDR", "MASTER_PORT"}},
        {"lightning:", "LOCAL_RANK", "WORLD_SIZE", {"MASTER_ADDR", "MASTER_PORT"}},
        {"openmpi:", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"PMIX_NAMESPACE"}},
        {"openmpi:", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"OMPI_MCA_ess_base_jobid"}},
        {"openmpi:", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"OMPI_MCA_orte_ess_jobid"}},
        {"intelmpi:", "PMI_RANK", "PMI_SIZE", {"I_MPI_HYDRA_UUID"}},
        {"slurm:", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
        {"pmi:", "PMI_RANK", "PMI_SIZE", {"PMI_JOBID"}},
        {"mpich:", "PMI_ID", "MPI_LOCALNRANKS", {"PMI_PORT"}},
};

/* Names the job of the rank, if `changed` of the values of its identity is another one, and
 * `left_out` of its variables is not set (counted from the rank); -1: none. */
static const char *job_of_rank(unsigned of, const char *rank, const char *size, int changed,
                               int left_out, char ret[static WIRE_GROUP_MAX + 1])
{
        static char text[VARIABLES_MAX][64];
        const char *variables[VARIABLES_MAX + 1] = {NULL};
        int n = 0, at = 0;

        for (int i = 0; i < VARIABLES_MAX; i++) {
                const char *name = i == 0 ? ranks[of].rank : i == 1 ? ranks[of].size : NULL;

                if (i >= 2 && !(name = ranks[of].identity[i - 2]))
                        break;
                (void)snprintf(text[i], sizeof(text[i]), "%s=%s", name,
                               i == 0             ? rank
                               : i == 1           ? size
                               : changed == i - 2 ? "another"
                                                  : "none");
                if (at++ != left_out)
                        variables[n++] = text[i];
        }
        return job_of(variables, ret);
}

static void ranks_of_one_job_get_one_name_that_is_a_valid_group(void **state)
{
        char first[WIRE_GROUP_MAX + 1], second[WIRE_GROUP_MAX + 1];

        for (unsigned i = 0; i < ARRAY_SIZE(ranks); i++) {
                (void)job_of_rank(i, "0", "2", -1, -1, first);
                (void)job_of_rank(i, "1", "2", -1, -1, second);
                assert_string_equal(first, second);
                assert_true(wire_group_is_valid(first));
                assert_memory_equal(first, ranks[i].name, strlen(ranks[i].name));
                assert_int_equal(strlen(first), strlen(ranks[i].name) + 16);
        }
}

static void each_value_of_the_identity_distinguishes_jobs(void **state)
{
        char first[WIRE_GROUP_MAX + 1], second[WIRE_GROUP_MAX + 1];

        for (unsigned i = 0; i < ARRAY_SIZE(ranks); i++) {
                (void)job_of_rank(i, "0", "2", -1, -1, first);
                for (int n = 0; n < VARIABLES_MAX - 2 && ranks[i].identity[n]; n++) {
                        (void)job_of_rank(i, "0", "2", n, -1, second);
                        assert_string_not_equal(first, second);
                }
        }
}

static void a_job_of_one_rank_is_no_group(void **state)
{
        static const char *const sizes[] = {
                "1", "0", "-2", "", "two", "2x", "99999999999999999999"};
        char group[WIRE_GROUP_MAX + 1];

        for (unsigned i = 0; i < ARRAY_SIZE(ranks); i++)
                for (unsigned n = 0; n < ARRAY_SIZE(sizes); n++)
                        assert_string_equal(job_of_rank(i, "0", sizes[n], -1, -1, group), NONE);
}

/* Some clusters set the size and the address in every shell, and a batch script has a rank and a
 * job. */
static void a_process_that_lacks_one_of_the_variables_is_no_rank(void **state)
{
        char group[WIRE_GROUP_MAX + 1];

        for (unsigned i = 1; i < ARRAY_SIZE(ranks);
             i++) /* without its run, torchrun's is PyTorch's */
                for (int n = 0; n < VARIABLES_MAX && (n < 2 || ranks[i].identity[n - 2]); n++)
                        assert_string_equal(job_of_rank(i, "0", "2", -1, n, group), NONE);
        assert_string_equal(JOB("SLURM_JOB_ID=7", "SLURM_NTASKS=8", "SLURM_PROCID=0"), NONE);
}

static void values_are_not_joined_without_a_border(void **state)
{
        char first[WIRE_GROUP_MAX + 1], second[WIRE_GROUP_MAX + 1];

        (void)strcpy(first, JOB("SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0", "SLURM_JOB_ID=12",
                                "SLURM_STEP_ID=3"));
        (void)strcpy(second, JOB("SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0", "SLURM_JOB_ID=1",
                                 "SLURM_STEP_ID=23"));
        assert_string_not_equal(first, second);
}

/* Slurm starts one torchrun a machine, and each starts ranks. Their environment has both. */
static void the_launcher_that_started_the_ranks_names_the_job(void **state)
{
        assert_memory_equal(JOB("SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "SLURM_JOB_ID=12",
                                "SLURM_STEP_ID=3", "RANK=5", "WORLD_SIZE=8", "MASTER_ADDR=node1",
                                "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=none"),
                            "torchrun:", 9);
        assert_memory_equal(JOB("SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "SLURM_JOB_ID=12",
                                "SLURM_STEP_ID=3", "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=node1",
                                "MASTER_PORT=29500"),
                            "slurm:", 6);
}

/* A program that starts ranks itself, as torch.multiprocessing does, sets none of the variables. */
static void sublet_run_names_the_job_of_ranks_that_nobody_else_names(void **state)
{
        char group[WIRE_GROUP_MAX + 1];

        (void)strcpy(group, JOB("SUBLET_RANKS=2", "SUBLET_RANKS_JOB=77"));
        assert_memory_equal(group, "sublet:", 7);
        assert_true(wire_group_is_valid(group));
        assert_string_not_equal(JOB("SUBLET_RANKS=2", "SUBLET_RANKS_JOB=78"), group);
        assert_string_equal(JOB("SUBLET_RANKS=1", "SUBLET_RANKS_JOB=77"), NONE);
        assert_string_equal(JOB("SUBLET_RANKS=2"), NONE);
        assert_memory_equal(JOB("SUBLET_RANKS=2", "SUBLET_RANKS_JOB=77", "RANK=1", "WORLD_SIZE=2",
                                "MASTER_ADDR=node1", "MASTER_PORT=29500"),
                            "pytorch:", 8);
}

/* MPICH gives each rank a socket of its own; the proxy made all of them. */
static void sockets_of_one_process_name_one_job(void **state)
{
        char text[2][32], first[WIRE_GROUP_MAX + 1], second[WIRE_GROUP_MAX + 1];
        int fd[4], closed;

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd + 2), 0);
        closed = dup(fd[0]);
        (void)close(closed);
        (void)snprintf(text[0], sizeof(text[0]), "PMI_FD=%d", fd[1]);
        (void)snprintf(text[1], sizeof(text[1]), "PMI_FD=%d", fd[3]);
        (void)strcpy(first, JOB("PMI_SIZE=2", "PMI_RANK=0", text[0]));
        (void)strcpy(second, JOB("PMI_SIZE=2", "PMI_RANK=1", text[1]));
        assert_memory_equal(first, "mpich:", 6);
        assert_string_equal(first, second);

        assert_string_equal(JOB("PMI_SIZE=1", "PMI_RANK=0", text[0]), NONE);
        (void)snprintf(text[0], sizeof(text[0]), "PMI_FD=%d", closed);
        assert_string_equal(JOB("PMI_SIZE=2", "PMI_RANK=0", text[0]), NONE);
        assert_string_equal(JOB("PMI_SIZE=2", "PMI_RANK=0", "PMI_FD=4294967296"), NONE);
        assert_string_equal(JOB("PMI_SIZE=2", "PMI_RANK=0"), NONE);
        for (unsigned i = 0; i < ARRAY_SIZE(fd); i++)
                (void)close(fd[i]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_program_without_a_launcher_is_in_no_job),
                cmocka_unit_test(ranks_of_one_job_get_one_name_that_is_a_valid_group),
                cmocka_unit_test(each_value_of_the_identity_distinguishes_jobs),
                cmocka_unit_test(a_job_of_one_rank_is_no_group),
                cmocka_unit_test(a_process_that_lacks_one_of_the_variables_is_no_rank),
                cmocka_unit_test(values_are_not_joined_without_a_border),
                cmocka_unit_test(the_launcher_that_started_the_ranks_names_the_job),
                cmocka_unit_test(sublet_run_names_the_job_of_ranks_that_nobody_else_names),
                cmocka_unit_test(sockets_of_one_process_name_one_job),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
