/* pool_facts.h: the groups of questions of pool_facts. */
#pragma once

#include "facts.h"

extern const struct facts pool_groups[], pool_graph_groups[], free_groups[], green_groups[],
        host_groups[];
