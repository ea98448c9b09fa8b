"""NVML that hangs, crashes or fails: no client waits for it, and the daemon uses no figure that NVML did not give."""

import os
import signal

import pytest

from test_daemon import card, client, daemon, nvml_uuid, place, wait_for  # noqa: F401
from wireclient import MIB, uuid
from world import NVML_READER, children, cpu_s, name_of

LATE = "NVML has not answered for 2 s: its last figures hold meanwhile"


def reader_of(d):
    return next((p for p in children(d.process.pid) if name_of(p) == NVML_READER), None)


def is_served(client, card_uuid):  # noqa: F811
    c = client().connect()
    c.hello()
    c.send("ATTACH", 0, total_bytes=64 * MIB, uuid=card_uuid)
    return c.expect("ATTACHED", "REFUSED")["type"] == "ATTACHED"


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo",
                                      "nvmlDeviceGetComputeRunningProcesses"])
def test_no_client_waits_for_nvml_that_hangs_from_the_start(card, daemon, client, function):  # noqa: F811
    d = daemon(SIMCUDA_FAIL=f"{function}:1:hang", **card)
    for _ in range(3):
        assert is_served(client, uuid(0)), "by the client's own description"
    assert d.gpu()["measured_s_ago"] is None and d.gpu()["total"] == 64 * MIB
    code, errors = d.end()
    assert code == 0 and errors.count(LATE) == 1


def test_the_last_figures_hold_until_nvml_answers_again(card, daemon, client):  # noqa: F811
    d = daemon(**card)
    card_uuid = nvml_uuid(d)
    foreign = client(env=card)
    foreign.take(100 * MIB)
    assert is_served(client, card_uuid)
    wait_for(lambda: d.gpu()["foreign"] >= 100 * MIB, what="the foreign bytes")
    reader = reader_of(d)
    os.kill(reader, signal.SIGSTOP)
    foreign.end()
    wait_for(lambda: d.gpu()["measured_s_ago"] > 2.5, what="the figures to be old")
    assert is_served(client, card_uuid)
    assert d.gpu()["foreign"] >= 100 * MIB, "the last known figure holds"
    os.kill(reader, signal.SIGCONT)
    wait_for(lambda: d.gpu()["foreign"] == 0 and d.gpu()["measured_s_ago"] < 2, what="new figures")
    code, errors = d.end()
    assert code == 0 and errors.count(LATE) == 1 and errors.count("NVML answers again") == 1


def test_a_client_that_waits_for_nvml_keeps_its_order_and_delays_no_other(card, daemon, client):  # noqa: F811
    d = daemon(**card)
    card_uuid = nvml_uuid(d)
    there, waits, ended = client("there").connect(), client("waits").connect(), client("ended").connect()
    for c in (there, waits, ended):
        c.hello()
    there.send("ATTACH", 0, total_bytes=256 * MIB, uuid=card_uuid)
    there.expect("LIMIT")
    os.kill(reader_of(d), signal.SIGSTOP)
    spent = cpu_s(d.process.pid)
    for c in (waits, ended):
        c.send("ATTACH", 0, total_bytes=256 * MIB, uuid=card_uuid)
    waits.send("REQUEST", 0, commit=10 * MIB)
    sequence = waits.send("REQUEST", 0, commit=300 * MIB)  # more than there is
    waits.send("BYE")
    ended.kill()
    waits.receive(0.5)
    assert there.ask(64 * MIB), "no other client waits"
    assert cpu_s(d.process.pid) - spent < 0.25, "the daemon does not poll the messages that wait"
    os.kill(reader_of(d), signal.SIGCONT)
    while not waits.seen or waits.seen[-1]["type"] != "closed":
        waits.receive()
    assert [m["type"] for m in waits.seen[:2]] == ["WELCOME", "ATTACHED"]
    given, refused = (next(i for i, m in enumerate(waits.seen) if is_it(m)) for is_it in
                      (lambda m: m["type"] == "LIMIT" and m["commit"] >= 10 * MIB,
                       lambda m: m["type"] == "REFUSED" and m["of"] == sequence))
    assert given < refused
    wait_for(lambda: len(d.gpu()["clients"]) == 1, what="the end of the client that waited")


def test_the_end_of_a_process_is_seen_while_nvml_hangs(card, daemon, client):  # noqa: F811
    d = daemon(**card)
    c = client(env=card).connect()
    c.hello()
    c.send("ATTACH", 0, total_bytes=256 * MIB, uuid=nvml_uuid(d))
    c.expect("LIMIT")
    os.kill(reader_of(d), signal.SIGSTOP)
    c.kill()
    wait_for(lambda: not d.gpu()["clients"], what="its end to be seen")


@pytest.mark.parametrize("how", [signal.SIGSEGV, signal.SIGKILL])
def test_the_daemon_survives_a_crash_in_nvml(card, daemon, client, how):  # noqa: F811
    d = daemon(**card)
    card_uuid = nvml_uuid(d)
    assert is_served(client, card_uuid)
    first = reader_of(d)
    os.kill(first, how)
    assert is_served(client, card_uuid)
    wait_for(lambda: reader_of(d) not in (None, first) and (d.gpu()["measured_s_ago"] or 9) < 2, what="another reader")
    assert d.end()[0] == 0


def test_a_daemon_ends_while_nvml_hangs(card, daemon):  # noqa: F811
    d = daemon(**card)
    reader = wait_for(lambda: reader_of(d), what="the reader")
    os.kill(reader, signal.SIGSTOP)
    assert d.end()[0] == 0
    wait_for(lambda: not os.path.exists(f"/proc/{reader}") or name_of(reader) != NVML_READER, what="the reader's end, too")


def test_figures_that_nvml_returns_with_an_error_are_not_used(card, daemon, client):  # noqa: F811
    """NVML returns figures together with the error; the daemon does not use them."""
    d = daemon(SIMCUDA_FAIL="nvmlDeviceGetMemoryInfo:4+:999", **card)
    c = client().connect()
    c.hello()
    c.send("ATTACH", 0, total_bytes=256 * MIB, uuid=nvml_uuid(d))
    c.expect("LIMIT")
    wait_for(lambda: d.gpu()["measured_s_ago"] > 2.5, what="NVML to fail")
    whole = d.gpu()["capacity"]
    c.usage()  # the client answers, so that the daemon may give it bytes to back
    assert c.ask(200 * MIB) and c.limit["backed"] >= 100 * MIB
    c.send("SHORT", 0, bytes=100 * MIB)
    wait_for(lambda: d.gpu()["capacity"] < whole, what="the shortage")
    foreign = client(env=card)
    foreign.take(100 * MIB)
    wait_for(lambda: d.gpu()["capacity"] == whole, what="the shortage to be forgotten")
    assert d.gpu()["foreign"] == 0


def test_memory_is_expected_to_move_at_the_rate_of_the_pcie_link(daemon, card):  # noqa: F811
    d = daemon(SIMCUDA_BUS="40GB/s", **card)
    wait_for(lambda: d.status()["gpus"], what="a card")
    # The link is one of generation 5 with 16 lanes of 3.938 GB/s, of which copies reach four fifths.
    assert d.gpu()["move_s_per_gib"] == pytest.approx((1 << 30) / (0.8 * 16 * 3.938e9), rel=1e-3)
