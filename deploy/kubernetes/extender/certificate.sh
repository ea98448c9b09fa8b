#!/bin/sh
# Makes an authority and the extender's certificate, for ten years, in certificate/ beside this file. Run it once before
# `kubectl apply -k`, and again to renew; the key of the authority is thrown away. Needs openssl.
exec "$(dirname "$0")/../certificate.sh" "$(dirname "$0")/certificate" sublet-extender.sublet-system.svc
