/* surface_per_thread.c: submits work through the entry points for per-thread default streams. */
#include <string.h>

#include "base/macros.h"
#include "surface.h"

#define Z(name) name##_ptsz
#define D(name) name##_ptds
#include "surface_submit.inc"

void submit_per_thread(void)
{
        everything();
}
