/* lookup.c: owns the look-ups in the libraries behind this one. */
#include "ranks/real/lookup.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/macros.h"
#include "ranks/real/real_functions.h"

/* volatile: the compiler assumes that dlsym() does not call back into this file, but dlsym() calls
 * our replace(), which reads this. */
static __thread volatile bool looking;

bool real_is_looking(void)
{
        return looking;
}

static void publish(struct real_table *t, void *const *found)
{
        static pthread_mutex_t publishing = PTHREAD_MUTEX_INITIALIZER;

        (void)pthread_mutex_lock(&publishing);
        if (!atomic_load_explicit(&t->state, memory_order_relaxed)) {
                for (unsigned i = 0; found && i < t->n; i++)
                        if (found[i])
                                t->functions[i] = found[i];
                atomic_store_explicit(&t->state, 1, memory_order_release);
        }
        (void)pthread_mutex_unlock(&publishing);
}

void real_table_open(struct real_table *t)
{
        bool outer = looking;
        void *library, **found = NULL;

        if (likely(atomic_load_explicit(&t->state, memory_order_acquire)))
                return;
        library = dlopen(t->choose ? t->choose() : t->soname, RTLD_NOW | RTLD_LOCAL);
        if (library)
                found = calloc(t->n, sizeof(*found));
        looking = true;
        for (unsigned i = 0; found && i < t->n; i++)
                found[i] = dlsym(library, t->names[i]);
        looking = outer;
        (void)dlerror(); /* clear our error: the program must not see it */
        publish(t, found);
        free((void *)found);
}
