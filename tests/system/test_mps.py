"""MPS servers that the daemon starts for programs: who gets one, whom it is shared with, when it ends, and what its end
means for its programs. The simulator has a small MPS (sim/mps)."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

import others
from tenants import Tenants
from wireclient import Client
from world import BUILD, GENEROUS_S, NO_PYTHON, end_fills, go_on, name_of, wait_for

MPS = os.path.join(BUILD, "sim", "mps")
NO_CHANNELS = "it has no channels of its own, as under MPS or in WSL"
ILLEGAL_ADDRESS, RPC_FAILURE, TERMINATED = 700, 806, 810
CONFIG = {"mps": "yes", "linger": "1s", "quantum": "200ms"}


def prepared(world, **config):
    """Has the daemon find the simulated nvidia-cuda-mps-control."""
    world.env["PATH"] = f"{MPS}:{world.env['PATH']}"
    world.start_daemon(config={**CONFIG, **config})
    return world


@pytest.fixture
def mps(world):
    return prepared(world)


def folders(world):
    """Returns {UID.TENANT.GPU: folder} of the control daemons."""
    top = os.path.join(world.dir, "mps")
    return {name: os.path.join(top, name) for name in sorted(os.listdir(top))} if os.path.isdir(top) else {}


def only_folder(world):
    (folder,) = folders(world).values()
    return folder


def processes(folder):
    """Returns the pids of the control daemon and of the server of this directory, in this order."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                environ = f.read().split(b"\0")
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if name_of(int(pid)) == "nvidia-cuda-mps" and f"CUDA_MPS_PIPE_DIRECTORY={folder}".encode() in environ:
            found.append((os.path.basename(words[0]) != b"nvidia-cuda-mps-control", int(pid)))
    return [pid for _, pid in sorted(found)]


def order(folder, text):
    done = subprocess.run([os.path.join(MPS, "nvidia-cuda-mps-control")], input=text + "\n", env={"CUDA_MPS_PIPE_DIRECTORY": folder},
                          stdout=subprocess.PIPE, text=True, timeout=GENEROUS_S, check=True)
    return [int(word) for word in done.stdout.split()]


def clients_of(folder):
    return {pid for server in order(folder, "get_server_list") for pid in order(folder, f"get_client_list {server}")}


def fill(world, seed, mib=8, before=(), ms=50, **env):
    """ms: a pause after each round, because most tests need a program that is there, not one that keeps a core busy."""
    return world.program("fill", "--bytes", f"{mib}MiB", "--block", "2MiB", "--seed", str(seed), "--ms", ms, "--until",
                         world.path("end"), before=before, **{"SUBLET_WAY": "shared", **env})


def broken(world, before=(), **env):
    return world.program("broken", "--bytes", "8MiB", "--block", "2MiB", before=before, stdin=subprocess.PIPE, SUBLET_WAY="shared", **env)


def begin(*programs):
    for p in programs:
        p.await_event("filled")
    go_on(programs)


def ways(world):
    return {pid: c["way"] for pid, c in world.clients().items()}


def fails_with(program, error):
    assert program.wait() != 0
    assert f"{error}" in program.out() + program.err(), program.report()


def gone(world, folder):
    wait_for(lambda: not folders(world) and not processes(folder), 20, "MPS to end")


# ---- one user ----


def test_programs_of_a_user_share_a_server_that_ends_after_them(mps):
    programs = [fill(mps, seed) for seed in (1, 2)]
    begin(*programs)
    folder = only_folder(mps)
    assert os.path.basename(folder).startswith(f"{os.getuid()}.0.")
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert clients_of(folder) == {p.pid for p in programs} and len(processes(folder)) == 2
    assert ways(mps) == {p.pid: "shared" for p in programs}
    for c in mps.clients().values():
        assert c["freeze"] == "off" and c["freeze_off"] == NO_CHANNELS and c["state"] == "running"
    assert "way shared (MPS)" in mps.status_text()
    end_fills(mps, *programs)
    gone(mps, folder)
    again = fill(mps, 3)
    again.ok()  # the file that ends it exists
    assert only_folder(mps) == folder


