#!/bin/sh
# Make kernels.ptx from kernels.cu, for whoever changed the latter. Needs nvcc; the build does not.
#
# The ISA version that nvcc writes is its own release's; nothing here needs one newer than 6.4, and
# drivers refuse PTX newer than themselves.
set -eu
cd "$(dirname "$0")"
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
"$nvcc" -ptx -arch=compute_75 -O3 -o kernels.tmp kernels.cu
sed 's/^\.version .*/.version 6.4/' kernels.tmp >kernels.ptx
rm kernels.tmp
