"""subletd, driven over its real sockets by small clients. Some of the clients disobey."""

import array
import atexit
import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

import pytest

import others
from others import NOBODY
from wireclient import (DETACHED, GENEROUS_S, GIB, IDLE, MAGIC, MESSAGES, MIB, RUN, RUNNING, Client, encode, obey_until, order)
from world import NO_PID_NAMESPACES

BUILD = pathlib.Path(os.environ.get("SUBLET_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))
SUBLETD = BUILD / "subletd"
VERSION = re.search(r"project\(sublet VERSION ([\d.]+)", (pathlib.Path(__file__).parents[2] / "CMakeLists.txt").read_text())[1]


def wait_for(condition, timeout=GENEROUS_S, what="it"):
    until = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < until, f"{what} did not happen within {timeout} s"
        time.sleep(0.01)


def connectable(directory):
    try:
        for kind, name in ((socket.SOCK_SEQPACKET, "client.sock"), (socket.SOCK_STREAM, "control.sock")):
            with socket.socket(socket.AF_UNIX, kind) as s:
                s.connect(f"{directory}/{name}")
        return True
    except OSError:
        return False


STATE = tempfile.mkdtemp()  # where daemons keep their last good configuration
atexit.register(shutil.rmtree, STATE, True)


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SUBLET_", "XDG_"))}
    return env | {"LC_ALL": "C", "XDG_CONFIG_HOME": "/nonexistent", "XDG_STATE_HOME": STATE} | more


class Daemon:
    def __init__(self, directory, *options, check=True, prefix=(), **env):
        self.dir = directory
        self.process = subprocess.Popen(
            [*prefix, SUBLETD, "--dir", directory, *options],
            env=environment() | env | {"SUBLET_LOG": "info"},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        if check:
            wait_for(lambda: self.process.poll() is not None or connectable(directory), what="start")
            assert self.process.poll() is None, self.process.stderr.read()

    def status(self):
        return order(self.dir, order="status")

    def gpu(self, index=0):
        return self.status()["gpus"][index]

    def client(self, pid):
        return next((c for c in self.gpu()["clients"] if c["pid"] == pid), None)

    def end(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        _, errors = self.process.communicate(timeout=GENEROUS_S)
        return self.process.returncode, errors


@pytest.fixture
def place(tmp_path_factory):
    """Makes a directory with a short name, because a socket address must be short."""
    import shutil
    import tempfile

    path = tempfile.mkdtemp(prefix="sublet-test-")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def daemon(place):
    with contextlib.ExitStack() as stack:

        def start(*options, **env):
            d = Daemon(place, *options, **env)
            stack.callback(lambda: d.process.poll() is None and d.end(signal.SIGKILL))
            return d

        yield start


@pytest.fixture
def client(place):
    made = []

    def make(name="fake", **more):
        made.append(Client(place, name, **more))
        return made[-1]

    yield make
    for c in made:
        c.end()


def run(*options, **more):
    return subprocess.run([SUBLETD, *options], env=environment(), capture_output=True, text=True, timeout=GENEROUS_S, **more)


CARD = ("--capacity", "1GiB", "--host-memory", "4GiB")


# ---- the conversation ----


def test_hello_is_welcomed(daemon, client):
    daemon(*CARD)
    welcome = client().connect().hello()
    assert welcome["instance"] != 0
    assert (welcome["protocol"], welcome["magic"]) == (1, MAGIC)
    assert welcome["version"] == VERSION


def test_every_request_is_answered(daemon, client):
    """The daemon answers every request, also one that changes nothing, because a program waits for the answer."""
    daemon(*CARD)
    c = client().connect()
    c.hello()
    c.attach(unevictable_requested=8 * MIB)
    c.allocate(100 * MIB)
    obey_until([c], lambda: c.lease and c.backed == 100 * MIB)
    room = {"need": 100 * MIB}
    for name, gpu, fields, answer, code in (
        ("REQUEST", 0, room | {"commit": 200 * MIB}, "LIMIT", None),
        ("REQUEST", 0, room | {"commit": 200 * MIB}, "LIMIT", None),
        ("REQUEST", 0, room | {"commit": 150 * MIB}, "LIMIT", None),
        ("REQUEST", 0, room | {"commit": 1 << 40}, "REFUSED", 2),
        ("REQUEST", 0, room | {"unevictable": 16 * MIB}, "LIMIT", None),
        ("REQUEST", 0, room | {"unevictable": 16 * MIB}, "LIMIT", None),
        ("REQUEST", 0, room | {"unevictable": 8 * MIB}, "LIMIT", None),
        ("REQUEST", 0, room | {"unevictable": 1 << 40}, "REFUSED", 3),
        ("EXPORT", 0, {"bytes": 50 * MIB}, "EXPORTED", None),
        ("EXPORT", 0, {"bytes": 500 * MIB}, "REFUSED", 7),
        ("NAME", None, {"name": b"n" * 16}, "NAMED", None),
        ("PEER", None, {"name": b"p" * 16}, "REFUSED", 8),
        ("HOST", None, {"held": 0, "wanted": 10 * MIB}, "HOST_LIMIT", None),
        ("HOST", None, {"held": 0, "wanted": 1 << 40}, "HOST_LIMIT", None),
        ("WHO", None, {}, "HOLDER", None),
    ):
        c.obey()
        sequence = c.send(name, **({} if gpu is None else {"gpu": gpu}), **fields)
        got = c.expect("LIMIT", "REFUSED", "EXPORTED", "NAMED", "HOST_LIMIT", "HOLDER")
        assert got["type"] == answer, (name, fields)
        if code is not None:
            assert (got["code"], got["of"]) == (code, sequence), (name, fields)
        c.usage()


def test_reserved_fields_are_ignored(daemon, client):
    daemon(*CARD)
    c = client().connect()
    c.hello()
    c.attach(reserved=7)


def test_a_word_of_hello_that_must_be_0_or_1_is_refused(daemon, client):
    daemon(*CARD)
    c = client().connect()
    c.send("HELLO", magic=MAGIC, protocol=1, takes_turns=2, version="9.4.1", name="new")
    c.expect("closed")


def test_another_protocol_version_is_refused_with_both_releases(daemon, client):
    daemon(*CARD)
    c = client().connect()
    c.send("HELLO", magic=MAGIC, protocol=2, version="9.4.1", name="new")
    refused = c.expect("REFUSED")
    assert refused["code"] == 1
    assert "9.4.1" in refused["text"] and VERSION in refused["text"]
    c.expect("closed")


def test_attach_tells_the_visible_size(daemon, client):
    d = daemon(*CARD)
    c = client().start()
    gpu = d.gpu()
    assert gpu["total"] == GIB
    assert gpu["headroom"] == GIB // 100 * 3
    assert c.attached["visible_bytes"] == gpu["visible"] < GIB
    assert c.attached["block_bytes"] == 2 * MIB
    assert c.attached["context_bytes"] == GIB // 256
    assert c.attached["bound_ns"] == 10_000_000
    assert c.limit["sequence"] > 0


def test_a_large_card_has_large_contexts_and_blocks(daemon, client):
    daemon()
    c = client().start(total=140 * GIB)
    assert 384 * MIB < c.attached["context_bytes"] < 1 * GIB
    assert c.attached["block_bytes"] == 256 * MIB


def test_a_capacity_may_be_set_for_one_card(daemon, client):
    d = daemon("--capacity", "1=2GiB", "--capacity", "GPU-f2f2f2f2-f2f2-f2f2-f2f2-f2f2f2f2f2f2=3GiB")
    c = client().connect()
    c.hello()
    for card in range(3):
        c.send("ATTACH", card, total_bytes=8 * GIB, uuid=bytes([0xF0 + card] * 16))
        c.expect("ATTACHED")
    assert [g["total"] for g in d.status()["gpus"]] == [8 * GIB, 2 * GIB, 3 * GIB]


def test_a_client_that_wants_to_run_is_granted(daemon, client):
    d = daemon(*CARD)
    c = client().start()
    assert c.allocate(256 * MIB)
    obey_until([c], lambda: c.lease)
    assert c.backed == 256 * MIB
    seen = d.client(c.process.pid)
    assert seen["state"] == "running" and seen["backed"] == 256 * MIB and seen["name"] == "fake"
    assert seen["uid"] == os.getuid()


def test_only_the_configuration_looks_up_user_names():
    """A directory service may take a minute to answer, and every client would wait. So clients cause no look-up: the
    command line looks names up, and the daemon only those that its owner wrote, when it reads them."""
    folder = pathlib.Path(__file__).resolve().parents[2] / "src" / "daemon"
    assert [p.name for p in folder.glob("**/*.c") if "getpw" in p.read_text()] == ["classes.c"]


def test_an_impossible_request_for_room_is_refused_at_once(daemon, client):
    daemon(*CARD)
    c = client().start()
    assert not c.ask(2 * GIB)
    assert c.ask(512 * MIB), "a refusal costs nothing"


def test_two_clients_that_fit_run_together(daemon, client):
    d = daemon(*CARD)
    a, b = client("a").start(), client("b").start()
    assert a.allocate(400 * MIB) and b.allocate(400 * MIB)
    obey_until([a, b], lambda: a.lease and b.lease)
    assert a.revokes == b.revokes == 0
    assert {c["state"] for c in d.gpu()["clients"]} == {"running"}
    assert d.gpu()["handoffs"] == 0


def test_two_clients_that_do_not_fit_hand_the_gpu_over(daemon, client):
    d = daemon(*CARD)
    assert order(d.dir, order="set", quantum="50ms") == {"value": "50ms"}
    a, b = client("a").start(), client("b").start()
    assert a.allocate(700 * MIB)
    obey_until([a], lambda: a.lease)
    assert b.allocate(700 * MIB)

    def both_served_twice():
        assert a.backed + b.backed <= GIB, "more backed than the card has"
        assert not (a.lease and b.lease), "both run though they do not fit"
        return a.grants >= 3 and b.grants >= 2

    obey_until([a, b], both_served_twice, timeout=20)
    assert a.revokes >= 2 and b.revokes >= 1
    assert a.moved_out > 0 and a.moved_out < a.revokes * 700 * MIB, "only the missing bytes are moved"
    assert d.gpu()["handoffs"] >= 3


def test_the_status_shows_bytes_that_were_not_copied(daemon, client):
    d = daemon(*CARD)
    c = client().start()

    def spared():
        return d.client(c.process.pid)["spared_out"], d.client(c.process.pid)["spared_in"]

    assert spared() == (0, 0)
    c.send("SPARED", 0, out=5 * MIB, **{"in": 7 * MIB})
    obey_until([c], lambda: spared() == (5 * MIB, 7 * MIB))


def test_a_client_cannot_report_more_host_memory_than_it_was_given(daemon, client):
    """The run time that a client reports is at most its age, and fields that an older library does not send are
    unknown."""
    d = daemon(*CARD)
    older, c = client("older").start(), client().start()
    c.send("HOST", held=0, wanted=300 * MIB)
    c.expect("HOST_LIMIT")
    c.send("SELF", 0, overflow=200 * MIB, mode=2, keep=GIB, ran_ns=(1 << 64) - 1)
    c.send("WHO")
    c.expect("HOLDER")
    seen = d.client(c.process.pid)
    assert (seen["overflow"], seen["allocated"], seen["memory"], seen["keep"]) == (200 * MIB, 200 * MIB, "overflow", GIB)
    assert seen["gpu_time_s"] < 3600, "the process has not lived for so long"
    c.send("SELF", 0, overflow=(1 << 64) - 1, mode=77)
    c.send("WHO")
    c.expect("HOLDER")
    seen = d.client(c.process.pid)
    assert (seen["overflow"], seen["memory"], seen["keep"]) == (300 * MIB, None, None)
    seen = d.client(older.process.pid)
    assert (seen["overflow"], seen["memory"], seen["keep"]) == (0, None, None)


def test_an_idle_client_gives_way(daemon, client):
    daemon(*CARD)
    a, b = client("a").start(), client("b").start()
    a.allocate(700 * MIB)
    obey_until([a], lambda: a.lease)
    a.wants_run = False
    a.send("IDLE", lease=a.lease)
    b.allocate(700 * MIB)
    obey_until([a, b], lambda: b.lease)
    assert a.revokes == 1


NOW, MAY = 1, 2  # enum wire_contested


def test_clients_learn_whether_others_wait_or_may_wait(daemon, client):
    d = daemon(*CARD)
    assert order(d.dir, order="set", quantum="50ms") == {"value": "50ms"}  # short, because chance decides whose turn it is
    a, b = client("a").start(), client("b").start()
    a.allocate(700 * MIB)
    obey_until([a], lambda: a.lease)
    assert a.contested == 0
    b.allocate(700 * MIB)
    obey_until([a, b], lambda: a.contested == NOW)
    a.wants_run = False
    obey_until([a, b], lambda: b.lease)
    obey_until([a, b], lambda: a.contested == b.contested == MAY)  # becomes true some time after the last wait
    a.kill()
    obey_until([b], lambda: b.contested == 0)


# ---- loss and return ----


def test_a_lost_connection_keeps_the_charge(daemon, client):
    d = daemon(*CARD)
    a, b = client("a").start(), client("b").start()
    a.allocate(700 * MIB)
    obey_until([a], lambda: a.lease)
    a.disconnect()
    wait_for(lambda: "lost" in d.client(a.process.pid)["flags"], what="loss")
    assert d.client(a.process.pid)["backed"] == 700 * MIB
    b.allocate(700 * MIB)
    b.obey(timeout=0.5)
    assert not b.lease, "the process lives and may use its memory"


def test_a_killed_client_makes_room(daemon, client):
    d = daemon(*CARD)
    a, b = client("a").start(), client("b").start()
    a.allocate(700 * MIB)
    obey_until([a], lambda: a.lease)
    b.allocate(700 * MIB)
    a.kill()
    obey_until([b], lambda: b.lease)
    assert d.client(a.process.pid) is None


def test_bye_makes_room_at_once(daemon, client):
    d = daemon(*CARD)
    a = client("a").start()
    a.allocate(700 * MIB)
    obey_until([a], lambda: a.lease)
    a.send("BYE")
    a.expect("closed")
    assert d.gpu()["charged"] == 0, "though the process lives"


def test_a_process_that_connects_again_replaces_itself(daemon, client):
    d = daemon(*CARD)
    a = client("a").start()
    a.allocate(300 * MIB)
    obey_until([a], lambda: a.lease)
    welcome = a.seen[0]
    a.disconnect()
    wait_for(lambda: "lost" in d.client(a.process.pid)["flags"], what="loss")
    a.connect()
    a.hello(previous_instance=welcome["instance"])
    a.attach(flags=RUN | RUNNING | DETACHED, allocated=300 * MIB, backed=300 * MIB)
    obey_until([a], lambda: a.lease)
    a.usage()
    clients = wait_for(lambda: len(d.gpu()["clients"]) == 1 and d.gpu()["clients"], what="replacement")
    assert clients[0]["backed"] == 300 * MIB and clients[0]["state"] == "running"
    assert d.gpu()["charged"] < 400 * MIB


def test_after_a_crash_running_clients_come_back_first(daemon, client, place):
    d = daemon(*CARD)
    a, b = client("a").start(), client("b").start()
    a.allocate(700 * MIB)
    obey_until([a], lambda: a.lease)
    d.end(signal.SIGKILL)
    a.expect("closed"), b.expect("closed")
    assert os.path.exists(f"{place}/running")
    d = daemon(*CARD)
    for c in (a, b):
        c.connect()
        c.hello()
    a.attach(flags=RUN | RUNNING | DETACHED, allocated=700 * MIB, backed=700 * MIB, wait=False)
    b.attach(flags=RUN, wait=False)
    obey_until([a, b], lambda: a.lease and b.lease)
    ran = {c["pid"]: c["gpu_time_s"] for c in d.gpu()["clients"]}
    # The daemon measures these times by its own clock, so it does not matter whether the clients come late.
    assert ran[a.process.pid] - ran[b.process.pid] > 1.9, "a client that ran is granted at once, others after the 2 s"


def test_promised_host_memory_outlives_a_crash(daemon, client, place):
    """The marker file holds the promised bytes; the daemon ignores a file that it cannot read."""
    d = daemon("--capacity", "1GiB")
    budget = d.status()["host_memory"]["budget"]
    client().start()
    marker = pathlib.Path(place, "running")
    assert int(marker.read_text()) == budget
    d.end(signal.SIGKILL)
    assert int(marker.read_text()) == budget
    d = daemon("--capacity", "1GiB")
    assert d.status()["host_memory"]["budget"] >= budget
    d.end(signal.SIGKILL)
    for rubbish in ("", "much\n", "-1\n", "9" * 40):
        marker.write_text(rubbish)
        d = daemon("--capacity", "1GiB")
        assert d.status()["host_memory"]["budget"] > 0
        d.end(signal.SIGKILL)


def test_a_clean_end_leaves_no_marker_of_running_clients(daemon, client, place):
    d = daemon(*CARD)
    c = client().start()
    assert os.path.exists(f"{place}/running")
    c.send("BYE")
    c.expect("closed")
    wait_for(lambda: not os.path.exists(f"{place}/running"), what="unmarking")
    code, _ = d.end()
    assert code == 0
    assert not os.path.exists(f"{place}/client.sock") and not os.path.exists(f"{place}/control.sock")


# ---- NVML's figures ----


@pytest.fixture
def card():
    """The environment of a simulated card of 256 MiB, with its NVML. A test must name this fixture before daemon and
    client, so that the card is removed after them: a process that still looked at the card would create it anew."""
    if not (BUILD / "sim/libnvidia-ml.so.1").exists():
        pytest.skip("the simulated driver is not built; after ./dev build they run")
    session = f"daemon{os.urandom(8).hex()}"
    yield environment(LD_LIBRARY_PATH=str(BUILD / "sim"), SIMCUDA_MEMORY="256MiB", SIMCUDA_SESSION=session)
    for path in pathlib.Path("/dev/shm").glob(f"*{session}*"):
        path.unlink()


def nvml_uuid(d):
    text = d.gpu()["uuid"]
    return bytes.fromhex(text.removeprefix("GPU-").replace("-", ""))


def test_a_capacity_for_an_absent_card_is_named(card, daemon):
    d = daemon("--capacity", "9=64MiB", "--capacity", "GPU-0=64MiB", "--capacity", "192MiB", "--capacity", "0=128MiB", **card)
    assert d.gpu()["total"] == 128 * MIB
    _, errors = d.end()
    said = [line.split("warning: ")[1] for line in errors.splitlines() if "capacity is set" in line]
    assert said == [f"capacity is set for GPU {name}, which this machine does not have" for name in ("9", "GPU-0")], errors


def test_the_daemon_promises_no_more_than_the_card_has(card, daemon):
    d = daemon("--capacity", "512MiB", **card)
    assert d.gpu()["total"] == 256 * MIB
    assert "GPU 0 has less than the capacity that is set for it: 256 MiB" in d.end()[1]


def test_nvml_names_the_card_before_any_client(card, daemon):
    d = daemon(**card)
    gpu = d.gpu()
    assert gpu["total"] == 256 * MIB and gpu["uuid"].startswith("GPU-") and gpu["foreign"] == 0


@pytest.mark.parametrize("known", [False, True])
def test_nvml_that_comes_later_is_found(card, daemon, client, tmp_path, known):
    """The driver is loaded after the daemon has started, as may happen at boot. known: a client has named the card
    before."""
    real = pathlib.Path(card["LD_LIBRARY_PATH"])
    (tmp_path / "libsimcuda-there").touch()  # must exist, because the loader remembers missing directories
    d = daemon("--capacity", "9=1MiB", **(card | {"LD_LIBRARY_PATH": f"{tmp_path}"}))
    assert d.status()["gpus"] == []
    foreign = client(env=card)
    foreign.take(100 * MIB)
    with contextlib.ExitStack() as ended:
        other = Daemon(ended.enter_context(tempfile.TemporaryDirectory(prefix="sublet-test-")), **card)
        ended.callback(other.end)
        uuid = nvml_uuid(other)
    first = client().connect()
    first.hello()
    wait_for(lambda: known or d.status()["uptime_s"] > 1.1, what="the time for another try")
    if known:
        first.send("ATTACH", 0, total_bytes=256 * MIB, uuid=uuid)
        first.expect("LIMIT")
        assert d.gpu()["foreign"] == 0 and d.gpu()["name"] == "GPU 0"
    for path in real.glob("lib*.so*"):
        (tmp_path / path.name).symlink_to(path)
    if not known:
        first.send("ATTACH", 0, total_bytes=256 * MIB, uuid=uuid)
        first.expect("ATTACHED")
        assert d.gpu()["foreign"] >= 100 * MIB, "foreign bytes are seen before anything is promised"
    wait_for(lambda: d.gpu()["foreign"] >= 100 * MIB, what="the foreign bytes")
    assert d.gpu()["name"] != "GPU 0" and len(d.status()["gpus"]) == 1
    _, errors = d.end()
    assert errors.count("capacity is set for GPU 9") == 1


def test_a_set_capacity_leaves_the_rest_to_others(card, daemon, client):
    d = daemon("--capacity", "128MiB", **card)
    client(env=card).take(100 * MIB)
    c = client().connect()
    c.hello()
    since = d.status()["uptime_s"]
    wait_for(lambda: d.status()["uptime_s"] > since + 1.2, what="one sample more")
    assert d.gpu()["total"] == 128 * MIB and d.gpu()["foreign"] == 0


def test_foreign_processes_lower_the_capacity(card, daemon, client):
    d = daemon(**card)
    client(env=card).start()
    before = d.gpu()["capacity"]
    foreign = client(env=card)
    foreign.take(100 * MIB)
    wait_for(lambda: d.gpu()["foreign"] >= 100 * MIB, what="the foreign bytes")
    assert d.gpu()["capacity"] <= before - 100 * MIB
    foreign.end()
    wait_for(lambda: d.gpu()["foreign"] == 0, what="the return of the foreign bytes")


def attached_with(d, c, taken):
    """Attaches a client and lets it take that many bytes; returns once the daemon has measured them."""
    c.connect()
    c.hello()
    c.send("ATTACH", 0, total_bytes=256 * MIB, uuid=nvml_uuid(d))
    c.expect("LIMIT")
    c.take(taken)
    wait_for(lambda: d.client(c.process.pid)["unevictable"] >= taken, what="the measure")
    return c


def test_a_clients_own_overhead_is_its_unevictable_bytes(card, daemon, client):
    d = daemon(**card)
    c = attached_with(d, client(env=card), 10 * MIB)
    assert d.gpu()["foreign"] == 0, "a client's own bytes are not foreign"
    c.kill()
    wait_for(lambda: not d.gpu()["clients"], what="its end")
    assert d.gpu()["charged"] == 0


def test_returning_clients_do_not_count_as_foreign(card, daemon, client):
    d = daemon(**card)
    c = attached_with(d, client(env=card), 100 * MIB)

    def crash_and_return():
        nonlocal d
        d.end(signal.SIGKILL)
        c.expect("closed")
        d = daemon(**card)
        seen = [d.gpu()["foreign"]]
        c.connect()
        c.hello()
        c.send("ATTACH", 0, total_bytes=256 * MIB, uuid=nvml_uuid(d), unevictable=101 * MIB)
        c.expect("ATTACHED")
        return seen if d.status()["uptime_s"] < 2 else None  # after 2 s the daemon waits no longer

    seen = wait_for(crash_and_return, what="a return in time")
    wait_for(lambda: seen.append(d.gpu()["foreign"]) or d.status()["uptime_s"] > 3.2, what="three samples")
    assert set(seen) == {0}


def test_a_lost_connection_keeps_the_charge_while_the_card_lists_the_process(card, daemon, client):
    """A stopped process cannot come back, and still has its memory."""
    d = daemon(**card)
    c = attached_with(d, client(env=card), 100 * MIB)
    c.disconnect()
    wait_for(lambda: "lost" in d.client(c.process.pid)["flags"], what="loss")
    c.process.send_signal(signal.SIGSTOP)
    since = d.status()["uptime_s"]
    wait_for(lambda: d.status()["uptime_s"] > since + 2.5, what="some looks at the card")
    assert d.client(c.process.pid)["unevictable"] >= 100 * MIB


# ---- hostile input ----


def garbage():
    rows = {
        "empty": b"",
        "short": b"\1",
        "unknown type": encode("HELLO").replace(b"\1", b"\x63", 1),
        "no magic": encode("HELLO", protocol=1),
        "huge": b"\1" * 4096,
        "downward": encode("GRANT", lease=1),
        "before hello": encode("USAGE", 0),
    }
    return [pytest.param(packet, id=name) for name, packet in rows.items()]


@pytest.mark.parametrize("packet", garbage())
def test_garbage_ends_the_connection_alone(daemon, client, packet):
    d = daemon(*CARD)
    good, bad = client("good").start(), client("bad").connect()
    bad.raw(packet)
    bad.expect("closed")
    good.allocate(10 * MIB)
    obey_until([good], lambda: good.lease)
    assert len(d.gpu()["clients"]) == 1


@pytest.mark.parametrize(
    "name, fields",
    [
        ("USAGE", dict(gpu=3)),
        ("USAGE", dict(gpu=16)),
        ("USAGE", dict(gpu=0, flags=1 << 9)),
        ("USAGE", dict(gpu=0, allocated=1, backed=2)),
        ("HELLO", dict(magic=MAGIC, protocol=1)),
        ("ATTACH", dict(gpu=0, total_bytes=GIB, uuid=b"\xf0" * 16)),
    ],
)
def test_impossible_figures_end_the_connection(daemon, client, name, fields):
    d = daemon(*CARD)
    c = client().start()
    c.send(name, **fields)
    assert c.expect("REFUSED")["code"] == 6
    c.expect("closed")
    assert len(d.gpu()["clients"]) == 1, "the process lives: its charge stays"


def test_every_message_in_every_state_leaves_the_daemon_alive(daemon, client):
    d = daemon(*CARD)
    for name, (_, _, layout, *_) in MESSAGES.items():
        for fill in (0, 0xFF):
            packet = bytearray(encode(name, 0))
            packet[8:] = bytes([fill]) * (len(packet) - 8)
            c = client().start()
            c.raw(bytes(packet))
            c.usage()
            c.obey(timeout=0.02)
            c.end()
    assert d.process.poll() is None
    wait_for(lambda: not d.gpu()["clients"], what="cleaning up")


def test_a_card_of_an_impossible_size_is_refused(daemon, client):
    daemon()
    c = client().connect()
    c.hello()
    sequence = c.send("ATTACH", 0, total_bytes=1 << 60, uuid=b"\x01" * 16)
    refused = c.expect("REFUSED")
    assert (refused["code"], refused["of"]) == (4, sequence)


def test_the_seventeenth_card_is_refused(daemon, client):
    daemon()
    c, d = client(), client()
    for one, cards in ((c, range(8)), (d, range(8, 16))):
        one.connect().hello()
        for card in cards:
            one.send("ATTACH", card, total_bytes=GIB, uuid=bytes([card + 1] * 16))
            one.expect("ATTACHED")
    d.send("ATTACH", 0, total_bytes=GIB, uuid=b"\x77" * 16)
    assert d.expect("REFUSED")["code"] == 4


def test_descriptors_sent_with_messages_are_closed(daemon, place):
    d = daemon(*CARD)
    hello = encode("HELLO", magic=MAGIC, protocol=1, name="x", version="1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s, \
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first:
        # The first answer shows that every file which the daemon opens at its start is open.
        first.connect(f"{place}/client.sock")
        first.settimeout(GENEROUS_S)
        first.send(hello)
        assert first.recv(1000)
        before = len(os.listdir(f"/proc/{d.process.pid}/fd"))
        s.connect(f"{place}/client.sock")
        s.settimeout(GENEROUS_S)
        s.send(hello)
        assert s.recv(1000)  # until the daemon knows the client, the kernel may refuse all its descriptors
        r, w = os.pipe()
        # The daemon answers each of these with a LIMIT that raises the backed bytes; none is a USAGE that hands over
        # memory.
        for packet in (encode("ATTACH", 0, 2, total_bytes=GIB, uuid=b"\x77" * 16),
                       encode("REQUEST", 0, 3, commit=64 * MIB, need=64 * MIB, flags=1),
                       encode("USAGE", 0, 4, allocated=64 * MIB, limit_sequence=2)):
            s.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [w]))])
            assert s.recv(1000)
        os.close(w)
        assert os.read(r, 1) == b"", "the daemon holds the other end"
        os.close(r)
        # One descriptor for the connection and one for its process stay open; the others are closed soon.
        wait_for(lambda: len(os.listdir(f"/proc/{d.process.pid}/fd")) <= before + 2, what="descriptors to be closed")


def test_a_client_that_does_not_read_is_dropped(daemon, client):
    d = daemon(*CARD)
    c = client().start()
    c.stop_reading()
    c.command("noop")
    for _ in range(4000):
        c.raw(encode("REQUEST", 0, 1, commit=64 * GIB))
    wait_for(lambda: "lost" in d.client(c.process.pid)["flags"], what="dropping")


def test_a_client_is_never_dropped_for_many_messages(daemon, client):
    """The client's messages wait until the daemon has read all of them."""
    daemon(*CARD)
    c = client().start()
    for _ in range(25_000):
        c.raw(encode("IDLE", lease=1))
    c.send("WHO")
    c.expect("HOLDER")


def test_too_many_connections_of_a_user_are_refused(daemon, client, tmp_path):
    conf = tmp_path / "subletd.conf"
    conf.write_text("[daemon]\nconnections_per_user = 3\n")
    daemon(*CARD, "--config", str(conf))

    def accepted():
        c = client().connect()
        c.send("HELLO", magic=MAGIC, protocol=1, name="one", version="0.1.0")
        return c if c.expect("WELCOME", "closed")["type"] == "WELCOME" else None

    for _ in range(3):
        last = wait_for(accepted, what="the end of the connections that tested the start")
    late = client().connect()
    assert late.expect("REFUSED")["code"] == 5
    late.expect("closed")
    last.disconnect()
    wait_for(accepted, what="a free place")


# ---- orders ----


def test_orders_are_answered_with_one_sentence_when_they_are_wrong(daemon, place):
    daemon(*CARD)
    assert "unknown order" in order(place, order="dance")["error"]
    assert "error" in order(place, hello="there")
    assert 'malformed mode "fast"' in order(place, order="set", mode="fast")["error"]
    assert 'malformed quantum "5"' in order(place, order="set", quantum="5")["error"]
    assert "error" in order(place, order="set", colour="red")
    assert "error" in order(place, order="set", quantum=5)
    assert "one setting" in order(place, order="set", quantum="5s", mode="off")["error"]
    assert "one setting" in order(place, order="set")["error"]
    assert "integer" in order(place, order="set_program", pid="5", weight="2")["error"]
    assert "integer" in order(place, order="get", pid=-5)["error"]


def test_settings_show_in_the_status(daemon, place):
    d = daemon(*CARD)
    assert d.status()["quantum"] == "auto" and d.status()["mode"] == "auto"
    assert order(place, order="set", quantum="1500ms") == {"value": "1500ms"}
    assert order(place, order="set", mode="exclusive") == {"value": "exclusive"}
    status = d.status()
    assert status["quantum"] == 1.5 and status["mode"] == "exclusive"
    assert status["host_memory"]["budget"] == 4 * GIB
    assert order(place, order="set", quantum="auto") == {"value": "auto"}
    assert d.status()["quantum"] == "auto"


def test_stop_leaves_cleanly(daemon, place):
    d = daemon(*CARD)
    assert order(place, order="stop") == {}
    assert d.process.wait(timeout=GENEROUS_S) == 0
    assert not os.path.exists(f"{place}/client.sock")


def test_one_connection_carries_several_orders(daemon, place):
    daemon(*CARD)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.connect(f"{place}/control.sock")
        s.sendall(b'{"order":"status"}\n{"order":"sta')
        s.sendall(b'tus"}\nnonsense\n')
        lines = s.makefile().readline
        assert "gpus" in json.loads(lines()) and "gpus" in json.loads(lines())
        assert "error" in json.loads(lines())


def test_the_daemon_takes_orders_once_its_client_socket_exists(daemon, place):
    """The client socket takes connections as soon as it exists. If it refused a connection, the client would conclude
    that a killed daemon left the socket behind."""

    def found():
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            try:
                s.connect(f"{place}/client.sock")
            except FileNotFoundError:
                return False
            return True

    for _ in range(20):
        d = daemon(*CARD, check=False)
        while not found():
            assert d.process.poll() is None, d.end()
        assert order(place, order="stop") == {}
        assert d.process.wait(timeout=GENEROUS_S) == 0
        assert sorted(os.listdir(place)) == ["conf.d", "lock"]


def test_only_their_owner_may_use_the_sockets(daemon, place):
    daemon(*CARD)
    for name in ("client.sock", "control.sock"):
        assert stat.S_IMODE(os.stat(f"{place}/{name}").st_mode) == 0o600


# ---- starting ----


@pytest.mark.parametrize(
    "options, names",
    [
        (["--foo"], '"--foo"'),
        (["extra"], '"extra"'),
        (["--capacity", "12q"], '"12q"'),
        (["--capacity", "1=much"], '"1=much"'),
        (["--capacity"], "--capacity"),
        (["--host-memory=-1"], '"-1"'),
        (["--private=yes"], "--private"),
        (["--private", "--shared"], "--private"),
        (["--group", "no-such-group", "--shared", "--dir", "/tmp/x"], "no-such-group"),
        (["--check", "--config", "/no/such/file"], "/no/such/file"),
        (["--dir", "/no/such/parent/dir"], "/no/such/parent/dir"),
        (["--dir", "/tmp/" + "long" * 40], "too long"),
    ],
)
def test_bad_usage_gets_one_sentence_and_status_2(options, names):
    result = run(*options)
    assert result.returncode == 2
    assert names in result.stderr
    assert result.stderr.startswith("subletd: ") and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "text, where, names",
    [
        ("[daemon]\nquantum = 2s\nspeed = 3\n", 3, '"speed"'),
        ("[daemon]\n\nquantum = 2\n", 3, 'malformed quantum "2"'),
        ("# a comment\n[daemon]\nmode\n", 3, "key = value"),
        ("[other]\nmode = auto\n", 2, '"other"'),
        ("[daemon]\nhost_memory = 12QiB\n", 2, '"12QiB"'),
        ("[daemon]\nhandoff_share = 5\n", 2, '"5"'),
        ("[daemon]\nkill_overdue = maybe\n", 2, '"maybe"'),
        ("[daemon]\nclients_max = 0\n", 2, '"0"'),
    ],
)
def test_a_bad_configuration_names_file_and_line(place, tmp_path, text, where, names):
    conf = tmp_path / "x.conf"
    conf.write_text(text)
    result = run("--check", "--dir", place, "--config", str(conf))
    assert result.returncode == 2
    assert f"{conf}:{where}:" in result.stderr and names in result.stderr


