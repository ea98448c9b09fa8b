#!/bin/sh
# kernels.sh [FOLDER]: makes the PTX texts of the library from their sources, in place or in FOLDER. What git has is made
# by Debian 12's clang, and ./dev lint compares it. The build needs no compiler for GPUs. CLANG: another clang.
set -eu
clang=${CLANG:-clang}
folder=${1:+$(cd "$1" && pwd)}
cd "$(dirname "$0")/.."

# The version 4.0 of PTX, which the drivers of CUDA 11 know, is the default of clang 14, which cannot be told.
case $("$clang" -dumpversion) in
14.*) version= ;;
*) version=--cuda-feature=+ptx40 ;;
esac

make_text() { # SOURCE TEXT [OPTION...]
        source=$1 text=${folder:-$(dirname "$1")}/$2
        shift 2
        "$clang" -x cuda -std=c++17 -nocudainc -nocudalib -Wno-unknown-cuda-version --cuda-device-only \
                --cuda-gpu-arch=sm_50 $version "$@" -S -o "$text" "$source"
}

make_text src/preload/heap/fingerprint.cu fingerprint.ptx -O3
make_text src/ranks/exchange/exchange.cu exchange.ptx -O2
# At -O2 clang leaves a branch in a loop; at -O3 it may copy the loop for each operation.
for type in $(sed -n 's/^REDUCE_TYPE(\(.*\), .*/\1/p' src/ranks/reduce/reduce_types.def); do
        make_text src/ranks/reduce/reduce.cu "reduce_$type.ptx" -O2 -fwrapv -ffp-contract=off "-DELEMENT=$type"
done
