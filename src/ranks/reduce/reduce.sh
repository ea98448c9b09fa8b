#!/bin/sh
# Make reduce_<type>.ptx from reduce.cu after a change of the latter. Needs a clang with the NVPTX back-end for
# compute capability 5.0; the build itself does not need it.
set -eu
cd "$(dirname "$0")"
for type in $(sed -n 's/^REDUCE_TYPE(\(.*\), .*/\1/p' reduce_types.def); do
        "${CLANG:-clang}" -x cuda -std=c++17 -nocudainc -nocudalib -Wno-unknown-cuda-version --cuda-device-only \
                --cuda-gpu-arch=sm_50 -O3 -fwrapv -ffp-contract=off -DELEMENT=$type -S -o reduce_$type.ptx reduce.cu
done
