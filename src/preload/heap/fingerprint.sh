#!/bin/sh
# Make fingerprint.ptx from fingerprint.cu after a change of the latter. Needs a clang with the NVPTX
# back-end for compute capability 5.0; the build itself does not need it.
set -eu
cd "$(dirname "$0")"
"${CLANG:-clang}" -x cuda -nocudainc -nocudalib -Wno-unknown-cuda-version --cuda-device-only \
        --cuda-gpu-arch=sm_50 -O3 -S -o fingerprint.ptx fingerprint.cu
