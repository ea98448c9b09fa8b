/* client.c: owns the connection of a simulated driver to its MPS server. Must never call failed()
 * in a thread of the program. */
#include "sim/mps/client.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "sim/mps/talk.h"

static struct {
        int fd;
        _Atomic bool joined;
        double percentage;
        void (*failed)(CUresult error);
} mps = {.fd = -1};

/* Waits for the server's end, or for a message from it. */
static void *listen_on(void *argument)
{
        struct talk_packet p;
        const ssize_t n = recv(mps.fd, &p, sizeof(p), 0);

        (void)argument;
        if (atomic_load(&sim.exiting))
                return NULL;
        if (n != (ssize_t)sizeof(p))
                mps.failed(CUDA_ERROR_MPS_RPC_FAILURE);
        else if (p.what == TALK_TERMINATED)
                mps.failed(CUDA_ERROR_MPS_CLIENT_TERMINATED);
        else
                mps.failed(CUDA_ERROR_ILLEGAL_ADDRESS);
        return NULL;
}

static bool start_listening(void)
{
        sigset_t all, before;
        pthread_t thread;
        bool ok;

        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        ok = pthread_create(&thread, NULL, listen_on, NULL) == 0 && pthread_detach(thread) == 0;
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        return ok;
}

static CUresult talk(int fd)
{
        struct talk_packet p = {.what = TALK_CLIENT, .pid = getpid()};

        if (send(fd, &p, sizeof(p), MSG_NOSIGNAL) != (ssize_t)sizeof(p) ||
            recv(fd, &p, sizeof(p), 0) != (ssize_t)sizeof(p))
                return CUDA_ERROR_MPS_CONNECTION_FAILED;
        return p.what == TALK_WELCOME ? CUDA_SUCCESS : CUDA_ERROR_MPS_MAX_CLIENTS_REACHED;
}

static double read_percentage(void)
{
        const char *text = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
        const double percentage = text ? strtod(text, NULL) : 100;

        return percentage > 0 && percentage < 100 ? percentage : 100;
}

static CUresult join(const struct sockaddr_un *sa)
{
        CUresult r = CUDA_ERROR_MPS_CONNECTION_FAILED;
        const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return r;
        if (connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) == 0) {
                mps.fd = fd;
                r = talk(fd);
                if (r == CUDA_SUCCESS && start_listening()) {
                        mps.percentage = read_percentage();
                        atomic_store(&mps.joined, true);
                        return r;
                }
        } else if (errno == ENOENT || errno == EACCES) {
                r = CUDA_SUCCESS; /* as with the driver: nobody offers MPS here */
        }
        (void)close(fd);
        return r;
}

CUresult mps_join(void (*failed)(CUresult error))
{
        static pthread_mutex_t joining = PTHREAD_MUTEX_INITIALIZER;
        static bool done;
        const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
        struct sockaddr_un sa = {.sun_family = AF_UNIX};
        CUresult r = CUDA_SUCCESS;
        int n;

        (void)pthread_mutex_lock(&joining);
        n = snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/control", dir ? dir : "");
        if (!done && dir && *dir && n < (int)sizeof(sa.sun_path)) {
                mps.failed = failed;
                r = join(&sa);
        }
        done = r == CUDA_SUCCESS;
        (void)pthread_mutex_unlock(&joining);
        return r;
}

bool mps_takes_part(void)
{
        return atomic_load(&mps.joined);
}

double mps_percentage(void)
{
        return mps_takes_part() ? mps.percentage : 100;
}

void mps_tell_fault(void)
{
        struct talk_packet p = {.what = TALK_FAULT, .pid = getpid()};

        if (mps_takes_part())
                (void)send(mps.fd, &p, sizeof(p), MSG_NOSIGNAL | MSG_DONTWAIT);
}
