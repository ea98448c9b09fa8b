#!/bin/sh
# Builds the images of deploy/kubernetes with buildah, as archives that `podman load`, `docker load` and `ctr images
# import` read. Each has the program, the libraries that it loads, and nothing else: no shell, no package manager. The
# libraries are those of this machine, so build on Debian 12.
#
# Usage: deploy/kubernetes/images.sh BUILD OUT   (./dev images does both)
set -eu
[ $# -eq 2 ] || { echo "usage: $0 BUILD OUT" >&2; exit 2; }
build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")/../.."
release=$(sed -n 's/^project(sublet VERSION \([^ ]*\).*/\1/p' CMakeLists.txt)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Images are built from nothing, so no layers are stored, and any file system will do.
buildah() { command buildah --storage-driver vfs --root "$work/store" --runroot "$work/run" "$@"; }

# Puts a program and what it loads below the root of an image.
put() {
        root=$1 from=$2 to=$3
        mkdir -p "$root$(dirname "$to")"
        cp -L "$from" "$root$to"
        strip --strip-unneeded "$root$to"
        { ldd "$from" 2>/dev/null || true; } | awk '$3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }' | sort -u |
                while read -r library; do
                        mkdir -p "$root$(dirname "$library")"
                        [ -e "$root$library" ] || cp -L "$library" "$root$library"
                done
}

# image NAME USER ENTRYPOINT
image() {
        container=$(buildah from scratch)
        buildah copy -q "$container" "$work/$1" / >/dev/null
        buildah config --user "$2" --entrypoint "$3" --label "org.opencontainers.image.version=$release" \
                --label org.opencontainers.image.title="sublet $1" "$container"
        rm -f "$out/$1.tar"
        buildah commit -q "$container" "docker-archive:$out/$1.tar:sublet/$1:$release" >/dev/null
        echo "$out/$1.tar: sublet/$1:$release, $(du -k "$out/$1.tar" | cut -f1) KiB"
}

put "$work/daemon" "$build/subletd" /usr/sbin/subletd
put "$work/daemon" "$build/sublet" /usr/bin/sublet
# NVML, which comes from the node, loads these, too. They are empty since glibc 2.34, so no program of today brings them.
folder=$(ldd "$build/subletd" | awk '$1 == "libc.so.6" { sub("/[^/]*$", "", $3); print $3 }')
for name in libpthread.so.0 libdl.so.2 librt.so.1 libm.so.6; do
        put "$work/daemon" "$folder/$name" "$folder/$name"
done
put "$work/device-plugin" "$build/sublet-device-plugin" /usr/sbin/sublet-device-plugin
put "$work/device-plugin" "$build/libsublet.so" /usr/lib/sublet/libsublet.so
put "$work/webhook" "$build/sublet-webhook" /usr/sbin/sublet-webhook
if [ -e "$build/sublet-extender" ]; then
        put "$work/extender" "$build/sublet-extender" /usr/sbin/sublet-extender
        image extender 65532:65532 '["/usr/sbin/sublet-extender"]'
else
        echo "no image of the extender: the build has no sublet-extender (libxgboost-dev, liblemon-dev)" >&2
fi
image daemon 0:0 '["/usr/sbin/subletd"]'
image device-plugin 0:0 '["/usr/sbin/sublet-device-plugin", "--bring", "/usr/lib/sublet/libsublet.so"]'
image webhook 65532:65532 '["/usr/sbin/sublet-webhook"]'
