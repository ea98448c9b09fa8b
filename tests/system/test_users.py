"""Several users on one machine: two private daemons that share one card, one daemon that several users share, directories
that another user has planted, and users with a false identity."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading

import pytest

import others
import wireclient
import world as world_module
from campaign import LONG
from others import BUILD, SCRIPTS, as_user
from world import MIB, OLD_KERNEL, SYSTEM_DAEMON, wait_for

# Uids that no user has, and that another run of these tests does not use, because /tmp/sublet-UID has one owner. They
# do not depend on the process id, which occurs again in every container.
GROUP = others.LAST - 10 * random.randrange(1, 2000)
ALICE, BOB, EVE = GROUP + 1, GROUP + 2, GROUP + 3

pytestmark = others.needed
NO_USER_NAMESPACES = "no user namespaces can be made here; where the kernel lets everybody make them they run"


class Machine(world_module.World):
    """A world with a card that every user may use."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.session = "+" + self.session
        self.env["SIMCUDA_SESSION"] = self.session
        self.env["SUBLET_DAEMON"] = os.path.join(BUILD, "subletd")
        self.env["LD_LIBRARY_PATH"] = os.path.join(BUILD, "sim")
        os.chmod(self.root, 0o755)

    def home(self, uid):
        path = self.path(f"home-{uid}")
        if not os.path.isdir(path):
            os.mkdir(path, 0o700)
            os.chown(path, uid, uid)
        return path

    def user(self, uid, name, *args, directory=None, groups=(), **env):
        """Starts a test program of this user, under a private daemon unless `directory` names another daemon."""
        env = {"SUBLET_DIR": directory or self.home(uid), "LD_PRELOAD": os.path.join(BUILD, "libsublet.so")} | env
        return self.start([*as_user(uid, groups=groups), os.path.join(BUILD, "programs", name), *args], **env)

    def status_of(self, directory):
        return self.status(directory)

    def run_as(self, uid, argv, groups=(), **env):
        merged = {k: v for k, v in {**self.env, **env}.items() if v is not None}
        return subprocess.run([*as_user(uid, groups=groups), *argv], env=merged, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=world_module.GENEROUS_S)


@pytest.fixture
def machine():
    m = Machine()
    try:
        yield m
        for uid in (ALICE, BOB, EVE):
            m.sublet("stop", "--daemon", m.path(f"home-{uid}"))
    finally:
        m.close()


# ---- two private daemons, one card ----


def fill(machine, uid, mib, seed, *more, **env):
    return machine.user(uid, "fill", "--bytes", f"{mib}MiB", "--block", "4MiB", "--seed", seed, "--until",
                        machine.path("end"), *more, **env)


def test_two_private_daemons_share_a_card(machine):
    """Alice's program takes 48 MiB of 128. Bob's two programs take 40 MiB each and must take turns beside it. To each
    user's daemon the other's programs are foreign. No daemon promises memory that the other user holds; all programs go
    on and end well."""
    os.chmod(machine.root, 0o777)
    alice = fill(machine, ALICE, 48, "1", "--ms", "200")
    alice.await_event("filled")
    programs = [alice, *(fill(machine, BOB, 40, seed, "--ms", "200") for seed in ("2", "3"))]

    def no_daemon_overcommits():
        for uid in (ALICE, BOB):
            for gpu in machine.status_of(machine.home(uid))["gpus"]:
                assert gpu["charged"] <= gpu["total"] - gpu["headroom"]
        card = machine.card()
        assert card["peak"] <= card["total"]
        return all(p.running() for p in programs)

    def all_go_on():
        assert all(p.running() for p in programs), [p.report() for p in programs if not p.running()]
        no_daemon_overcommits()
        return all(len(p.events("round")) >= 4 for p in programs)

    for p in programs:
        p.await_event("filled")
    wait_for(all_go_on, 60, "four rounds of each", interval=0.2)

    # Once each daemon has measured the card, it counts the other daemon's charge as foreign use.
    def seen_by_the_other():
        gpus = {uid: machine.status_of(machine.home(uid))["gpus"][0] for uid in (ALICE, BOB)}
        return gpus[BOB]["foreign"] >= 48 * MIB and gpus[ALICE]["foreign"] >= 48 * MIB and \
            sum(g["capacity"] for g in gpus.values()) <= gpus[BOB]["total"] + 64 * MIB

    wait_for(seen_by_the_other, 20, "each daemon to see the other's use", interval=0.1)
    with open(machine.path("end"), "w", encoding="utf-8"):
        pass
    for p in programs:
        p.ok()
        assert machine.check_sums(p) >= 4


