"""The daemon among hostile clients: it answers or drops them, and never crashes, hangs, grows without bound or forgets
other clients. HOSTILE_SECONDS makes the attacks longer; HOSTILE_REPORT names a file for the figures
(docs/measurements)."""

import array
import json
import os
import pathlib
import random
import resource
import socket
import struct
import subprocess
import sys
import time

import pytest

import hostile
import others
from campaign import LONG
from hostile import Bystander, Crowd, connect, drain_answers
from test_daemon import CARD, Daemon, client, daemon, place, wait_for  # noqa: F401
from wireclient import BUILD, GENEROUS_S, GIB, MIB, RUNNING, encode, obey_until, order
from world import SANITIZER

SECONDS = float(os.environ.get("HOSTILE_SECONDS", "3" if LONG else "1"))
COUNT = 200 if LONG else 80  # processes of an attack
SEED = int(os.environ.get("HOSTILE_SEED", "1"))


def report(what, **figures):
    """Notes figures for the documents; slow answers are no failure here."""
    print(f"{what}: {figures}")
    if "HOSTILE_REPORT" in os.environ:
        with open(os.environ["HOSTILE_REPORT"], "a", encoding="utf-8") as f:
            f.write(json.dumps({"what": what} | figures) + "\n")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident(pid):
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024


def attack_and_measure(d, place, what, count, habits, user=None):
    """Reports a bystander's answer times before and during the attack. Checks that the daemon is afterwards as it was
    before."""
    pid = d.process.pid
    bystander = Bystander(place)
    bystander.ask_for(0.5)
    before = bystander.figures()
    held = descriptors(pid)
    bystander.times.clear()
    crowd = Crowd(place, count, SECONDS, SEED, habits, user)
    try:
        most_held = most_memory = 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            bystander.ask_for(0.2, pause=0.02)  # a rate within a process's share of the daemon's time
            most_held, most_memory = max(most_held, descriptors(pid)), max(most_memory, resident(pid))
        crowd.wait()
    finally:
        crowd.end()
    assert bystander.reconnected == 0, "the bystander kept its connection"
    assert d.process.poll() is None
    wait_for(lambda: len(d.gpu()["clients"]) == 1, what="all but the bystander to be gone")
    wait_for(lambda: descriptors(pid) <= held + 1, what="descriptors to be closed")
    report(what, processes=count, seconds=SECONDS, before=before, during=bystander.figures(), descriptors=most_held,
           descriptor_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0], memory_mib=most_memory // MIB)
    bystander.close()
    return resident(pid)


def test_a_bystander_is_served_during_an_attack_of_its_own_user(daemon, place):  # noqa: F811
    """All hostile clients and the bystander belong to one user. The hostile clients have every habit, and stay within
    the limit of connections."""
    d = daemon(*CARD)
    first = attack_and_measure(d, place, f"{COUNT} processes of the bystander's own user", COUNT, hostile.HABITS)
    second = attack_and_measure(d, place, "the same again", COUNT, hostile.HABITS)
    if not SANITIZER:  # a sanitizer's allocator keeps freed memory for a while
        assert first < 96 * MIB, "the daemon holds no more than the records of its clients"
        assert second < first + 8 * MIB, "the daemon does not grow with every attack"


@others.needed
def test_a_bystander_is_served_during_an_attack_of_another_user(place):  # noqa: F811
    os.chmod(place, 0o755)
    d = Daemon(place, "--shared", *CARD)
    try:
        attack_and_measure(d, place, f"{COUNT} processes of another user", COUNT, hostile.HABITS, user=1001)
    finally:
        d.end()


@pytest.mark.parametrize("habit", hostile.HABITS, ids=lambda h: h.__name__)
def test_the_daemon_survives_each_hostile_habit(daemon, place, habit):  # noqa: F811
    d = daemon(*CARD)
    Crowd(place, 2, 0.4, SEED, [habit]).wait()
    assert d.process.poll() is None
    wait_for(lambda: not d.gpu()["clients"] if d.status()["gpus"] else True, what="records to go with their processes")


