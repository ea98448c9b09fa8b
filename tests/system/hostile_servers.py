"""The programs that serve HTTP, each with a bystander, as targets of hostile_http.py."""

import contextlib
import json
import ssl

import extender as extenders
import hostile_http
import webhook as webhooks
from hostile_http import Target
from kubelet import ClusterServer
from metrics import ask, free_port


def padded(pod, size):
    """Returns the pod with an annotation that makes it large."""
    pod = json.loads(json.dumps(pod))
    pod["metadata"].setdefault("annotations", {})["example.com/notes"] = "x" * size
    return pod


def equal(a, b):
    assert a == b


def twice(server, ask):
    """Two requests on one connection. An idle one may be ended for others, as HTTP allows: then, as Kubernetes does, the
    second request is sent again."""
    c = server.connect(hostile_http.ANSWER_S)
    try:
        ask(c, 0)
        try:
            ask(c, 60000)
        except (ConnectionError, ssl.SSLEOFError):
            c.close()
            ask(c, 60000)
    finally:
        c.close()


@contextlib.contextmanager
def webhook(folder):
    w = webhooks.Webhook(folder)
    pod = webhooks.pod(webhooks.container(gpus="1"), labels={"sublet.dev/share": "true"})

    def review():
        def one(c, size):
            assert webhooks.patch_of(w.review(webhooks.review_of(padded(pod, size)), connection=c))

        twice(w, one)

    try:
        yield w, Target(w.port, ("http", "tls", "json"), "/mutate", review, w.process, w.context, json.dumps(webhooks.review_of(pod)).encode())
        assert w.end() == 0
    finally:
        w.close()


@contextlib.contextmanager
def extender(folder):
    api = ClusterServer()
    api.nodes.put(extenders.node("a"))
    e = extenders.Extender(folder, None, {}, api=api)
    pod = extenders.pod("new")

    def filter_nodes():
        twice(e, lambda c, size: equal(e.filter(padded(pod, size), ["a"], c), (["a"], {})))

    try:
        yield e, Target(e.port, ("http", "plain", "json"), "/filter", filter_nodes, e.process, good=extenders.request_of(pod, ["a"]).encode())
        assert e.end() == 0
    finally:
        e.close()


def metrics(world):
    """Starts a daemon. Returns the target."""
    port = free_port()
    world.start_daemon(config={"metrics": f"127.0.0.1:{port}"})

    def scrape():
        status, _, text = ask(port)
        assert status == 200 and "sublet_gpu_memory_bytes" in text

    return Target(port, ("http", "plain"), "/metrics", scrape, world.daemon.process)