def test_an_idle_user_gives_way_to_another_users_daemon(machine):
    """Alice's program holds most of the card and is idle. Bob's program starts later under a daemon of its own, to
    which Alice's program is foreign. Bob's program gets its memory all the same, and Alice's memory is
    restored later."""
    os.chmod(machine.root, 0o777)
    alice = machine.user(ALICE, "hold", "--bytes", "96MiB", "--seed", "1", stdin=subprocess.PIPE)
    alice.await_event("filled")
    # One block, because the daemons exchange notes and look at the card anew, for seconds, for each block.
    bob = machine.user(BOB, "fill", "--bytes", "80MiB", "--block", "80MiB", "--seed", "2", "--rounds", "3")
    bob.ok()
    assert machine.check_sums(bob) >= 3
    # Alice's memory is free a moment before her daemon gets the figures.
    wait_for(lambda: machine.status_of(machine.home(ALICE))["gpus"][0]["clients"][0]["moved_out"] > 0, 20, "Alice to make room")
    alice.order("touch")
    alice.finish()


def test_a_busy_user_keeps_the_card_from_another_users_daemon(machine):
    """The two programs do not fit together. Alice's program goes on undisturbed, whatever priority Bob's program has
    under a daemon of its own. Bob's program has the card when Alice's has ended."""
    def bobs():
        return machine.user(BOB, "fill", "--bytes", "80MiB", "--block", "4MiB", "--seed", "2", "--rounds", "3", SUBLET_PRIORITY="5")

    os.chmod(machine.root, 0o777)
    alice = fill(machine, ALICE, 80, "1")
    alice.await_event("filled")
    bob = bobs()
    log = machine.path(f"home-{ALICE}/subletd.log")

    def heard():
        with open(log, encoding="utf-8") as f:
            return f"a program of user {BOB}, under another daemon, waits for" in f.read()

    wait_for(heard, 60, "Alice's daemon to hear of Bob's program", interval=0.1)
    world_module.go_on([alice], 4)
    assert machine.status_of(machine.home(ALICE))["gpus"][0]["handoffs"] == 0
    with open(machine.path("end"), "w", encoding="utf-8"):
        pass
    alice.ok()
    assert machine.check_sums(alice) >= 4
    if bob.wait():  # his daemon refuses a request for room after 10 s, which Alice's rounds may have taken
        assert "CUDA_ERROR_OUT_OF_MEMORY" in bob.err(), bob.report()
        wait_for(lambda: machine.status_of(machine.home(BOB))["gpus"][0]["foreign"] < 40 * MIB, 20, "his daemon to see Alice's end")
        bob = bobs()
    bob.ok()
    assert machine.check_sums(bob) >= 3


def test_messages_between_daemons_cost_no_busy_program_its_memory(machine):
    """Eve has no program, but her messages claim that one waits for the whole card. Alice's programs go on, and her
    daemon promises no more than the card has."""
    os.chmod(machine.root, 0o777)
    programs = [fill(machine, ALICE, 80, "1"), fill(machine, ALICE, 48, "2")]
    for p in programs:
        p.await_event("filled")
    status = machine.status_of(machine.home(ALICE))
    uuid = status["gpus"][0]["uuid"].removeprefix("GPU-").replace("-", "")
    eve = subprocess.Popen([*as_user(EVE), sys.executable, os.path.join(SCRIPTS, "notes.py"),
                            "sublet-daemon/" + status["instance"], uuid, "6" if LONG else "2", "1000"], stdout=subprocess.PIPE, text=True)
    before = {p: len(p.events("round")) for p in programs}
    try:
        out, _ = eve.communicate(timeout=60)
    finally:
        eve.kill()
    assert eve.returncode == 0 and int(out) >= 1000
    with open(machine.path(f"home-{ALICE}/subletd.log"), encoding="utf-8") as f:
        text = f.read()
    assert f"a program of user {EVE}, under another daemon, waits for" in text, "Alice's daemon heard the messages"
    assert text.count("under another daemon") <= 10, "the messages do not fill the log"
    gpu = machine.status_of(machine.home(ALICE))["gpus"][0]
    assert gpu["charged"] <= gpu["total"] - gpu["headroom"]
    assert all(c["commit"] <= gpu["total"] for c in gpu["clients"])
    wait_for(lambda: all(len(p.events("round")) >= before[p] + 2 for p in programs), 60, "two more rounds of each")
    with open(machine.path("end"), "w", encoding="utf-8"):
        pass
    for p in programs:
        p.ok()
        assert machine.check_sums(p) >= 4


