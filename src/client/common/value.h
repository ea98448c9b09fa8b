/* value.h: which values a setting may have. `sublet run` refuses others, and doctor reports them.
 * Pure. */
#pragma once

#include <stdbool.h>

#include "base/settings.h"

bool value_is_good(enum setting s, const char *value);