def test_the_command_line_overrides_the_file(daemon, client, tmp_path):
    conf = tmp_path / "x.conf"
    conf.write_text("[daemon]\ncapacity = 2GiB\nhost_memory = 1GiB\nquantum = 2s ; a comment\n")
    d = daemon("--config", str(conf), "--capacity", "3GiB")
    client().start()
    assert d.gpu()["total"] == 3 * GIB
    assert d.status()["host_memory"]["budget"] == GIB and d.status()["quantum"] == 2


def test_help_names_every_option():
    result = run("--help")
    assert result.returncode == 0 and result.stderr == ""
    for word in ("--dir", "--capacity", "--private", "quantum", "SUBLET_LOG"):
        assert word in result.stdout
    assert run("--version").stdout == f"subletd {VERSION}\n"


def test_a_second_daemon_names_the_first(daemon, place):
    d = daemon(*CARD)
    result = run("--dir", place)
    assert result.returncode == 1
    assert f"another subletd (pid {d.process.pid}) serves {place}" in result.stderr
    assert connectable(place), "the first one still serves"


def test_stale_sockets_are_taken_over(daemon, place, client):
    daemon(*CARD).end(signal.SIGKILL)
    assert os.path.exists(f"{place}/client.sock") and not connectable(place)
    daemon(*CARD)
    client().start()