def test_each_private_daemon_belongs_to_its_user(machine):
    """Each private daemon runs as its user, in a directory that no other user can enter."""
    p = machine.user(ALICE, "hold", "--bytes", "8MiB", stdin=subprocess.PIPE)
    p.await_event("filled")
    home = machine.home(ALICE)
    with open(os.path.join(home, "lock"), encoding="ascii") as f:
        assert os.stat(f"/proc/{int(f.read())}").st_uid == ALICE
    assert machine.run_as(BOB, [os.path.join(BUILD, "sublet"), "status", "--daemon", home]).returncode == 1
    q = machine.user(BOB, "fill", "--bytes", "8MiB", "--block", "4MiB", directory=home)
    q.ok()
    assert len(machine.status_of(home)["gpus"][0]["clients"]) == 1, "Bob's program is no client of Alice's daemon"
    p.finish()


# ---- one daemon, shared without root ----


@pytest.fixture
def shared_daemon(machine):
    """Starts Alice's daemon for the members of a group that has no name in this machine's files."""
    directory = machine.home(ALICE)

    def start(*options, group=GROUP):
        machine.daemon = machine.start([*as_user(ALICE, groups=[GROUP]), os.path.join(BUILD, "subletd"), "--dir", directory,
                                        "--shared", *(["--group", str(group)] if group else []), *options])
        wait_for(lambda: machine.sublet("status", "--daemon", directory).returncode == 0, 20, "subletd to listen")
        return directory

    os.chmod(directory, 0o755)
    return start


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_shared_daemon_works_without_root(machine, shared_daemon):
    """Two users of one group have one daemon and take turns; a third user gets no access."""
    os.chmod(machine.root, 0o777)
    directory = shared_daemon("--host-memory", "1GiB")
    for name, mode in (("client.sock", 0o660), ("status.sock", 0o660), ("control.sock", 0o600)):
        assert mode_of(os.path.join(directory, name)) == mode, name
    assert machine.sublet("set", "quantum", "300ms", "--daemon", directory).returncode == 0
    programs = [machine.user(uid, "fill", "--bytes", "80MiB", "--block", "8MiB", "--seed", str(uid), "--until",
                             machine.path("end"), directory=directory, groups=[GROUP], SUBLET_LOG="debug")
                for uid in (ALICE, BOB)]
    wait_for(lambda: all(len(p.events("round")) >= 2 for p in programs), 60, "two rounds of each")
    clients = machine.status_of(directory)["gpus"][0]["clients"]
    assert {c["uid"] for c in clients} == {ALICE, BOB}
    with open(machine.path("end"), "w", encoding="utf-8"):
        pass
    for p in programs:
        p.ok()
        assert machine.check_sums(p) >= 2
        # The daemon takes no descriptors from other users, but does not end their connections.
        assert "lost the daemon" not in p.err(), p.err()
    eve = machine.user(EVE, "fill", "--bytes", "8MiB", "--block", "4MiB", directory=directory)
    eve.ok()
    assert "Permission denied" in eve.err(), eve.err()


def limited(machine, shared_daemon, key):
    """Starts the shared daemon with a low limit for each user. Returns a function that starts a program of Bob's."""
    os.chmod(machine.root, 0o777)
    conf = machine.path("limits.conf")
    with open(conf, "w", encoding="utf-8") as f:
        f.write(f"[daemon]\nhost_memory = 200MiB\n{key} = 10%\n")
    os.chmod(conf, 0o644)
    directory = shared_daemon("--config", conf)
    return lambda *argv: machine.user(BOB, *argv, directory=directory, groups=[GROUP], stdin=subprocess.PIPE)


def reasons(p):
    return [line for line in p.err().splitlines() if "out of memory: this program asks for" in line]


def test_a_user_with_too_much_host_memory_is_told_so(machine, shared_daemon):
    start = limited(machine, shared_daemon, "host_memory_per_user")
    first = start("hold", "--bytes", "80MiB", "--block", "4MiB")
    first.await_event("filled")
    second = start("hold", "--bytes", "80MiB", "--block", "4MiB")
    assert second.wait() != 0
    assert len(reasons(second)) == 1 and "as much host memory as one user may be" in reasons(second)[0], second.report()
    first.finish()


def test_a_user_with_too_much_unevictable_memory_is_told_so(machine, shared_daemon):
    p = limited(machine, shared_daemon, "unevictable_per_user")("greedy", "--how", "arrays")
    p.await_event("got")
    assert len(reasons(p)) == 1 and "reached the limit on memory that cannot be moved" in reasons(p)[0], p.report()
    p.finish()


def test_a_lowered_priority_is_told_once(machine, shared_daemon):
    directory = shared_daemon()
    os.chmod(machine.root, 0o777)
    p = machine.user(BOB, "hold", "--bytes", "4MiB", directory=directory, groups=[GROUP], stdin=subprocess.PIPE, SUBLET_PRIORITY="5")
    p.await_event("filled")
    p.finish()
    assert p.err().count("this program asked for priority 5 and gets 0: more is for the daemon's own user") == 1, p.err()


