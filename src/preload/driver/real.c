/* real.c: owns the table of the real driver's functions. Must never hold a lock while it calls the
 * loader, because a constructor that the loader runs may wait for that lock.
 * Why: docs/decisions.md, "Our `ioctl()` forwards to the function that libcuda would have
 * called". */
#include "preload/driver/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "preload/driver/rows.h"
#include "preload/driver/tell.h"
#include "preload/process/libc_compat.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/process/lock.h"

#undef real /* from here on `real` is the table itself */

enum real_state { REAL_UNOPENED, REAL_OPEN, REAL_ABSENT };

static _Atomic int real_state;
static struct real_driver *driver = &real; /* the table with the driver's own functions */

static CUresult real_missing(void)
{
        return atomic_load_explicit(&real_state, memory_order_relaxed) == REAL_OPEN
                       ? CUDA_ERROR_NOT_SUPPORTED
                       : CUDA_ERROR_NOT_INITIALIZED;
}

#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        static CUresult missing_##symbol params                         \
        {                                                               \
                return real_missing();                                  \
        }
#include "cuda/cuda_api.def"

struct real_driver real = {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) .symbol = missing_##symbol,
#include "cuda/cuda_api.def"
};

_Atomic(real_ioctl_fn *) real_ioctl;

/* True for each row that the driver lacks and for which no other address was adopted. */
static _Atomic bool real_lacks[DOOR_COUNT];

static int real_result(int state)
{
        return state == REAL_OPEN ? 0 : -ENOENT;
}

static void real_publish(void *const addresses[static DOOR_COUNT])
{
        for (unsigned row = 0; row < DOOR_COUNT; row++) {
                if (!addresses[row]) {
                        atomic_store_explicit(&real_lacks[row], true, memory_order_relaxed);
                        continue;
                }
                *rows_slot(&real, row) = addresses[row];
                rows_learn(row, addresses[row]);
        }
        driver = tell_begin(&real);
}

int real_open(void)
{
        static struct lock publishing;
        static _Atomic int process; /* the process whose thread began to load the driver */
        void *addresses[DOOR_COUNT] = {NULL};
        void *library;
        int state = atomic_load_explicit(&real_state, memory_order_acquire), none = 0;

        if (likely(state != REAL_UNOPENED))
                return real_result(state);
        /* This process was forked while a thread of the parent loaded the driver: the child's copy
         * of the loader may be in the middle of a change. */
        if (!atomic_compare_exchange_strong(&process, &none, (int)getpid()) &&
            none != (int)getpid())
                return real_result(REAL_ABSENT);

        log_open("libsublet", LOG_LEVEL_WARNING); /* before tell_begin() looks at the level */
        /* Racing threads may all load the driver: the loader counts its references, and the first
         * thread that is done publishes the table. */
        library = compat_dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        for (unsigned row = 0; library && row < DOOR_COUNT; row++)
                addresses[row] = compat_dlsym(library, rows_symbol(row));
        if (library)
                atomic_store_explicit(&real_ioctl, (real_ioctl_fn *)compat_dlsym(library, "ioctl"),
                                      memory_order_release);
        (void)compat_dlerror(); /* clear our error: the program must not see it */

        lock_acquire(&publishing);
        state = atomic_load_explicit(&real_state, memory_order_relaxed);
        if (state == REAL_UNOPENED) {
                if (library)
                        real_publish(addresses);
                state = library ? REAL_OPEN : REAL_ABSENT;
                atomic_store_explicit(&real_state, state, memory_order_release);
        }
        lock_release(&publishing);
        return real_result(state);
}

bool real_has(unsigned row, const void *address)
{
        return *rows_slot(driver, row) == address;
}

bool real_adopt(unsigned row, void *address)
{
        bool lacks = true;

        if (!atomic_compare_exchange_strong(&real_lacks[row], &lacks, false))
                return false;
        __atomic_store_n(rows_slot(driver, row), address, __ATOMIC_RELEASE);
        return true;
}
