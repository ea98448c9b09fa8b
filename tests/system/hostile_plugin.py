"""Hostile habits towards the device plugin: of those who connect to its socket, of the API server, of the daemon, and of
what lies in its folders. Rows of the table of habits.py."""

import contextlib
import json
import os
import re
import socket
import threading
import time
import zlib

import garbage
import habits
from garbage import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame
from habits import drawn, habit
from hostile_daemon import DAEMONS, FakeDaemon
from hostile_http import many, send
from kubelet import ApiServer, Kubelet, answer_json, pod
from node import FIRST, SECOND, Node
from world import GENEROUS_S, wait_for

MIB = 1 << 20
LINES = 4  # of the log for each habit: what is wrong, what follows from it, and that both are over
FEW = {"kubelet's request": 9, "sublet.dev/": 65, "goes without its minimum": 5}  # lines that may be more
RST, PING, GOAWAY, WINDOW, CONTINUATION = 3, 6, 7, 8, 9


class HostileApi(ApiServer):
    """An API server that behaves, except while a habit is set."""

    def __init__(self):
        super().__init__()
        self.habit = None  # "list" or "watch", and a function of the server, the request and its number
        self.over, self.met = threading.Event(), 0
        self.talks = set()

    def serve(self, request):
        asked, habit_now = "watch" if "watch=1" in request.path else "list", self.habit
        if not habit_now or habit_now[0] != asked:
            try:
                super().serve(request)
            except ValueError:  # a mark or a version of the habit before
                answer_json(request, 400, {"kind": "Status", "code": 400})
            return
        self.met += 1
        self.talks.add(request.connection)
        with contextlib.suppress(OSError):
            habit_now[1](self, request)
        request.close_connection = True
        self.talks.discard(request.connection)

    @contextlib.contextmanager
    def behaving(self, which, answer):
        self.over.clear()
        self.met, self.habit = 0, (which, answer)
        try:
            yield
        finally:
            self.habit = None
            self.over.set()
            for s in list(self.talks):
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
            self.cut()


class Relay(FakeDaemon):
    """Stands before a real daemon, whose socket is renamed, and passes orders on unless they meet a habit."""

    def __init__(self, folder):
        self.real = os.path.join(folder, "real.sock")
        os.rename(os.path.join(folder, "control.sock"), self.real)
        self.met, self.hostile = 0, None  # hostile: which order meets it, and the habit
        self.restarts = 0
        super().__init__(folder)

    def serve(self, s, line, habit):
        now = self.hostile
        if now and now[0] in line:
            self.met += 1
            now[1](s)
        else:
            s.sendall(self.ask(line))

    def ask(self, line):
        got = b""
        with socket.socket(socket.AF_UNIX) as daemon:
            daemon.settimeout(GENEROUS_S)
            daemon.connect(self.real)
            daemon.sendall(line)
            while not got.endswith(b"\n") and (more := daemon.recv(1 << 20)):
                got += more
        if b"status" in line and self.restarts:  # a daemon that restarts has another name
            answer = json.loads(got)
            answer["instance"] = f"{self.restarts:016x}"
            got = json.dumps(answer).encode() + b"\n"
        return got

    @contextlib.contextmanager
    def behaving(self, order, habit_now):
        self.met, self.hostile = 0, (order, habit_now)
        try:
            yield
        finally:
            self.hostile = None
            self.restarts += 1
            self.hang_up()