def test_only_root_and_the_daemons_user_give_orders(machine, shared_daemon):
    directory = shared_daemon()
    sublet = os.path.join(BUILD, "sublet")
    for uid, groups, works in ((ALICE, (), True), (0, (), True), (BOB, (GROUP,), False), (EVE, (), False)):
        done = machine.run_as(uid, [sublet, "set", "quantum", "1s", "--daemon", directory], groups=groups)
        assert (done.returncode == 0) == works, (uid, done.stderr)
        assert works or len(done.stderr.splitlines()) == 1
    # The daemon refuses, even if somebody opened the socket to all users by mistake.
    os.chmod(os.path.join(directory, "control.sock"), 0o666)
    done = machine.run_as(BOB, [sublet, "stop", "--daemon", directory], groups=(GROUP,))
    assert done.returncode == 1 and "own user" in done.stderr
    assert machine.status_of(directory)["quantum"] == 1


def test_status_hides_others_from_plain_users(machine, shared_daemon):
    """Everybody on the machine is told who holds the card. With names = own a user sees the bytes of others, but not
    their names."""
    directory = shared_daemon()
    held = [machine.user(uid, "hold", "--bytes", "8MiB", directory=directory, groups=[GROUP], stdin=subprocess.PIPE,
                         SUBLET_NAME=f"secret-of-{uid}") for uid in (ALICE, BOB)]
    for p in held:
        p.await_event("filled")

    def seen_by(uid, *groups):
        done = machine.run_as(uid, [os.path.join(BUILD, "sublet"), "status", "--json", "--daemon", directory], groups=groups)
        assert done.returncode == 0, done.stderr
        return done.stdout, {c["pid"]: c for c in json.loads(done.stdout)["gpus"][0]["clients"]}

    def both_are_there():
        text, clients = seen_by(BOB, GROUP)
        return len(clients) == 2 and all(c["backed"] >= 8 * MIB for c in clients.values()) and (text, clients)

    _, clients = wait_for(both_are_there, 30, "the bytes of both to be seen")
    others = clients[held[0].pid]
    assert (others["name"], others["uid"], others["stranger"]) == (f"secret-of-{ALICE}", ALICE, None)
    assert others["weight"] is others["memory_cap"] is others["group"] is None
    assert machine.sublet("set", "--daemon", directory, "names", "own").returncode == 0
    text, clients = seen_by(BOB, GROUP)
    assert f"secret-of-{ALICE}" not in text and str(ALICE) not in re.findall(r"\d+", text)
    others, own = clients[held[0].pid], clients[held[1].pid]
    assert others["name"] is None and others["user"] is None and others["uid"] is None and others["stranger"] == "another user"
    assert others["weight"] is None and others["memory_cap"] is None and own["weight"] == 1
    assert others["backed"] == own["backed"] > 0
    assert own["name"] == f"secret-of-{BOB}" and own["uid"] == BOB and own["user"] == str(BOB), "Bob has no name here"
    trace = machine.run_as(BOB, [os.path.join(BUILD, "sublet"), "trace", "--daemon", directory, "-"], groups=(GROUP,)).stdout
    assert f"other user ({held[0].pid})" in trace and f"secret-of-{BOB} ({held[1].pid})" in trace
    assert f"secret-of-{ALICE}" not in trace
    table = machine.run_as(BOB, [os.path.join(BUILD, "sublet"), "status", "--daemon", directory], groups=(GROUP,)).stdout
    assert "another user" in table and "secret-of-" in table
    for uid in (ALICE, 0):
        _, clients = seen_by(uid)
        assert clients[held[0].pid]["name"] == f"secret-of-{ALICE}" and clients[held[1].pid]["uid"] == BOB
    done = machine.run_as(EVE, [os.path.join(BUILD, "sublet"), "status", "--daemon", directory])
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    for p in held:
        p.finish()


ASK = """
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.settimeout(60)
s.sendall(sys.argv[2].encode() + b"\\n")
answer = b""
while not answer.endswith(b"\\n"):
    data = s.recv(65536)
    if not data:
        break
    answer += data
print(answer.decode(), end="")
"""


def ask(machine, uid, path, order, prefix=(), groups=(GROUP,)):
    return machine.run_as(uid, [*prefix, sys.executable, "-c", ASK, path, json.dumps(order)], groups=groups)