LISTS = """
import ctypes, json
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
device = ctypes.c_void_p()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
for name in "", "MPS":
    room, n = (ctypes.c_ulonglong * 96)(), ctypes.c_uint(32)
    assert getattr(nvml, f"nvmlDeviceGet{name}ComputeRunningProcesses_v3")(device, ctypes.byref(n), room) == 0
    print(json.dumps({"event": name or "all", "pids": [room[3 * i] for i in range(n.value)]}))
"""


@pytest.mark.skipif(NO_PYTHON is not None, reason=NO_PYTHON or "")
def test_nvml_lists_a_client_among_all_processes_and_among_those_of_mps(mps):
    """As on an H200. The daemon reads the first list only, so each client counts once."""
    programs, other = [fill(mps, seed) for seed in (1, 2)], fill(mps, 3, SUBLET_WAY="auto")
    begin(*programs, other)
    clients = sorted(p.pid for p in programs)
    lists = mps.start([sys.executable, "-c", LISTS]).ok()
    assert [sorted(e["pids"]) for e in lists.events("all")] == [sorted([*clients, other.pid])]
    assert [sorted(e["pids"]) for e in lists.events("MPS")] == [clients]
    assert mps.status()["gpus"][0]["foreign"] == 0
    end_fills(mps, *programs, other)


def test_a_server_stays_for_the_time_linger(world):
    prepared(world, linger="1h")

    def served_by():
        p = world.program("fill", "--bytes", "8MiB", "--block", "2MiB", "--rounds", "1", SUBLET_WAY="shared")
        p.ok()
        return processes(only_folder(world))

    first = served_by()
    time.sleep(2.5)  # the daemon looks once a second
    assert processes(only_folder(world)) == first and served_by() == first


def test_past_memory_programs_of_a_server_take_turns_with_equal_contents(mps):
    programs = [fill(mps, seed, mib=80, ms=0) for seed in (1, 2)]
    begin(*programs)
    wait_for(lambda: mps.handoffs() >= 4, 60, "four hand-offs", report=mps.status_text)
    assert set(ways(mps).values()) == {"shared"} and mps.traced("evict_begin")
    assert not mps.traced("frozen"), "turns end by drains"
    end_fills(mps, *programs)


def test_in_mode_exclusive_they_take_turns_although_they_fit(world):
    prepared(world, mode="exclusive")
    programs = [fill(world, seed, ms=0) for seed in (1, 2)]
    begin(*programs)
    wait_for(lambda: world.handoffs() >= 4, 60, "four hand-offs", report=world.status_text)
    end_fills(world, *programs)


def test_a_program_that_takes_part_cannot_be_paused_and_says_why(mps):
    p = fill(mps, 1)
    begin(p)
    done = mps.sublet("pause", str(p.pid))
    assert done.returncode == 1 and NO_CHANNELS in done.stderr, f"{done}\n{p.report()}"
    go_on([p])
    end_fills(mps, p)


def test_what_is_known_of_freezing_on_the_gpu_is_not_believed_of_a_program_without_channels(mps):
    own, shared = fill(mps, 1, SUBLET_WAY=None), fill(mps, 2)
    begin(own)
    wait_for(lambda: mps.traced("freeze_test", own.pid) or mps.clients()[own.pid]["freeze"] == "off", 20, "the test of freezing")
    begin(shared)
    wait_for(lambda: mps.clients()[shared.pid]["freeze_off"] == NO_CHANNELS, 20, "its freezing to be off")
    assert ways(mps) == {own.pid: "own", shared.pid: "shared"}
    end_fills(mps, own, shared)


def test_a_program_that_comes_as_the_server_ends_gets_one(world):
    prepared(world, linger="0s")
    for seed in range(1, 9):
        p = world.program("fill", "--bytes", "8MiB", "--block", "2MiB", "--seed", str(seed), "--rounds", "1", SUBLET_WAY="shared")
        p.ok()
        assert "MPS is not used" not in p.err()


# ---- who gets none ----


