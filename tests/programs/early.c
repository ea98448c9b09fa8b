/* early: forks while another thread's first call loads the driver. The parent's call must succeed.
 * The child's calls must fail with CUDA_ERROR_NOT_INITIALIZED.
 *
 * A test runs this program with slowdriver.c. That driver reports on the pipe SLOW_SAYS that it is
 * being loaded, and then waits until the pipe SLOW_WAITS is closed. The test preloads libsublet,
 * because this program is not linked with a driver. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/cuda_abi.h"

enum { HANGS_AFTER = 20 };

static CUresult (*init)(unsigned flags);
static CUresult (*memset_async)(CUdeviceptr at, unsigned char value, size_t bytes, CUstream s);
static CUresult result;

static void *first_call(void *unused)
{
        result = init(0);
        return NULL;
}

static int fail(const char *what)
{
        (void)fprintf(stderr, "early: %s\n", what);
        return 1;
}

int main(void)
{
        int says[2], waits[2], status;
        pthread_t thread;
        char text[16], loading;
        pid_t pid;

        init = (__typeof__(init))dlsym(RTLD_DEFAULT, "cuInit");
        memset_async = (__typeof__(memset_async))dlsym(RTLD_DEFAULT, "cuMemsetD8Async");
        if (!init || !memset_async || pipe(says) < 0 || pipe(waits) < 0)
                return fail("cannot begin");
        (void)snprintf(text, sizeof(text), "%d", says[1]);
        (void)setenv("SLOW_SAYS", text, 1);
        (void)snprintf(text, sizeof(text), "%d", waits[0]);
        (void)setenv("SLOW_WAITS", text, 1);
        if (pthread_create(&thread, NULL, first_call, NULL) != 0)
                return fail("cannot create a thread");
        if (read(says[0], &loading, 1) != 1)
                return fail("no driver");
        pid = fork();
        if (pid == 0) {
                (void)alarm(HANGS_AFTER);
                exit(init(0) == CUDA_ERROR_NOT_INITIALIZED &&
                                     memset_async(0, 0, 1, NULL) == CUDA_ERROR_NOT_INITIALIZED
                             ? 0
                             : fail("the child was not told that it has no CUDA"));
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
                return fail("cannot fork");
        (void)close(waits[1]);
        (void)pthread_join(thread, NULL);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return fail("the child did not end with 0");
        return result == CUDA_SUCCESS ? 0 : fail("cuInit failed in the parent");
}