def test_a_file_in_the_sockets_place_is_left_alone(place):
    pathlib.Path(place, "client.sock").write_text("mine")
    result = run("--dir", place)
    assert result.returncode == 2 and "not a socket" in result.stderr
    assert pathlib.Path(place, "client.sock").read_text() == "mine"


def test_a_directory_that_others_can_enter_is_refused(place):
    os.chmod(place, 0o755)
    result = run("--dir", place)
    assert result.returncode == 2 and place in result.stderr and "chmod" in result.stderr


@others.needed
def test_a_foreign_directory_is_refused(place):
    os.chown(place, NOBODY, NOBODY)
    result = run("--dir", place)
    assert result.returncode == 2 and "another user" in result.stderr


@others.needed
def test_a_daemon_without_permission_says_so(place):
    result = subprocess.run([f"{others.BUILD}/subletd", "--dir", f"{place}/sub"], capture_output=True, text=True, user=NOBODY,
                            env=environment())
    assert result.returncode == 2 and f"no permission to create directory {place}/sub" in result.stderr


@others.needed
def test_a_shared_daemon_serves_other_users(place, client):
    os.chmod(place, 0o755)
    d = Daemon(place, "--shared", *CARD)
    try:
        assert stat.S_IMODE(os.stat(f"{place}/client.sock").st_mode) == 0o666
        assert stat.S_IMODE(os.stat(f"{place}/control.sock").st_mode) == 0o600
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            pid = os.fork()
            if pid == 0:
                os.setuid(NOBODY)
                s.connect(f"{place}/client.sock")
                s.send(encode("HELLO", magic=MAGIC, protocol=1, name="x", version="1"))
                os._exit(0 if s.recv(1000)[:1] == b"\2" else 1)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        d.end()


