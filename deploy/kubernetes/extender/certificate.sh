#!/bin/sh
# Makes an authority, the extender's certificate, and one for the scheduler (client.crt), for ten years, in certificate/
# beside this file. Run it once before `kubectl apply -k`, and again to renew; then the extender must be started again, and
# the scheduler gets its new files. The key of the authority is thrown away. Needs openssl.
exec "$(dirname "$0")/../certificate.sh" "$(dirname "$0")/certificate" sublet-extender.sublet-system.svc \
        kube-scheduler
