#!/bin/sh
# Makes kernels.ptx from kernels.cu, after a change of the latter. This needs nvcc; the build does not.
#
# nvcc writes the ISA version of its own release, but drivers refuse PTX newer than themselves. So the version is
# lowered to 6.4, which is enough for these kernels.
set -eu
cd "$(dirname "$0")"
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
"$nvcc" -ptx -arch=compute_75 -O3 -o kernels.tmp kernels.cu
sed 's/^\.version .*/.version 6.4/' kernels.tmp >kernels.ptx
rm kernels.tmp
