#!/bin/sh
# must_fail.sh TEST SECONDS: a test, with a mistake planted in the scheduler, must notice it within so much computing time. The
# random test must tell it in a short sequence; if two of its tests fail, the first counts.
set -u
out=$(ulimit -t "$2" && exec "$1" 2>&1)
code=$?
echo "$out" | grep -E '^(seed|shortest|[0-9]+ choices|\[  FAILED)'
[ $code -ne 0 ] || { echo "the mistake was not noticed"; exit 1; }
short=$(echo "$out" | sed -n 's/^[0-9]* choices became \([0-9]*\)$/\1/p' | head -n 1)
[ -n "$short" ] || echo "$out" | grep -q '^\[  FAILED' || { echo "it ended with $code, and not by what the test says"; exit 1; }
[ "${short:-0}" -le 100 ] || { echo "the shortest sequence is still $short choices long"; exit 1; }
