"""Hostile clients of the programs that serve HTTP: the webhook, the extender and the daemon's metrics. The table is in
hostile_http.py. A bystander is answered during each attack and after it, by the same process."""

import os

import pytest

pytest.importorskip("jsonpatch", reason="python3-jsonpatch is not installed")

import extender as extenders  # noqa: E402
import habits  # noqa: E402
import hostile_servers  # noqa: E402
import webhook as webhooks  # noqa: E402
from metrics import descriptors  # noqa: E402
from world import GENEROUS_S, wait_for  # noqa: E402


def attack(target):
    before = descriptors(target.process.pid)
    target.ask()
    wrong, (seconds, name), tried = habits.run(target)
    print(f"{tried} habits; the bystander waited for {seconds:.2f} s at most, beside {name}")
    assert not wrong, wrong
    assert tried >= 30
    wait_for(lambda: descriptors(target.process.pid) <= before + 2, GENEROUS_S, "connections to end")


@pytest.mark.skipif(not os.path.exists(webhooks.PROGRAM), reason="sublet-webhook is not built (no gnutls)")
def test_a_review_is_answered_beside_hostile_clients(tmp_path):
    with hostile_servers.webhook(tmp_path) as (w, target):
        attack(target)
        if not webhooks.SANITIZED:
            assert w.memory_kib() < 48 << 10, "the manifests' limit is 64 MiB"


@pytest.mark.skipif(not os.path.exists(extenders.PROGRAM), reason="sublet-extender is not built (no libxgboost or LEMON)")
def test_the_scheduler_is_answered_beside_hostile_clients(tmp_path):
    with hostile_servers.extender(tmp_path) as (_, target):
        attack(target)


def test_a_scrape_is_answered_beside_hostile_clients(world):
    attack(hostile_servers.metrics(world))