def test_the_folder_for_containers_has_what_programs_need_and_nothing_else(place):
    """A folder that is mounted into a container serves there after a restart of the daemon, too."""
    os.chmod(place, 0o755)
    public, before = f"{place}/public", None
    for _ in range(2):
        d = Daemon(place, "--shared", *CARD)
        try:
            assert sorted(os.listdir(public)) == ["client.sock", "status.sock"]
            assert before in (None, os.stat(public).st_ino)
            before = os.stat(public).st_ino
            c = Client(public).connect().start()
            asked = subprocess.run([BUILD / "sublet", "status", "--json", "--daemon", public], capture_output=True, text=True)
            assert json.loads(asked.stdout)["gpus"][0]["clients"][0]["pid"] == c.process.pid, asked
            c.end()
            asked = subprocess.run([BUILD / "sublet", "set", "quantum", "1s", "--daemon", public], capture_output=True, text=True)
            assert asked.returncode == 1 and "only the daemon's own user and root may give orders" in asked.stderr, asked
        finally:
            d.end()
    assert not os.listdir(public)


@others.needed
def test_root_of_a_container_gives_no_orders(daemon, place):
    daemon(*CARD)
    script = f"""
import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
from wireclient import order
print(order({place!r}, order="stop"))
"""
    result = subprocess.run(["unshare", "--pid", "--fork", "/usr/bin/python3", "-c", script], capture_output=True, text=True)
    if "unshare failed" in result.stderr or "Operation not permitted" in result.stderr:
        pytest.skip(NO_PID_NAMESPACES)
    assert "outside a container" in result.stdout, result
    assert connectable(place)


