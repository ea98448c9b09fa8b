#!/usr/bin/env bash
# Makes a picture of sublet top, with four programs on the simulated driver.
#
#   picture_top.sh [FILE [SIZE [SECONDS]]]     docs/pictures/top.svg, 110x22, 60
set -eu
cd "$(dirname "$(readlink -f "$0")")/.."
file=${1:-docs/pictures/top.svg} size=${2:-110x22} seconds=${3:-60}
export SIMCUDA_SESSION=picture SUBLET_QUIET=1
unset NO_COLOR
pids=()

run() { # NAME OPTIONS PROGRAM OPTIONS
        # shellcheck disable=SC2086
        build/sublet run --sim=memory=1GiB --name "$1" $2 -- build/programs/$3 </dev/null >/dev/null 2>&1 &
        pids+=($!)
}
finish() {
        kill "${pids[@]}" 2>/dev/null || :
        wait
        build/sublet stop --sim >/dev/null || :
        build/sim/simcuda-stat --remove --force
}
trap finish EXIT

run train.py "--share 0.3:0.8" "fill --bytes 420MiB --rounds 100000 --ms 700"
run notebook.ipynb "" "fill --bytes 260MiB --rounds 100000 --ms 2500"
run llm-serve "--weight 2" "fill --bytes 330MiB --rounds 100000 --ms 400"
run evaluate.py "--priority -1" "fill --bytes 180MiB --rounds 100000 --ms 1500"
sleep 2
/usr/bin/python3 tools/picture.py --size "$size" --after "$seconds" --keys "jj" "$file" \
        build/sublet top --sim --interval 1s
