#!/bin/sh
# Makes an authority and a certificate for a service, for ten years: ca.crt, tls.crt and tls.key. The key of the
# authority is thrown away. Needs openssl. webhook/certificate.sh and extender/certificate.sh run this.
#
# CLIENT is the name of a client that the service is to know: then client.crt and client.key are made, too.
#
# Usage: certificate.sh FOLDER NAME [CLIENT]
set -eu
[ $# -eq 2 ] || [ $# -eq 3 ] || { echo "usage: $0 FOLDER NAME [CLIENT]" >&2; exit 2; }
folder=$1 name=$2 client=${3-}
umask 077
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Strict clients, such as Python 3.13, demand the key usage of the authority, and certificates that name its key.
signed=authorityKeyIdentifier=keyid
openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=$name authority" \
        -addext keyUsage=critical,keyCertSign,cRLSign -keyout "$work/ca.key" -out "$folder/ca.crt" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj "/CN=$name" -keyout "$folder/tls.key" -out "$work/tls.csr" 2>/dev/null
printf 'subjectAltName=DNS:%s,DNS:%s.cluster.local\nextendedKeyUsage=serverAuth\n%s\n' "$name" "$name" $signed >"$work/names"
openssl x509 -req -in "$work/tls.csr" -CA "$folder/ca.crt" -CAkey "$work/ca.key" -CAcreateserial -days 3650 \
        -extfile "$work/names" -out "$folder/tls.crt" 2>/dev/null
if [ -n "$client" ]; then
        openssl req -newkey rsa:2048 -nodes -subj "/CN=$client" -keyout "$folder/client.key" -out "$work/client.csr" 2>/dev/null
        printf 'extendedKeyUsage=clientAuth\n%s\n' $signed >"$work/purpose"
        openssl x509 -req -in "$work/client.csr" -CA "$folder/ca.crt" -CAkey "$work/ca.key" -CAcreateserial -days 3650 \
                -extfile "$work/purpose" -out "$folder/client.crt" 2>/dev/null
fi
echo "$folder is ready"