def test_settings_outlive_a_crash_but_not_an_orderly_end(daemon, place, tmp_path):
    (tmp_path / "conf").write_text("[daemon]\nquantum = 7s\n")
    options = (*CARD, "--config", tmp_path / "conf")

    def settings(d):
        return d.status()["mode"], d.status()["quantum"]

    d = daemon(*options)
    for setting, value, then in (("mode", "exclusive", ("exclusive", 7)), ("quantum", "1500us", ("exclusive", 0.0015)),
                                 ("mode", "auto", ("auto", 0.0015)), ("quantum", "auto", ("auto", "auto"))):
        assert order(place, order="set", **{setting: value}) == {"value": value}
        d.end(signal.SIGKILL)
        d = daemon(*options)
        assert settings(d) == then
    assert order(place, order="set", quantum="7s") == {"value": "7s"}
    assert not os.path.exists(f"{place}/settings"), "the configuration says the same, so no file is needed"
    assert order(place, order="set", mode="off") == {"value": "off"}
    assert d.end()[0] == 0
    d = daemon(*options)
    assert settings(d) == ("auto", 7)
    d.end(signal.SIGKILL)
    pathlib.Path(place, "settings").write_text("[daemon]\nmode = sideways\n")
    assert settings(daemon(*options)) == ("auto", 7)


