#!/bin/sh
# hashcat uses CUDA if it finds the driver and NVRTC, which it loads with dlopen(). The guess: it finds the NVRTC of
# any installed CUDA, such as libnvrtc.so.12 or libnvrtc.so.13, the names in NVIDIA's runtime packages.
#
# hashcat 6.2.6 (Debian 12's 6.2.6+ds1-1+b1) contains two names, libnvrtc.so and libnvrtc.so.1, and tries no other.
# The first is a link that only development packages bring. The runtime packages name the file after CUDA's release.
# Where only these are installed, hashcat says "CUDA SDK Toolkit not installed or incorrectly installed", and "Falling
# back to OpenCL runtime". For the driver it tries libcuda.so before libcuda.so.1, so a stub for linking comes first
# where there is one.
#
# Seen: libcuda.so libcuda.so.1 libnvrtc.so libnvrtc.so.1
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -qq download hashcat=6.2.6+ds1-1+b1 hashcat-data=6.2.6+ds1-1 libminizip1 libxxhash0 2>/dev/null
for package in *.deb; do dpkg -x "$package" .; done
for folder in OpenCL modules; do ln -s ../share/hashcat/$folder usr/bin/$folder; done # it looks beside itself
LD_LIBRARY_PATH=$dir/usr/lib/x86_64-linux-gnu HOME=$dir LD_DEBUG=libs usr/bin/hashcat -I >loaded 2>&1 || true
# Where a name is found, the next is not tried: names that it tries must be among those that it contains.
known=$(grep -a -o 'lib\(cuda\|nvrtc\)\.so[.0-9]*' usr/bin/hashcat | sort -u | tr '\n' ' ')
grep -o 'find library=lib\(cuda\|nvrtc\)\.so[.0-9]*' loaded | sort -u
echo "$known"
grep -q 'find library=libnvrtc.so ' loaded
grep -a -q "CUDA SDK Toolkit not installed or incorrectly installed" usr/bin/hashcat
[ "$known" = "libcuda.so libcuda.so.1 libnvrtc.so libnvrtc.so.1 " ]
