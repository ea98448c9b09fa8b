#!/usr/bin/env python3
"""Measures how long sublet-webhook takes for a review, as its client sees it: over TLS, one after the other.

    webhook.py [KIB] [NUMBER]

Prints p50 and p99 over one connection that stays, as the API server has them, and with a new connection for each
review, which pays for a handshake of both sides."""

import json
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "system"))

from webhook import Webhook, as_large_as, container, patch_of, pod, response_to, review_of  # noqa: E402


def measure(webhook, review, text, number, connection):
    took = []
    for _ in range(number):
        began = time.perf_counter()
        status, body = webhook.ask("POST", "/mutate", text, connection)
        took.append(1000 * (time.perf_counter() - began))
        assert status == 200 and patch_of(response_to(review, json.loads(body)))
    took.sort()
    return f"p50 {took[number // 2]:.1f} ms, p99 {took[number * 99 // 100]:.1f} ms, longest {took[-1]:.1f} ms"


def main():
    kib, number = (int(a) for a in (sys.argv[1:] + ["100", "2000"][len(sys.argv) - 1:]))
    with tempfile.TemporaryDirectory() as folder:
        webhook = Webhook(pathlib.Path(folder))
        try:
            review = review_of(pod(container(gpus="1"), labels={"sublet.dev/share": "true"}))
            text, kept = as_large_as(review, kib << 10), webhook.connect()
            print(f"{number} reviews of {kib} KiB")
            print("one connection:      ", measure(webhook, review, text, number, kept))
            print("a connection for each:", measure(webhook, review, text, number, None))
            print(f"memory: at most {webhook.memory_kib() / 1024:.1f} MiB")
        finally:
            webhook.close()


main()
