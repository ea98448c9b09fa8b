"""A private machine for one test: a simulated card, a directory for the daemon, and the processes started in it.

Nothing of it outlives the test: close() ends every process that the world started, the daemon too, and removes the
card's shared memory and the directory. Then close() fails if the accounts of a process ever differed from the driver's
figures (audit.py). status() returns what sublet reports; driver() returns what the card itself counted."""

import contextlib
import glob
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

import pytest

import audit

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("SUBLET_BUILD", os.path.join(ROOT, "build")))
MIB = 1 << 20


def _library():
    """Returns the library that checks itself (tests/watched) if it was built. `sublet run` uses the product's
    library."""
    watched = os.path.join(BUILD, "tests", "watched", "libsublet.so")
    return watched if os.path.exists(watched) else os.path.join(BUILD, "libsublet.so")


LIBRARY = _library()

with open(os.path.join(BUILD, "subletd"), "rb") as _f:
    _daemon = _f.read()
SANITIZER = "thread" if b"__tsan_init" in _daemon else "address" if b"__asan_init" in _daemon else None
PATIENCE = 3 if SANITIZER else 1
# LeakSanitizer stops the threads of a process by their numbers. That fails in a child of fork(), where it uses the
# parent's numbers; in a pid namespace, where it does not know the numbers; and under strace.
NO_LEAKS = {"ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"}
GENEROUS_S = 60  # awaited events usually come at once, but a busy machine may stop processes for seconds
# The reason why Python cannot use the simulated driver of this build; None if it can.
NO_PYTHON = ("Python cannot load a driver that was built with the thread sanitizer; in another build they run"
             if SANITIZER == "thread" else None)
# Reasons why a test is skipped, and where it runs instead (tools/count_tests.py counts skips by these texts).
NO_PID_NAMESPACES = "no pid namespaces can be made here; as root outside of a container they run"
OLD_KERNEL = "this kernel cannot refuse descriptors; from Linux 6.16 on they run"
# The reason why no program of this machine looks into /tmp for a daemon; None if programs do.
SYSTEM_DAEMON = ("a system-wide daemon has /run/sublet; once it has left (sudo systemctl stop subletd) they run"
                 if os.path.exists("/run/sublet/client.sock") else None)


