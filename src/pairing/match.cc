/* match.cc: owns the talk with LEMON. Must never let an exception out: its callers are C. */
#include "pairing/match.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <functional>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include <lemon/matching.h>
#include <lemon/smart_graph.h>

namespace
{

typedef lemon::SmartGraph Graph;
typedef Graph::EdgeMap<long long> Weights;
typedef lemon::MaxWeightedMatching<Graph, Weights> Matching;

const double scale = 1e6;
/* A scaled weight has a range of less than 2^25. One more pair has to beat the weights of at most
 * 2^15 pairs, so an edge counts at most 2^41, and all pairs 2^56; LEMON multiplies by 4. */
const long long range = static_cast<long long>(2 * MATCH_WEIGHT_MAX * scale) + 1;

/* A matching is at most this much lighter for each pair than the best: 1e-4 of a weight. */
const long long tolerance = 4 * 100;
const size_t SMALL = 4000;                 /* edges that are given to the solver at once */
const size_t AT_FIRST = 8, EACH_ROUND = 6; /* edges of each node that are given */
const unsigned ROUNDS = 20;                /* five or fewer rounds are usual */

bool edge_is_right(const match_edge &e, unsigned nodes)
{
        return e.a < nodes && e.b < nodes && e.a != e.b && std::fabs(e.weight) <= MATCH_WEIGHT_MAX;
}

/* Edges in two lists: by node, and whether the solver has them. */
struct Problem {
        unsigned nodes;
        const match_edge *edges;
        size_t n_edges;
        long long more;
        std::vector<char> given;
        std::vector<unsigned> partners;
        std::vector<long long> duals;                                 /* dual values of the nodes */
        std::vector<std::vector<std::pair<int, long long>>> blossoms; /* of each node, by number */

        long long weight_of(size_t edge) const
        {
                return std::llround(edges[edge].weight * scale) + more;
        }
};

/* Matches with the given edges alone. Returns the number of pairs. */
int solve(Problem &p)
{
        std::vector<Graph::Node> node(p.nodes);
        Graph graph;
        Weights weights(graph);

        graph.reserveNode(static_cast<int>(p.nodes));
        for (unsigned i = 0; i < p.nodes; i++)
                node[i] = graph.addNode();
        for (size_t i = 0; i < p.n_edges; i++)
                if (p.given[i])
                        weights[graph.addEdge(node[p.edges[i].a], node[p.edges[i].b])] =
                                p.weight_of(i);

        Matching matching(graph, weights);
        matching.run();
        for (unsigned i = 0; i < p.nodes; i++) {
                const Graph::Node mate = matching.mate(node[i]);

                p.partners[i] =
                        mate == lemon::INVALID ? MATCH_NONE : static_cast<unsigned>(graph.id(mate));
                p.duals[i] = matching.nodeValue(node[i]);
                p.blossoms[i].clear();
        }
        for (int b = 0; b < matching.blossomNum(); b++)
                for (Matching::BlossomIt n(matching, b); n != lemon::INVALID; ++n)
                        p.blossoms[static_cast<size_t>(graph.id(n))].emplace_back(
                                b, matching.blossomValue(b));
        return matching.matchingSize();
}

/* Returns by how much an edge violates the dual problem, which is what it could add to the
 * matching. */
long long surplus_of(const Problem &p, size_t edge)
{
        const match_edge &e = p.edges[edge];
        long long surplus = Matching::dualScale * p.weight_of(edge) - p.duals[e.a] - p.duals[e.b];

        if (surplus <= tolerance)
                return 0;
        for (auto a = p.blossoms[e.a].begin(), b = p.blossoms[e.b].begin();
             a != p.blossoms[e.a].end() && b != p.blossoms[e.b].end();) {
                if (a->first == b->first)
                        surplus -= a->second;
                if (a->first <= b->first)
                        b += a->first == b->first, ++a;
                else
                        ++b;
        }
        return surplus > tolerance ? surplus : 0;
}

typedef std::vector<std::vector<std::pair<long long, size_t>>> Ranked;

/* Gives the solver each node's `most` best edges. Returns whether there was a new one. */
bool give(Problem &p, Ranked &ranked, size_t most)
{
        bool any = false;

        for (auto &list : ranked) {
                const size_t n = std::min(most, list.size());

                std::partial_sort(list.begin(), std::next(list.begin(), static_cast<long>(n)),
                                  list.end(), std::greater<std::pair<long long, size_t>>());
                for (size_t i = 0; i < n; i++) {
                        any |= !p.given[list[i].second];
                        p.given[list[i].second] = 1;
                }
                list.clear();
        }
        return any;
}

/* Begins with the heaviest edges of each node, and some others, so that there are many pairs. */
void give_first(Problem &p, Ranked &ranked)
{
        for (unsigned pass = 0; pass < 2; pass++) {
                for (size_t i = 0; i < p.n_edges; i++) {
                        /* The second pass takes any order that has nothing to do with weight. */
                        const long long rank =
                                pass == 0 ? p.weight_of(i)
                                          : static_cast<long long>(i * 0x9e3779b97f4a7c15u >> 1);

                        ranked[p.edges[i].a].emplace_back(rank, i);
                        ranked[p.edges[i].b].emplace_back(rank, i);
                }
                give(p, ranked, AT_FIRST);
        }
}

/* The solver gets a small part of a large graph. Then it gets the edges that the dual of its answer
 * shows to be missing, until none is missing. So the matching is as good as that of all edges, in a
 * hundredth of the time. */
int run(unsigned nodes, const match_edge *edges, size_t n_edges, match_goal goal,
        unsigned *ret_partners)
{
        Problem p = {nodes,
                     edges,
                     n_edges,
                     goal == MATCH_CARDINALITY ? range * (nodes / 2 + 1) : 0,
                     std::vector<char>(n_edges, n_edges <= SMALL),
                     std::vector<unsigned>(nodes),
                     std::vector<long long>(nodes),
                     std::vector<std::vector<std::pair<int, long long>>>(nodes)};
        Ranked ranked(nodes);
        int pairs;

        for (size_t i = 0; i < n_edges; i++)
                if (!edge_is_right(edges[i], nodes))
                        return -EINVAL;
        if (n_edges > SMALL)
                give_first(p, ranked);
        pairs = solve(p);
        for (unsigned round = 0; round < ROUNDS && n_edges > SMALL; round++) {
                for (size_t i = 0; i < n_edges; i++) {
                        const long long surplus = p.given[i] ? 0 : surplus_of(p, i);

                        if (surplus > 0) {
                                ranked[edges[i].a].emplace_back(surplus, i);
                                ranked[edges[i].b].emplace_back(surplus, i);
                        }
                }
                if (!give(p, ranked, EACH_ROUND))
                        break;
                pairs = solve(p);
        }
        std::copy(p.partners.begin(), p.partners.end(), ret_partners);
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
