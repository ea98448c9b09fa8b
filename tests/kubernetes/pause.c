/* pause.c: the first process of every pod in the tests' cluster: it keeps the pod's namespaces, and
 * reaps. Kubernetes' own comes from a registry. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_signal(int signal)
{
        if (signal != SIGCHLD)
                _exit(0);
        while (waitpid(-1, NULL, WNOHANG) > 0)
                ;
}

int main(void)
{
        struct sigaction action = {.sa_handler = on_signal};

        (void)sigaction(SIGTERM, &action, NULL);
        (void)sigaction(SIGINT, &action, NULL);
        (void)sigaction(SIGCHLD, &action, NULL);
        for (;;)
                (void)pause();
}
