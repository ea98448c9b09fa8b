/* dlsym_user.c: the program that test_dlsym.c runs, with and without preloaded libraries. Its
 * argument names a check; the program exits with 0 if the check holds. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "probe.h"

#ifdef OLD_DLSYM
/* Programs linked against a C library before 2.34 refer to this version of dlsym(). */
void *old_dlsym(void *handle, const char *name);
__asm__(".symver old_dlsym, dlsym@GLIBC_2.2.5");
#define dlsym old_dlsym
#endif

#define CHECK(condition)                                                        \
        do {                                                                    \
                if (!(condition)) {                                             \
                        fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
                        exit(1);                                                \
                }                                                               \
        } while (0)

/* The address of our function, found by the loader instead of dlsym(), so that no library can have
 * wrapped it. */
extern int cuMemAlloc_v2(unsigned long long *, size_t) __attribute__((weak));

static void next(void)
{
        CHECK(probe_which() == 1);
        CHECK(probe_next() == 2);
}

static void interposed(void)
{
        int (*opens)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "probe_opens");

        CHECK(getppid() == syscall(SYS_getppid) + PROBE_PPID_OFFSET);
        CHECK(opens && opens() == 0);
        CHECK(dlopen(NULL, RTLD_NOW) && opens() == 1);
}

static void allocates(void)
{
        int (*ok)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "probe_malloc_ok");
        void *p = malloc(100);

        CHECK(p);
        free(p);
        CHECK(ok && ok() == 1);
}

static void driver(void)
{
        void *library, *p;

        CHECK(cuMemAlloc_v2); /* ours is preloaded; the driver is not loaded yet */
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        CHECK(library);
        (void)dlerror();
        p = dlsym(library, "cuMemAlloc_v2");
        CHECK(!dlerror()); /* a failed look-up of our own must leave no error for the program */
        CHECK(p == (void *)cuMemAlloc_v2);
        CHECK(dlsym(dlopen(NULL, RTLD_NOW), "cuMemAlloc_v2") == p);
        CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == p);

        /* For a function that is not intercepted, dlsym() returns the driver's own function. */
        CHECK(dlsym(library, "cuEventRecord"));
        CHECK(!dlsym(RTLD_DEFAULT, "cuEventRecord"));
        CHECK(dlsym(library, "fakedriver_calls"));

        /* This release of sublet does not know this version of an intercepted function. */
        (void)dlerror();
        CHECK(!dlsym(library, "cuMemFree_v3"));
        p = dlerror();
        CHECK(p && strstr(p, "cuMemFree_v3, which this release of sublet does not know"));
        CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == library);
        CHECK(!dlsym(RTLD_DEFAULT, "cuMemFree_v3"));
        CHECK(dlsym(library, "cuDeviceGetName_v2"));

        (void)dlerror();
        CHECK(!dlsym(library, "cuNoSuchThing"));
        p = dlerror();
        CHECK(p && strstr(p, "cuNoSuchThing"));
        CHECK(dlclose(library) == 0);
}

static void plain(void)
{
        void *p = malloc(1000);

        CHECK(p && dlsym(RTLD_DEFAULT, "printf") == (void *)printf);
        CHECK(!dlsym(RTLD_DEFAULT, "no_such_function"));
        free(p);
}

int main(int argc, char **argv)
{
        static const struct {
                const char *name;
                void (*check)(void);
        } checks[] = {{"next", next},
                      {"interposed", interposed},
                      {"allocates", allocates},
                      {"driver", driver},
                      {"plain", plain}};

        for (size_t i = 0; argc > 1 && i < sizeof(checks) / sizeof(checks[0]); i++)
                if (strcmp(argv[1], checks[i].name) == 0) {
                        checks[i].check();
                        return 0;
                }
        return 2;
}
