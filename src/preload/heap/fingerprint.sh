#!/bin/sh
# Make fingerprint.ptx from fingerprint.cu, for whoever changed the latter. Needs clang with its NVPTX
# back-end, which still knows compute capability 5.0; the build does not.
set -eu
cd "$(dirname "$0")"
"${CLANG:-clang}" -x cuda -nocudainc -nocudalib -Wno-unknown-cuda-version --cuda-device-only \
        --cuda-gpu-arch=sm_50 -O3 -S -o fingerprint.ptx fingerprint.cu