@pytest.mark.parametrize("names", ["all", "own"])
def test_jobs_of_several_users_wait_in_one_queue_and_learn_each_others_names_as_the_owner_lets(machine, shared_daemon, names):
    directory = shared_daemon()
    assert machine.sublet("set", "--daemon", directory, "names", names).returncode == 0

    def submit(uid, name):
        return machine.start([*as_user(uid, groups=[GROUP]), os.path.join(BUILD, "sublet"), "submit", "--name", name, "--daemon", directory,
                              "--", "sh", "-c", f"until [ -e {machine.path('end')} ]; do sleep 0.05; done"], SUBLET_DIR=None)

    def seen_by(uid):
        return json.loads(machine.run_as(uid, [os.path.join(BUILD, "sublet"), "status", "--json", "--daemon", directory],
                                         groups=[GROUP], SUBLET_DIR=None).stdout)["jobs"]

    told = "secret-of-alice" if names == "all" else "another user's job"
    alice = submit(ALICE, "secret-of-alice")
    wait_for(lambda: [j["state"] for j in seen_by(ALICE)] == ["running"], 30, "Alice's job", report=alice.report)
    bob = submit(BOB, "secret-of-bob")
    wait_for(lambda: f"GPU 0 has {told}" in bob.err(), 30, "why it waits", report=bob.report)
    seen = seen_by(BOB)
    assert [(j["name"], j["state"]) for j in seen] == [(told if names == "all" else None, "running"), ("secret-of-bob", "waiting")]
    assert [j["uid"] for j in seen] == [ALICE if names == "all" else None, BOB]
    assert [j["name"] for j in seen_by(ALICE)] == ["secret-of-alice", "secret-of-bob"]  # the daemon is Alice's
    assert ("secret-of-alice" in bob.err()) == (names == "all")
    with open(machine.path("end"), "w", encoding="utf-8"):
        pass
    alice.ok()
    bob.ok()


def test_the_status_socket_takes_no_orders(machine, shared_daemon):
    directory = shared_daemon()
    path = os.path.join(directory, "status.sock")
    for uid in (BOB, ALICE, 0):
        for order in ({"order": "stop"}, {"order": "set", "mode": "off"}, {"order": "dance"}):
            assert "error" in json.loads(ask(machine, uid, path, order).stdout)
    assert json.loads(ask(machine, BOB, path, {"order": "status"}).stdout)["mode"] == "auto"
    # A user who asks all the time uses up only that user's share of the daemon's time.
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        assert machine.run_as(BOB, [sys.executable, "-c", f"""
import os, socket, time
refused, end = 0, time.monotonic() + 20
os.fork() and os.fork()
while refused < 10 and time.monotonic() < end:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect({path!r})
        s.sendall(b'{{"order":"status"}}\\n')
        try:
            data = s.recv(65536)
        except OSError:
            data = b""  # of four connections at once the daemon ends the oldest
        refused += b"too many questions" in data
raise SystemExit(0 if refused else 1)
"""], groups=(GROUP,)).returncode == 0
    assert machine.status_of(directory)["mode"] == "auto"


@contextlib.contextmanager
def a_client_of_each(directory):
    """Clients of Alice and of Bob that have attached the GPU, by uid."""
    clients = {uid: wireclient.Client(directory, f"of-{uid}", prefix=as_user(uid, groups=[GROUP])) for uid in (ALICE, BOB)}
    try:
        for c in clients.values():
            c.connect()
            c.hello()
            c.attach()
        yield clients
    finally:
        for c in clients.values():
            c.end()


def test_a_user_sets_his_own_programs_within_what_the_owner_allows(machine, shared_daemon):
    conf = machine.path("owner.conf")
    with open(conf, "w", encoding="utf-8") as f:
        f.write("[class bob]\nuser = %d\nminimum = 20%%\npriority_max = 3\n" % BOB)
    os.chown(conf, ALICE, ALICE)
    directory = shared_daemon("--config", conf, "--capacity", "1GiB", "--host-memory", "1GiB")
    with a_client_of_each(directory) as clients:
        pids = {row["uid"]: row["pid"] for gpu in machine.status_of(directory)["gpus"] for row in gpu["clients"]}

        def ordered(by, whose, **setting):
            path = os.path.join(directory, "status.sock" if by == BOB else "control.sock")
            what = {"order": "set_program" if setting else "get", "pid": pids[whose], **setting}
            return json.loads(ask(machine, by, path, what).stdout)

        assert "is another user's" in ordered(BOB, ALICE, weight="2")["error"]
        assert "is another user's" in ordered(BOB, ALICE)["error"], "its settings are not shown, either"
        assert ordered(BOB, BOB, weight="2") == {"value": "2", "lowered": False}
        assert ordered(BOB, BOB, priority="9") == {"value": "3", "lowered": True}
        assert ordered(BOB, BOB, minimum="50%") == {"value": "20%", "lowered": True}
        assert ordered(BOB, BOB, minimum="none") == {"value": "none", "lowered": False}
        assert ordered(ALICE, BOB, priority="9") == {"value": "9", "lowered": False}
        assert ordered(ALICE, BOB, maximum="40%") == {"value": "40%", "lowered": False}
        assert "owner has set" in ordered(BOB, BOB, maximum="100%")["error"]
        assert {s["key"]: s["value"] for s in ordered(BOB, BOB)["settings"]} == {
            "minimum": "none", "maximum": "40%", "weight": "2", "memory_cap": "none", "priority": "9"}


