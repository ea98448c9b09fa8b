"""sublet doctor, on a machine with the simulated driver or with none."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from world import BUILD, children, threads, wait_for


def test_doctor_finds_everything_of_the_simulator(shared):
    done = shared.sublet("doctor", "--sim", "--daemon", shared.dir)
    assert done.returncode == 0, done.stdout
    assert "FAIL" not in done.stdout
    for words in ("simulated driver", "GPU 0", "NVML answers", "can be preloaded", "a daemon of this release"):
        assert words in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Programs can share the GPU here")


def test_doctor_gives_a_remedy_for_a_missing_driver(world):
    done = world.sublet("doctor", LD_LIBRARY_PATH=os.path.join(world.root, "empty"))
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert lines[0].startswith("FAIL") and "libcuda.so.1" in lines[0] and " -> install the driver" in lines[0]
    assert lines[-1].startswith("Programs cannot share a GPU here")


def test_doctor_with_too_few_descriptors_does_not_blame_the_driver(world):
    for limit, said in ((6, True), (64, False)):
        done = subprocess.run(["prlimit", f"--nofile={limit}:{limit}", os.path.join(BUILD, "sublet"), "doctor"], env=world.env,
                              stdout=subprocess.PIPE, text=True, timeout=60, check=False)
        first = done.stdout.splitlines()[0]
        assert ("may have 6 files open: too few for CUDA -> ulimit -n 1024" in first) == said, done.stdout
        assert "no NVIDIA driver" not in done.stdout and done.returncode == said, done.stdout


def test_a_stopped_daemon_is_not_taken_for_none(world):
    """What is said of a daemon that is gone would do harm: to remove its folder, or to start another one."""
    daemon = world.start_daemon()
    daemon.send(signal.SIGSTOP)
    step = "`ps -C subletd -o pid,stat,user` shows T for a stopped one; `kill -CONT PID` lets it go on"
    found = world.sublet("doctor")
    assert found.stdout.splitlines()[0] == f"FAIL  the daemon in {world.dir} does not answer: programs wait for it -> {step}", found.stdout
    assert "starts one" not in found.stdout and found.returncode == 1, found.stdout
    asked = world.sublet("status")
    assert asked.stderr == f"sublet: the subletd at {world.dir} did not answer within 5 s: {step}\n", asked.stderr
    daemon.send(signal.SIGCONT)
    assert world.sublet("status").returncode == 0


@pytest.mark.parametrize("require", ["", "1"])
def test_doctor_says_that_no_daemon_can_be_started_in_a_folder_that_cannot_be_made(world, require):
    done = world.sublet("doctor", SUBLET_DIR=world.path("no/such"), SUBLET_REQUIRE=require)
    first, step = done.stdout.splitlines()[0].split(" -> ")
    assert f"no daemon can be started in {world.path('no/such')} (No such file or directory)" in first, done.stdout
    assert first.endswith("programs wait" if require else "programs run without sharing") and "set SUBLET_DIR" in step
    assert done.returncode == 1


@pytest.mark.parametrize("command", [
    ["submit", "--", "true"], ["measure", "--output", "job.json", "--", "true"], ["run", "--gpu", "auto", "--", "true"],
    ["run", "--gpu", "0", "--", "true"], ["env", "--gpu", "auto"], ["bench"], ["bench", "pairs"], ["demo", "--gpu"]], ids=" ".join)
def test_a_command_that_needs_a_gpu_says_in_one_sentence_that_none_answers(world, command):
    done = world.sublet(*command, LD_LIBRARY_PATH=os.path.join(world.root, "empty"))
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and done.stdout == "", done.stdout
    assert re.match("sublet: .*(no GPU answers|no GPU is known|there is no GPU) here", last), last
    assert "sublet doctor" in last, last
    assert all("the job waits" in line for line in done.stderr.splitlines()[:-1]), done.stderr


def test_status_without_a_driver_says_where_to_look(world):
    without = {"LD_LIBRARY_PATH": os.path.join(world.root, "empty")}
    assert world.sublet("run", "--gpu", "auto", "--", "true", **without).returncode == 1  # starts a daemon
    assert "no GPU is known yet; sublet doctor says" in world.sublet("status", **without).stdout


@pytest.mark.parametrize("fault, found, remedy", [
    ("100", "cuInit answers error 100, CUDA_ERROR_NO_DEVICE", "container"),
    ("802", "cuInit answers error 802, CUDA_ERROR_SYSTEM_NOT_READY", "fabricmanager"),
    ("999", "cuInit answers error 999, CUDA_ERROR_UNKNOWN", "nvidia-smi"),
    ("kill", "the driver crashed when asked for its GPUs: Killed", "dmesg"),
])
def test_doctor_says_why_a_driver_does_not_start(world, fault, found, remedy):
    done = world.sublet("doctor", "--sim", SIMCUDA_FAIL=f"cuInit:1:{fault}")
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and found in lines[0] and remedy in lines[0].split(" -> ")[1], done.stdout


@pytest.mark.parametrize("mode, word", [("3", "exclusive"), ("2", "prohibited")])
def test_doctor_explains_the_compute_mode(shared, mode, word):
    done = shared.sublet("doctor", "--sim", "--daemon", shared.dir, SIMCUDA_COMPUTE_MODE=mode)
    assert done.returncode == 1
    assert f"GPU 0 is in {word} compute mode" in done.stdout and "-c DEFAULT" in done.stdout


@pytest.mark.parametrize("name, meant", [("SUBLET_FREZE", "SUBLET_FREEZE"), ("SUBLET_MEMMODE", "SUBLET_MEMORY"),
                                         ("SUBLET_LOGS", "SUBLET_LOG")])
def test_doctor_names_a_variable_that_is_misspelt(shared, name, meant):
    done = shared.sublet("doctor", "--sim", "--daemon", shared.dir, SUBLET_QUIET="0", **{name: "off"})
    lines = done.stdout.splitlines()
    found = [line for line in lines if f" {name} is set, and is no variable of sublet -> did you mean {meant}?" in line]
    assert len(found) == 1, done.stdout


def test_doctor_says_that_mps_runs(shared):
    """Doctor reads the pid file that the control daemon leaves, and ignores a stale one."""
    folder = shared.path("mps")
    os.mkdir(folder)
    for pid, runs in ((os.getpid(), True), (2 ** 22 + 1, False)):
        with open(os.path.join(folder, "nvidia-cuda-mps-control.pid"), "w", encoding="ascii") as f:
            f.write(f"{pid}\n")
        done = shared.sublet("doctor", "--sim", "--daemon", shared.dir, CUDA_MPS_PIPE_DIRECTORY=folder)
        assert done.returncode == 0, done.stdout
        assert (f"MPS runs here (process {pid}, {folder})" in done.stdout) == runs


def test_doctor_started_by_run_still_looks_at_the_driver(shared):
    """If doctor kept the preloaded library, it would examine sublet instead of the driver, and would be a client."""
    done = shared.sublet("run", "--daemon", shared.dir, "--", os.path.join(BUILD, "sublet"), "doctor", "--sim",
                         "--daemon", shared.dir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert shared.clients() == {}


# ---- whether programs can be frozen ----

DRIVER = "580.159.04"
ONCE_FAILED = "a program failed right after it had been frozen"


def freezing(world, *args, **env):
    """Returns the lines of doctor about freezing, each with its remedy, if there is one. Checks that doctor leaves
    nothing behind."""
    before = others_of(world)
    done = world.sublet("doctor", "--sim", *args, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert others_of(world) == before
    assert world.card()["used"] == 0
    said = re.findall(r"^(ok|warn|FAIL) +(.*?\b(?:frozen|freeze)\b.*?)(?: -> (.*))?$", done.stdout, flags=re.M)
    return [tuple(part for part in line if part) for line in said]


def others_of(world):
    """Returns files and processes of the world, without the file that the library writes its result to."""
    files = [str(p.relative_to(world.root)) for p in pathlib.Path(world.root).rglob("*") if "cache" not in p.parts]
    return sorted(files), world._strays()


def learned(world):
    path = pathlib.Path(world.env["XDG_CACHE_HOME"], "sublet")
    assert not path.exists() or [p.name for p in path.iterdir()] == ["freezing"]
    return (path / "freezing").read_text() if path.exists() else ""


def teach(world, result):
    """Writes the library's file as if freezing had been tested on the world's only GPU with this result."""
    path = pathlib.Path(world.env["XDG_CACHE_HOME"], "sublet", "freezing")
    path.write_text(re.sub(r"^(\S+ \S+) .*", rf"\1 {result}", path.read_text()))


def test_doctor_says_that_programs_can_be_frozen(world):
    assert freezing(world) == [("ok", f"programs on GPU 0 can be frozen (driver {DRIVER}): to be paused, and to give way at once")]
    assert re.fullmatch(rf"{re.escape(DRIVER)} [0-9a-f]{{32}} works with the hand\n", learned(world))
    assert world.card()["freezes"] == world.card()["thaws"] == 7  # doctor has tried
    freezing(world)
    assert world.card()["freezes"] == 14  # doctor tries again, whatever the file says


def test_doctor_tries_each_gpu(make_world):
    world = make_world(gpus=3)
    assert [line[:2] for line in freezing(world)] == [
        ("ok", f"programs on GPU {i} can be frozen (driver {DRIVER}): to be paused, and to give way at once") for i in range(3)]
    assert len(set(learned(world).splitlines())) == 3


def test_doctor_ignores_the_settings_for_programs(world):
    """Doctor neither waits for a daemon nor starts one."""
    lines = freezing(world, SUBLET_REQUIRE="1", SUBLET_MEMORY="overflow", SUBLET_FREEZE="park", SUBLET_TRACE="/nonexistent/trace",
                     SUBLET_DAEMON=os.path.join(BUILD, "subletd"))
    assert [line[0] for line in lines] == ["ok"] and "can be frozen" in lines[0][1]
    assert not os.path.exists(world.dir)


@pytest.mark.parametrize("driver", ["999.1.1", "470.57.02", "525.60.13"])
def test_doctor_says_that_a_driver_is_not_known(world, driver):
    """A driver before 530.30.02 does not tell its version (sim/README.md)."""
    (line,) = freezing(world, SIMCUDA_DRIVER=driver)
    shown = "unknown" if driver < "530" else driver
    assert line[:2] == ("warn", "programs on GPU 0 are not frozen: this release of sublet does not know the driver's calls "
                                f"(driver {shown})")
    assert "newer release" in line[2]
    assert learned(world) == ""


@pytest.mark.parametrize("fault, reason, remedy, remembered", [
    ("freeze:1+:0x1b", "the kernel driver or a sandbox does not allow it", "gVisor", False),
    ("freeze:1+:forbid", "the kernel driver or a sandbox does not allow it", "gVisor", False),
    ("freeze:1+:0x56", "the kernel driver does not offer it", "virtual GPU", False),
    ("freeze:1+:part=3", "the GPU did not let go of the program in time", "debugger", False),
    ("freeze:1+:0x51", "the kernel driver refused it", "report it", False),
    ("freeze:1+:idle", "a kernel ran on although the kernel driver had stopped it", "report it", True),
    ("thaw:1+:idle", "a kernel that was frozen did not go on", "report it", True),
    ("cuModuleLoadData:1+:218", "the kernel of the self-test could not be run", "report it", False),
])
def test_doctor_says_why_programs_are_not_frozen(world, fault, reason, remedy, remembered):
    (line,) = freezing(world, SIMCUDA_FAIL=fault)
    assert line[:2] == ("warn", f"programs on GPU 0 are not frozen: {reason} (driver {DRIVER})")
    assert remedy in line[2]
    assert (reason in learned(world)) == remembered


def test_doctor_lets_programs_be_frozen_again_once_freezing_works(world):
    freezing(world)
    works = learned(world)
    teach(world, ONCE_FAILED)
    assert freezing(world) == [
        ("ok", f"programs on GPU 0 can be frozen again (driver {DRIVER}): it works now; before, {ONCE_FAILED}")]
    assert learned(world) == works


@pytest.mark.parametrize("fault, said", [
    ("cuCtxCreate:1:2", "whether programs on GPU 0 can be frozen is not known: it has no room to try"),
    ("cuCtxCreate:1:46", "whether programs on GPU 0 can be frozen is not known: no context can be made there (error 46, "
                         "CUDA_ERROR_DEVICE_UNAVAILABLE)"),
    ("cuCtxCreate:1:kill", "programs on GPU 0 are not to be frozen: the process ended when it was tried: Killed"),
    ("freeze:1:kill", "programs on GPU 0 are not to be frozen: the process ended when it was tried: Killed"),
])
def test_doctor_keeps_an_earlier_result_if_it_cannot_try(world, fault, said):
    freezing(world)
    teach(world, ONCE_FAILED)
    before = learned(world)
    (line,) = freezing(world, SIMCUDA_FAIL=fault)
    assert line[:2] == ("warn", said)
    assert learned(world) == before


def test_doctor_waits_for_no_driver_that_hangs(world):
    began = time.monotonic()
    (line,) = freezing(world, SIMCUDA_FAIL="freeze:1:hang")
    assert line[:2] == ("warn", "programs on GPU 0 are not to be frozen: the driver did not answer when it was tried")
    assert time.monotonic() - began >= 30


def test_a_doctor_that_is_killed_leaves_nothing_behind(world):
    doctor = world.start([os.path.join(BUILD, "sublet"), "doctor", "--sim"], SIMCUDA_FAIL="freeze:1:hang")
    wait_for(lambda: any("--try-freezing" in line for pid in children(doctor.pid) for _, line in threads(pid, "cmdline")), 20,
             "the process that tries", report=doctor.report)
    doctor.send(signal.SIGKILL)
    doctor.process.wait()
    wait_for(lambda: not world._strays(), 20, "the process that tries to end")
    wait_for(lambda: world.card()["used"] == 0, 20, "the card to be empty")


def test_doctor_says_that_freezing_is_off_here(world):
    assert freezing(world, SUBLET_FREEZE="off") == [
        ("warn", "programs started here are not frozen: SUBLET_FREEZE is off", "unset SUBLET_FREEZE")]
    assert learned(world) == ""


def test_doctor_freezes_nothing_without_the_library(world):
    shutil.copy(os.path.join(BUILD, "sublet"), world.path("sublet"))
    done = subprocess.run([world.path("sublet"), "doctor"], env=world.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True, check=False)
    assert done.returncode == 1
    assert "warn  no program is frozen without the preload library -> mend that first\n" in done.stdout
    assert learned(world) == ""


# ---- the daemon's limit on freezing ----


def of(world, program, field):
    return world.clients().get(program.pid, {}).get(field)


@pytest.mark.parametrize("most, requested, mode", [
    ("off", "move", "off"), ("off", "park", "off"), ("off", None, "off"), ("off", "off", "off"),
    ("park", "move", "park"), ("park", "park", "park"), ("park", "off", "off"),
    ("move", "move", "move"), ("move", "park", "park"), (None, "move", "move"),
])
def test_a_program_is_frozen_for_no_more_than_the_configuration_says(world, most, requested, mode):
    world.start_daemon(config={"freeze": most} if most else {})
    assert world.status()["freeze"] == (most or "move")
    program = world.program("hold", "--bytes", "8MiB", stdin=subprocess.PIPE, SUBLET_FREEZE=requested)
    program.await_event("filled")
    wait_for(lambda: of(world, program, "freeze") == mode, 20, f"mode {mode}", report=lambda: str(world.clients()))
    by_owner = most == "off" and requested != "off"
    assert of(world, program, "freeze_off") == ("the daemon's configuration says freeze = off" if by_owner else None)
    done = world.sublet("pause", str(program.pid))
    assert (done.returncode == 0) == (mode != "off"), done.stderr
    if mode == "off":
        why = "the daemon's configuration says freeze = off" if by_owner else "it runs with SUBLET_FREEZE=off; start it with sublet run --freeze park"
        assert f"process {program.pid} cannot be paused: {why}\n" in done.stderr
    else:
        assert world.sublet("resume", str(program.pid)).returncode == 0
    program.order("touch")
    program.finish()


def test_the_mover_leaves_when_the_limit_falls(world):
    """A new daemon allows only mode park. The running program changes to mode park, and gives back its second
    context."""
    daemon = world.start_daemon()
    program = world.program("hold", "--bytes", "8MiB", stdin=subprocess.PIPE, SUBLET_FREEZE="move")
    program.await_event("filled")

    def contexts():
        program.order("touch")
        return next(p["contexts"] for p in world.card()["processes"] if p["pid"] == program.pid)

    wait_for(lambda: contexts() == 2, 20, "the mover")
    daemon.send(signal.SIGTERM)
    daemon.wait()
    world.start_daemon(config={"freeze": "park"})
    wait_for(lambda: of(world, program, "freeze") == "park", 20, "the limit", report=lambda: str(world.clients()))
    wait_for(lambda: contexts() == 1, 20, "the mover to leave")
    program.finish()


@pytest.mark.parametrize("most, said", [("off", "are not frozen, nor taken off the GPU by its hand: its configuration says "
                                                "freeze = off"),
                                        ("park", "can be paused, and are not frozen to give way: its configuration says "
                                                 "freeze = park")])
def test_doctor_says_that_the_configuration_limits_freezing(world, most, said):
    world.start_daemon(config={"freeze": most})
    lines = freezing(world, "--daemon", world.dir)
    assert [line[:2] for line in lines] == [
        ("warn", f"programs under the daemon in {world.dir} {said}"),
        ("ok", f"programs on GPU 0 can be frozen (driver {DRIVER}): to be paused, and to give way at once")]


# ---- the daemon's hand ----


def hand_line(world, **env):
    """Returns the line of doctor about the daemon's hand."""
    done = world.sublet("doctor", "--sim", "--daemon", world.dir, **env)
    lines = [line for line in done.stdout.splitlines() if re.search(r"\bhand\b", line)]
    assert len(lines) == 1, done.stdout
    return lines[0]