@others.needed
def test_orders_have_the_rights_of_the_process_that_connected(daemon, place):
    """The rights are those at the time of the connection. When the order comes, the process may have ended, and another
    process may have its number."""
    d = daemon("--shared", *CARD)
    ours, theirs = socket.socketpair()
    opener = os.fork()
    if opener == 0:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.connect(f"{place}/control.sock")
        s.sendall(b'{"order":"status"}\n')
        s.recv(1)
        socket.send_fds(theirs, [b"x"], [s.fileno()])
        os._exit(0)
    _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    os.waitpid(opener, 0)
    with socket.socket(fileno=fds[0]) as s:
        s.settimeout(GENEROUS_S)
        s.sendall(b'{"order":"stop"}\n')
        answer = b""
        while not answer.endswith(b"\n{}\n"):  # the answer follows the rest of the status
            part = s.recv(65536)
            assert part, answer[-200:]
            answer += part
    ours.close()
    theirs.close()
    assert d.process.wait(GENEROUS_S) == 0


# ---- the private daemon ----


def has_ended(pid):
    """True also for a zombie that its parent has not collected yet."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def children(pid):
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def serving(directory):
    """Returns the processes of private daemons in that directory, supervisors and workers."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            reads_nvml = path.with_name("comm").read_text() == "subletd-nvml\n"
            if words[0].endswith(b"subletd") and directory.encode() in words and not reads_nvml:
                found.append(int(path.parent.name))
    return found