def test_a_user_pauses_his_own_programs_and_the_daemons_user_all(machine, shared_daemon):
    directory = shared_daemon("--capacity", "1GiB", "--host-memory", "1GiB")
    with a_client_of_each(directory) as clients:
        def rows(status):
            return [row for gpu in status["gpus"] for row in gpu["clients"]]

        pids = {row["uid"]: row["pid"] for row in rows(machine.status_of(directory))}

        def ordered(by, what, whose, groups=(GROUP,)):
            path = os.path.join(directory, "status.sock" if by == BOB else "control.sock")
            return json.loads(ask(machine, by, path, {"order": what, "pid": pids[whose]}, groups=groups).stdout)

        for what in "pause", "resume":
            assert "is another user's" in ordered(BOB, what, ALICE)["error"]
            for by in (BOB, ALICE, 0):
                assert ordered(by, what, BOB) == {"name": f"of-{BOB}", "already": by != BOB}
                assert clients[BOB].expect("PAUSE")["paused"] == (what == "pause")
        assert "PAUSE" not in [m["type"] for m in clients[ALICE].seen]
        # The command line finds the socket that the user may use. These clients do not obey the order.
        done = machine.run_as(BOB, [os.path.join(BUILD, "sublet"), "pause", str(pids[ALICE]), "--daemon", directory], groups=(GROUP,))
        assert done.returncode == 1 and f"process {pids[ALICE]} is another user's" in done.stderr
        done = machine.run_as(BOB, [os.path.join(BUILD, "sublet"), "pause", str(pids[BOB]), "--daemon", directory], groups=(GROUP,))
        assert done.returncode == 1 and "was told to stand still and has not within 5 s" in done.stderr
        done = machine.run_as(EVE, [os.path.join(BUILD, "sublet"), "pause", str(pids[BOB]), "--daemon", directory])
        assert done.returncode == 1 and "no permission for" in done.stderr
        # The reason why a program cannot be frozen is shown only to users who may know what it runs.
        clients[ALICE].send("FROZEN", mode=2, off="its own reason")
        wait_for(lambda: "its own reason" in [r["freeze_off"] for r in rows(machine.status_of(directory))], 20, "the reason")
        seen = json.loads(ask(machine, BOB, os.path.join(directory, "status.sock"), {"order": "status"}).stdout)
        row = next(r for r in rows(seen) if r["pid"] == pids[ALICE])
        assert row["freeze_off"] is None and row["freeze"] == "park"


# ---- limits of one user ----


LIAR = """
import os, sys
sys.path.insert(0, {tests!r})
import hostile, wireclient as w
GPU = bytes.fromhex({uuid!r})
sockets = []
for number in range(6):
    if os.fork() == 0:
        break
    number = None
s = hostile.connect({directory!r})
s.settimeout(60)
s.send(hostile.hello(name="liar"))
whole = 1 << 27
what = {what!r}
lie = dict(total_bytes=whole, uuid=GPU)
if what == "attach":
    lie |= dict(allocated=whole, backed=whole, unevictable=whole, flags=w.RUNNING)
if what == "unevictable_requested":
    lie |= dict(unevictable_requested=whole // 20)
s.send(w.encode("ATTACH", 0, 1, **lie))
if what == "usage":
    for _ in range(3):
        s.send(w.encode("USAGE", 0, 2, allocated=whole, backed=whole, unevictable=whole, arena=1 << 60, limit_sequence=1))
if what == "short":
    for _ in range(3):
        s.send(w.encode("SHORT", 0, 2, bytes=1 << 62))
s.send(w.encode("IDLE", sequence=3, lease=0))
messages = [w.decode(s.recv(4096))]
os.write(1, b"lied\\n")
os.read(0, 1)
"""