class Target(habits.Target):
    """The plugin of a node, whose kubelet, API server and daemon behave unless a habit says otherwise. A stranger has a
    client of gRPC of its own, as kubelet has. before: is called with the node before the plugin starts."""

    def __init__(self, world, *args, kinds=("grpc", "client", "api", "daemon", "folder"), before=None):
        self.world, self.api = world, HostileApi()
        world.start_daemon()
        self.daemon = Relay(world.dir)
        for n, uid in enumerate((FIRST, SECOND)):
            self.api.put(pod(("honest", "other")[n], uid, priority="-1"))
        self.node = Node(world, self.api)
        self.node.gpus = [gpu["uuid"] for gpu in world.status()["gpus"]]
        if before:
            before(self.node)
        self.plugin = self.node.start_plugin(*args)
        self.path = os.path.join(self.node.kubelet.folder, "sublet-gpu.sock")
        super().__init__(kinds, self.plugin.process)
        self.node.kubelet.await_event("register")
        self.device_ids = sorted(self.node.devices())
        self.device = self.device_ids[0]
        self.node.await_file("priority = -1")
        self.stranger = Kubelet(world.path("stranger"))
        self.stranger.send(plugin=self.path)
        self.number, self.reachable = 1, True
        self.ask()
        assert self.stranger.allocate([self.device])["code"] == 0
        self.descriptors = self.count_descriptors()

    def close(self):
        self.stranger.kill()
        self.node.kubelet.kill()
        self.api.close()
        if self.plugin.running():
            self.plugin.send(15)
            self.plugin.ok()  # a sanitizer that has found something ends it with another status

    # ---- the bystander ----

    def ask(self):
        """As kubelet: what it allocates over its old connection, and, over a new one, the devices."""
        card = self.device.rsplit("::", 1)[0]
        done = self.node.kubelet.allocate([self.device])
        assert done["code"] == 0, done
        assert done["response"]["container_responses"][0]["envs"]["NVIDIA_VISIBLE_DEVICES"] == card
        if self.reachable:
            listed = self.node.kubelet.ask(fresh=True)
            assert listed["code"] == 0, listed
            assert sorted(d["ID"] for d in listed["response"]) == self.device_ids

    def begun(self, name):
        self.lines = len(self.plugin.err().splitlines())

    def ended(self, name):
        """What pods ask for reaches the daemon, the GPUs are healthy, and nothing is left of the habit."""
        self.settle()
        assert set(self.node.devices()) == set(self.device_ids)
        said = self.plugin.err().splitlines()[self.lines:]
        counted = {what: sum(what in line for line in said) for what in FEW}
        assert len(said) - sum(counted.values()) <= LINES and all(n <= FEW[what] for what, n in counted.items()), said
        assert all(line.isprintable() for line in said), said
        wait_for(lambda: self.count_descriptors() <= self.descriptors + 2, GENEROUS_S, f"descriptors to be closed after {name}",
                 report=lambda: f"{self.count_descriptors()} instead of {self.descriptors}")

    def settle(self):
        self.number = self.number % 20 + 1
        wanted = f"priority = -{self.number}\n"
        self.api.put(pod("honest", FIRST, priority=str(-self.number)))

        def settled():
            assert self.node.kubelet.call("PreStartContainer", devices_ids=[self.device])["code"] == 0
            return wanted in self.node.file() and f"[pod {SECOND}]" in self.node.file() and not self.daemon.hostile

        wait_for(settled, GENEROUS_S, f"{wanted!r} in the file", report=lambda: self.node.file() + self.plugin.report())

    # ---- figures ----

    def count_descriptors(self):
        return len(os.listdir(f"/proc/{self.plugin.pid}/fd"))

    def memory_kib(self, what="RssAnon"):
        with open(f"/proc/{self.plugin.pid}/status", encoding="ascii") as f:
            return int(re.search(rf"{what}:\s+(\d+) kB", f.read())[1])

    # ---- what habits do ----

    def raw(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(GENEROUS_S)
        s.connect(self.path)
        return s

    open = raw

    def list_now(self):
        """Makes the plugin list its pods, and waits for nothing."""
        self.node.kubelet.number += 1
        self.node.kubelet.send(id=self.node.kubelet.number, call="PreStartContainer", request={"devices_ids": [self.device]})

    def ask_daemon_now(self):
        with open(os.path.join(self.world.dir, "x"), "w", encoding="ascii"):
            pass
        os.unlink(os.path.join(self.world.dir, "x"))


# ---- messages ----


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, body):
    return bytes([number << 3 | 2]) + varint(len(body)) + body


def message(body, compressed=0, length=None):
    return bytes([compressed]) + (len(body) if length is None else length).to_bytes(4, "big") + body


def headers_of(method, *more):
    pairs = [(":method", "POST"), (":scheme", "http"), (":path", "/v1beta1.DevicePlugin/" + method), (":authority", "localhost"),
             ("content-type", "application/grpc"), ("te", "trailers"), *more]
    return b"".join(b"\x00" + garbage.text(name) + garbage.text(value) for name, value in pairs)


BEGUN = PREFACE + frame(SETTINGS, 0, 0, b"")


def call(method, body=b"", stream=1, flags=END_STREAM, more=()):
    return (frame(HEADERS, END_HEADERS, stream, headers_of(method, *more)) +
            b"".join(frame(DATA, flags if at + 16384 >= len(body) else 0, stream, body[at:at + 16384])
                     for at in range(0, max(len(body), 1), 16384)))


def allocate(*ids):
    return field(1, b"".join(field(1, one) for one in ids))


# ---- who connects: silence, and halves ----


@habit("grpc")
def three_hundred_silent_strangers(t):
    with many(t, 300):
        yield


@habit("grpc")
def strangers_that_come_and_leave(t):
    for _ in range(drawn(500)):
        t.raw().close()
    yield


