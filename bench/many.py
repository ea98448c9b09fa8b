#!/usr/bin/env python3
"""Measures what a daemon needs that serves many programs at rest: its memory, its processor time, how long `sublet
status --json` takes, and how long a scrape of the metrics. The goal is below 20 MiB and 1 % of a core with 1,000
programs, and 100 ms for a scrape. The programs run on the simulated GPU. Each has a context and holds a little memory.
Prints readable lines and a JSON line.

    many.py BUILD [--programs N] [--wire N] [--seconds S]

--programs: real processes with the library. A simulated machine takes 256 processes, so each 200 have a machine and a
card of their own; the daemon's NVML knows the first of these cards. --wire: processes that only speak with the daemon,
all on the first card. If memory runs low, the rest of the programs are of this kind."""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "tests", "system"))
import wireclient  # noqa: E402  (its messages are those of the source)

MIB = 1 << 20
KEPT_FREE = 2 << 30  # bytes of the machine's memory that no program may take
STARTED_TOGETHER = 20
OF_A_MACHINE = 200


def rollup(pid, *fields):
    """Returns the sums of these fields of a process's memory, in bytes."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        lines = dict(line.split(":", 1) for line in f if ":" in line)
    return [int(lines[field].split()[0]) << 10 for field in fields]


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(child) for child in f.read().split()]


def available():
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable"))


def session_of(first, number):
    """Returns the name of the simulated machine that this program runs on."""
    return f"{first.split('.')[0]}.{number // OF_A_MACHINE}"


def start_programs(build, env, n):
    """Starts so many programs, as far as memory allows, and waits until each holds its memory. Returns them."""
    command = [os.path.join(build, "programs", "hold"), "--bytes", "256KiB", "--block", "256KiB"]
    programs = []
    while len(programs) < n and available() > KEPT_FREE:
        env = {**env, "LD_PRELOAD": os.path.join(build, "libsublet.so"),
               "SIMCUDA_SESSION": session_of(env["SIMCUDA_SESSION"], len(programs))}
        some = [subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                for _ in range(min(STARTED_TOGETHER, n - len(programs)))]
        for p in some:
            while '"filled"' not in (line := p.stdout.readline()):
                assert line, "a program ended early"
        programs += some
    return programs


def talk(connection, card):
    """Registers as the library does, and asks for a context."""
    def receive(wanted):
        while True:
            message = wireclient.decode(connection.recv(4096))
            if message["type"] == wanted:
                return message

    send = lambda *args, **fields: connection.send(wireclient.encode(*args, **fields))  # noqa: E731
    send("HELLO", sequence=1, magic=wireclient.MAGIC, protocol=1, pid=os.getpid(), name="wire", version="0.1.0")
    receive("WELCOME")
    send("ATTACH", 0, 2, total_bytes=card["bytes"], uuid=card["uuid"], unevictable_requested=MIB)
    limit = receive("LIMIT")
    send("USAGE", 0, 3, unevictable=MIB, limit_sequence=limit["sequence"])


def start_wire(path, card, n):
    """Forks so many processes, each with a connection. Returns their pids."""
    pids = []
    for _ in range(n):
        ready, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.connect(path)
            talk(connection, card)
            os.write(tell, b"!")
            while connection.recv(4096):
                pass  # what it is told from now on means nothing to it
            os._exit(0)
        os.close(tell)
        pids.append(pid)
        assert os.read(ready, 1), "a client ended early"
        os.close(ready)
    return pids


def order(path, name):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.connect(path)
        s.sendall(json.dumps({"order": name}).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            answer += s.recv(1 << 20)
        return json.loads(answer)


def scrape(path):
    """Returns the metrics, with the headers of the answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.connect(path)
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: sublet\r\nAccept: application/openmetrics-text\r\n\r\n")
        answer = []
        while part := s.recv(1 << 20):
            answer.append(part)
        return b"".join(answer)


