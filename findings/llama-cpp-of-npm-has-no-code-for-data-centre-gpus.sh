#!/bin/sh
# The CUDA build of llama.cpp that npm distributes for node-llama-cpp contains kernels for many GPUs. The guess: among
# them is machine code for those that serve models, the A100 (sm_80) and the H100 and H200 (sm_90).
#
# @node-llama-cpp/linux-x64-cuda 3.22.1 has machine code for sm_86, sm_89, sm_120 and sm_121, GPUs of desktops and
# workstations. For sm_75, sm_80 and sm_90 it has PTX only, some 19 MB of compressed text each. So on a data centre's
# GPU the driver compiles all kernels at the first start, and again wherever its cache (~/.nv/ComputeCache) is not
# kept, as in a fresh container.
#
# Seen: PTX: sm_75 sm_80 sm_90; machine code: sm_86 sm_89 sm_120 sm_121
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm pack --silent @node-llama-cpp/linux-x64-cuda@3.22.1 >/dev/null
tar xzf node-llama-cpp-linux-x64-cuda-3.22.1.tgz package/bins/linux-x64-cuda/libggml-cuda.so
cat >fatbin.py <<'END'
import struct

with open("package/bins/linux-x64-cuda/libggml-cuda.so", "rb") as f:
    data = f.read()
found = {1: set(), 2: set()}  # PTX, machine code
at = data.find(b"\x50\xed\x55\xba\x01\x00")  # the head of a container: magic, version, bytes of the head, bytes behind it
while at >= 0:
    head, size = struct.unpack_from("<HQ", data, at + 6)
    entry, end = at + head, at + head + size
    while entry < end:  # each entry: kind, version, bytes of its head, bytes behind it, ..., the GPU's architecture
        kind, _, head, size = struct.unpack_from("<HHIQ", data, entry)
        found[kind].add(struct.unpack_from("<I", data, entry + 28)[0])
        entry += head + size
    at = data.find(b"\x50\xed\x55\xba\x01\x00", end)
names = lambda kind: " ".join(f"sm_{n}" for n in sorted(found[kind]))
print(f"PTX: {names(1)}; machine code: {names(2)}")
END
result=$(python3 fatbin.py)
echo "$result"
[ "$result" = "PTX: sm_75 sm_80 sm_90; machine code: sm_86 sm_89 sm_120 sm_121" ]
