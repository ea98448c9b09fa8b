"""NVML that hangs, crashes or fails: no client waits for it, and no figure is used that it did not give."""

import os
import signal

import pytest

from test_daemon import card, client, daemon, nvml_uuid, place, wait_for  # noqa: F401
from wireclient import MIB, uuid
from world import NVML_READER, children, name_of

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
def test_nobody_waits_for_nvml_that_hangs_from_the_start(card, daemon, client, function):  # noqa: F811
    d = daemon(SIMCUDA_FAIL=f"{function}:1:hang", **card)
    for _ in range(3):
        assert is_served(client, uuid(0)), "by what it says itself"
    assert d.gpu()["measured_s_ago"] is None and d.gpu()["total"] == 64 * MIB
    code, errors = d.end()
    assert code == 0 and errors.count(LATE) == 1


def test_figures_hold_while_nvml_hangs_and_follow_when_it_goes_on(card, daemon, client):  # noqa: F811
    d = daemon(**card)
    card_uuid = nvml_uuid(d)
    stranger = client(env=card)
    stranger.take(100 * MIB)
    assert is_served(client, card_uuid)
    wait_for(lambda: d.gpu()["foreign"] >= 100 * MIB, what="the stranger's bytes")
    reader = reader_of(d)
    os.kill(reader, signal.SIGSTOP)
    stranger.end()
    wait_for(lambda: d.gpu()["measured_s_ago"] > 2.5, what="the figures to be old")
    assert is_served(client, card_uuid)
    assert d.gpu()["foreign"] >= 100 * MIB, "the last figure that is known"
    os.kill(reader, signal.SIGCONT)
    wait_for(lambda: d.gpu()["foreign"] == 0 and d.gpu()["measured_s_ago"] < 2, what="new figures")
    code, errors = d.end()
    assert code == 0 and errors.count(LATE) == 1 and errors.count("NVML answers again") == 1


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def test_what_waits_for_a_look_keeps_its_order_and_nobody_else_waiting(card, daemon, client):  # noqa: F811
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
    assert there.ask(64 * MIB), "nobody else waits"
    assert cpu_s(d.process.pid) - spent < 0.25, "what it says next is not looked at again and again"
    os.kill(reader_of(d), signal.SIGCONT)
    while not waits.seen or waits.seen[-1]["type"] != "closed":
        waits.receive()
    assert [m["type"] for m in waits.seen[:2]] == ["WELCOME", "ATTACHED"]
    given, refused = (next(i for i, m in enumerate(waits.seen) if is_it(m)) for is_it in
                      (lambda m: m["type"] == "LIMIT" and m["commit"] >= 10 * MIB,
                       lambda m: m["type"] == "REFUSED" and m["of"] == sequence))
    assert given < refused
    wait_for(lambda: len(d.gpu()["clients"]) == 1, what="the end of who waited")


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
def test_a_crash_in_nvml_is_not_the_daemons(card, daemon, client, how):  # noqa: F811
    d = daemon(**card)
    card_uuid = nvml_uuid(d)
    assert is_served(client, card_uuid)
    first = reader_of(d)
    os.kill(first, how)
    assert is_served(client, card_uuid)
    wait_for(lambda: reader_of(d) not in (None, first) and (d.gpu()["measured_s_ago"] or 9) < 2, what="another one")
    assert d.end()[0] == 0


def test_a_daemon_ends_while_nvml_hangs(card, daemon):  # noqa: F811
    d = daemon(**card)
    reader = wait_for(lambda: reader_of(d), what="the process that asks")
    os.kill(reader, signal.SIGSTOP)
    assert d.end()[0] == 0
    wait_for(lambda: not os.path.exists(f"/proc/{reader}") or name_of(reader) != NVML_READER, what="its end, too")


def test_what_was_short_is_forgotten_when_nvml_begins_to_fail(card, daemon, client):  # noqa: F811
    """NVML returns figures together with the error; they are not used."""
    d = daemon(SIMCUDA_FAIL="nvmlDeviceGetMemoryInfo:4+:999", **card)
    c = client().connect()
    c.hello()
    c.send("ATTACH", 0, total_bytes=256 * MIB, uuid=nvml_uuid(d))
    c.expect("LIMIT")
    wait_for(lambda: d.gpu()["measured_s_ago"] > 2.5, what="NVML to fail")
    whole = d.gpu()["capacity"]
    c.usage()  # it answers: it may be given bytes to back
    assert c.ask(200 * MIB) and c.limit["backed"] >= 100 * MIB
    c.send("SHORT", 0, bytes=100 * MIB)
    wait_for(lambda: d.gpu()["capacity"] < whole, what="the shortage")
    stranger = client(env=card)
    stranger.take(100 * MIB)
    wait_for(lambda: d.gpu()["capacity"] == whole, what="the shortage to be forgotten")
    assert d.gpu()["foreign"] == 0
