/* ranks.c: starts the processes of the ranks, gives them orders, and notices when they end. */
#include "ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "checks.h"

static pid_t pids[RANKS_MAX]; /* 0: has ended */
static int pipes[RANKS_MAX][2];
static char text[640];

void cuda_expect(CUresult got, const char *call, const char *file, int line)
{
        const char *name = "?";

        if (got == CUDA_SUCCESS)
                return;
        (void)cu.GetErrorName(got, &name);
        fatal("%s:%d: %s: %s (%d), at: %s", file, line, call, name ? name : "?", (int)got,
              lobby->seat[my_rank].at);
}

void nccl_expect(ncclResult_t got, ncclResult_t expected, const char *call, const char *file,
                 int line)
{
        if (got != expected)
                fatal("%s:%d: %s answered %d (%s), not %d, at: %s", file, line, call, (int)got,
                      nccl.GetLastError(NULL), (int)expected, lobby->seat[my_rank].at);
}

ncclUniqueId id_from(const struct rank *r, int from)
{
        ncclUniqueId id;

        at("an id from rank %d", from);
        if (r->rank == from) {
                NCCL(nccl.GetUniqueId(&id));
                for (int i = 0; i < r->n; i++)
                        if (!lobby->seat[i].leaves &&
                            write(pipes[i][1], &id, sizeof(id)) != (ssize_t)sizeof(id))
                                fatal("a pipe refuses an id");
        }
        /* Each rank reads one id for each that was written; senders take turns by the meeting. */
        if (read(pipes[r->rank][0], &id, sizeof(id)) != (ssize_t)sizeof(id))
                fatal("a pipe brings no id");
        lobby_meet();
        return id;
}

ncclComm_t comm_of_all(const struct rank *r, bool reversed)
{
        ncclUniqueId id = id_from(r, reversed ? r->n - 1 : 0);
        ncclComm_t comm = NULL;

        at("init of a communicator of all ranks");
        NCCL(nccl.CommInitRank(&comm, r->n, id, reversed ? r->n - 1 - r->rank : r->rank));
        if (!comm)
                fatal("ncclCommInitRank made no communicator");
        return comm;
}

bool stream_ends(CUstream s, double seconds)
{
        uint64_t end = program_now_ns() + (uint64_t)(seconds * settings.patience * 1e9);

        while (cu.StreamQuery(s) == CUDA_ERROR_NOT_READY) {
                if (program_now_ns() > end)
                        return false;
                lobby_nap();
        }
        return true;
}

/* ---- memory that only has to stay as it is ---- */

#define FILL_WORD(rank) (0x5eed0000u + (unsigned)(rank))

static void fill_make(struct rank *r)
{
        if (!settings.fill)
                return;
        CUDA(cu.MemAlloc(&r->fill, settings.fill));
        CUDA(cu.MemsetD32(r->fill, FILL_WORD(r->rank), settings.fill / 4));
        CUDA(cu.CtxSynchronize());
}

void fill_check(const struct rank *r)
{
        static uint32_t words[256 * KIB];

        for (uint64_t from = 0; from < settings.fill; from += sizeof(words)) {
                uint64_t bytes = MIN(settings.fill - from, sizeof(words));

                CUDA(cu.MemcpyDtoH(words, r->fill + from, bytes));
                for (uint64_t i = 0; i < bytes / 4; i++)
                        if (words[i] != FILL_WORD(r->rank)) {
                                wrong("the rank's other memory was changed at byte %llu",
                                      (unsigned long long)(from + 4 * i));
                                return;
                        }
        }
}

/* ---- a rank ---- */

static void rank_begin(struct rank *r)
{
        at("cuInit");
        driver_open(false);
        nccl_open();
        CUDA(cu.Init(0));
        CUDA(cu.DeviceGetCount(&r->devices));
        if (!r->devices)
                fatal("no device");
        r->ordinal = r->rank % r->devices;
        CUDA(cu.DeviceGet(&r->device, r->ordinal));
        CUDA(cu.DevicePrimaryCtxRetain(&r->context, r->device));
        CUDA(cu.CtxSetCurrent(r->context));
        for (size_t i = 0; i < ARRAY_SIZE(r->stream); i++)
                CUDA(cu.StreamCreate(&r->stream[i], CU_STREAM_NON_BLOCKING));
        at("filling memory");
        fill_make(r);
        r->comm = comm_of_all(r, false);
        note("device %d of %d", r->ordinal, r->devices);
}

