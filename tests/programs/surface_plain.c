/* surface_plain.c: submits work through the ordinary entry points. */
#include <string.h>

#include "base/macros.h"
#include "surface.h"

#define Z(name) name
#define D(name) name
#include "surface_submit.inc"

void submit_plain(void)
{
        everything();
}