def measure(build, env, daemon, seconds):
    parts = [daemon, *children(daemon)]  # with the process that asks NVML
    before, began = [cpu_ticks(pid) for pid in parts], time.monotonic()
    time.sleep(seconds)
    passed = (time.monotonic() - began) * os.sysconf("SC_CLK_TCK")
    used = [100 * (cpu_ticks(pid) - b) / passed for pid, b in zip(parts, before)]
    rss, pss, private = rollup(daemon, "Rss", "Pss", "Private_Dirty")
    took = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run([os.path.join(build, "sublet"), "status", "--json"], env=env, check=True, stdout=subprocess.DEVNULL)
        took.append(1000 * (time.perf_counter() - begun))
    scraped = []
    for _ in range(5):
        time.sleep(1)  # a later scrape is answered anew
        begun = time.perf_counter()
        size = len(scrape(env["METRICS"]))
        scraped.append(1000 * (time.perf_counter() - begun))
    return {"rss_mib": round(rss / MIB, 1), "pss_mib": round(pss / MIB, 1), "private_mib": round(private / MIB, 1),
            "cpu_percent": round(used[0], 2), "reader_cpu_percent": round(sum(used[1:]), 2),
            "reader_pss_mib": round(sum(rollup(pid, "Pss")[0] for pid in parts[1:]) / MIB, 1),
            "status_ms": round(sorted(took)[2], 1), "scrape_ms": round(sorted(scraped)[2], 1),
            "scrape_mib": round(size / MIB, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--wire", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10)
    given = parser.parse_args()
    build = os.path.abspath(given.build)
    n = given.programs + given.wire
    with tempfile.TemporaryDirectory(prefix="slt-", dir="/tmp") as root:
        sockets, path = os.path.join(root, "d"), os.path.join(root, "s.conf")
        with open(path, "w", encoding="ascii") as f:
            f.write(f"[daemon]\nclients_max = {n + 24}\nconnections_per_user = {n + 24}\nunevictable_share = 50%\n"
                    f"metrics = {root}/m.sock\n")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SUBLET_", "SIMCUDA_"))}
        env |= {"SUBLET_DIR": sockets, "SIMCUDA_SESSION": f"m{uuid.uuid4().hex[:16]}.0", "SIMCUDA_MEMORY": "512GiB",
                "SIMCUDA_CONTEXT": "1MiB", "LD_LIBRARY_PATH": os.path.join(build, "sim"), "SUBLET_QUIET": "1",
                "XDG_CACHE_HOME": root, "XDG_STATE_HOME": root, "METRICS": f"{root}/m.sock"}
        os.mkdir(sockets, 0o700)
        programs, pids = [], []
        with subprocess.Popen([os.path.join(build, "subletd"), "--dir", sockets, "--config", path], env=env) as daemon:
            try:
                while not os.path.exists(os.path.join(sockets, "client.sock")) and daemon.poll() is None:
                    time.sleep(0.01)
                alone = measure(build, env, daemon.pid, 1)
                programs = start_programs(build, env, given.programs)
                each = sorted(rollup(p.pid, "Pss")[0] for p in programs[:50])
                gpu = order(os.path.join(sockets, "control.sock"), "status")["gpus"][0]
                card = {"uuid": bytes.fromhex(gpu["uuid"].removeprefix("GPU-").replace("-", "")), "bytes": gpu["total"]}
                pids = start_wire(os.path.join(sockets, "client.sock"), card, n - len(programs))
                time.sleep(5)  # until all are idle and nothing is measured anew
                result = measure(build, env, daemon.pid, given.seconds)
                status = order(os.path.join(sockets, "control.sock"), "status")
                served = sum(len(g["clients"]) for g in status["gpus"])
                assert served == n, f"{served} clients, not {n}"
            finally:
                for p in programs:
                    p.kill()
                for pid in pids:
                    os.kill(pid, 9)
                for p in programs:
                    p.wait()
                for pid in pids:
                    os.waitpid(pid, 0)
                daemon.terminate()
                daemon.wait()
                for number in range(0, max(n, 1), OF_A_MACHINE):
                    subprocess.run([os.path.join(build, "sim", "simcuda-stat"), "--remove", "--force"], check=False,
                                   env={**env, "SIMCUDA_SESSION": session_of(env["SIMCUDA_SESSION"], number)},
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    result |= {"programs": len(programs), "wire": len(pids), "alone_pss_mib": alone["pss_mib"],
               "program_pss_mib": round(each[len(each) // 2] / MIB, 1) if each else None}
    print(f"with {len(programs)} programs and {len(pids)} wire clients at rest, the daemon has {result['pss_mib']} MiB (PSS; "
          f"{result['rss_mib']} MiB RSS, {alone['pss_mib']} MiB without clients) and takes {result['cpu_percent']} % of a core")
    print(f"the process that asks NVML has {result['reader_pss_mib']} MiB and takes {result['reader_cpu_percent']} %; "
          f"sublet status takes {result['status_ms']} ms, a scrape of {result['scrape_mib']} MiB {result['scrape_ms']} ms")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
