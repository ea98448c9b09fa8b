/* match.cc: owns the talk with LEMON. Must never let an exception out: its callers are C. */
#include "pairing/match.h"

#include <cerrno>
#include <cmath>
#include <new>
#include <vector>

#include <lemon/matching.h>
#include <lemon/smart_graph.h>

namespace
{

typedef lemon::SmartGraph Graph;
typedef Graph::EdgeMap<long long> Weights;

const double scale = 1e6;
/* A scaled weight has a range of less than 2^25. A pair more has to beat one weight for each of at
 * most 2^15 pairs, so an edge counts at most 2^41, and all pairs 2^56; LEMON multiplies by 4. */
const long long range = static_cast<long long>(2 * MATCH_WEIGHT_MAX * scale) + 1;

bool edge_is_right(const match_edge &e, unsigned nodes)
{
        return e.a < nodes && e.b < nodes && e.a != e.b && std::fabs(e.weight) <= MATCH_WEIGHT_MAX;
}

int run(unsigned nodes, const match_edge *edges, size_t n_edges, match_goal goal,
        unsigned *ret_partners)
{
        const long long more = goal == MATCH_CARDINALITY ? range * (nodes / 2 + 1) : 0;
        std::vector<Graph::Node> node(nodes);
        Graph graph;
        Weights weights(graph);
        int pairs = 0;

        graph.reserveNode(static_cast<int>(nodes));
        graph.reserveEdge(static_cast<int>(n_edges));
        for (unsigned i = 0; i < nodes; i++)
                node[i] = graph.addNode();
        for (size_t i = 0; i < n_edges; i++) {
                const match_edge &e = edges[i];

                if (!edge_is_right(e, nodes))
                        return -EINVAL;
                weights[graph.addEdge(node[e.a], node[e.b])] =
                        std::llround(e.weight * scale) + more;
        }
        lemon::MaxWeightedMatching<Graph, Weights> matching(graph, weights);
        matching.run();
        for (unsigned i = 0; i < nodes; i++) {
                const Graph::Node mate = matching.mate(node[i]);

                ret_partners[i] =
                        mate == lemon::INVALID ? MATCH_NONE : static_cast<unsigned>(graph.id(mate));
                pairs += ret_partners[i] != MATCH_NONE && ret_partners[i] > i;
        }
        return pairs;
}

} // namespace

extern "C" int match_run(unsigned nodes, const match_edge *edges, size_t n_edges, match_goal goal,
                         unsigned *ret_partners)
{
        if (nodes > MATCH_NODES_MAX || n_edges > 0x7fffffff / 2)
                return -EINVAL;
        try {
                return run(nodes, edges, n_edges, goal, ret_partners);
        } catch (const std::bad_alloc &) {
                return -ENOMEM;
        } catch (...) {
                return -EINVAL;
        }
}