def test_crashing_clients_leave_nothing(daemon, place):  # noqa: F811
    d = daemon(*CARD)
    with connect(place) as s:  # makes the card known, even if all crashing clients end before the daemon accepts them
        for packet in (hostile.hello(), hostile.attach(), encode("BYE")):
            s.send(packet)
        drain_answers(s)
    before = None
    for _ in range(3):
        crowd = Crowd(place, 20, 5, SEED, [hostile.crashes])
        for pid in crowd.pids:
            os.waitpid(pid, 0)
        crowd.pids = []
        # The daemon may still accept an ended process: connection and end came at the same moment.
        gpu = wait_for(lambda: [g for g in [d.gpu()] if not g["clients"]], what="records to go with their processes")[0]
        assert gpu["charged"] == 0
        before = before or descriptors(d.process.pid)
        wait_for(lambda: descriptors(d.process.pid) <= before + 1, what="descriptors to be closed")


# ---- five thousand connections ----


def test_a_bystander_is_served_beside_five_thousand_connections(daemon, place):  # noqa: F811
    """50 processes hold 100 connections each, more than a user may have. The daemon answers or ends every connection,
    serves other clients, and afterwards has room again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    each = min(100, hard - 64)
    d = daemon(*CARD)
    bystander = Bystander(place)
    held = descriptors(d.process.pid)
    ready_r, ready_w = os.pipe()
    go_r, go_w = os.pipe()
    pids = []
    try:
        for _ in range(50):
            pid = os.fork()
            if pid == 0:
                try:
                    os.close(go_w)
                    sockets = [connect(place) for _ in range(each)]
                    os.write(ready_w, struct.pack("<I", len(sockets)))
                    os.read(go_r, 1)  # returns when the test has looked and closes the pipe
                finally:
                    os._exit(0)
            pids.append(pid)
        opened = most = 0
        os.set_blocking(ready_r, False)
        end = time.monotonic() + 60
        while opened < 50 * each:
            assert time.monotonic() < end, f"{opened} connections in 60 s"
            bystander.ask()
            most = max(most, descriptors(d.process.pid))
            try:
                opened += sum(n for (n,) in struct.iter_unpack("<I", os.read(ready_r, 4096)))
            except BlockingIOError:
                pass
        bystander.ask_for(0.5)
        assert bystander.reconnected == 0
        assert most - held <= 2 * 256 + 8, "the limit of a user holds"
        report("5,000 connections at once", connections=opened, during=bystander.figures(), descriptors=most,
               descriptor_limit=hard)
    finally:
        os.close(go_w)
        for pid in pids:
            os.waitpid(pid, 0)
        for fd in (go_r, ready_r, ready_w):
            os.close(fd)
    wait_for(lambda: descriptors(d.process.pid) <= held + 1, 20, "descriptors to be closed")
    late = Bystander(place)
    late.ask()
    late.close()
    bystander.close()


def test_connected_clients_are_served_when_descriptors_run_out(place):  # noqa: F811
    """With few descriptors left, connected clients are served; others wait, and are accepted when there is room."""
    script = f"ulimit -n 40; exec {BUILD}/subletd --dir {place} {' '.join(CARD)}"
    process = subprocess.Popen(["bash", "-c", script], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: os.path.exists(f"{place}/client.sock"), what="start")
        bystander = Bystander(place)
        crowd = Crowd(place, 60, 2, SEED, [hold])
        bystander.ask_for(1.5)
        assert bystander.reconnected == 0
        crowd.wait()
        late = Bystander(place)
        late.ask()
        assert process.poll() is None
        late.close()
        bystander.close()
    finally:
        process.kill()
        process.wait()


def hold(directory, rng, until):
    with connect(directory) as s:
        s.settimeout(max(until - time.monotonic(), 0.01))
        s.send(hostile.hello())
        s.recv(4096)
        time.sleep(max(until - time.monotonic(), 0))


def test_processes_without_a_connection_cannot_fill_the_daemon(daemon, place, tmp_path):  # noqa: F811
    """A record stays while its process lives; a user cannot fill the daemon with records."""
    conf = tmp_path / "subletd.conf"
    conf.write_text("[daemon]\nconnections_per_user = 8\nclients_max = 64\n")
    d = daemon(*CARD, "--config", str(conf))
    go_r, go_w = os.pipe()
    ready_r, ready_w = os.pipe()
    pids = []
    try:
        for i in range(30):
            pid = os.fork()
            if pid == 0:
                try:
                    os.close(go_w)
                    with connect(place) as s:
                        s.settimeout(GENEROUS_S)
                        s.send(hostile.hello())
                        s.send(hostile.attach())
                        while True:
                            packet = s.recv(4096)
                            if not packet or packet[0] in (3, 14):  # REFUSED, LIMIT
                                break
                except OSError:
                    pass
                finally:
                    os.write(ready_w, b"x")
                    os.read(go_r, 1)
                    os._exit(0)
            pids.append(pid)
            assert os.read(ready_r, 1) == b"x"
        wait_for(lambda: all("lost" in c["flags"] for c in d.gpu()["clients"]), what="connections to be lost")
        assert len(d.gpu()["clients"]) == 16, "two records for each connection a user may have"
    finally:
        os.close(go_w)
        for pid in pids:
            os.waitpid(pid, 0)
        for fd in (go_r, ready_r, ready_w):
            os.close(fd)
    wait_for(lambda: not d.gpu()["clients"], what="records to go with their processes")
    late = Bystander(place)
    late.close()


# ---- single packets ----


def test_a_dropped_client_gets_a_sentence(daemon, place):  # noqa: F811
    """The daemon sends REFUSED before it ends a connection, if the client reads."""
    d = daemon(*CARD)
    rng = random.Random(SEED)
    for _ in range(200):
        packet = rng.choice((hostile.garbage, hostile.damaged, hostile.wrong_way))(rng)
        with connect(place) as s:
            s.settimeout(GENEROUS_S)
            s.send(hostile.hello())
            s.send(hostile.attach())
            try:
                s.send(packet)
                s.send(packet)
                s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            answers = drain_answers(s)
        assert all(a["text"] for a in answers if a["type"] == "REFUSED"), (packet, answers)
    assert d.process.poll() is None


def test_descriptors_do_not_pile_up_unread(daemon, place):  # noqa: F811
    """Both sockets get thousands of descriptors before the daemon reads anything: the daemon never keeps one."""
    d = daemon(*CARD)
    d.status()
    held = descriptors(d.process.pid)
    for name, kind in (("client.sock", socket.SOCK_SEQPACKET), ("control.sock", socket.SOCK_STREAM)):
        for _ in range(20):
            with connect(place, name, kind) as s:
                s.setblocking(False)
                r, w = os.pipe()
                try:
                    for _ in range(10):
                        s.sendmsg([hostile.hello() if kind == socket.SOCK_SEQPACKET else b'{"order":'],
                                  [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [w] * 100))])
                except OSError:
                    pass
                finally:
                    os.close(w)
            os.set_blocking(r, False)

            def closed(r=r):
                try:
                    return os.read(r, 1) == b""
                except BlockingIOError:
                    return False

            wait_for(closed, what="the kernel to close the attached descriptors")
            os.close(r)
            d.status()
            # Ended connections may stay open for a moment. Descriptors that the daemon kept would be a thousand.
            wait_for(lambda: descriptors(d.process.pid) <= held + 4, what="connections to be closed")
    wait_for(lambda: descriptors(d.process.pid) <= held, what="descriptors to be closed")


@pytest.mark.parametrize("line", [b'{"order":"stop"}\n', b'{"order":"set","mode":"off"}\n', b'{"order":"status"}\n'])
def test_orders_on_the_client_socket_are_refused(daemon, place, line):  # noqa: F811
    d = daemon(*CARD)
    with connect(place) as s:
        s.send(line)
        assert [m["type"] for m in drain_answers(s)] == ["REFUSED"]
    with connect(place) as s:
        s.send(hostile.hello())
        s.send(line)
        assert [m["type"] for m in drain_answers(s)] == ["WELCOME", "REFUSED"]
    assert d.status()["mode"] == "auto"


def test_messages_on_the_control_socket_are_refused(daemon, place):  # noqa: F811
    d = daemon(*CARD)
    with connect(place, "control.sock", socket.SOCK_STREAM) as s:
        s.settimeout(GENEROUS_S)
        s.sendall(hostile.hello() + hostile.attach() + b"\n")
        assert b"error" in s.recv(4096)
    with connect(place, "control.sock", socket.SOCK_STREAM) as s:
        s.settimeout(GENEROUS_S)
        s.sendall(b"[" * 5000)
        try:
            assert s.recv(4096) == b"", "no order is that long"
        except ConnectionResetError:
            pass
    with connect(place, "control.sock", socket.SOCK_STREAM) as s:
        s.settimeout(GENEROUS_S)
        s.sendall(b"[" * 4000 + b"\n")
        assert b"error" in s.recv(4096)
    assert d.status()["gpus"] == []


def test_idle_control_connections_lock_no_other_out(daemon, place):  # noqa: F811
    d = daemon(*CARD)
    held = [connect(place, "control.sock", socket.SOCK_STREAM) for _ in range(100)]
    assert d.status()["mode"] == "auto"
    for s in held:
        s.close()


# ---- replayed and early messages ----


def test_a_process_that_returns_with_one_gpu_at_a_time_keeps_its_charge(daemon, client):  # noqa: F811
    """The process has two GPUs. It returns three times with the first of them, and loses the connection each time
    before it names the second."""
    d = daemon("--host-memory", "4GiB")
    c = client()
    c.connect()
    c.hello()
    for card in (0, 1):
        c.attach(gpu=card, card=card, allocated=100 * MIB, backed=100 * MIB)
    for _ in range(3):
        c.disconnect()
        c.connect()
        c.hello()
        c.attach(gpu=0, card=0, allocated=100 * MIB, backed=100 * MIB)
        d.status()  # when the daemon answers, it has swept its records
        assert [d.gpu(g)["charged"] for g in (0, 1)] == [100 * MIB] * 2
    c.disconnect()
    c.connect()
    c.hello()
    for card in (1, 0):
        c.attach(gpu=card, card=card, allocated=100 * MIB, backed=100 * MIB)
    d.status()
    assert [d.gpu(g)["charged"] for g in (0, 1)] == [100 * MIB] * 2
    assert [len(d.gpu(g)["clients"]) for g in (0, 1)] == [1, 1]


def test_a_replayed_conversation_has_no_effect(daemon, client):  # noqa: F811
    """Leases, sequences and instances of another connection have no effect."""
    d = daemon(*CARD)
    c = client("first").start()
    c.allocate(64 * MIB)
    obey_until([c], lambda: c.lease)
    old = c.lease
    c.kill()
    wait_for(lambda: not d.gpu()["clients"], what="its end")
    other = client("other").start()
    other.allocate(64 * MIB)
    obey_until([other], lambda: other.lease)
    replayer = client("replayer").start()
    for lease in (old, other.lease, 0, (1 << 64) - 1):
        for name in ("DRAINED", "IDLE", "ACTIVE"):
            replayer.send(name, lease=lease)
        replayer.send("DRAIN_FAILED", lease=lease)
    replayer.usage(limit_sequence=1 << 31)
    replayer.send("WHO")
    replayer.expect("HOLDER")  # the daemon has handled all messages of the replayer
    other.send("WHO")
    other.expect("HOLDER")  # and has sent all its messages to the other client
    assert d.client(other.process.pid)["state"] == "running" and not d.client(other.process.pid)["idle"]
    assert other.revokes == 0
    assert d.client(replayer.process.pid)["flags"] == []
