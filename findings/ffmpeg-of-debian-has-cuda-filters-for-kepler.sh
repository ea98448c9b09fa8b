#!/bin/sh
# CUDA filters need NVIDIA's compiler, which Debian does not distribute. The guess: FFmpeg in Debian's free archive
# decodes on NVIDIA's GPUs at most, and has no scale_cuda.
#
# Debian 12's libavfilter8 7:5.1.9-0+deb12u1 has scale_cuda and five more, and libavcodec59 has the decoders. clang
# has compiled the kernels. They are in the library as five gzip streams of PTX of version 3.2 for sm_30. So the
# driver translates them at the first use on each newer GPU, and they contain nothing that came after Kepler.
#
# Seen: .target sm_30 .version 3.2, five times
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -qq download libavfilter8=7:5.1.9-0+deb12u1 libavcodec59=7:5.1.9-0+deb12u1 2>/dev/null
for package in *.deb; do dpkg -x "$package" .; done
cat >ptx.py <<'END'
import collections
import glob
import re
import zlib

data = open(glob.glob("usr/lib/x86_64-linux-gnu/libavfilter.so.8.*")[0], "rb").read()
found = collections.Counter()
for at in re.finditer(rb"\x1f\x8b\x08", data):
    try:
        text = zlib.decompressobj(31).decompress(data[at.start():at.start() + (1 << 22)])
    except zlib.error:
        continue
    if b".target" in text:
        found[" ".join(sorted(m.decode() for m in re.findall(rb"^\.(?:target|version) [^\s,]+", text, re.M)))] += 1
print(dict(found))
assert found == {".target sm_30 .version 3.2": 5}, found
END
python3 ptx.py
grep -a -q scale_cuda usr/lib/x86_64-linux-gnu/libavfilter.so.8
grep -a -q h264_cuvid usr/lib/x86_64-linux-gnu/libavcodec.so.59