static void rank_end(struct rank *r)
{
        at("the end");
        if (r->comm)
                NCCL(nccl.CommDestroy(r->comm));
        if (r->fill)
                CUDA(cu.MemFree(r->fill));
        for (size_t i = 0; i < ARRAY_SIZE(r->stream); i++)
                CUDA(cu.StreamDestroy(r->stream[i]));
        CUDA(cu.CtxSetCurrent(NULL));
        CUDA(cu.DevicePrimaryCtxRelease(r->device));
}

static void rank_main(int rank, int n)
{
        struct rank r = {.rank = rank, .n = n};
        unsigned orders = 0;

        my_rank = rank;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
                int check;

                while (lobby->order == orders)
                        lobby_nap();
                orders = lobby->order;
                check = lobby->check;
                if (check == CHECK_START) {
                        rank_begin(&r);
                } else if (check == CHECK_END) {
                        rank_end(&r);
                        lobby->seat[rank].leaves = true;
                        atomic_fetch_add(&lobby->done, 1);
                        exit(PROGRAM_EXIT_OK);
                } else {
                        at("the beginning of %s", checks[check].name);
                        checks[check].run(&r);
                        at("looking at the other memory");
                        fill_check(&r);
                }
                at("done");
                atomic_fetch_add(&lobby->done, 1);
        }
}

/* ---- the parent ---- */

bool ranks_running(void)
{
        for (int i = 0; i < RANKS_MAX; i++)
                if (pids[i])
                        return true;
        return false;
}

void ranks_start(int n)
{
        char list[RANKS_MAX * 12] = "";

        lobby_reset();
        for (int i = 0; i < n; i++)
                if (pipe(pipes[i]) < 0)
                        program_fail(PROGRAM_EXIT_SETUP, "no pipe");
        (void)fflush(stdout);
        for (int i = 0; i < n; i++) {
                pids[i] = fork();
                if (pids[i] < 0)
                        program_fail(PROGRAM_EXIT_SETUP, "no process");
                if (!pids[i])
                        rank_main(i, n);
                (void)snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%d",
                               i ? "," : "", (int)pids[i]);
        }
        for (int i = 0; i < n; i++) {
                (void)close(pipes[i][0]);
                (void)close(pipes[i][1]);
        }
        program_say("ranks", "\"pids\":[%s]", list);
}

static void kill_all(void)
{
        for (int i = 0; i < RANKS_MAX; i++)
                if (pids[i]) {
                        (void)kill(pids[i], SIGKILL);
                        (void)waitpid(pids[i], NULL, 0);
                        pids[i] = 0;
                }
}

/* Notices ranks that have ended. False if one of them was not to end. */
static bool look_at_ranks(void)
{
        bool good = true;

        for (int i = 0; i < RANKS_MAX; i++) {
                int status;

                if (!pids[i] || waitpid(pids[i], &status, WNOHANG) != pids[i])
                        continue;
                pids[i] = 0;
                if (lobby->seat[i].leaves && (WIFSIGNALED(status) || WEXITSTATUS(status) == 0))
                        continue;
                if (good && !*lobby->seat[i].failure)
                        (void)snprintf(text, sizeof(text), "rank %d ended with %s %d at: %s", i,
                                       WIFSIGNALED(status) ? "signal" : "status",
                                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                                       lobby->seat[i].at);
                good = false;
        }
        return good;
}

static void describe_hang(double seconds)
{
        (void)snprintf(text, sizeof(text), "not done after %.0f s;", seconds);
        for (int i = 0; i < lobby->n; i++)
                if (!lobby->seat[i].leaves)
                        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text),
                                       " rank %d at: %s;", i, lobby->seat[i].at);
}

bool ranks_do(int check, double seconds, const char **ret_text)
{
        uint64_t end = program_now_ns() + (uint64_t)(seconds * 1e9);

        *text = '\0';
        *ret_text = text;
        lobby->done = 0;
        lobby->check = check;
        lobby->order++;
        while (lobby->done < lobby->present) {
                bool good = look_at_ranks(), late = program_now_ns() > end;

                if (good && !late) {
                        lobby_nap();
                        continue;
                }
                if (late && good)
                        describe_hang(seconds);
                (void)usleep(500000); /* the others may have something to say, too */
                kill_all();
                return false;
        }
        return true;
}

bool ranks_end(double seconds, const char **ret_text)
{
        uint64_t end = program_now_ns() + (uint64_t)(seconds * 1e9);
        bool good = ranks_do(CHECK_END, seconds, ret_text);

        while (good && ranks_running()) {
                good = look_at_ranks();
                if (program_now_ns() > end) {
                        (void)snprintf(text, sizeof(text), "a rank has not ended after its end");
                        good = false;
                }
                lobby_nap();
        }
        kill_all();
        return good;
}