def end_private(directory):
    with contextlib.suppress(OSError):
        order(directory, order="stop")

    def ended():
        for pid in serving(directory):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        return not serving(directory)

    wait_for(ended, what="leaving")


@pytest.fixture
def private(place):
    directory = f"{place}/private"

    def start(*options):
        result = run("--private", "--dir", directory, *CARD, *options)
        assert result.returncode == 0, result.stderr
        return directory

    yield start
    end_private(directory)


def supervisor_of(directory):
    return wait_for(lambda: int(pathlib.Path(directory, "lock").read_text() or 0), what="signing")


def test_a_private_daemon_listens_when_its_starter_returns(private):
    directory = private()
    assert connectable(directory)
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert private() == directory, "a second start finds the first"
    assert connectable(directory)


def test_many_starters_make_one_daemon(place):
    directory = f"{place}/private"
    starters = [
        subprocess.Popen([SUBLETD, "--private", "--dir", directory, *CARD], env=environment())
        for _ in range(8)
    ]
    try:
        assert [s.wait(timeout=GENEROUS_S) for s in starters] == [0] * 8
        assert connectable(directory)
        supervisor = supervisor_of(directory)
        wait_for(lambda: children(supervisor), what="the worker")
        assert sorted(serving(directory)) == sorted([supervisor, *children(supervisor)])
    finally:
        end_private(directory)


