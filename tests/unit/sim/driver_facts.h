/* driver_facts.h: the groups of questions of driver_facts that are in a file of their own. */
#pragma once

#include "facts.h"

extern const struct facts corner_groups[];
