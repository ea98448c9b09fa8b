"""Pods and Slurm jobs as tenants: who may give orders, whom limits hold, what conf.d gives them, and under which name they
are shown. All programs are root's, as in most pods, and in the pid namespace of the machine, as with hostPID."""

import json
import os
import re
import subprocess
import sys

import pytest

import others
import wireclient
from metrics import scrape
from tenants import Tenants
from test_configuration import write
from test_unfair import card  # noqa: F401
from wireclient import Client
from world import BUILD, GENEROUS_S, MIB, wait_for

pytestmark = others.needed
KUBERNETES = "50-kubernetes.conf"


@pytest.fixture
def tenants(request):
    made = Tenants()
    request.addfinalizer(made.close)
    return made


@pytest.fixture
def machine(tenants, world):
    """A world that ends before its cgroups are removed."""
    return world


def tell(world, text, name=KUBERNETES):
    """Writes the file as a device plugin does. Returns what the daemon answers."""
    folder = os.path.join(world.dir, "conf.d")
    write(os.path.join(folder, f".{name}.new"), text)
    os.rename(os.path.join(folder, f".{name}.new"), os.path.join(folder, name))
    return wireclient.order(world.dir, order="reload")


def told(tenants, **pods):
    """Returns a file with a class for each pod, with these keys, and with its names."""
    return "".join(f"[class k8s-{name}]\npod = {tenants.uid(name)}\n{keys}\n"
                   f"[pod {tenants.uid(name)}]\nnamespace = research\nname = {name}-0\n" for name, keys in pods.items())


def hold(world, before, mib, **env):
    return world.program("hold", "--bytes", f"{mib}MiB", "--block", "4MiB", before=before, stdin=subprocess.PIPE, **env)


def sublet_in(world, before, *args):
    return subprocess.run([*before, os.path.join(BUILD, "sublet"), *args], env=world.env, capture_output=True, text=True,
                          timeout=GENEROUS_S, check=False)


