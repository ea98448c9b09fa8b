#!/bin/sh
# Makes an authority and a certificate for a service, for ten years: ca.crt, tls.crt and tls.key. The key of the
# authority is thrown away. Needs openssl. webhook/certificate.sh and extender/certificate.sh run this.
#
# Usage: certificate.sh FOLDER NAME
set -eu
[ $# -eq 2 ] || { echo "usage: $0 FOLDER NAME" >&2; exit 2; }
folder=$1 name=$2
umask 077
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=$name authority" \
        -keyout "$work/ca.key" -out "$folder/ca.crt" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj "/CN=$name" -keyout "$folder/tls.key" -out "$work/tls.csr" 2>/dev/null
printf 'subjectAltName=DNS:%s,DNS:%s.cluster.local\nextendedKeyUsage=serverAuth\n' "$name" "$name" >"$work/names"
openssl x509 -req -in "$work/tls.csr" -CA "$folder/ca.crt" -CAkey "$work/ca.key" -CAcreateserial -days 3650 \
        -extfile "$work/names" -out "$folder/tls.crt" 2>/dev/null
echo "$folder is ready"