@pytest.mark.parametrize("what", ["attach", "usage", "unevictable_requested", "short"])
def test_lies_of_one_user_leave_room_for_the_others(machine, shared_daemon, what):
    """Seven processes of Bob claim the whole card each, in every message with a figure. Alice is the daemon's own user.
    Eve is another user, and her programs get context, memory and turn."""
    os.chmod(machine.root, 0o777)
    directory = shared_daemon("--host-memory", "512MiB")
    first = machine.user(EVE, "hold", "--bytes", "16MiB", directory=directory, groups=[GROUP], stdin=subprocess.PIPE)
    first.await_event("filled")
    card = machine.status_of(directory)["gpus"][0]
    script = LIAR.format(tests=SCRIPTS, directory=directory, what=what,
                         uuid=card["uuid"].replace("GPU-", "").replace("-", ""))
    liar = machine.start([*as_user(BOB, groups=[GROUP]), sys.executable, "-c", script], stdin=subprocess.PIPE,
                         PYTHONDONTWRITEBYTECODE="1")
    wait_for(lambda: liar.out().count("lied") == 7, 30, "the false figures to be sent")

    def counted():
        return [c for c in machine.status_of(directory)["gpus"][0]["clients"] if c["uid"] == BOB]

    wait_for(lambda: len(counted()) == 7, 20, "the liars to be clients")
    unevictable = sum(c["unevictable"] for c in counted())
    assert unevictable <= card["total"] // 4, f"one user may hold a quarter of the card unevictable, not {unevictable}"
    assert first.order("touch")["order"] == "touch"
    p = machine.user(EVE, "fill", "--bytes", "64MiB", "--block", "4MiB", "--seed", "5", directory=directory, groups=[GROUP])
    p.ok(60)
    assert machine.check_sums(p) >= 1
    first.finish()
    liar.process.stdin.close()
    liar.wait(20)


def test_one_users_promises_leave_host_memory_for_the_others(machine, shared_daemon):
    """All programs of one user together may commit at most half of the host's memory."""
    os.chmod(machine.root, 0o777)
    directory = shared_daemon("--host-memory", "200MiB")
    held, refused = [], None
    for _ in range(8):  # 8 x 48 MiB; a card of 128 MiB and half of 200 MiB hold four
        p = machine.user(BOB, "hold", "--bytes", "48MiB", directory=directory, groups=[GROUP], stdin=subprocess.PIPE)
        wait_for(lambda p=p: p.events("filled") or not p.running(), 60, "memory or a refusal")
        if not p.running():
            refused = p
            break
        held.append(p)
    assert refused and "OUT_OF_MEMORY" in refused.err() + refused.out(), "the refusal looks like a full card"
    assert len(held) == 4
    p = machine.user(EVE, "fill", "--bytes", "48MiB", "--block", "4MiB", directory=directory, groups=[GROUP])
    p.ok(60)
    for p in held:
        p.finish()


LINGERER = """
import array, socket, struct, sys
sys.path.insert(0, {tests!r})
import hostile
listener = socket.create_server(("127.0.0.1", 0))
a = socket.create_connection(listener.getsockname())
b = listener.accept()[0]
a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
a.setblocking(False)
try:
    while True:
        a.send(bytes(65536))
except BlockingIOError:
    pass
s = hostile.connect({directory!r})
s.send(hostile.hello())
try:
    s.sendmsg([hostile.attach()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [a.fileno()]))])
    print("sent")
except PermissionError:
    print("refused")
a.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
import os
os.write(1, b"done\\n")
os.read(0, 1)
os._exit(0)
"""


def test_descriptors_of_other_users_are_refused(machine, shared_daemon):
    """A descriptor whose close takes a minute would stop the daemon for that minute: the kernel refuses to send it."""
    directory = shared_daemon()
    p = machine.start([*as_user(BOB, groups=[GROUP]), sys.executable, "-u", "-c",
                       LINGERER.format(tests=SCRIPTS, directory=directory)],
                      stdin=subprocess.PIPE, PYTHONDONTWRITEBYTECODE="1")
    wait_for(lambda: "done" in p.out(), 20, "the descriptor to be sent")
    if "sent" in p.out():
        pytest.skip(OLD_KERNEL)
    assert "refused" in p.out()
    p.send(9)
    assert machine.status_of(directory)["mode"] == "auto"


# ---- false identities ----


def test_root_of_a_user_namespace_is_not_root(machine, shared_daemon):
    """A process of that root has uid 0 inside and a plain user's uid outside: it may be a client, but may not give
    orders."""
    directory = shared_daemon()
    control = os.path.join(directory, "control.sock")
    os.chmod(control, 0o666)  # so that the daemon refuses, and not the file's mode
    unshare = ["unshare", "--user", "--map-root-user"]
    probe = machine.run_as(BOB, [*unshare, "id", "-u"], groups=(GROUP,))
    if probe.returncode != 0:
        pytest.skip(NO_USER_NAMESPACES)
    assert probe.stdout.strip() == "0"
    for prefix in (unshare, ["unshare", "--user"]):
        answer = json.loads(ask(machine, BOB, control, {"order": "stop"}, prefix).stdout)
        assert "own user" in answer["error"]
    # The daemon sees the client's uid outside the namespace.
    merged = machine.env | {"SUBLET_DIR": directory, "LD_PRELOAD": os.path.join(BUILD, "libsublet.so")}
    p = machine.start([*as_user(BOB, gid=GROUP), *unshare, os.path.join(BUILD, "programs", "hold"), "--bytes", "8MiB"],
                      stdin=subprocess.PIPE, **merged)
    p.await_event("filled")
    assert [c["uid"] for c in machine.status_of(directory)["gpus"][0]["clients"]] == [BOB]
    p.finish()


