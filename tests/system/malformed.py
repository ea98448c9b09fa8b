#!/usr/bin/env python3
"""Sends malformed reviews, and requests that are none, to a sublet-webhook over TLS.

    malformed.py [NUMBER] [SEED]

Each must get an answer or a closed connection. A pod that is allowed must be allowed with a patch that applies. Exits
with 1 if a request was lost or the webhook ended. tests/system/test_webhook.py sends a few of them."""

import copy
import json
import pathlib
import random
import socket
import sys
import tempfile
import time

from webhook import Webhook, container, patched, pod, review_of

VALUES = [None, True, False, 0, -1, 1e300, 2**63 - 1, "", "x", "true", "\u0000", "\ud83d\ude00\u202e", "a/b~c", "9" * 30, [], {},
          [[]], [None], {"": {}}, {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": {}}, [{"name": 7}], ["nvidia.com/gpu"]]
PIECES = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\x00", b"\xff", b"\\u0000", b"\\ud800", b"1e999", b"-", b"null",
          b'{"a":' * 3000, b"[" * 3000, b"9" * 400, b'"sublet.dev/share":"true",']
HEADERS = [b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: 7\r\nContent-Length: 8",
           b"Content-Length: x", b"Transfer-Encoding: chunked", b"Transfer-Encoding: nothing", b"Expect: 100-continue",
           b"A" * 20000 + b": b", b": x", b"X: " + b"y" * 15000, b"Content-Length: 0", b"Connection: upgrade\r\nUpgrade: h2c"]


def places(value, path=()):
    """Returns the paths of all values in a document."""
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            found += places(inner, (*path, i))
    return found


def good_review(chance):
    words = [{"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "8192"}, {"name": "NVIDIA_GPU_MEMORY_REQUEST", "value": "100"}]
    return review_of(pod(container("a", "1", env=words), container("b"), labels={"sublet.dev/share": "true"},
                         annotations={"gpu-fraction": "0.5", "nvidia.com/container.b.gpu-memory.limit": "1Gi"},
                         initContainers=[container("i", "2")]), chance.choice(["v1", "v1beta1"]))


def strange_review(chance):
    """Returns a review in which some values are others, most of them near the pod."""
    review = json.loads(json.dumps(good_review(chance)))
    for _ in range(chance.randint(1, 4)):
        path = chance.choice(places(review)[1:])
        inner = review
        for step in path[:-1]:
            inner = inner[step]
        if chance.random() < 0.2 and isinstance(inner, dict):
            inner[chance.choice(["x/~y", "", "é", "sublet.dev/gpu", "nvidia.com/gpu"])] = inner.pop(path[-1])
        else:
            inner[path[-1]] = copy.deepcopy(chance.choice(VALUES))
    return json.dumps(review, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")


def broken_text(chance):
    text = bytearray(json.dumps(good_review(chance)).encode())
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(text))
        if chance.random() < 0.3:
            del text[at:at + chance.randint(1, 2000)]
        elif chance.random() < 0.5:
            text[at:at] = chance.choice(PIECES)
        else:
            text[at] = chance.randrange(256)
        if not text:
            break
    return bytes(text)


def request(chance):
    """Returns the bytes of one request, and whether its framing is right."""
    body = chance.choice([strange_review, strange_review, broken_text])(chance)
    path = chance.choice([b"/mutate", b"/mutate-all"])
    if chance.random() < 0.8:
        return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (path, len(body), body), True
    head = b"POST %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n" % (path, b"\r\n".join(chance.sample(HEADERS, chance.randint(1, 3))))
    whole = chance.choice([head + body, head, body, bytes(chance.randrange(256) for _ in range(300)) + b"\r\n\r\n",
                           b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\n\r\n"])
    return whole, False


def connect(webhook, chance):
    s = socket.create_connection(("127.0.0.1", webhook.port), timeout=30)
    if chance.random() < 0.02:  # no handshake
        return s
    return webhook.context.wrap_socket(s, server_hostname="localhost")


def read_answer(s):
    """Returns the next answer; what there is of it if the connection ends."""
    got = b""
    while True:
        head, end, body = got.partition(b"\r\n\r\n")
        if end and not head.startswith(b"HTTP/1.1 100"):
            length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
            if len(body) >= length:
                return got
        elif end:
            got = body
            continue
        more = s.recv(65536)
        if not more:
            return got
        got += more


def check(text, answer):
    """An answer to a review that can be read must keep what Kubernetes demands."""
    status, body = int(answer[9:12]), answer.partition(b"\r\n\r\n")[2]
    assert status in (200, 400, 404, 405, 413, 431, 414, 417, 501, 505), answer[:200]
    if status != 200:
        return
    response = json.loads(body)["response"]
    assert response["allowed"] is True
    if "patch" in response:
        review = json.loads(text.partition(b"\r\n\r\n")[2].decode("utf-8", "surrogatepass"))
        patched(review["request"]["object"], response)


def send(webhook, number, seed):
    """Returns how many requests were answered, how many connections were closed instead, and how many were lost. A
    request whose framing is wrong is given up after a moment, because the webhook may wait for more of it."""
    chance, counts, s = random.Random(seed), {"answered": 0, "closed": 0, "lost": 0}, None
    for n in range(number):
        text, framed = request(chance)
        answer = b""
        try:
            s = s or connect(webhook, chance)
            s.settimeout(30 if framed else 0.1)
            s.sendall(text)
            answer = read_answer(s)
        except TimeoutError:
            if framed:
                counts["lost"] += 1
                print(f"lost: number {n} of seed {seed}: {text[:200]!r}", file=sys.stderr)
        except OSError:  # the webhook has closed
            pass
        if answer.startswith(b"HTTP/1."):
            counts["answered"] += 1
            if framed:
                check(text, answer)
        else:
            counts["closed"] += 1
        if not framed or not answer or b"\r\nConnection: close" in answer.partition(b"\r\n\r\n")[0]:
            s.close()
            s = None
        assert webhook.process.poll() is None, f"the webhook ended at number {n} of seed {seed}: {text!r}"
    if s:
        s.close()
    return counts


def main():
    number, seed = (int(a) for a in (sys.argv[1:] + ["10000", "1"][len(sys.argv) - 1:]))
    with tempfile.TemporaryDirectory() as folder:
        webhook, began = Webhook(pathlib.Path(folder)), time.monotonic()
        try:
            counts = send(webhook, number, seed)
            print(f"{number} requests, seed {seed}, in {time.monotonic() - began:.0f} s: {counts}; "
                  f"at most {webhook.memory_kib() / 1024:.1f} MiB; exit status {webhook.end()}")
        finally:
            webhook.close()
    return 1 if counts["lost"] or webhook.process.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