def runs_without(world, why, **env):
    p = fill(world, 1, **env)
    begin(p)
    assert ways(world) == {p.pid: "own"}
    assert p.err().count("MPS is not used: ") == 1 and f"{why}; this program runs without it" in p.err(), p.report()
    end_fills(world, p)


def test_without_the_owners_leave_a_program_runs_without_mps(world):
    prepared(world, mps="no")
    runs_without(world, "the GPU's owner does not allow it (the daemon's setting mps)")
    assert not folders(world)


def test_a_class_may_be_allowed_what_others_are_not(world):
    world.env["PATH"] = f"{MPS}:{world.env['PATH']}"
    path = world.path("classes.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write("[class some]\nname = some\nmps = yes\n[default]\nmps = no\n")
    world.start_daemon("--config", path)
    some, other = fill(world, 1, SUBLET_NAME="some"), fill(world, 2, SUBLET_NAME="other")
    begin(some, other)
    assert ways(world) == {some.pid: "shared", other.pid: "own"}
    end_fills(world, some, other)


def test_a_program_that_does_not_ask_has_a_context_of_its_own(mps):
    p = fill(mps, 1, SUBLET_WAY=None)
    begin(p)
    assert ways(mps) == {p.pid: "own"} and not folders(mps) and p.err() == ""
    end_fills(mps, p)


def test_without_nvidia_cuda_mps_control_a_program_runs_without_mps(world):
    world.start_daemon(config=CONFIG)
    runs_without(world, "there is no nvidia-cuda-mps-control on this machine")


@pytest.mark.parametrize("script, why", [
    ("exit 1", "the control daemon of MPS does not start"),
    ("exec sleep 1000", "the control daemon of MPS did not start within 10 s"),
])
def test_if_mps_does_not_start_a_program_runs_without_it(world, script, why):
    folder = world.path("bin")
    os.mkdir(folder)
    with open(os.path.join(folder, "nvidia-cuda-mps-control"), "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\n{script}\n")
    os.chmod(f.name, 0o755)
    world.env["PATH"] = f"{folder}:{world.env['PATH']}"
    world.start_daemon(config=CONFIG)
    runs_without(world, why)


def test_if_the_server_cannot_be_reached_a_program_runs_without_it(world):
    """As far as the driver lets it begin again: the simulated one does."""
    folder = world.path("bin")
    os.mkdir(folder)
    with open(os.path.join(folder, "nvidia-cuda-mps-control"), "w", encoding="ascii") as f:
        f.write("#!/usr/bin/python3\nimport os, socket, sys\n"
                "if not sys.argv[1:]:\n    print(100.0 if 'percentage' in sys.stdin.read() else '')\n"
                "if sys.argv[1:]:\n    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                "    s.bind(os.environ['CUDA_MPS_PIPE_DIRECTORY'] + '/control')\n    s.listen()\n    while True: s.accept()[0].close()\n")
    os.chmod(f.name, 0o755)
    world.env["PATH"] = f"{folder}:{world.env['PATH']}"
    world.start_daemon(config=CONFIG)
    runs_without(world, "the driver cannot reach the server (error 805)")


def test_a_prohibited_gpu_and_an_instance_of_mig_have_no_server(make_world):
    for env, why in (({"SIMCUDA_COMPUTE_MODE": "2"}, "the GPU's compute mode is prohibited"),
                     ({"SIMCUDA_MIG": "1"}, "sublet starts no MPS server for an instance of MIG")):
        world = make_world()
        world.env.update(env)
        runs_without(prepared(world), why)


def test_without_a_daemon_a_program_runs_without_mps(world):
    p = world.program("fill", "--bytes", "8MiB", "--block", "2MiB", "--rounds", "1", SUBLET_WAY="shared", SUBLET_DAEMON="")
    p.ok()
    assert "MPS is not used: there is no daemon to ask; this program runs without it" in p.err()


def test_without_the_daemon_a_program_does_not_look_for_the_server_of_the_one_that_started_it(mps):
    assert mps.sublet("stop").returncode == 0
    mps.daemon.wait()
    folder = os.path.join(mps.dir, "mps", "0.0.00000000")
    os.makedirs(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.bind(os.path.join(folder, "control"))  # as one that was killed leaves it
    p = mps.program("fill", "--bytes", "8MiB", "--block", "2MiB", "--rounds", "1", SUBLET_WAY="shared", SUBLET_DAEMON="",
                    CUDA_MPS_PIPE_DIRECTORY=folder)
    p.ok()
    assert "MPS is not used: there is no daemon to ask; this program runs without it" in p.err()


def test_a_control_daemon_of_the_users_own_is_left_as_it_is(mps):
    folder = mps.path("own")
    os.mkdir(folder)
    mps.start([os.path.join(MPS, "nvidia-cuda-mps-control"), "-f"], CUDA_MPS_PIPE_DIRECTORY=folder)
    wait_for(lambda: os.path.exists(os.path.join(folder, "control")), 20, "the control daemon")
    p = fill(mps, 1, CUDA_MPS_PIPE_DIRECTORY=folder)
    begin(p)
    assert ways(mps) == {p.pid: "shared"} and clients_of(folder) == {p.pid} and not folders(mps)
    end_fills(mps, p)


# ---- several GPUs ----


def test_each_gpu_has_a_server_of_its_own(make_world):
    world = prepared(make_world(gpus=2))
    uuids = [gpu["uuid"] for gpu in world.status()["gpus"]]
    programs = [fill(world, n, CUDA_VISIBLE_DEVICES=which) for n, which in enumerate(("0", "1", uuids[1][:14]), 1)]
    for p in programs:
        p.await_event("filled")
    assert list(folders(world)) == sorted(f"{os.getuid()}.0.{uuid[4:12]}" for uuid in uuids)
    assert {uuids[n][4:12]: clients_of(folders(world)[f"{os.getuid()}.0.{uuids[n][4:12]}"]) for n in (0, 1)} == {
        uuids[0][4:12]: {programs[0].pid}, uuids[1][4:12]: {programs[1].pid, programs[2].pid}}
    with open(f"/proc/{processes(folders(world)[f'{os.getuid()}.0.{uuids[1][4:12]}'])[0]}/environ", "rb") as f:
        assert f"CUDA_VISIBLE_DEVICES={uuids[1]}".encode() in f.read().split(b"\0")
    with open(world.path("end"), "w", encoding="ascii"):
        pass
    for p in programs:
        p.ok()
        world.check_sums(p)


@pytest.mark.parametrize("devices, why", [
    (None, "it may use several GPUs: name one, as with sublet run --gpu"),
    ("0,1", "it may use several GPUs: name one, as with sublet run --gpu"),
    ("7", "CUDA_VISIBLE_DEVICES names no GPU that the daemon knows"),
])
def test_a_program_for_several_gpus_or_none_gets_no_server(make_world, devices, why):
    world = prepared(make_world(gpus=2))
    p = world.program("fill", "--bytes", "8MiB", "--block", "2MiB", "--rounds", "1", SUBLET_WAY="shared", CUDA_VISIBLE_DEVICES=devices)
    p.wait()
    assert f"MPS is not used: {why}" in p.err(), p.report()
    assert not folders(world)


# ---- ends ----


def test_a_client_that_is_killed_leaves_the_others_alone(mps):
    victim, other = fill(mps, 1), fill(mps, 2)
    begin(victim, other)
    victim.send(signal.SIGKILL)
    victim.wait()
    go_on([other], 3)
    assert clients_of(only_folder(mps)) == {other.pid}
    end_fills(mps, other)


def test_a_client_that_is_terminated_fails_alone(mps):
    victim, other = fill(mps, 1), fill(mps, 2)
    begin(victim, other)
    (server,) = order(only_folder(mps), "get_server_list")
    order(only_folder(mps), f"terminate_client {server} {victim.pid}")
    fails_with(victim, TERMINATED)
    go_on([other], 3)
    end_fills(mps, other)


def test_a_fault_in_one_program_ends_those_of_its_server_and_no_others(mps):
    fault, along, apart = broken(mps), fill(mps, 1), fill(mps, 2, SUBLET_WAY=None)
    begin(along, apart)
    fault.await_event("filled")
    fault.order("break")
    fails_with(along, ILLEGAL_ADDRESS)
    go_on([apart], 3)
    fault.finish()
    end_fills(mps, apart)
    again = mps.program("fill", "--bytes", "8MiB", "--block", "2MiB", "--rounds", "1", SUBLET_WAY="shared")
    again.ok()
    assert "MPS is not used" not in again.err(), "the next program gets a server"


def test_programs_survive_the_control_daemon_and_the_next_one_gets_another(mps):
    p = fill(mps, 1)
    begin(p)
    folder = only_folder(mps)
    os.kill(processes(folder)[0], signal.SIGKILL)
    wait_for(lambda: "the control daemon of MPS for user" in mps.daemon.err(), 20, "the daemon to notice")
    late = fill(mps, 2)
    begin(late)
    assert ways(mps) == {p.pid: "shared", late.pid: "own"}
    assert "its control daemon has ended, and programs still use its server" in late.err()
    go_on([p], 2)
    end_fills(mps, p, late)
    gone(mps, folder)


def test_if_the_server_is_killed_its_programs_get_an_error_and_the_next_one_a_server(mps):
    p = fill(mps, 1)
    begin(p)
    os.kill(processes(only_folder(mps))[1], signal.SIGKILL)
    fails_with(p, RPC_FAILURE)
    again = fill(mps, 2)
    begin(again)
    assert ways(mps)[again.pid] == "shared"
    end_fills(mps, again)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_programs_survive_the_daemon_and_the_next_daemon_ends_the_server(mps, how):
    p = fill(mps, 1)
    begin(p)
    folder, before = only_folder(mps), processes(only_folder(mps))
    mps.daemon.send(how)
    mps.daemon.wait()
    assert processes(folder) == before, "an upgrade of subletd ends no program"
    mps.start_daemon(config=CONFIG)
    wait_for(lambda: ways(mps) == {p.pid: "shared"}, 20, "the program to come back")
    second = fill(mps, 2)
    begin(p, second)
    assert clients_of(folder) == {p.pid, second.pid} and processes(folder) == before
    end_fills(mps, p, second)
    gone(mps, folder)


def test_programs_survive_if_both_daemons_end_even_without_any_time_to_linger(world):
    prepared(world, linger="0s")
    p = fill(world, 1)
    begin(p)
    folder = only_folder(world)
    p.send(signal.SIGSTOP)
    world.daemon.send(signal.SIGKILL)
    world.daemon.wait()
    os.kill(processes(folder)[0], signal.SIGKILL)
    world.start_daemon(config={**CONFIG, "linger": "0s"})
    time.sleep(3)  # the daemon looks once a second
    p.send(signal.SIGCONT)
    wait_for(lambda: ways(world) == {p.pid: "shared"}, 20, "the program to come back")
    go_on([p], 2)
    end_fills(world, p)
    gone(world, folder)


def test_the_names_of_the_daemons_directory_may_be_relative(world):
    world.env["PATH"] = f"{MPS}:{world.env['PATH']}"
    os.mkdir(world.dir, 0o700)
    world.daemon = world.start(["env", "-C", world.root, os.path.join(BUILD, "subletd"), "--dir", os.path.basename(world.dir)])
    wait_for(lambda: world.sublet("set", "mps", "yes").returncode == 0, 20, "subletd to listen")
    p = fill(world, 1, before=("env", "-C", world.root), SUBLET_DIR=os.path.basename(world.dir))
    begin(p)
    assert ways(world) == {p.pid: "shared"} and clients_of(only_folder(world)) == {p.pid}
    end_fills(world, p)


def test_a_program_that_a_program_starts_asks_for_itself(mps):
    p = mps.start(["sh", "-c", f"{BUILD}/programs/hold --bytes 4MiB --block 2MiB < /dev/null && exec {BUILD}/programs/fill --bytes 8MiB "
                               f"--block 2MiB --until {mps.path('end')}"], LD_PRELOAD=os.path.join(BUILD, "libsublet.so"), SUBLET_WAY="shared",
                  CUDA_MPS_PIPE_DIRECTORY=f"{mps.dir}/mps/0.0.00000000")  # as if it came down from an earlier server
    begin(p)
    assert ways(mps)[p.pid] == "shared" and clients_of(only_folder(mps)) == {p.pid}
    end_fills(mps, p)


def test_a_stop_of_the_daemon_leaves_no_unused_server(mps):
    p = mps.program("fill", "--bytes", "8MiB", "--block", "2MiB", "--rounds", "1", SUBLET_WAY="shared")
    p.ok()
    folder = only_folder(mps)
    assert processes(folder)
    assert mps.sublet("stop").returncode == 0
    mps.daemon.wait()
    assert not processes(folder) and not os.path.exists(folder)


# What an order of a control daemon may get instead of an answer.
SILENCES = {
    "hangs": "exec sleep 1000",
    "fails": "exit 1",
    "is_empty": "exit 0",
    "is_not_found": "echo Cannot find MPS control daemon process; exit 1",
    "lists_nobody": 'read order; case "$order" in get_client_list*) exit 0;; get_default*) exit 0;; *) echo "$order" | exec REAL;; esac',
}


def silent(world, how, **config):
    """Starts a daemon for which nvidia-cuda-mps-control answers no order while the file `silent` exists. The orders that
    it answers afterwards are in the file `heard`."""
    real, folder = os.path.join(MPS, "nvidia-cuda-mps-control"), world.path("bin")
    os.mkdir(folder)
    with open(os.path.join(folder, "nvidia-cuda-mps-control"), "w", encoding="ascii") as f:
        f.write(f'#!/bin/sh\n[ "$1" = -f ] && exec {real} -f\n[ -e {world.path("silent")} ] && {{ {SILENCES[how].replace("REAL", real)}; }}\n'
                f'read order; echo "$order" >> {world.path("heard")}; echo "$order" | exec {real}\n')
    os.chmod(f.name, 0o755)
    with open(world.path("silent"), "w", encoding="ascii"):
        pass
    world.env["PATH"] = f"{folder}:{world.env['PATH']}"
    world.start_daemon(config={**CONFIG, **config})
    return world


def heard(world):
    try:
        with open(world.path("heard"), encoding="ascii") as f:
            return f.read().splitlines()
    except FileNotFoundError:
        return []


def uninvited(world, folder):
    """Starts a program of the server that the daemon knows nothing of."""
    p = world.start([os.path.join(BUILD, "programs", "fill"), "--bytes", "8MiB", "--block", "2MiB", "--ms", "50", "--until",
                     world.path("end")],
                    CUDA_MPS_PIPE_DIRECTORY=folder)
    p.await_event("filled")
    return p


@pytest.mark.parametrize("how", SILENCES)
def test_a_control_daemon_that_does_not_answer_is_not_taken_for_unused(world, how):
    silent(world, how, linger="0s")
    first = world.program("fill", "--bytes", "8MiB", "--block", "2MiB", "--ms", "50", "--until", world.path("first"), SUBLET_WAY="shared")
    first.await_event("filled")
    folder = only_folder(world)
    before = processes(folder)
    p = uninvited(world, folder)
    assert clients_of(folder) == {first.pid, p.pid}
    with open(world.path("first"), "w", encoding="ascii"):
        pass
    first.ok()
    wait_for(lambda: "does not say whether programs use it, so it stays" in world.daemon.err(), 30, "the daemon to ask twice",
             report=world.daemon.err)
    go_on([p])
    assert processes(folder)[:2] == before[:2]
    os.unlink(world.path("silent"))
    wait_for(lambda: heard(world).count("get_server_list") >= 2, 30, "the daemon to ask again after it was answered", report=p.report)
    assert "quit -t 2" not in heard(world), "it hears that the program is there"
    go_on([p])
    end_fills(world, p)
    gone(world, folder)
    assert world.daemon.err().count("so it stays") == 1


@pytest.mark.parametrize("how", ["hangs", "is_empty"])
def test_a_stop_of_the_daemon_leaves_a_control_daemon_that_does_not_answer(world, how):
    silent(world, how, linger="1h")
    first = world.program("fill", "--bytes", "8MiB", "--block", "2MiB", "--rounds", "1", SUBLET_WAY="shared")
    first.ok()
    folder = only_folder(world)
    p = uninvited(world, folder)
    assert world.sublet("stop").returncode == 0
    world.daemon.wait()
    go_on([p])
    os.unlink(world.path("silent"))
    world.start_daemon(config=CONFIG)
    end_fills(world, p)
    gone(world, folder)


def test_what_a_crash_has_left_in_the_folder_is_no_hindrance(world):
    world.env["PATH"] = f"{MPS}:{world.env['PATH']}"
    world.start_daemon(config=CONFIG)
    gpu = world.status()["gpus"][0]["uuid"]
    assert world.sublet("stop").returncode == 0
    world.daemon.wait()
    folder = os.path.join(world.dir, "mps", f"{os.getuid()}.0.{gpu[4:12]}")
    os.makedirs(os.path.join(folder, "log"), 0o700)
    os.makedirs(os.path.join(world.dir, "mps", "no.name"))
    with open(os.path.join(folder, "control"), "wb"):
        pass
    world.start_daemon(config=CONFIG)
    p = fill(world, 1)
    begin(p)
    assert ways(world) == {p.pid: "shared"}, p.report() + world.daemon.err()
    assert clients_of(folder) == {p.pid}
    with open(f"/proc/{processes(folder)[0]}/environ", "rb") as f:
        assert f"CUDA_VISIBLE_DEVICES={gpu}".encode() in f.read().split(b"\0")
    end_fills(world, p)


# ---- clients that want too much ----


def test_a_server_takes_48_programs_and_no_more(mps):
    asked = []
    for n in range(49):
        c = Client(mps.dir, f"asker-{n}", env=mps.env).connect()
        c.hello()
        c.send("JOIN")
        asked.append(c)
    answers = [c.expect("JOINED") for c in asked]
    assert [a["ready"] for a in answers] == [1] * 48 + [0]
    assert answers[-1]["why"] == "48 programs share this server, and it takes no more"
    assert len({a["place"] for a in answers[:-1]}) == 1
    asked[0].process.kill()
    asked[0].process.wait()
    last = asked[-1].connect()
    last.hello()
    last.send("JOIN")
    assert last.expect("JOINED")["ready"] == 1, "the place of one that has ended"
    for c in asked:
        c.process.kill()
        c.process.wait()


def test_a_client_may_ask_once_on_a_connection(mps):
    c = Client(mps.dir, "greedy", env=mps.env).connect()
    c.hello()
    c.send("JOIN")
    assert c.expect("JOINED")["ready"] == 1
    c.send("JOIN")
    assert c.expect("REFUSED")["text"] == "JOIN has impossible figures"
    c.process.kill()
    c.process.wait()


def test_clients_that_leave_before_the_answer_do_no_harm(mps):
    askers = []
    for n in range(8):
        c = Client(mps.dir, f"hasty-{n}", env=mps.env).connect()
        c.hello()
        c.send("JOIN")
        c.disconnect()
        askers.append(c)
    p = fill(mps, 1)
    begin(p)
    assert ways(mps)[p.pid] == "shared"
    for c in askers:
        c.process.kill()
        c.process.wait()
    end_fills(mps, p)


# ---- several users ----


def machine(make_world):
    """A daemon for all users, on a session of all users."""
    world = make_world()
    os.chmod(world.root, 0o755)
    world.session = "+" + world.session
    world.env["SIMCUDA_SESSION"] = world.session
    world.env["LD_LIBRARY_PATH"] = os.path.join(others.BUILD, "sim")
    world.env["PATH"] = f"{others.BUILD}/sim/mps:{world.env['PATH']}"
    path = world.path("subletd.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write("[daemon]\n" + "".join(f"{k} = {v}\n" for k, v in CONFIG.items()))
    os.mkdir(world.dir, 0o755)
    world.start_daemon("--shared", "--config", path)
    return world


def start_as(world, uid, *argv, stdin=subprocess.DEVNULL):
    return world.start([*others.as_user(uid), os.path.join(others.BUILD, "programs", argv[0]), *argv[1:]], stdin=stdin,
                       LD_PRELOAD=os.path.join(others.BUILD, "libsublet.so"), SUBLET_WAY="shared", XDG_CACHE_HOME="/nonexistent")


@others.needed
def test_a_server_has_the_groups_of_its_user(make_world):
    world = machine(make_world)
    p = world.start([*others.as_user(others.NOBODY, groups=(others.NOBODY, 44)), os.path.join(others.BUILD, "programs", "fill"), "--bytes",
                     "8MiB", "--block", "2MiB", "--until", world.path("end")],
                    LD_PRELOAD=os.path.join(others.BUILD, "libsublet.so"), SUBLET_WAY="shared", XDG_CACHE_HOME="/nonexistent")
    begin(p)
    with open(f"/proc/{processes(only_folder(world))[0]}/status", encoding="ascii") as f:
        lines = dict(line.split(":", 1) for line in f.read().splitlines())
    assert sorted(map(int, lines["Groups"].split())) == [44, others.NOBODY] and lines["Uid"].split() == [str(others.NOBODY)] * 4
    assert int(lines["CapEff"], 16) == 0
    end_fills(world, p)


@others.needed
def test_users_have_servers_of_their_own_and_a_fault_stays_with_its_user(make_world):
    world = machine(make_world)
    ids = (others.NOBODY, others.LAST)
    sizes = ("--bytes", "8MiB", "--block", "2MiB")
    fault = start_as(world, ids[0], "broken", *sizes, stdin=subprocess.PIPE)
    fills = [start_as(world, uid, "fill", *sizes, "--seed", str(uid), "--until", world.path("end")) for uid in ids]
    begin(*fills)
    fault.await_event("filled")
    assert ways(world) == {p.pid: "shared" for p in (fault, *fills)}
    assert [name.split(".")[0] for name in folders(world)] == sorted(map(str, ids))
    for folder in folders(world).values():
        owner = os.stat(folder).st_uid
        assert str(owner) == os.path.basename(folder).split(".", maxsplit=1)[0]
        assert {os.stat(f"/proc/{pid}").st_uid for pid in processes(folder)} == {owner}
    fault.order("break")
    fails_with(fills[0], ILLEGAL_ADDRESS)
    go_on(fills[1:], 3)
    fault.finish()
    with open(world.path("end"), "w", encoding="ascii"):
        pass
    fills[1].ok()
    world.check_sums(fills[1])
    wait_for(lambda: not folders(world), 20, "both servers to end")


@others.needed
def test_jobs_of_one_user_share_no_server(make_world, request):
    made = Tenants()
    request.addfinalizer(made.close)
    world = prepared(make_world())
    jobs = [fill(world, number, before=made.job(number)) for number in (1, 2)]
    same = fill(world, 3, before=made.job(1))
    begin(*jobs, same)
    lists = sorted(sorted(clients_of(folder)) for folder in folders(world).values())
    assert lists == sorted([sorted([jobs[0].pid, same.pid]), [jobs[1].pid]])
    end_fills(world, *jobs, same)


@others.needed
def test_a_daemon_of_one_user_starts_none_for_another(make_world):
    world = make_world()
    os.chmod(world.root, 0o755)
    world.session = "+" + world.session
    world.env.update(SIMCUDA_SESSION=world.session, LD_LIBRARY_PATH=os.path.join(others.BUILD, "sim"),
                     PATH=f"{others.BUILD}/sim/mps:{world.env['PATH']}")
    world.dir = world.env["SUBLET_DIR"] = world.path("e")
    os.mkdir(world.dir, 0o755)
    os.chown(world.dir, others.NOBODY, others.NOBODY)
    world.daemon = world.start([*others.as_user(others.NOBODY), f"{others.BUILD}/subletd", "--dir", world.dir, "--shared"])
    wait_for(lambda: os.path.exists(os.path.join(world.dir, "client.sock")), 20, "subletd to listen")
    assert world.sublet("set", "mps", "yes").returncode == 0
    p = start_as(world, others.LAST, "fill", "--bytes", "8MiB", "--block", "2MiB", "--rounds", "1")
    p.ok()
    assert "this daemon starts MPS servers for its own user only" in p.err()
