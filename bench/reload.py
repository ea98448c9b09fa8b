#!/usr/bin/env python3
"""Measures how long a daemon takes to read many classes again: from the order to its answer, as a client of its socket
sees it. The goal is below 50 ms for 1,000 classes. Prints a readable line and a JSON line.

    reload.py BUILD [--classes N] [--rounds N] [--pods] [--clients N]

--pods: each class is a Kubernetes pod's, with its names, as a device plugin writes them into conf.d. --clients: so many
processes are connected, each in a pod's cgroup if root can make cgroups here."""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "system"))
import tenants  # noqa: E402
from wireclient import MAGIC, encode  # noqa: E402


def configuration(classes):
    """Every class has each kind of match and several settings; one in ten names a user by name."""
    for i in range(classes):
        user = "root" if i % 10 == 0 else f"{2000 + 10 * i}-{2009 + 10 * i}, {100_000 + i}"
        yield (f"[class c{i}]\nuser = {user}\nname = train*, eval-{i}\ncgroup = /system.slice/job-{i}.service\n"
               f"weight = 2\nmaximum = 50%\nmemory_cap = 8GiB\npriority = 3\n")


def uid(i):
    return f"{i * 2654435761 % 2**32:08x}-0000-4000-8000-{i:012x}"


def pods(classes):
    for i in range(classes):
        yield (f"[class k8s-{i}]\npod = {uid(i)}\nmaximum = 50%\nmemory_cap = 8GiB\n"
               f"[pod {uid(i)}]\nnamespace = team-{i % 10}\nname = job-{i}\n")


def connect(sockets, number, cgroup):
    """Makes a process that is a client, in this cgroup. Returns its pid."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if cgroup:
                with open(os.path.join(cgroup, "cgroup.procs"), "w", encoding="ascii") as f:
                    f.write(str(os.getpid()))
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.connect(os.path.join(sockets, "client.sock"))
            s.send(encode("HELLO", magic=MAGIC, protocol=1, name=f"c{number}", version="0"))
            os.write(writing, s.recv(1000)[:1])
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    answer = os.read(reading, 1)
    os.close(reading)
    assert answer == b"\x02", f"client {number}: {answer}"  # WELCOME
    return pid


def order(path, name):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.connect(path)
        begun = time.perf_counter()
        s.sendall(json.dumps({"order": name}).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            answer += s.recv(65536)
        return json.loads(answer), time.perf_counter() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--pods", action="store_true")
    parser.add_argument("--clients", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slt-", dir="/tmp") as root:
        path, sockets = os.path.join(root, "s.conf"), os.path.join(root, "d")
        with open(path, "w", encoding="ascii") as f:
            f.write("[daemon]\nconnections_per_user = 10000\nclients_max = 10000\n")
            f.writelines([] if given.pods else configuration(given.classes))
        os.mkdir(sockets, 0o700)
        os.mkdir(os.path.join(sockets, "conf.d"), 0o700)
        if given.pods:
            with open(os.path.join(sockets, "conf.d", "50-kubernetes.conf"), "w", encoding="ascii") as f:
                f.writelines(pods(given.classes))
        with subprocess.Popen([os.path.join(given.build, "subletd"), "--dir", sockets, "--config", path],
                              env=os.environ | {"XDG_STATE_HOME": root}) as daemon:
            control = os.path.join(sockets, "control.sock")
            while not os.path.exists(control) and daemon.poll() is None:
                time.sleep(0.01)
            cgroups = tenants.Tenants()
            clients = []
            for i in range(given.clients):
                if given.pods:
                    cgroups.make(f"kubepods/pod{uid(i % given.classes)}")
                clients.append(connect(sockets, i, cgroups.made[-1] if given.pods else None))
            took_ms = []
            for _ in range(given.rounds):
                answer, s = order(control, "reload")
                assert answer == {"classes": given.classes, "restart": []}, answer
                took_ms.append(1000 * s)
            order(control, "stop")
            for pid in clients:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            cgroups.close()
    result = {"classes": given.classes, "pods": given.pods, "clients": given.clients, "rounds": given.rounds, "median_ms": round(statistics.median(took_ms), 2),
              "max_ms": round(max(took_ms), 2)}
    print(f"{given.classes} classes are read again for {given.clients} clients in {result['median_ms']} ms (median of {given.rounds}; "
          f"at most {result['max_ms']} ms)")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