def test_root_in_a_user_namespace_of_root_gives_no_orders(machine, shared_daemon):
    """A process of that root has uid 0 outside, too, but is confined like the root of a container."""
    directory = shared_daemon()
    control = os.path.join(directory, "control.sock")
    os.chmod(control, 0o666)
    assert "mode" in json.loads(ask(machine, 0, control, {"order": "status"}, groups=()).stdout)
    done = ask(machine, 0, control, {"order": "stop"}, ["unshare", "--user", "--map-root-user"], groups=())
    if "unshare" in done.stderr:
        pytest.skip(NO_USER_NAMESPACES)
    assert "outside a container" in json.loads(done.stdout)["error"]


# ---- directories that another user has planted ----


@pytest.fixture
def planted():
    """Returns the path /tmp/sublet-UID of a user that does not exist, for another user to make; removes it afterwards.
    A test must name this fixture before the machine, so that the path is removed after the machine's programs."""
    if SYSTEM_DAEMON:
        pytest.skip(SYSTEM_DAEMON)
    path = f"/tmp/sublet-{ALICE}"
    assert not os.path.lexists(path), f"{path} is in the way"
    yield path
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
    else:
        shutil.rmtree(path, ignore_errors=True)


def listen_in(directory, heard):
    """A fake daemon of another user: it notes which of its sockets a process connects to."""
    sockets = []
    for name, kind in (("client.sock", socket.SOCK_SEQPACKET), ("control.sock", socket.SOCK_STREAM)):
        s = socket.socket(socket.AF_UNIX, kind)
        s.bind(os.path.join(directory, name))
        os.chmod(os.path.join(directory, name), 0o666)
        s.listen(5)
        sockets.append(s)

        def accept(s=s, name=name):
            while True:
                try:
                    s.accept()[0].close()
                except OSError:
                    return
                heard.append(name)

        threading.Thread(target=accept, daemon=True).start()
    return sockets


def somebody_elses(path):
    os.mkdir(path, 0o755)
    return path


def open_to_others(path):
    os.mkdir(path, 0o777)
    os.chmod(path, 0o777)
    return path


def a_link(path):
    target = path + ".target"
    shutil.rmtree(target, ignore_errors=True)
    os.mkdir(target, 0o700)
    os.symlink(target, path)
    return target


PLANTED = {
    "somebody else's": (somebody_elses, EVE, "Operation not permitted"),
    "his own, open to others": (open_to_others, ALICE, "Permission denied"),
    "a link to his own": (a_link, ALICE, "Not a directory"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_private_daemon_is_not_used(planted, machine, what):
    """Library, command line and daemon do not use the directory; each says why, and the program runs."""
    make, owner, reason = PLANTED[what]
    directory = make(planted)
    os.chown(directory, owner, owner)
    heard = []
    sockets = listen_in(directory, heard)
    try:
        nothing = dict(SUBLET_DIR=None, XDG_RUNTIME_DIR=None)
        p = machine.user(ALICE, "fill", "--bytes", "8MiB", "--block", "4MiB", **nothing).ok()
        assert len(p.err().splitlines()) == 1 and planted in p.err() and reason in p.err(), p.err()
        for argv, status in (([os.path.join(BUILD, "sublet"), "status"], 1),
                             ([os.path.join(BUILD, "sublet"), "stop"], 1),
                             ([os.path.join(BUILD, "subletd"), "--private"], 2)):
            done = machine.run_as(ALICE, argv, **nothing)
            assert done.returncode == status and len(done.stderr.splitlines()) == 1, (argv, done.stderr)
            assert planted in done.stderr
        waiting = machine.user(ALICE, "fill", "--bytes", "8MiB", "--block", "4MiB", SUBLET_REQUIRE="1", **nothing)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.process.wait(0.5)
        assert heard == [], "no process asked the planted daemon"
        # When the directory is removed, the waiting program would start a daemon there. So it is killed first.
        waiting.process.kill()
        waiting.process.wait(30)
    finally:
        for s in sockets:
            s.shutdown(socket.SHUT_RDWR)
            s.close()
        shutil.rmtree(planted + ".target", ignore_errors=True)


def test_a_file_in_the_directorys_place_costs_one_sentence(planted, machine):
    with open(planted, "w", encoding="utf-8"):
        pass
    p = machine.user(ALICE, "fill", "--bytes", "8MiB", "--block", "4MiB", SUBLET_DIR=None, XDG_RUNTIME_DIR=None).ok()
    assert len(p.err().splitlines()) == 1 and planted in p.err(), p.err()
