/* tell.c: owns what the log says of calls to the driver. Must never change a call, its result or
 * errno. */
#include "preload/driver/tell.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "preload/driver/rows.h"

bool tell_all;
__thread const char *tell_caller __attribute__((tls_model("initial-exec")));

static struct real_driver behind;

/* Logs a call and its caller, as a file name below src/preload. */
static NOINLINE CUresult tell(enum door_row row, CUresult result)
{
        static const char folder[] = "preload/";
        const char *file = tell_caller ? strstr(tell_caller, folder) : NULL;
        const int kept = errno;

        tell_caller = NULL;
        log_debug("driver: %s is %d, for %s", rows_symbol(row), (int)result,
                  file ? file + strlen(folder) : "the program");
        errno = kept;
        return result;
}

#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        static CUresult tell_##symbol params                            \
        {                                                               \
                return tell(DOOR_##symbol, behind.symbol args);         \
        }
#include "cuda/cuda_api.def"

struct real_driver *tell_begin(struct real_driver *table)
{
        if (!log_enabled(LOG_LEVEL_DEBUG))
                return table;
        behind = *table;
        /* A table of these addresses would have to be relocated in each process. */
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        table->symbol = tell_##symbol;
#include "cuda/cuda_api.def"
        tell_all = true;
        return &behind;
}
