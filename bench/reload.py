#!/usr/bin/env python3
"""Measures how long a daemon takes to read many classes again: from the order to its answer, as a client of its socket
sees it. The goal is below 50 ms for 1,000 classes. Prints a readable line and a JSON line.

    reload.py BUILD [--classes N] [--rounds N]"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
import time


def configuration(classes):
    """Every class has each kind of match and several settings; one in ten names a user by name."""
    for i in range(classes):
        user = "root" if i % 10 == 0 else f"{2000 + 10 * i}-{2009 + 10 * i}, {100_000 + i}"
        yield (f"[class c{i}]\nuser = {user}\nname = train*, eval-{i}\ncgroup = /system.slice/job-{i}.service\n"
               f"weight = 2\nmaximum = 50%\nmemory_cap = 8GiB\npriority = 3\n")


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
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slt-", dir="/tmp") as root:
        path, sockets = os.path.join(root, "s.conf"), os.path.join(root, "d")
        with open(path, "w", encoding="ascii") as f:
            f.writelines(configuration(given.classes))
        os.mkdir(sockets, 0o700)
        with subprocess.Popen([os.path.join(given.build, "subletd"), "--dir", sockets, "--config", path]) as daemon:
            control = os.path.join(sockets, "control.sock")
            while not os.path.exists(control) and daemon.poll() is None:
                time.sleep(0.01)
            took_ms = []
            for _ in range(given.rounds):
                answer, s = order(control, "reload")
                assert answer == {"classes": given.classes, "restart": []}, answer
                took_ms.append(1000 * s)
            order(control, "stop")
    result = {"classes": given.classes, "rounds": given.rounds, "median_ms": round(statistics.median(took_ms), 2),
              "max_ms": round(max(took_ms), 2)}
    print(f"{given.classes} classes are read again in {result['median_ms']} ms (median of {given.rounds}; "
          f"at most {result['max_ms']} ms)")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