def _own_daemon():
    """Returns why programs without SUBLET_DIR would join a daemon that is not a test's; None if they would not."""
    for folder in (f"/run/user/{os.getuid()}/sublet", f"/tmp/sublet-{os.getuid()}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            try:
                s.connect(os.path.join(folder, "client.sock"))
                return "a private daemon of the tests' user is at work; once it has left (sublet stop) they run"
            except OSError:
                continue
    return None


OWN_DAEMON = _own_daemon()

# No variable of the caller may leak into a world. pytest of Debian 13 sets the size of its own terminal for its workers.
_OURS = ("SUBLET_", "SIMCUDA_", "PROGRAM_")
_CALLERS = ("LD_PRELOAD", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR", "CUDA_VISIBLE_DEVICES", "COLUMNS", "LINES")

NVML_READER = "subletd-nvml"
HAND = "subletd-hand"
FILLER = "subletd-fill"
PAIRING = "sublet-pairing"

# Fields of a program's output that differ from run to run.
VOLATILE = ("pid", "ms", "at")


def wait_for(condition, timeout, what, interval=0.02, report=str):
    """Returns the condition's first true value. Fails with `what` after `timeout` seconds (GENEROUS_S at least, times
    PATIENCE), but not before 20 looks, because the whole machine may have paused. report: what to print then."""
    timeout = max(timeout, GENEROUS_S) * PATIENCE
    end = time.monotonic() + timeout
    for looks in itertools.count(1):
        value = condition()
        if value:
            return value
        if looks >= 20 and time.monotonic() > end:
            raise AssertionError(f"after {timeout} s still waiting for {what}\n{report()}")
        time.sleep(interval)


def threads(pid, name):
    """Yields for each thread of a process its folder in /proc, and the contents of the thread's file of that name."""
    for folder in glob.glob(f"/proc/{pid}/task/*"):
        try:
            with open(os.path.join(folder, name), encoding="ascii", errors="replace") as f:
                text = f.read()
        except OSError:
            continue  # the thread has ended since the listing
        yield folder, text


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return [int(child) for child in f.read().split()]
    except OSError:
        return []


def cpu_s(pid):
    """Returns the processor time that the process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def name_of(pid):
    return "".join(text for folder, text in threads(pid, "comm") if folder.endswith(f"/{pid}")).strip()


def is_stopped(pid):
    """True if none of the process's threads runs any more."""
    return {stat.rsplit(")", 1)[1].split()[0] for _, stat in threads(pid, "stat")} == {"T"}


def go_on(programs, rounds=2):
    """Waits until each program has done that many more rounds, each round for as long as is generous. On a busy machine
    programs that take turns may need several turns for a round."""
    goal = {p: len(p.events("round")) + rounds for p in programs}

    def left():
        for p in programs:
            assert p.running(), "ended early\n" + p.report()
        return sum(max(0, n - len(p.events("round"))) for p, n in goal.items())

    missing = left()
    while missing:
        wait_for(lambda: left() < missing, 60, f"one of {missing} rounds",
                 report=lambda: "\n".join(p.report() for p in programs))
        missing = left()


def await_rest(world, p):
    """Waits until the daemon knows that the program rests, with its turn or without: a program that is frozen in time of
    work keeps all its host memory."""
    def rests():
        client = world.clients()[p.pid]
        return client["idle"] or client["state"] == "idle"

    wait_for(rests, GENEROUS_S, "the program to rest", report=p.report)


def touch_and_rest(world, p):
    p.order("touch")
    await_rest(world, p)


class Program:
    """A process of the world, with its output in files."""

    def __init__(self, world, argv, env, stdin, number):
        self.world = world
        self.argv = [str(a) for a in argv]
        self.name = os.path.basename(self.argv[0])
        self.preloaded = env.get("LD_PRELOAD", "").endswith("libsublet.so")
        base = os.path.join(world.root, f"{number:03d}-{self.name}")
        self.out_path, self.err_path = base + ".out", base + ".err"
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(self.argv, env=env, stdin=stdin, stdout=out, stderr=err,
                                            start_new_session=True)

    @property
    def pid(self):
        return self.process.pid

    def out(self):
        with open(self.out_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def err(self):
        with open(self.err_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def events(self, kind=None):
        found = []
        for line in self.out().splitlines():
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                continue  # the line that is being written now
            if kind is None or event.get("event") == kind:
                found.append(event)
        return found

    def result(self):
        """Returns the program's output, without the fields that differ from run to run."""
        return [{k: v for k, v in e.items() if k not in VOLATILE} for e in self.events()]

    def running(self):
        return self.process.poll() is None

    def await_event(self, kind, timeout=60):
        def look():
            running = self.running()  # asked first, because the program may print the line and end in between
            found = self.events(kind)
            if not found and not running:
                raise AssertionError(f"ended before it said {kind}\n" + self.report())
            return found

        return wait_for(look, timeout, f"{self.name} to say {kind}", report=self.report)[0]

    def wait(self, timeout=120):
        timeout = max(timeout, GENEROUS_S) * PATIENCE
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            report = self.report()
            self.process.send_signal(signal.SIGQUIT)  # a test program says in which call it is, and ends
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(2)
            raise AssertionError(f"did not end within {timeout} s; it said last: {self.err()[-200:]}\n{report}") from None

    def ok(self, timeout=120):
        """Waits for the end. Fails with all output unless the program ends with status 0."""
        status = self.wait(timeout)
        assert status == 0, f"ended with {status}\n" + self.report()
        return self

    def order(self, line):
        """Sends a line to the stdin of `hold`. Returns its answer."""
        answers = len(self.events("done"))
        self.process.stdin.write((line + "\n").encode())
        self.process.stdin.flush()

        def look():
            running = self.running()  # asked first, as in await_event()
            found = self.events("done")
            if len(found) <= answers and not running:
                raise AssertionError(f"ended instead of answering {line!r}\n" + self.report())
            return found[answers:]

        return wait_for(look, 90, f"{self.name} to answer {line!r}", report=self.report)[0]

    def become(self, *command):
        """Makes `hold` exec another program."""
        self.process.stdin.write(("become " + " ".join(str(word) for word in command) + "\n").encode())
        self.process.stdin.flush()

    def finish(self):
        """Closes the program's stdin, then waits as ok() does."""
        self.process.stdin.close()
        return self.ok()

    def send(self, number):
        self.process.send_signal(number)

    def report(self):
        status = self.process.poll()
        return (f"{' '.join(self.argv)}\n  status {'(running)' if status is None else status}"
                f"\n--- stdout (end)\n{self.out()[-2000:]}\n--- stderr (end)\n{self.err()[-2000:]}"
                f"\n--- sublet status\n{self.world.status_text()}")


def end_fills(world, *programs):
    """Ends programs that run until the file `end` exists. Checks their contents, and that card and ledger are empty then."""
    with open(world.path("end"), "w", encoding="utf-8"):
        pass
    for p in programs:
        p.ok()
        world.check_sums(p)
    wait_for(lambda: world.card()["used"] == 0, 20, "the card to be empty")
    wait_for(lambda: world.status()["gpus"][0]["charged"] == 0, 20, "the ledger to be empty")


class World:
    def __init__(self, memory="128MiB", bus=None, gpus=1):
        self.root = tempfile.mkdtemp(prefix="slt-", dir="/tmp")  # a short path, because socket names are short
        self.dir = os.path.join(self.root, "d")
        self.session = "t" + uuid.uuid4().hex[:16]
        self.programs = []
        self.context = 0  # bytes of one context, if contexts are large (audit.py)
        self.daemon = None
        # pytest may remove a variable in another thread after it was listed.
        self.env = {k: v for k in os.environ
                    if not k.startswith(_OURS) and k not in _CALLERS and (v := os.environ.get(k)) is not None}
        self.env.update({
            "SUBLET_DIR": self.dir,
            "SIMCUDA_SESSION": self.session,
            "SIMCUDA_KEEP": "1",  # driver() reads the counts of programs that have ended
            "SIMCUDA_MEMORY": memory,
            "SIMCUDA_GPUS": str(gpus),
            "LD_LIBRARY_PATH": os.path.join(BUILD, "sim"),
            "SUBLET_QUIET": "1",
            # The library stores in this folder on which drivers and GPUs freezing works.
            "XDG_CACHE_HOME": self.path("cache"),
            "XDG_CONFIG_HOME": self.path("config"),
            "XDG_STATE_HOME": self.path("state"),
        })
        if "SUBLET_FREEZE" in os.environ:  # makes all tests run in another mode than the default
            self.env["SUBLET_FREEZE"] = os.environ["SUBLET_FREEZE"]
        self.env["SUBLET_TRACE"] = self.env["SIMCUDA_TRACE"] = self.path("trace")
        with open(self.path("trace"), "wb"):
            os.chmod(self.path("trace"), 0o666)  # programs of other users write to it, too
        if bus:
            self.env["SIMCUDA_BUS"] = bus

    # ---- starting things ----

    def path(self, name):
        return os.path.join(self.root, name)

    def _merged(self, env):
        if OWN_DAEMON and env.get("SUBLET_DIR", self.dir) is None:
            pytest.skip(OWN_DAEMON)
        return {k: v for k, v in {**self.env, **env}.items() if v is not None}

    def start(self, argv, stdin=subprocess.DEVNULL, **env):
        """Starts any process in the world's environment. A variable given as None is unset."""
        merged = self._merged(env)
        p = Program(self, argv, merged, stdin, len(self.programs))
        self.programs.append(p)
        return p

    def program(self, name, *args, shared=True, door=None, before=(), stdin=subprocess.DEVNULL, **env):
        """Starts a test program. shared: with libsublet.so, otherwise on the plain driver. before: words before the
        command."""
        folder = "programs"
        if door is not None and door != "linked":
            folder, env["PROGRAM_DOOR"] = "programs/dl", door
        if name == "fork" or "--pid" in before:
            env.update(NO_LEAKS)
        if shared:
            env.setdefault("LD_PRELOAD", LIBRARY)
        return self.start([*before, os.path.join(BUILD, folder, name), *args], stdin=stdin, **env)

    def start_daemon(self, *args, config=None, wait=True, binary="subletd", prefix=(), **env):
        argv = [*prefix, os.path.join(BUILD, binary), "--dir", self.dir]
        if config is not None:
            path = self.path("subletd.conf")
            with open(path, "w", encoding="utf-8") as f:
                f.write("[daemon]\n" + "".join(f"{k} = {v}\n" for k, v in config.items()))
            argv += ["--config", path]
        if not os.path.isdir(self.dir):
            os.mkdir(self.dir, 0o700)
        daemon = self.start(argv + list(args), **env)
        if wait:
            def listening():
                if not daemon.running():
                    raise AssertionError("subletd ended\n" + daemon.report())
                return self.sublet("status", "--json").returncode == 0  # because an earlier daemon's socket may be left

            wait_for(listening, 20, "subletd to listen")
        self.daemon = daemon
        return daemon

    def sublet(self, *args, timeout=GENEROUS_S, **env):
        """Runs the command line. Returns the finished process."""
        merged = self._merged(env)
        return subprocess.run([os.path.join(BUILD, "sublet"), *args], env=merged, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout)

    # ---- looking ----

    def status(self, directory=None):
        """Returns what `sublet status --json` prints, without the names of users. Asks the daemon itself, because tests ask
        often, and a process for each question costs more than the answer."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(GENEROUS_S)
            try:
                s.connect(os.path.join(directory or self.dir, "control.sock"))
                s.sendall(b'{"order":"status"}\n')
                with s.makefile("rb") as f:
                    answer = f.readline()
            except OSError as error:
                raise AssertionError(f"no status: {error}") from None
        assert answer.endswith(b"\n"), "the daemon ended while it was asked"
        return json.loads(answer)

    def status_text(self):
        try:
            done = self.sublet("status", timeout=5)
            return done.stdout + done.stderr
        except (subprocess.TimeoutExpired, OSError) as e:
            return f"({e})"

    def clients(self):
        """Returns {pid: the client's row of the status}, for the first GPU."""
        gpus = self.status()["gpus"]
        return {c["pid"]: c for c in gpus[0]["clients"]} if gpus else {}

    def handoffs(self):
        """Returns the number of hand-offs on the first GPU since the daemon began."""
        gpus = self.status()["gpus"]
        return gpus[0]["handoffs"] if gpus else 0

    def worker(self):
        """Returns the pid that serves: a private daemon's worker, or the daemon itself."""
        with open(os.path.join(self.dir, "lock"), encoding="ascii") as f:
            pid = int(f.read())
        workers = [child for child in children(pid) if name_of(child) not in (NVML_READER, FILLER, PAIRING, HAND)]
        return workers[0] if workers else pid

    def hand(self):
        """Returns the pid of the daemon's hand, or None if there is none now."""
        return next((child for child in children(self.worker()) if name_of(child) == HAND), None)

    def nvml_reader(self):
        """Returns the pid of the daemon's process that asks NVML, or None if there is none now."""
        readers = [child for child in children(self.worker()) if name_of(child) == NVML_READER]
        return readers[0] if readers else None

    def driver(self):
        """Returns the simulated card's own counters."""
        done = subprocess.run([os.path.join(BUILD, "sim", "simcuda-stat"), "--json"], env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=GENEROUS_S)
        assert done.returncode == 0, f"simcuda-stat: {done.returncode}: {done.stderr}"
        return json.loads(done.stdout)

    def slow_bus(self, what):
        """Slows the bus. what is as for simcuda-stat --slow: in|out|both:RATE:SECONDS[:PID]."""
        subprocess.run([os.path.join(BUILD, "sim", "simcuda-stat"), "--slow", what], env=self.env, check=True,
                       timeout=GENEROUS_S)

    def card(self):
        return self.driver()["devices"][0]

    def launches(self, *programs):
        """Returns the number of kernels that each program has started so far on the first GPU."""
        counted = {p["pid"]: p["launches"] for p in self.card()["processes"]}
        return [counted.get(p.pid, 0) for p in programs]

    def traced(self, event=None, pid=None):
        """Returns all events traced so far, in the order of the file."""
        return [e for _, e in audit.lines(self.path("trace")) if event in (None, e["event"]) and pid in (None, e["pid"])]

    # ---- contents, recomputed by another process ----

    def check_sums(self, program):
        with open(program.out_path, "rb") as f:
            done = subprocess.run([os.path.join(BUILD, "programs", "checker")], stdin=f, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=300)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{program.report()}"
        return json.loads(done.stdout)["rounds"]

    def check_sample(self, path):
        done = subprocess.run([os.path.join(BUILD, "programs", "checker"), "--sample", path], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    # ---- the end ----

    def close(self):
        for p in self.programs:
            if p is not self.daemon:
                self._end(p)
        try:
            self.sublet("stop", timeout=10)
        except (subprocess.TimeoutExpired, OSError):
            pass
        for p in self.programs:
            self._end(p)
        # Supervisors and workers have left their starters' process groups, and a starter may make more before it ends.
        wait_for(self._end_strays, 60, "all descendants to end")
        subprocess.run([os.path.join(BUILD, "sim", "simcuda-stat"), "--remove", "--force"], env=self.env,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=GENEROUS_S, check=False)
        for path in glob.glob(f"/dev/shm/*{self.session}*"):
            with contextlib.suppress(FileNotFoundError):  # another test's program may have removed it
                os.unlink(path)
        wrong = self.audit()
        shutil.rmtree(self.root, ignore_errors=True)
        assert not wrong, "accounts and driver do not agree (audit.py):\n" + "\n".join(wrong[:20])

    def audit(self):
        """Returns sentences about differences. Processes that ended well must have reported their accounts."""
        told = [p.pid for p in self.programs if p.preloaded and p.process.returncode == 0]
        return audit.wrong(self.path("trace"), told, self.context)

    def _end(self, p):
        if p.process.stdin:
            try:
                p.process.stdin.close()
            except OSError:
                pass
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        p.process.wait()

    def _end_strays(self):
        """Kills strays: all processes that inherit the world's environment. True if there was none."""
        found = self._strays()
        for pid in found:
            _kill(pid)
        return not found

    def _strays(self):
        found = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as f:
                    environ = f.read()
                    # Control daemons of MPS have little but their directory in their environment.
                    if self.session.encode() in environ or f"={self.root}/".encode() in environ:
                        found.append(int(path.split("/")[2]))
            except (OSError, ValueError):
                continue
        return [pid for pid in found if pid != os.getpid()]


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
