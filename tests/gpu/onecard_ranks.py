#!/usr/bin/env python3
"""Starts the ranks of a job, as torchrun does, but leaves the others alone when one ends: what they do then is what a part of
tests/gpu/onecard.py looks at. The first rank has this process's stdin.

  onecard_ranks.py --ranks N --logs PREFIX -- COMMAND...

Prints a JSON line when a rank ends. The stderr of each rank is in PREFIX-RANK.log."""

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(o, rank, port):
    with open(f"{o.logs}-{rank}.log", "ab") as log:
        return subprocess.Popen(o.command, stdin=None if rank == 0 else subprocess.DEVNULL, stderr=log,
                                env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(o.ranks),
                                     "LOCAL_WORLD_SIZE": str(o.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})


def await_end(rank, process):
    status = process.wait()
    line = json.dumps({"event": "ended", "rank": rank, "status": status, "t_ns": time.monotonic_ns()}) + "\n"
    os.write(1, line.encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--logs", required=True)
    parser.add_argument("command", nargs="+")
    o = parser.parse_args()
    port = free_port()
    ranks = [start(o, rank, port) for rank in range(o.ranks)]
    waiting = [threading.Thread(target=await_end, args=(rank, process)) for rank, process in enumerate(ranks)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    return 0 if all(process.returncode == 0 for process in ranks) else 1


if __name__ == "__main__":
    sys.exit(main())