def test_a_private_daemon_restarts_its_worker(private, place):
    directory = private()
    supervisor = supervisor_of(directory)
    worker = wait_for(lambda: children(supervisor), what="the worker")[0]
    c = Client(directory)
    try:
        instance = c.connect().hello()["instance"]
        c.attach()
        os.kill(worker, signal.SIGKILL)
        c.expect("closed")
        c.connect()
        assert c.hello()["instance"] != instance
        assert children(supervisor) != [worker]
        c.attach(wait=False)
        c.expect("LIMIT")
    finally:
        c.end()


def test_a_private_daemon_leaves_after_its_last_client(private, place):
    directory = f"{place}/private"

    def first_client():
        """Connects the first client before the daemon leaves again, which happens after 300 ms."""
        c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            c.connect(private("--linger", "300ms") + "/client.sock")
            return c
        except OSError:
            c.close()
            return None

    with wait_for(first_client, what="a client in time") as c:
        c.send(encode("HELLO", magic=MAGIC, protocol=1, name="last", version="0.1.0"))
        c.settimeout(GENEROUS_S)
        assert c.recv(1000)[:1] == b"\2"
        supervisor = supervisor_of(directory)
        time.sleep(0.6)  # longer than the daemon lingers
        assert not has_ended(supervisor), "a client is there"
        c.send(encode("BYE"))
    wait_for(lambda: has_ended(supervisor), what="leaving")
    assert not os.path.exists(f"{directory}/client.sock")
    assert not os.path.exists(f"{directory}/running")


def test_the_log_of_a_private_daemon_stays_short(private):
    """A daemon may live for months, and its log lies in memory (the runtime directory): only the end of the log is
    kept."""
    directory = private()
    log = pathlib.Path(directory, "subletd.log")
    with open(log, "ab") as f:
        for number in range(1 << 16):
            f.write(f"line {number:058}\n".encode())
    c = Client(directory)
    try:
        c.start()
        wait_for(lambda: log.stat().st_size <= MIB, what="the older part to go")
        lines = log.read_text().splitlines()
        assert f"line {65535:058}" in lines and len(lines) > 4096
        assert any("release 0.1.0" in line for line in lines[-3:])
    finally:
        c.end()
    wait_for(lambda: "has left" in log.read_text(), what="the log to go on")


def test_stop_ends_supervisor_and_worker(private):
    directory = private()
    supervisor = supervisor_of(directory)
    assert order(directory, order="stop") == {}
    wait_for(lambda: has_ended(supervisor), what="leaving")
    assert not connectable(directory)


def test_a_worker_ends_with_its_supervisor(private):
    directory = private()
    supervisor = supervisor_of(directory)
    worker = wait_for(lambda: children(supervisor), what="the worker")[0]
    os.kill(supervisor, signal.SIGKILL)
    wait_for(lambda: has_ended(worker), what="leaving")
    assert private() == directory


def test_a_private_daemon_keeps_no_descriptor_of_its_starter(private, place):
    r, w = os.pipe()
    os.set_inheritable(w, True)
    directory = f"{place}/private"
    result = subprocess.run(
        [SUBLETD, "--private", "--dir", directory, *CARD], env=environment(), close_fds=False, timeout=GENEROUS_S
    )
    assert result.returncode == 0
    os.close(w)
    assert select.select([r], [], [], GENEROUS_S)[0] and os.read(r, 1) == b"", "the daemon holds a descriptor of its starter"
    os.close(r)
    supervisor = supervisor_of(directory)
    assert os.getsid(supervisor) == supervisor
    order(directory, order="stop")


RESTRAINED = """
import os, resource, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
resource.setrlimit(resource.RLIMIT_CPU, (50, resource.getrlimit(resource.RLIMIT_CPU)[1]))
with open("/proc/self/oom_score_adj", "w") as f:
    f.write("700")
os.nice(5)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("user", ["same", pytest.param("nobody", marks=others.needed)])
def test_a_private_daemon_is_not_held_by_what_was_set_for_its_starter(place, user):
    directory = f"{place}/private"
    command = [sys.executable, "-c", RESTRAINED, os.path.join(others.BUILD, "subletd"), "--private", "--dir", directory, *CARD]
    if user == "nobody":
        os.chmod(place, 0o755)
        os.mkdir(directory, 0o700)
        os.chown(directory, NOBODY, NOBODY)
        command = [*others.as_user(NOBODY), *command]
    result = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=GENEROUS_S, check=False)
    try:
        assert result.returncode == 0, result.stderr
        supervisor = supervisor_of(directory)
        for pid in (supervisor, *children(supervisor)):
            assert os.sched_getaffinity(pid) == os.sched_getaffinity(0)
            limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
            assert len(re.findall(r"^Max (?:file size|cpu time) +(\w+) +\1 ", limits, re.M)) == 2, limits
        own, score = (int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in ("self", supervisor))
        assert score == 0 or own != 0
        kept = os.getpriority(os.PRIO_PROCESS, supervisor)
        assert kept == 0 or kept >= 5
        assert (f"niceness {kept} of" in pathlib.Path(directory, "subletd.log").read_text()) == (kept > 0)
    finally:
        end_private(directory)
