"""Base of the GPU suite's parts: processes that always end, a daemon for each part, statistics, the machine."""

import atexit
import contextlib
import ctypes
import json
import math
import os
import platform
import queue
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GIB = 1 << 30
# The GPU to use on a machine with several, named as CUDA programs name it.
GPU = int(os.environ.get("CUDA_VISIBLE_DEVICES") or 0)
ALWAYS = {}  # environment of every program under sublet, unless its part sets another value

class Failure(Exception):
    """A part's result that is a sentence instead of figures."""


def interval_rank(n):
    """Returns k such that the k-th smallest and k-th largest of n values enclose their median with at least 95 %
    probability, whatever their distribution (the interval of the sign test)."""
    below, k = 0.0, 0
    while True:
        below += math.comb(n, k) / 2 ** n
        if 2 * below > 0.05:
            return k
        k += 1


def fastest_quarter(values, rates):
    """Returns the slowest value of the fastest quarter."""
    return sorted(values, reverse=rates)[(len(values) - 1) // 4]


def paired(plain, other, rates=False):
    """Returns the relative difference of pairs in percent: the median and its 95 % interval. Medians, because a shared
    machine sometimes stalls one side of a pair. Disturbances only make a program slower, so the difference of the
    fastest quarters is returned, too."""
    d = sorted(100.0 * (o / p - 1.0) for p, o in zip(plain, other))
    k = interval_rank(len(d))
    if k < 1:
        raise Failure(f"{len(d)} pairs are too few for an interval")
    return {"pairs": len(d), "plain_median": statistics.median(plain), "sublet_median": statistics.median(other),
            "difference_percent": round(statistics.median(d), 3), "interval_percent": [round(d[k - 1], 3), round(d[-k], 3)],
            "quarter_percent": round(100 * (fastest_quarter(other, rates) / fastest_quarter(plain, rates) - 1), 3),
            "differences_percent": [round(x, 3) for x in d]}


class Process:
    """A process in a session of its own, whose stdout is read line by line as JSON."""

    def __init__(self, argv, env, log, name):
        self.name, self.log = name, log
        self.events, self.fresh = [], queue.Queue()
        with open(log, "ab") as err:
            self.process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
                                            start_new_session=True, bufsize=0)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    @property
    def pid(self):
        return self.process.pid

    def _read(self):
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                event = {"event": "text", "text": line.decode(errors="replace").strip()}
            self.events.append(event)
            self.fresh.put(event)
        self.fresh.put(None)

    def say(self, line):
        try:
            self.process.stdin.write((line + "\n").encode())
        except OSError:
            raise Failure(f"{self.name} is gone: {self.tail()}") from None

    def close(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass

    def expect(self, kind, deadline):
        """Returns the next event of that kind."""
        while True:
            try:
                event = self.fresh.get(timeout=max(deadline - time.monotonic(), 0.01))
            except queue.Empty:
                raise Failure(f"{self.name}: no {kind!r} in time: {self.tail()}") from None
            if event is None:
                raise Failure(f"{self.name} ended before {kind!r}: {self.tail()}")
            if event["event"] == kind:
                return event

    def of(self, kind):
        return [e for e in list(self.events) if e["event"] == kind]

    def wait(self, deadline):
        try:
            status = self.process.wait(max(deadline - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            known = self.tail()
            self.process.send_signal(signal.SIGQUIT)  # a test program says in which call it is, and ends
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(2)
            raise Failure(f"{self.name} did not end in time: {known}; then: {self.tail()}") from None
        self.reader.join(2)  # reads the last output, but not for ever, because a child may hold the pipe open
        if status != 0:
            raise Failure(f"{self.name} ended with {status}: {self.tail()}")

    def tail(self):
        try:
            with open(self.log, "rb") as f:
                err = f.read()[-600:].decode(errors="replace").strip()
        except OSError:
            err = ""
        status = self.process.poll()
        known = ["still running" if status is None else f"status {status}"]
        if self.events:
            last = dict(self.events[-1])
            known.append("its last event: " + ", ".join([str(last.pop("event")), *(f"{k} {v}" for k, v in last.items())]))
        return "; ".join(known + ([f"stderr: {err}"] if err else []))

    def kill(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self.process.wait()


class Part:
    """The processes of one part, its daemon and its deadline. Leaves no process running."""

    def __init__(self, name, build, seconds, out):
        self.name, self.build, self.out = name, build, out
        self.began = time.monotonic()
        self.deadline = self.began + seconds
        self.root = tempfile.mkdtemp(prefix="slg-", dir="/tmp")
        self.dir = os.path.join(self.root, "d")
        self.trace = os.path.join(self.root, "trace.jsonl")
        self.processes, self.samples = [], []
        self.sampling = threading.Event()
        self.sampler = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sampling.set()
        if self.sampler:
            self.sampler.join()
        for p in reversed(self.processes):  # so the daemon ends last
            p.kill()
        for name in os.listdir(self.root):
            if name.endswith((".log", ".jsonl")) and os.path.getsize(os.path.join(self.root, name)):
                logs = os.path.join(self.out, "logs")
                os.makedirs(logs, exist_ok=True)
                shutil.copy(os.path.join(self.root, name), os.path.join(logs, f"{self.name}-{name}"))
        shutil.rmtree(self.root, ignore_errors=True)

    def left(self):
        return self.deadline - time.monotonic()

    def start(self, argv, name, shared, **env):
        merged = {k: v for k, v in os.environ.items() if not k.startswith(("SUBLET_", "LD_PRELOAD"))}
        merged.update(PYTHONUNBUFFERED="1", XDG_STATE_HOME=os.path.join(self.root, "state"))
        if shared:
            merged.update(ALWAYS, LD_PRELOAD=os.path.join(self.build, "libsublet.so"), SUBLET_DIR=self.dir,
                          SUBLET_TRACE=self.trace, SUBLET_NAME=name, SUBLET_REQUIRE="1", SUBLET_QUIET="1")
        merged.update(env)
        p = Process(argv, merged, os.path.join(self.root, name + ".log"), name)
        self.processes.append(p)
        return p

    def program(self, program, *args, name=None, shared=True, **env):
        return self.start([os.path.join(self.build, "programs", program), *map(str, args)], name or program, shared,
                          **env)

    def trainer(self, *args, name, shared=True, **env):
        return self.start([sys.executable, os.path.join(HERE, "trainer.py"), *map(str, args)], name, shared, **env)

    def configure(self, classes=None, **settings):
        """Writes the daemon's configuration. classes: {name: {key: value}}. Returns the file's path."""
        path = os.path.join(self.root, "subletd.conf")
        sections = {"daemon": settings, **{f"class {name}": keys for name, keys in (classes or {}).items()}}
        with open(path, "w", encoding="utf-8") as f:
            for name, keys in sections.items():
                f.write(f"[{name}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items()))
        return path

    def daemon(self, classes=None, **settings):
        os.mkdir(self.dir, 0o700)
        config = self.configure(classes, **settings)
        p = self.start([os.path.join(self.build, "subletd"), "--dir", self.dir, "--config", config], "subletd", False,
                       SUBLET_LOG="info")
        while not os.path.exists(os.path.join(self.dir, "control.sock")):
            if p.process.poll() is not None or self.left() < 0:
                raise Failure(f"subletd does not listen: {p.tail()}")
            time.sleep(0.02)
        return p

    def reload(self, classes=None, **settings):
        """Has the daemon read a new configuration, as `sublet reload` does."""
        self.configure(classes, **settings)
        answer = self.ask("reload")
        if "error" in answer:
            raise Failure(f"reload: {answer['error']}")

    def status(self):
        """Returns the same as `sublet status --json`, without starting a process."""
        return self.ask("status")

    def ask(self, order):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5)
            s.connect(os.path.join(self.dir, "control.sock"))
            s.sendall(json.dumps({"order": order}).encode() + b"\n")
            data = b""
            while not data.endswith(b"\n"):
                piece = s.recv(1 << 16)
                if not piece:
                    break
                data += piece
        return json.loads(data)

    def gpu(self):
        gpus = self.status()["gpus"]
        return gpus[GPU] if gpus else {"clients": [], "handoffs": 0}

    def sample(self, period=0.5):
        """Notes the status every `period` seconds in the background."""
        def run():
            while not self.sampling.wait(period):
                try:
                    self.samples.append((time.monotonic_ns(), self.gpu()))
                except (OSError, ValueError):
                    continue

        self.sampler = threading.Thread(target=run, daemon=True)
        self.sampler.start()

    def traced(self):
        """Returns all traced events, in order of time."""
        if not os.path.exists(self.trace):
            return []
        with open(self.trace, encoding="utf-8") as f:
            events = []
            for line in f:
                try:
                    events.append(json.loads(line))
                except json.JSONDecodeError:
                    continue
        return sorted(events, key=lambda e: e["t_ns"])

    def check_sums(self, process, every):
        """Has another process recompute on the CPU the sums that the program printed. Returns the number of rounds."""
        lines = "".join(json.dumps(e, separators=(",", ":")) + "\n" for e in process.events)
        done = subprocess.run([os.path.join(self.build, "programs", "checker"), "--every", str(every)], input=lines,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=max(self.left(), 5), check=False)
        if done.returncode != 0:
            raise Failure(f"checker ended with {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)["rounds"]

    def check_sample(self, path):
        done = subprocess.run([os.path.join(self.build, "programs", "checker"), "--sample", path],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=max(self.left(), 5),
                              check=False)
        if done.returncode != 0:
            raise Failure(f"checker: {done.stderr.strip()}")
        return json.loads(done.stdout)["words"]


def touch(path):
    """Makes the file that a program waits for with --until."""
    with open(path, "w", encoding="ascii"):
        pass


def rehearsing():
    return "SIMCUDA_MEMORY" in os.environ


class Card:
    """NVML's figures of the card, in bytes."""

    class Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    class Use(ctypes.Structure):
        _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
                    ("compute_instance", ctypes.c_uint)]

    NOT_KNOWN = 2 ** 64 - 1

    def __init__(self, part, index=GPU):
        folder = os.path.join(part.build, "sim") if rehearsing() else ""
        self.nvml = ctypes.CDLL(os.path.join(folder, "libnvidia-ml.so.1"))
        self.device = ctypes.c_void_p()
        self._ask("nvmlInit_v2")
        self._ask("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self.device))

    def _ask(self, call, *args):
        error = getattr(self.nvml, call)(*args)
        if error:
            raise Failure(f"{call}: NVML answers {error}")

    def cards(self):
        """Returns the number of cards."""
        n = ctypes.c_uint()
        self._ask("nvmlDeviceGetCount_v2", ctypes.byref(n))
        return n.value

    def _memory(self):
        memory = self.Memory()
        self._ask("nvmlDeviceGetMemoryInfo", self.device, ctypes.byref(memory))
        return memory

    def total(self):
        return self._memory().total

    def used(self):
        return self._memory().used

    def of_processes(self):
        """Returns {pid: bytes}. NVML may leave out a process in another pid namespace."""
        n = ctypes.c_uint(1024)
        uses = (self.Use * n.value)()
        self._ask("nvmlDeviceGetComputeRunningProcesses_v3", self.device, ctypes.byref(n), uses)
        return {u.pid: u.bytes for u in uses[:n.value] if u.bytes != self.NOT_KNOWN}


def episodes(events, pid, kind):
    """Returns [(begin_ns, end_ns, bytes)] of a process. kind is evict, restore or drain."""
    found, begin = [], None
    for e in events:
        if e["pid"] != pid:
            continue
        if e["event"] == f"{kind}_begin":
            begin = e["t_ns"]
        elif e["event"] == f"{kind}_end" and begin is not None:
            found.append((begin, e["t_ns"], e["bytes"]))
            begin = None
    return found


def run_text(*argv):
    try:
        return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=20,
                              check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def nvcc():
    found = next((n for n in ("/usr/local/cuda/bin/nvcc", "nvcc") if run_text(n, "--version")), None)
    if not found:
        raise Failure("no nvcc")
    return found


BUILT = {}  # paths of programs, by name


def build_cuda(part, name):
    """Builds NAME.cu of this folder with the static runtime, once. Returns the program's path."""
    if name in BUILT:
        return BUILT[name]
    folder = tempfile.mkdtemp(prefix="slg-", dir="/tmp")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, name)
    done = subprocess.run([nvcc(), "-O2", "-std=c++17", "-arch=native", "-cudart", "static", os.path.join(HERE, name + ".cu"), "-o", path],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=max(part.left(), 1), check=False)
    if done.returncode != 0:
        raise Failure(f"{name}.cu does not build: " + done.stdout[-500:])
    BUILT[name] = path
    return path


def machine(build):
    """Describes the machine of the measurement, as far as it can be read."""
    cards = run_text("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader").splitlines()
    name, driver, total = (cards[GPU] if cards else ", , ").split(", ")
    commit = ""
    for path in (os.path.join(build, "COMMIT"),):
        if os.path.exists(path):
            with open(path, encoding="ascii") as f:
                commit = f.read().strip()
    with open("/proc/meminfo", encoding="ascii") as f:
        memory = int(f.readline().split()[1]) * 1024
    return {"gpu": name, "gpus": max(len(cards), 1), "gpu_memory": total, "driver": driver,
            "kernel": platform.release().split("-")[0], "processors": os.cpu_count(),
            "host_memory_gib": round(memory / GIB, 1), "libc": platform.libc_ver()[1],
            "commit": commit or run_text("git", "-C", ROOT, "rev-parse", "--short=12", "HEAD") or "unknown",
            "date": time.strftime("%Y-%m-%d", time.gmtime())}


def touch_host(gib):
    """Writes to that much memory on all processors, pins it once, and gives it back. A virtual machine may get memory on
    the first use, and may make it fit for the GPU's copies when it is first pinned, at a sixth of the later speed."""
    n = os.cpu_count()
    script = ("import ctypes,mmap,sys; n=int(sys.argv[1]); m=mmap.mmap(-1,n,mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS);"
              "m.madvise(mmap.MADV_HUGEPAGE); at=ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m)));"
              "ctypes.memset(at,1,n); cu=ctypes.CDLL('libcuda.so.1'); d=ctypes.c_int(); c=ctypes.c_void_p();"
              "failed=cu.cuInit(0) or cu.cuDeviceGet(ctypes.byref(d),0) or cu.cuDevicePrimaryCtxRetain(ctypes.byref(c),d)"
              " or cu.cuCtxSetCurrent(c) or cu.cuMemHostRegister_v2(at,ctypes.c_size_t(n),0);"
              "print(failed,flush=True); sys.stdin.read()")
    share = str(gib * GIB // n)
    started = [subprocess.Popen([sys.executable, "-c", script, share], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
               for _ in range(n)]
    for p in started:  # waits for all, because a process that ended early would give its pages to the next
        if p.stdout.readline().strip() != b"0":
            print("host memory could not be pinned once", flush=True)
    for p in started:
        p.stdin.close()
        p.wait()
