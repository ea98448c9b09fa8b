"""sublet demo, as a user without a GPU sees it."""

import fcntl
import glob
import os
import re
import signal
import struct
import subprocess
import termios

import pytest

from world import BUILD, MIB, PATIENCE, wait_for

DEMO_PATIENCE = 170 * PATIENCE


ROW = re.compile(r"(?P<title>.{22}) (?P<a>.{10}) (?P<b>.{13}) +(?P<s>[0-9.]+) s +(?P<moved>.+?)  (?P<result>\w+)$")


class Demo:
    """A demo on the simulated card. Only the files of this demo count as its leftovers: other demos may run beside
    it."""

    def __init__(self, world):
        world.context = 4 * MIB  # on cards of 1 GiB
        self.program = world.start([os.path.join(BUILD, "sublet"), "demo", "--fast"], LD_LIBRARY_PATH=None, SUBLET_DIR=None)
        self.session = f"demo-{self.program.pid}"
        self.folder = wait_for(self.find_folder, DEMO_PATIENCE, "a program of the demo")

    def processes(self):
        """Returns the environments of the processes that the demo has started: pid -> {name: value}."""
        found = {}
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as f:
                    lines = f.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if f"SIMCUDA_SESSION={self.session}" in lines:
                found[path.split("/")[2]] = dict(line.split("=", 1) for line in lines if "=" in line)
        return found

    def find_folder(self):
        assert self.program.running(), self.program.report()
        return next((os.path.dirname(e["SUBLET_DIR"]) for e in self.processes().values() if "SUBLET_DIR" in e), None)

    def leftovers(self):
        return glob.glob(f"/dev/shm/*{self.session}-*") + glob.glob(self.folder) + list(self.processes())


def test_the_demo_ends_with_a_table_of_80_columns_and_commands_that_work_here(world):
    demo = Demo(world)
    assert demo.folder.startswith("/tmp/sublet-demo-")
    done = demo.program.ok(DEMO_PATIENCE)
    said = done.out()
    assert max(map(len, said.splitlines())) <= 80, said
    rows = [ROW.match(line).groupdict() for line in said[said.index("  results\n"):].splitlines()[1:5]]
    assert [r["result"] for r in rows] == ["reference", "incomplete", "identical", "identical"]
    assert [r["b"].strip() for r in rows] == ["completed", "out of memory", "completed", "completed"]
    assert [r["moved"].endswith("MiB") for r in rows] == [False, False, True, True], said
    assert "sublet has its default settings" in said and "simulated" in said
    assert done.err() == ""
    wait_for(lambda: not demo.leftovers(), 10, "the demo's files and processes to go")
    runs, top, doctor = [line.split()[1:] for line in said[said.index("\nNext"):].splitlines() if line.startswith("  ")]
    clean = {"LD_LIBRARY_PATH": None, "SUBLET_DIR": None, "SIMCUDA_MEMORY": None,
             "XDG_RUNTIME_DIR": os.path.join(world.root, "runtime")}
    os.mkdir(clean["XDG_RUNTIME_DIR"], 0o700)
    program = world.start([os.path.join(BUILD, "sublet"), *runs], **clean)
    wait_for(lambda: "compute\n" in program.out(), 30, "the suggested program to compute")
    assert "sublet-demo-job" in world.sublet(*top, "--snapshot", "--width", "120", **clean).stdout
    assert world.sublet(*doctor, **clean).returncode == 0
    program.send(signal.SIGKILL)
    program.wait()
    assert world.sublet("stop", "--sim", **clean).returncode == 0


def test_an_interrupted_demo_leaves_nothing_behind(world):
    demo = Demo(world)

    def shares():
        assert demo.program.running(), demo.program.report()
        return "together, sublet" in demo.program.out()

    wait_for(shares, DEMO_PATIENCE, "the demo to share the card")
    assert demo.leftovers()
    demo.program.send(signal.SIGINT)
    assert demo.program.wait() == 128 + signal.SIGINT
    assert "nothing is left behind" in demo.program.err()
    wait_for(lambda: not demo.leftovers(), 10, "the demo's files and processes to go")


def test_a_demo_that_nobody_reads_leaves_nothing_behind(world):
    """The reader closes its end early, as head(1) does."""
    master, slave = os.pipe()
    demo = subprocess.Popen([os.path.join(BUILD, "sublet"), "demo", "--fast"], stdout=slave, stderr=subprocess.PIPE,
                            env={k: v for k, v in world.env.items() if k not in ("LD_LIBRARY_PATH", "SUBLET_DIR")})
    os.close(slave)
    os.read(master, 1)
    os.close(master)
    said = demo.communicate(timeout=DEMO_PATIENCE)[1]
    assert demo.returncode == 128 + signal.SIGPIPE and b"nothing is left behind" in said, said
    assert not glob.glob(f"/dev/shm/*demo-{demo.pid}-*")


def test_the_picture_fits_a_narrow_terminal(world):
    """A line that wraps would stay on the screen when the picture is drawn again."""
    columns, seen = 40, b""
    try:
        master, slave = os.openpty()
    except OSError:
        pytest.skip("no terminal can be opened here; with /dev/pts mounted they run")
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    demo = subprocess.Popen([os.path.join(BUILD, "sublet"), "demo", "--fast"], stdout=slave, stderr=slave,
                            env={k: v for k, v in world.env.items() if k not in ("LD_LIBRARY_PATH", "SUBLET_DIR")})
    os.close(slave)
    while seen.count(b"\033[4A") < 3:
        seen += os.read(master, 4096)
    demo.send_signal(signal.SIGINT)
    try:
        while os.read(master, 4096):
            pass
    except OSError:
        pass  # the last process of the demo has closed the terminal
    assert demo.wait(DEMO_PATIENCE) == 128 + signal.SIGINT
    picture = [line for line in seen.decode().split("\r\n") if "\033[K" in line]
    assert len(picture) >= 12 and max(len(line.split("\033[K")[1]) for line in picture) == columns - 1, picture


def test_the_demo_does_not_pretend_to_have_a_gpu(world):
    done = world.sublet("demo", "--gpu", LD_LIBRARY_PATH=os.path.join(world.root, "empty"))
    assert done.returncode == 1
    assert "not on the GPU" in done.stderr and done.stdout == ""