def test_doctor_says_whether_the_daemons_hand_works(world):
    world.start_daemon()
    assert hand_line(world) == f"ok    whether the hand of the daemon in {world.dir} can take programs off the GPU shows with the first program"
    program = world.program("hold", "--bytes", "8MiB", stdin=subprocess.PIPE)
    program.await_event("filled")
    wait_for(lambda: world.status()["hand"] == {"state": "works", "why": None}, 20, "the hand", report=lambda: str(world.status()["hand"]))
    assert hand_line(world) == f"ok    the hand of the daemon in {world.dir} takes programs off the GPU"
    program.order("touch")
    program.finish()


def test_doctor_says_why_the_daemon_has_no_hand(world):
    daemon = world.start_daemon(SIMCUDA_DRIVER="700.1")
    program = world.program("hold", "--bytes", "8MiB", stdin=subprocess.PIPE)
    program.await_event("filled")
    why = "this release of sublet does not know the kernel driver's calls"
    wait_for(lambda: world.status()["hand"] == {"state": "missing", "why": why}, 20, "the hand", report=lambda: str(world.status()["hand"]))
    found, step = hand_line(world).split(" -> ")
    assert found == f"warn  the daemon in {world.dir} has no hand to take programs off the GPU: {why}"
    assert "time slices" in step
    assert daemon.err().count(f"no program can be taken off the GPU without its help here: {why}") == 1
    program.order("touch")
    program.finish()
