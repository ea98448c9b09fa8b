"""Hostile clients of the programs that serve HTTP: the webhook, the extender and the daemon's metrics. The table is in
hostile_http.py. A bystander is answered during each attack and after it, by the same process."""

import json
import os

import pytest

pytest.importorskip("jsonpatch", reason="python3-jsonpatch is not installed")

import extender as extenders  # noqa: E402
import habits  # noqa: E402
import hostile_http  # noqa: E402
import webhook as webhooks  # noqa: E402
from hostile_http import Target  # noqa: E402
from kubelet import ClusterServer  # noqa: E402
from metrics import ask, descriptors, free_port  # noqa: E402
from world import GENEROUS_S, wait_for  # noqa: E402


def attack(target):
    before = descriptors(target.process.pid)
    target.ask()
    wrong, (seconds, name), tried = habits.run(target)
    print(f"{tried} habits; the bystander waited for {seconds:.2f} s at most, beside {name}")
    assert not wrong, wrong
    assert tried >= 30
    wait_for(lambda: descriptors(target.process.pid) <= before + 2, GENEROUS_S, "connections to end")


def padded(pod, size):
    """Returns the pod with an annotation that makes it large."""
    pod = json.loads(json.dumps(pod))
    pod["metadata"].setdefault("annotations", {})["example.com/notes"] = "x" * size
    return pod


@pytest.mark.skipif(not os.path.exists(webhooks.PROGRAM), reason="sublet-webhook is not built (no gnutls)")
def test_a_review_is_answered_beside_hostile_clients(tmp_path):
    w = webhooks.Webhook(tmp_path)
    pod = webhooks.pod(webhooks.container(gpus="1"), labels={"sublet.dev/share": "true"})

    def review():
        c = w.connect(hostile_http.ANSWER_S)
        try:
            for size in (0, 60000):
                assert webhooks.patch_of(w.review(webhooks.review_of(padded(pod, size)), connection=c))
        finally:
            c.close()

    try:
        attack(Target(w.port, ("http", "tls", "json"), "/mutate", review, w.process, w.context,
                      json.dumps(webhooks.review_of(pod)).encode()))
        if not webhooks.SANITIZED:
            assert w.memory_kib() < 48 << 10, "the manifests' limit is 64 MiB"
        assert w.end() == 0
    finally:
        w.close()


@pytest.mark.skipif(not os.path.exists(extenders.PROGRAM), reason="sublet-extender is not built (no libxgboost or LEMON)")
def test_the_scheduler_is_answered_beside_hostile_clients(tmp_path):
    api = ClusterServer()
    api.nodes.put(extenders.node("a"))
    e = extenders.Extender(tmp_path, None, {}, api=api)
    pod = extenders.pod("new")

    def filter_nodes():
        c = e.connect(hostile_http.ANSWER_S)
        try:
            for size in (0, 60000):
                assert e.filter(padded(pod, size), ["a"], c) == (["a"], {})
        finally:
            c.close()

    try:
        attack(Target(e.port, ("http", "plain", "json"), "/filter", filter_nodes, e.process,
                      good=extenders.request_of(pod, ["a"]).encode()))
        assert e.end() == 0
    finally:
        e.close()


def test_a_scrape_is_answered_beside_hostile_clients(world):
    port = free_port()
    world.start_daemon(config={"metrics": f"127.0.0.1:{port}"})

    def scrape():
        status, _, text = ask(port)
        assert status == 200 and "sublet_gpu_memory_bytes" in text

    attack(Target(port, ("http", "plain"), "/metrics", scrape, world.daemon.process))
