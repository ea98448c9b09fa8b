#!/bin/sh
# must_fail.sh TEST SECONDS: the random test, with a mistake planted in the scheduler, must notice it within so much computing
# time and tell it in a short sequence.
set -u
out=$(ulimit -t "$2" && exec "$1" 2>/dev/null)
code=$?
echo "$out" | grep -E '^(seed|shortest|[0-9]+ choices)'
[ $code -ne 0 ] || { echo "the mistake was not noticed"; exit 1; }
short=$(echo "$out" | sed -n 's/^[0-9]* choices became \([0-9]*\)$/\1/p')
[ -n "$short" ] || { echo "it ended with $code, and not by what the test says"; exit 1; }
[ "$short" -le 100 ] || { echo "the shortest sequence is still $short choices long"; exit 1; }
