#!/bin/sh
# Builds Kubernetes 1.20 from Debian's source package, for ./dev e2e-k8s: kubelet, API server, scheduler, controller
# manager. Takes Debian's kubectl of the same release. Puts all into FOLDER/bin, and does nothing if they are there.
# As root. About 12 minutes on two processors; 4 GiB of disk while it builds.
#
# Usage: tests/kubernetes/build.sh FOLDER
set -eu
[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
programs="kubelet kube-apiserver kube-scheduler kube-controller-manager"

complete() {
        for p in $programs kubectl; do
                [ -x "$folder/bin/$p" ] || return 1
        done
}
complete && exit 0

# Source packages come by lists of our own, so that the machine's stay as they are.
mkdir -p "$folder/apt/sources" "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
. /etc/os-release
[ "$VERSION_CODENAME" = bookworm ] || { echo "$0: needs Debian 12, whose Kubernetes is 1.20" >&2; exit 1; }
if [ -f /etc/apt/sources.list.d/debian.sources ]; then
        sed 's/^Types:.*/Types: deb deb-src/' /etc/apt/sources.list.d/debian.sources >"$folder/apt/sources/own.sources"
else
        sed -n 's/^deb \(.*\)/deb-src \1\ndeb \1/p' /etc/apt/sources.list >"$folder/apt/sources/own.list"
fi
cat >"$folder/apt/conf" <<END
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$folder/apt/sources";
Dir::State::lists "$folder/apt/lists";
Dir::Cache "$folder/apt/cache";
APT::Sandbox::User "root";
END
export APT_CONFIG="$folder/apt/conf"
cd "$folder"
apt-get update -qq
apt-get download -qq kubernetes-client # not installed: other packages have a kubectl, too
dpkg -x kubernetes-client_*.deb client
apt-get source -qq --download-only kubernetes
unset APT_CONFIG

go="$folder/go" tree="$folder/go/src/k8s.io/kubernetes"
rm -rf "$go"
mkdir -p "$go/src/k8s.io"
dpkg-source -x kubernetes_*.dsc "$tree" >/dev/null
# The reflect2 of the source package crashes with Go 1.18 and later; Debian's own package does not.
reflect="$tree/vendor/github.com/modern-go/reflect2"
rm "$reflect"/*.go "$reflect"/*.s
cp -L /usr/share/gocode/src/github.com/modern-go/reflect2/*.go /usr/share/gocode/src/github.com/modern-go/reflect2/*.s "$reflect/"
cd "$tree"
export GOPATH="$go" GO111MODULE=off CGO_ENABLED=0 GOCACHE="$folder/cache" PATH="/usr/lib/go-1.19/bin:$PATH"
make generated_files >/dev/null
mkdir -p "$folder/bin"
for p in $programs; do
        go build -ldflags "-s -w" -o "$folder/bin/" "k8s.io/kubernetes/cmd/$p"
done
cp "$folder/client/usr/bin/kubectl" "$folder/bin/"
chmod -R u+w "$go"
rm -rf "$go" "$folder/cache" "$folder/client"
complete
