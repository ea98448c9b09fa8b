#!/bin/sh
# Makes an authority and the webhook's certificate, for ten years, in certificate/ beside this file. Run it once before
# `kubectl apply -k`, and again to renew; the key of the authority is thrown away. Needs openssl.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p certificate
name=sublet-webhook.sublet-system.svc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=sublet webhook authority" \
        -keyout "$work/ca.key" -out "$work/ca.crt" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj "/CN=$name" -keyout certificate/tls.key -out "$work/tls.csr" 2>/dev/null
printf 'subjectAltName=DNS:%s,DNS:%s.cluster.local\nextendedKeyUsage=serverAuth\n' "$name" "$name" >"$work/names"
openssl x509 -req -in "$work/tls.csr" -CA "$work/ca.crt" -CAkey "$work/ca.key" -CAcreateserial -days 3650 \
        -extfile "$work/names" -out certificate/tls.crt 2>/dev/null
authority=$(base64 -w0 <"$work/ca.crt")
cat >certificate/authority.yaml <<END
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: sublet-webhook
webhooks:
- name: pod.sublet.dev
  clientConfig: {caBundle: $authority}
- name: namespace.sublet.dev
  clientConfig: {caBundle: $authority}
END
echo "certificate/ is ready"
