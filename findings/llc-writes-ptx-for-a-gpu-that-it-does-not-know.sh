#!/bin/sh
# LLVM 14 (Debian 12) is older than Hopper, and knows GPUs up to sm_86. The guess: for -mcpu=sm_90, llc ends with an
# error, as clang does, or falls back to a GPU that it knows.
#
# llc-14 warns that it ignores the processor, and exits with 0. It writes ".target sm_90", the name that it ignored,
# with ".version 3.2", the language of its default, sm_20. PTX has had sm_90 since version 7.8, so ptxas and the
# driver refuse the file, far from the cause. Debian's llvm-14 1:14.0.6-12.
#
# Seen: exit 0, .version 3.2, .target sm_90
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -qq download llvm-14=1:14.0.6-12 libllvm14=1:14.0.6-12 2>/dev/null
for package in *.deb; do dpkg -x "$package" .; done
echo 'define void @f() { ret void }' >f.ll
LD_LIBRARY_PATH=$dir/usr/lib/x86_64-linux-gnu usr/lib/llvm-14/bin/llc -march=nvptx64 -mcpu=sm_90 -o f.ptx f.ll 2>errors
found="exit $?, $(grep '^\.version' f.ptx), $(grep '^\.target' f.ptx)"
echo "$found"
grep -q "'sm_90' is not a recognized processor for this target (ignoring processor)" errors
[ "$found" = "exit 0, .version 3.2, .target sm_90" ]
