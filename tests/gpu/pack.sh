#!/bin/sh
# Puts the files that the GPU suite needs into .gpu/: a release build without debug information, and the shared
# libraries that its programs need beyond libc. So a machine with a newer glibc, no network and no packages can run them.
#
# Programs find those libraries by a run path of their own (DT_RPATH, which also applies to the libraries'
# dependencies). The environment is unchanged, so the programs that they start do not see these libraries.
# Usage: tests/gpu/pack.sh [BUILD-FOLDER]
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build-gpu}
to=.gpu
limit_mib=40

cmake -G Ninja -B "$build" -DCMAKE_BUILD_TYPE=Release -DSUBLET_SIM=OFF -DSUBLET_TESTS=ON -DSUBLET_BENCH=ON \
        -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DCMAKE_INSTALL_RPATH='$ORIGIN/lib' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags . >/dev/null
programs=$(ninja -C "$build" -t targets all | sed -n 's|^\(programs/[a-z_/]*\): .*|\1|p' | sort -u)
# shellcheck disable=SC2086 # each target must be a word of its own
ninja -C "$build" sublet subletd sublet-pairing sublet-demo-job sublet-bench-job sublet-pairs-job libsublet.so libsublet-ranks.so bench/gate bench/bus bench/pages bench/noop/libcuda.so.1 $programs

rm -rf "$to"
mkdir -p "$to/lib" "$to/programs/dl" "$to/programs/freeze" "$to/bench/noop"
cp -L "$build/sublet" "$build/subletd" "$build/sublet-pairing" "$build/sublet-demo-job" "$build/sublet-bench-job" "$build/sublet-pairs-job" "$build/bench_torch.py" "$build/pairs_torch.py" "$build/libsublet.so" "$build/libsublet-ranks.so" "$to/"
cp -L "$build/bench/gate" "$build/bench/bus" "$build/bench/pages" "$to/bench/"
cp -L "$build/bench/noop/libcuda.so.1" "$to/bench/noop/"
for f in $programs; do
        [ -f "$build/$f" ] && cp -L "$build/$f" "$to/$f"
done
for f in "$build/sublet" "$build/subletd" "$build/sublet-pairing"; do
        ldd "$f"
done | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u | while read -r library; do
        case ${library##*/} in
        # These belong to glibc and come with the machine, because a copy of an older one would not fit its loader.
        libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.* | ld-linux*) ;;
        *) cp -L "$library" "$to/lib/" ;;
        esac
done
find "$to" -type f ! -name '*.py' -exec strip --strip-unneeded {} +
git rev-parse --short=12 HEAD >"$to/COMMIT"
[ -z "$(git status --porcelain --untracked-files=no)" ] || echo "$(cat "$to/COMMIT") with changes" >"$to/COMMIT"

size_mib=$(du -sm "$to" | cut -f1)
echo "$to: $size_mib MiB"
if [ "$size_mib" -gt "$limit_mib" ]; then
        echo "pack.sh: $to is larger than $limit_mib MiB" >&2
        exit 1
fi
