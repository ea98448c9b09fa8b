#!/bin/sh
# must_fail.sh TEST SECONDS: a test, with a mistake planted in the scheduler, must notice it within so much computing time. It
# ends at the first test of it that fails. The random test must tell the mistake in a short sequence.
set -u
out=$({ ulimit -t "$2" && "$1" 2>&1 || echo "it ended with $?"; } | sed '/^\[  FAILED  \] [a-z]/q')
echo "$out" | grep -E '^(seed|shortest|[0-9]+ choices|\[  FAILED)'
short=$(echo "$out" | sed -n 's/^[0-9]* choices became \([0-9]*\)$/\1/p' | head -n 1)
if [ -z "$short" ] && ! echo "$out" | grep -q '^\[  FAILED'; then
        echo "$out" | grep '^it ended with' || echo "the mistake was not noticed"
        exit 1
fi
[ "${short:-0}" -le 100 ] || { echo "the shortest sequence is still $short choices long"; exit 1; }