for row_name, row_begun in (
        ("half_a_preface", PREFACE[:12]), ("a_preface_and_nothing", PREFACE), ("half_a_frames_head", BEGUN + b"\x00\x00"),
        ("a_frame_that_never_ends", BEGUN + frame(HEADERS, END_HEADERS, 1, b"\x00", length=16000)),
        ("headers_that_never_end", BEGUN + frame(HEADERS, 0, 1, headers_of("Allocate"))),
        ("a_call_without_a_message", BEGUN + frame(HEADERS, END_HEADERS, 1, headers_of("Allocate"))),
        ("half_a_message", BEGUN + call("Allocate", message(allocate(b"x" * 100))[:50], flags=0)),
        ("a_message_of_4_gib", BEGUN + call("Allocate", message(b"x" * 100, length=(1 << 32) - 1), flags=0))):
    def attack(t, begun=row_begun):
        with many(t, 40, begun):
            yield
    habits.add("strangers_with_" + row_name, attack, "grpc")


@habit("grpc")
def half_messages_of_megabytes(t):
    with many(t, 40, BEGUN + call("Allocate", message(b"x" * 60000, length=4 * MIB - 1), flags=0)):
        yield


@habit("grpc")
def a_thousand_calls_without_a_message(t):
    with t.raw() as s:
        send(s, BEGUN + b"".join(frame(HEADERS, END_HEADERS, 2 * n + 1, headers_of("Allocate")) for n in range(drawn(1000))), 1)
        yield


@habit("grpc")
def calls_without_a_message_on_many_connections(t):
    with many(t, 100, BEGUN + b"".join(frame(HEADERS, END_HEADERS, 2 * n + 1, headers_of("Allocate")) for n in range(20))):
        yield


@habit("grpc")
def three_hundred_watchers_that_never_read(t):
    with t.raw() as s:
        send(s, BEGUN + b"".join(call("ListAndWatch", message(b""), 2 * n + 1) for n in range(drawn(300))), 1)
        yield


@habit("grpc")
def watchers_on_many_connections(t):
    with many(t, 100, BEGUN + call("ListAndWatch", message(b""))):
        yield


@habit("grpc")
def calls_that_are_reset_at_once(t):
    with t.raw() as s:
        send(s, BEGUN + b"".join(call("Allocate", message(allocate(b"x")), 2 * n + 1) + frame(RST, 0, 2 * n + 1, b"\0\0\0\x08")
                                 for n in range(drawn(2000))), 1)
        yield


@habit("grpc")
def a_stranger_that_leaves_before_its_answer(t):
    for n in range(drawn(200)):
        with t.raw() as s:
            send(s, BEGUN + call(("Allocate", "ListAndWatch", "PreStartContainer")[n % 3], message(allocate(b"x"))))
    yield


# ---- who connects: floods, and frames that should not be ----

