#!/bin/sh
# The LEMON graph library 1.3.1 is a stable library of C++98, all in headers. The guess: a program that finds a
# matching compiles with any later standard.
#
# The headers call construct() and destroy() of std::allocator, which C++20 has removed. So each use of a node or edge
# map fails to compile with -std=c++20. With -std=c++17, the default of Debian 12's g++, there are only warnings.
# Debian 12's liblemon-dev 1.3.1+dfsg-6.
#
# Seen: c++17 compiles; c++20: has no member named 'construct'
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -qq download liblemon-dev=1.3.1+dfsg-6 2>/dev/null
for package in *.deb; do dpkg -x "$package" .; done
cat >match.cc <<'END'
#include <lemon/matching.h>
#include <lemon/smart_graph.h>

double weight(lemon::SmartGraph &g, lemon::SmartGraph::EdgeMap<double> &w)
{
        lemon::MaxWeightedMatching<lemon::SmartGraph, lemon::SmartGraph::EdgeMap<double>> m(g, w);

        m.run();
        return m.matchingWeight();
}
END
LC_ALL=C g++ -std=c++17 -w -Iusr/include -c match.cc
LC_ALL=C g++ -std=c++20 -Iusr/include -c match.cc 2>errors && exit 1
grep -o "has no member named 'construct'" errors | sort -u
