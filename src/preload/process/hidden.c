/* hidden.c: owns the search for loaded libraries that submit hidden work. Must never load such a
 * library, nor call into it. */
#include "preload/process/hidden.h"

#include <link.h>
#include <stdbool.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"

static const char *const names[] = {
#define HIDDEN(name, what) name,
#include "cuda/hidden_libraries.def"
};

/* The result of the last search, and the loader's counters when it was made. */
static struct {
        unsigned long long adds, subs;
        const char *found;
} known;

static const char *find_name(const char *path)
{
        const char *file = strrchr(path, '/');

        file = file ? file + 1 : path;
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (strncmp(file, names[i], strlen(names[i])) == 0 &&
                    strncmp(file + strlen(names[i]), ".so", 3) == 0)
                        return names[i];
        return NULL;
}

static int look(struct dl_phdr_info *info, size_t size, void *userdata)
{
        bool *again = userdata;

        if (!*again && info->dlpi_adds == known.adds && info->dlpi_subs == known.subs)
                return 1; /* since then no library was loaded or unloaded */
        *again = true;
        known.adds = info->dlpi_adds;
        known.subs = info->dlpi_subs;
        known.found = info->dlpi_name ? find_name(info->dlpi_name) : NULL;
        return known.found != NULL;
}

const char *hidden_library(void)
{
        bool again = false;

        (void)dl_iterate_phdr(look, &again);
        return known.found;
}

void hidden_tell(void)
{
        static bool told;

        if (!told)
                log_warning("%s is loaded: its work on the GPU cannot be awaited, so the memory of "
                            "this program stays there",
                            known.found);
        told = true;
}