for row_name, row_bytes in (
        ("pings", frame(PING, 0, 0, b"12345678") * 20000), ("settings", frame(SETTINGS, 0, 0, b"") * 20000),
        ("empty_frames_of_data", frame(HEADERS, END_HEADERS, 1, headers_of("Allocate")) + frame(DATA, 0, 1, b"") * 20000),
        ("continuations", frame(HEADERS, 0, 1, headers_of("Allocate")) + frame(CONTINUATION, 0, 1, b"\x00" + garbage.text("x") +
                                                                                garbage.text("y" * 120)) * 8000),
        ("headers_of_a_megabyte", frame(HEADERS, 0, 1, headers_of("Allocate")) + b"".join(
            frame(CONTINUATION, 4 * (n == 63), 1, (b"\x00" + garbage.text("x") + garbage.text("y" * 120)) * 130) for n in range(64))),
        ("windows_past_31_bits", frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff") * 10),
        ("a_table_of_4_gib", frame(SETTINGS, 0, 0, b"\x00\x01\xff\xff\xff\xff\x00\x04\xff\xff\xff\xff\x00\x05\xff\xff\xff\xff")),
        ("hpack_garbage", frame(HEADERS, END_HEADERS, 1, bytes((i * 7919 >> 3) & 255 for i in range(5000)))),
        ("streams_that_go_backwards", call("Allocate", message(b""), 9) + call("Allocate", message(b""), 3)),
        ("streams_of_the_server", call("Allocate", message(b""), 2)), ("goaways", frame(GOAWAY, 0, 0, b"\0" * 8) * 1000),
        ("an_unknown_compression", call("Allocate", message(b"x", 1), more=[("grpc-encoding", "nonsense")])),
        ("a_time_limit_of_nonsense", call("Allocate", message(b""), more=[("grpc-timeout", "99999999999H")])),
        ("unknown_methods", b"".join(call(f"No{n}", message(b""), 2 * n + 1) for n in range(500)))):
    def attack(t, data=BEGUN + row_bytes):
        with t.raw() as s:
            send(s, data, 1)
            yield
    habits.add("a_stranger_with_" + row_name, attack, "grpc")


@habit("grpc")
def a_small_message_that_grows(t):
    """A thousand times."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(b"\0" * (20 * MIB)) + packer.flush()
    with many(t, 8, BEGUN + call("Allocate", message(packed, 1), more=[("grpc-encoding", "gzip")])):
        yield


@habit("grpc")
def no_http_2(t):
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2,
                 b"\0" * 100000, b'{"order":"status"}\n'):
        with t.raw() as s:
            send(s, data)
    yield


@habit("grpc")
def a_hundred_pieces_of_garbage(t):
    seed = habits.rng().getrandbits(32) if habits.rng() else 19
    garbage.throw(t.path, drawn(100), seed, t.is_alive)
    yield


# ---- who connects: whole calls ----


def calls(*codes):
    """A habit that makes calls as a client of gRPC. Each must be answered with one of these codes. In a campaign another
    habit of the stranger may have cost it its connection (14)."""
    def add_calls(f):
        def attack(t):
            for done in f(t):
                assert done["code"] in codes or (habits.rng() and done["code"] == 14), (done["code"], str(done)[:300])
            yield
        habits.add(f.__name__, attack, "grpc", "client")
        return f
    return add_calls


@calls(3)
def ids_that_are_none(t):
    for one in ("", "::", "::0", t.device.replace("::", "::-"), "\x1b[31m\n\u202e", "x" * MIB, "GPU-" + "9" * 60 + "::0",
                t.device.rsplit("::", 1)[0] + "::99999999999999999999", "\ufeff" + t.device):
        yield t.stranger.allocate([one])


@calls(3)
def thousands_of_unknown_ids(t):
    yield t.stranger.allocate([f"GPU-{n}::0" for n in range(drawn(20000))])


@calls(0)
def one_id_thousands_of_times(t):
    yield t.stranger.allocate([t.device] * drawn(20000))


@calls(0, 3)
def an_id_with_a_nul(t):
    yield t.stranger.allocate([t.device + "\0::1"])


@calls(3)
def no_ids_and_too_many_containers(t):
    yield t.stranger.allocate([])
    yield t.stranger.allocate(*[[t.device]] * 65)
    yield t.stranger.allocate(*[[]] * drawn(20000))


@calls(3)
def dozens_of_requests_that_are_refused(t):
    """More than one sentence for each would fill a disk."""
    for n in range(drawn(50)):
        yield t.stranger.allocate([f"GPU-{n}::0"])


@calls(3)
def millions_of_empty_members(t):
    for method, each in (("Allocate", field(1, b"")), ("GetPreferredAllocation", field(1, field(2, b"") * 10 ** 6))):
        yield t.stranger.ask(raw=f"/v1beta1.DevicePlugin/{method}", hex=(each * (2 * MIB // len(each))).hex())


@calls(8)
def a_message_that_is_too_large(t):
    yield t.stranger.ask(raw="/v1beta1.DevicePlugin/Allocate", hex="0a" * (4 * MIB + 1))


@calls(0, 3)
def choices_of_impossible_sizes(t):
    for size in (-1, -(1 << 31), (1 << 31) - 1, 128001, 0):
        yield t.stranger.call("GetPreferredAllocation", container_requests=[
            {"available_deviceIDs": t.device_ids, "must_include_deviceIDs": ["", "x"], "allocation_size": size}])


@calls(0)
def a_choice_among_more_devices_than_there_are(t):
    """Each must be looked for among all: that takes no time."""
    ids = t.device_ids * (drawn(80000) // len(t.device_ids))
    yield t.stranger.call("GetPreferredAllocation", container_requests=[
        {"available_deviceIDs": ids, "must_include_deviceIDs": t.device_ids[-1:] * drawn(5000), "allocation_size": 5001}])


@calls(0, 3)
def a_choice_for_thousands_of_containers(t):
    yield t.stranger.call("GetPreferredAllocation", container_requests=[
        {"available_deviceIDs": t.device_ids[:10], "must_include_deviceIDs": [], "allocation_size": 128000}] * drawn(2000))


@habit("grpc", "client")
def containers_that_start_all_at_once(t):
    for n in range(drawn(300)):
        t.stranger.number += 1
        t.stranger.send(id=t.stranger.number, call="PreStartContainer", request={"devices_ids": [t.device] * (n % 3)})
    yield
