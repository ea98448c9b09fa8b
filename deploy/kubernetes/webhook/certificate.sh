#!/bin/sh
# Makes an authority and the webhook's certificate, for ten years, in certificate/ beside this file. Run it once before
# `kubectl apply -k`, and again to renew; the key of the authority is thrown away. Needs openssl.
set -eu
cd "$(dirname "$0")"
../certificate.sh certificate sublet-webhook.sublet-system.svc
authority=$(base64 -w0 <certificate/ca.crt)
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