def ask_in(world, before, *orders):
    """Gives orders from a process in that cgroup. Returns the lines of the answers."""
    script = """
import json, socket, sys
for order in json.loads(sys.argv[2]):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.connect(sys.argv[1])
        s.sendall(json.dumps(order).encode() + b"\\n")
        print(s.makefile("rb").readline().decode(), end="")
"""
    done = subprocess.run([*before, sys.executable, "-c", script, os.path.join(world.dir, "control.sock"), json.dumps(orders)],
                          capture_output=True, text=True, timeout=GENEROUS_S, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


# ---- what conf.d gives ----


def test_pods_have_the_caps_that_conf_d_gives_them(machine, tenants):
    machine.start_daemon()
    assert tell(machine, told(tenants, a="memory_cap = 40MiB", b="memory_cap = 20MiB")) == {"classes": 2, "restart": []}
    a, b = hold(machine, tenants.pod("a"), 20), hold(machine, tenants.pod("b"), 16)
    a.await_event("filled")
    b.await_event("filled")
    rows = machine.clients()
    assert rows[a.pid]["class"] == "k8s-a" and rows[a.pid]["memory_cap"] == 40 * MIB
    assert rows[b.pid]["class"] == "k8s-b" and rows[b.pid]["memory_cap"] == 20 * MIB
    late = hold(machine, tenants.pod("a", "c2"), 24)  # another container of the pod
    assert late.wait() != 0 and "memory cap of its class" in late.err(), late.report()
    wait_for(lambda: late.pid not in machine.clients(), GENEROUS_S, "the daemon still counts a program that has ended")
    # The class of a pod that is gone goes, and a new cap counts at once.
    assert tell(machine, told(tenants, a="memory_cap = 64MiB"))["classes"] == 1
    assert machine.clients()[a.pid]["memory_cap"] == 64 * MIB and machine.clients()[b.pid]["class"] is None
    late = hold(machine, tenants.pod("a", "c2"), 24)
    late.await_event("filled")
    for p in (a, b, late):
        p.finish()


@pytest.mark.parametrize("claim", ({"SUBLET_NAME": "k8s-rich"}, {"SUBLET_GROUP": "k8s-rich"}, {"SUBLET_PRIORITY": "20"},
                                   {"SUBLET_MEMORY_CAP": "120MiB"}, {"SUBLET_SHARE": "0.9:1"}))
def test_a_program_that_claims_more_gets_what_its_pod_gets(machine, tenants, claim):
    machine.start_daemon()
    rich, poor = "priority = 5\nminimum = 20%\ngroup = yes", "memory_cap = 24MiB"
    assert tell(machine, told(tenants, rich=rich, poor=poor))["classes"] == 2
    p = hold(machine, tenants.pod("poor"), 16, **claim)
    p.await_event("filled")
    row = machine.clients()[p.pid]
    assert (row["class"], row["memory_cap"], row["priority"], row["minimum"]) == ("k8s-poor", 24 * MIB, 0, None)
    late = hold(machine, tenants.pod("poor"), 16, **claim)
    assert late.wait() != 0 and "memory cap of its class" in late.err(), late.report()
    p.finish()


def test_a_cgroup_with_the_name_of_a_pod_elsewhere_is_no_pod(machine, tenants):
    """Below its own cgroup root of a pod may make any; a user's part of the tree is no place for pods."""
    machine.start_daemon()
    tell(machine, told(tenants, a="memory_cap = 40MiB", b="memory_cap = 100MiB"))
    inside = hold(machine, tenants.pod("a", below=f"/kubepods/pod{tenants.uid('b')}"), 4)
    mine = f"test-{os.getpid()}.slice/user@1000.service/kubepods/burstable/pod{tenants.uid('b')}"
    beside = hold(machine, tenants.make(mine), 4)
    inside.await_event("filled")
    beside.await_event("filled")
    rows = machine.clients()
    assert rows[inside.pid]["pod"] == tenants.uid("a") and rows[inside.pid]["class"] == "k8s-a"
    assert rows[beside.pid]["pod"] is None and rows[beside.pid]["class"] is None
    inside.finish()
    beside.finish()


def test_a_refused_file_changes_nothing_and_holds_all_programs_of_the_next_daemon(machine, tenants):
    machine.start_daemon()
    tell(machine, told(tenants, a="minimum = 60%", b="memory_cap = 8MiB"))
    wrong = tell(machine, told(tenants, a="minimum = 60%", b="minimum = 40%"))
    assert "the minima of all classes are 100.0%" in wrong["error"] and KUBERNETES in wrong["error"]
    p = hold(machine, tenants.pod("a"), 4)
    p.await_event("filled")
    assert machine.clients()[p.pid]["class"] == "k8s-a"
    p.finish()
    machine.sublet("stop")
    machine.daemon.wait()
    daemon = machine.start_daemon()
    assert "no program gets a turn until the file is corrected" in daemon.err() and "the minima" in daemon.err()
    assert tell(machine, told(tenants, a="minimum = 60%"))["classes"] == 1
    machine.sublet("stop")
    daemon.wait()
    machine.start_daemon()  # the next daemon finds the classes
    q = hold(machine, tenants.pod("a"), 4)
    q.await_event("filled")
    assert machine.clients()[q.pid]["class"] == "k8s-a"
    q.finish()


def test_conf_d_takes_no_file_of_another_user(machine, tenants):
    machine.start_daemon()
    folder = os.path.join(machine.dir, "conf.d")
    assert os.stat(folder).st_mode & 0o7777 == 0o700 and os.stat(folder).st_uid == os.getuid()
    write(os.path.join(folder, "evil.conf"), "[class x]\nuser = 0\n")
    os.chown(os.path.join(folder, "evil.conf"), others.NOBODY, others.NOBODY)
    assert "another user owns it" in wireclient.order(machine.dir, order="reload")["error"]


# ---- who may give orders ----


def test_root_of_a_pod_gives_no_orders_for_others(machine, tenants):
    """It is root in the pid namespace and the user namespace of the daemon, which outside of a pod may do everything."""
    machine.start_daemon()
    victim, own = hold(machine, tenants.pod("a"), 8, SUBLET_NAME="secret"), hold(machine, tenants.pod("b"), 8)
    victim.await_event("filled")
    own.await_event("filled")
    inside, pid = tenants.pod("b", "c2"), victim.pid
    answers = ask_in(machine, inside, {"order": "pause", "pid": pid}, {"order": "resume", "pid": pid}, {"order": "evict", "pid": pid},
                     {"order": "set_program", "pid": pid, "key": "memory_cap", "value": "8MiB"}, {"order": "reload"},
                     {"order": "stop"}, {"order": "set", "key": "quantum", "value": "1s"})
    assert len(answers) == 7 and all("error" in a for a in answers), answers
    assert machine.clients()[pid]["paused"] is False and machine.clients()[pid]["memory_cap"] is None
    # It may pause a program of its own pod, in whatever container, and see its name, but no other's.
    (paused, resumed, status) = ask_in(machine, inside, {"order": "pause", "pid": own.pid}, {"order": "resume", "pid": own.pid},
                                       {"order": "status"})
    assert "error" not in paused and "error" not in resumed
    rows = {c["pid"]: c for c in status["gpus"][0]["clients"]}
    assert rows[own.pid]["pod"] == tenants.uid("b") and rows[own.pid]["name"]
    assert [rows[pid][field] for field in ("name", "uid", "pod", "class", "container")] == [None] * 5
    assert rows[pid]["stranger"] == "another pod" and rows[own.pid]["stranger"] is None
    trace = sublet_in(machine, inside, "trace")
    assert trace.returncode == 0 and "secret" not in trace.stdout, trace
    assert tenants.uid("b") in trace.stdout and tenants.uid("a") not in trace.stdout, trace
    assert re.search(rf"secret +\({victim.pid}\) +{tenants.uid('a')} ", machine.sublet("trace").stdout)
    (trace,) = ask_in(machine, inside, {"order": "trace"})
    assert list(trace["tenants"].values()) == [tenants.uid("b")]
    victim.finish()
    own.finish()


def test_the_daemons_own_pod_gives_orders(machine, tenants):
    daemon = machine.start_daemon(prefix=tenants.pod("sublet", "daemon"), wait=False)
    wait_for(lambda: os.path.exists(os.path.join(machine.dir, "client.sock")), GENEROUS_S, "the daemon", report=daemon.report)
    assert ask_in(machine, tenants.pod("sublet", "plugin"), {"order": "reload"}) == [{"classes": 0, "restart": []}]
    assert "error" in ask_in(machine, tenants.pod("a"), {"order": "reload"})[0]
    assert machine.sublet("reload").returncode == 0, "root of the machine"


# ---- the real hierarchy of version 2 ----


@pytest.fixture
def version_2(request):
    made = Tenants(version_2=True)
    request.addfinalizer(made.close)
    return made


@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
def test_pods_of_version_2_are_known_to_a_daemon_in_a_cgroup_namespace(version_2, world, driver):
    """As containers of version 2 are: a pod of the daemon's quality of service, and one of another."""
    world.start_daemon(prefix=[*version_2.pod_of(driver, "burstable", "sublet"), "unshare", "--cgroup"])
    for name, quality in (("a", "burstable"), ("b", "besteffort")):
        program = hold(world, version_2.pod_of(driver, quality, name), 4)
        program.await_event("filled")
        assert world.clients()[program.pid]["pod"] == version_2.uid(name)
        program.finish()


# ---- limits ----


def test_connections_are_counted_for_each_pod_whatever_the_uids(machine, tenants):
    machine.start_daemon(config={"connections_per_user": 2})
    os.chmod(machine.root, 0o755)
    made = []

    def connect(*prefix):
        c = Client(machine.dir, prefix=prefix)
        made.append(c)
        c.connect()
        c.send("HELLO", magic=wireclient.MAGIC, protocol=1, name="one", version="0.1.0")
        return c.expect("WELCOME", "REFUSED")["type"] == "WELCOME"

    try:
        a = tenants.pod("a")
        assert connect(*a) and connect(*a)
        assert not connect(*a) and not connect(*tenants.pod("a", "c2"))
        assert connect(*tenants.pod("b"))
        assert connect(*tenants.job(5)) and connect(*tenants.job(5)) and not connect(*tenants.job(5))
        assert connect(*tenants.job(6))
        made[0].disconnect()
        wait_for(lambda: connect(*a), GENEROUS_S, "a free place for the pod")
    finally:
        for c in made:
            c.end()


def reasons(p):
    return [line for line in p.err().splitlines() if "out of memory: this program asks for" in line]


def test_root_of_a_pod_is_held_by_the_limits_of_a_user(machine, tenants):
    machine.start_daemon(config={"host_memory": "200MiB", "host_memory_per_user": "10%", "unevictable_per_user": "10%"})
    first = hold(machine, tenants.pod("a"), 80)
    first.await_event("filled")
    second = hold(machine, tenants.pod("a", "c2"), 80)
    assert second.wait() != 0 and "as much host memory as one user may be" in "".join(reasons(second)), second.report()
    other, outside = hold(machine, tenants.pod("b"), 80), hold(machine, (), 80)
    other.await_event("filled")  # it has a share of its own
    outside.await_event("filled")
    for p in (first, other, outside):
        p.finish()
    greedy = machine.program("greedy", "--how", "arrays", before=tenants.pod("a"), stdin=subprocess.PIPE)
    greedy.await_event("got")
    assert "reached the limit on memory that cannot be moved" in "".join(reasons(greedy)), greedy.report()
    greedy.finish()


def test_two_pods_of_root_divide_the_time_whatever_they_start(tenants, card):  # noqa: F811
    gpu = card()
    gpu.join("first", 600, prefix=tenants.pod("a"))
    gpu.join("second", 600, waits=True, prefix=tenants.pod("a", "c2"))
    gpu.join("third", 600, waits=True, prefix=[*tenants.pod("a", "c3"), "unshare", "--fork", "--pid", "--kill-child"])
    alone = gpu.join("alone", 600, waits=True, prefix=tenants.pod("b"))

    gpu.until(lambda: alone.grants)
    got, passed = gpu.times_within(8, turns=5)
    assert got["alone"] >= 0.4 * passed, got
    assert min(got.values()) >= 0.08 * passed, got


DEEP = """
import os, sys
os.chdir(sys.argv[1])
for _ in range(17):
    os.mkdir("x" * 250); os.chdir("x" * 250)
try:
    with open("cgroup.procs", "w") as f: f.write(str(os.getpid()))
    sys.path.insert(0, sys.argv[2])
    import wireclient, socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        try:
            s.connect(sys.argv[3] + "/client.sock")
            s.send(wireclient.encode("HELLO", magic=wireclient.MAGIC, protocol=1, name="deep", version="1"))
            print("answered" if s.recv(1000) else "refused")
        except ConnectionError:
            print("refused")
finally:
    with open(sys.argv[1] + "/cgroup.procs", "w") as f: f.write(str(os.getpid()))
    for _ in range(17):
        os.chdir(".."); os.rmdir("x" * 250)
"""


def test_no_pod_hides_below_deep_cgroups(machine, tenants):
    """A kernel that describes only paths of 4 KiB says nothing, or cuts the end. In the first case the daemon refuses
    the process, which could be in any pod."""
    daemon = machine.start_daemon()
    tenants.pod("a")
    done = subprocess.run([sys.executable, "-c", DEEP, tenants.made[-1], others.SCRIPTS, machine.dir], capture_output=True,
                          text=True, timeout=GENEROUS_S, check=False)
    if "OSError" in done.stderr and "mkdir" in done.stderr:
        pytest.skip("this kernel makes no cgroups so deep; others do")
    assert done.stdout in ("refused\n", "answered\n"), done
    if done.stdout == "answered\n":
        wait_for(lambda: "(deep)" in daemon.err(), GENEROUS_S, "the log", report=daemon.report)
        (line,) = [line for line in daemon.err().splitlines() if "(deep), user" in line]
        assert f"pod {tenants.uid('a')}" in line, line
    p = hold(machine, (), 4)
    p.await_event("filled")
    p.finish()


# ---- names ----


def test_pods_and_jobs_are_shown_by_name(machine, tenants):
    port = os.path.join(machine.root, "metrics.sock")
    machine.start_daemon(config={"metrics": port})
    tell(machine, told(tenants, web="weight = 2"))
    tell(machine, "[class slurm-77]\nslurm_job = 77\nmaximum = 50%\n", "60-slurm-77.conf")
    programs = [hold(machine, tenants.pod("web"), 4), hold(machine, tenants.pod("other"), 4), hold(machine, tenants.job(77), 4)]
    for p in programs:
        p.await_event("filled")
    web, other, job = (machine.clients()[p.pid] for p in programs)
    assert (web["pod"], web["pod_namespace"], web["pod_name"]) == (tenants.uid("web"), "research", "web-0")
    assert (other["pod"], other["pod_namespace"], other["pod_name"]) == (tenants.uid("other"), None, None)
    assert (job["slurm_job"], job["pod"], job["class"]) == ("77", None, "slurm-77")
    table = machine.sublet("status", str(programs[0].pid)).stdout
    assert " POD" in table and "research/web-0" in table, table
    table = machine.sublet("status").stdout
    assert tenants.uid("other") in table and " job 77 " in table, table
    assert machine.sublet("trace", machine.path("trace.json")).returncode == 0
    with open(machine.path("trace.json"), encoding="ascii") as f:
        text = f.read()
    assert f"({programs[0].pid}) in research/web-0" in text and f"({programs[2].pid}) in job 77" in text
    labels = {int(labels["pid"]): labels for name, labels, _ in scrape(port) if name == "sublet_client_info"}
    shown = [tuple(labels[p.pid][field] for field in ("namespace", "pod", "slurm_job")) for p in programs]
    assert shown == [("research", "web-0", ""), ("", tenants.uid("other"), ""), ("", "", "77")]
    for p in programs:
        p.finish()
