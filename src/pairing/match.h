/* match.h: maximum matching in a graph: which pairs of nodes go together, each node in one pair at
 * most. Behind a C interface, because LEMON is C++.
 *
 * MATCH_CARDINALITY: as many pairs as possible; of all such matchings, one of the greatest weight.
 * MATCH_WEIGHT: the greatest weight. A matching of many edges may be lighter than the best by 1e-4
 * for each pair, not more. Weights are rounded to millionths. With MATCH_CARDINALITY one more pair
 * counts more than all weights. With at most MATCH_NODES_MAX nodes no sum exceeds 2^58, so 64 bits
 * do not overflow. Pure. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MATCH_NODES_MAX  65535u
#define MATCH_WEIGHT_MAX 16.0
#define MATCH_NONE       (~0u)

struct match_edge {
        unsigned a, b;
        double weight; /* -MATCH_WEIGHT_MAX to MATCH_WEIGHT_MAX */
};

enum match_goal { MATCH_CARDINALITY, MATCH_WEIGHT };

/* Writes for each node its partner, or MATCH_NONE. Returns how many pairs there are; -EINVAL: a
 * node or a weight is out of range; -ENOMEM. */
int match_run(unsigned nodes, const struct match_edge *edges, size_t n_edges, enum match_goal goal,
              unsigned *ret_partners);

#ifdef __cplusplus
}
#endif
