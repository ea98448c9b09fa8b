#!/usr/bin/env python3
"""Measures how long a new program waits for the daemon while many connections send messages as fast as the daemon reads
them. The daemon sets no rate: it limits the time that it spends on a user, and messages wait in their sockets. Prints
a readable line and a JSON line. Usage: newcomer.py BUILD [--connections N] [--newcomers N] [--senders N]
[--message USAGE|REQUEST] [--users N] [--nice N] [--json FILE]"""

import argparse
import contextlib
import json
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

GOAL_MS = 100.0
SYSTEM_TESTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "system")
CARD, CONTEXT = "16GiB", 64 << 20
FIRST_UID = 1_000_001  # of the senders, if they are other users
REST_S = 0.01  # between two newcomers; their phase within the senders' rounds is chance
TIMEOUT_S = 60
QUEUE_BYTES = 8192  # some 20 messages a connection; with long queues the senders' counts would tell nothing


def child(body, *args):
    """Starts a process that runs body(*args) and ends. Returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        body(*args)
        os._exit(0)
    except BaseException as e:
        sys.stderr.write(f"newcomer.py: {type(e).__name__}: {e}\n")
    finally:
        os._exit(1)


# ---- connections ----


def await_message(s, *names):
    while True:
        packet = s.recv(4096)
        message = wireclient.decode(packet) if packet else {"type": "closed"}
        if message["type"] in names:
            return message
        if message["type"] in ("closed", "REFUSED"):
            raise ConnectionRefusedError(message.get("text", "the daemon has ended a connection"))


def begin(s, uuid, total, name, unevictable=0):
    """Says HELLO and ATTACH. Returns the times at which WELCOME, ATTACHED and LIMIT came."""
    times = []
    s.settimeout(TIMEOUT_S)
    s.send(hostile.hello(name=name))
    await_message(s, "WELCOME")
    times.append(time.monotonic())
    s.send(hostile.attach(uuid=uuid, total_bytes=total, unevictable_requested=unevictable))
    for answer in ("ATTACHED", "LIMIT"):
        await_message(s, answer)
        times.append(time.monotonic())
    return times


def connection_of_its_own(directory, alive):
    """Returns a connection that belongs to a new process: the daemon allows a process one. The process sleeps until
    the last writer of the pipe `alive` has ended."""
    ours, theirs = socket.socketpair()

    def connect_and_sleep():
        with hostile.connect(directory) as s:
            socket.send_fds(theirs, [b"c"], [s.fileno()])
        os.dup2(alive, 0)
        os.closerange(3, 1 << 16)
        os.read(0, 1)

    child(connect_and_sleep)
    theirs.close()
    with ours:
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    return socket.socket(fileno=fds[0])


# ---- senders ----


def send_for_ever(sockets, message, told):
    """Keeps all sockets full of messages, and reads the answers. Counts the messages that the sockets took."""
    packet = {"USAGE": wireclient.encode("USAGE", 0, 1),
              "REQUEST": wireclient.encode("REQUEST", 0, 1, unevictable=1 << 20)}[message]
    poll = select.epoll()
    by_fd = {s.fileno(): s for s in sockets}
    for s in sockets:
        s.setblocking(False)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE_BYTES)
        poll.register(s, select.EPOLLIN | select.EPOLLOUT)
    sent, tell_s = 0, 0.0
    while True:
        for fd, events in poll.poll():
            s = by_fd[fd]
            with contextlib.suppress(BlockingIOError):
                while events & select.EPOLLIN:
                    if not s.recv(4096):
                        raise ConnectionAbortedError("the daemon has ended a connection")
            with contextlib.suppress(BlockingIOError):
                while events & select.EPOLLOUT:
                    s.send(packet)
                    sent += 1
        if time.monotonic() > tell_s:
            tell_s = time.monotonic() + 0.05
            struct.pack_into("<Q", told, 0, sent)


def be_sender(directory, count, uid, options, card, told, ready, go):
    """Makes that many connections, and writes to `ready` once all have their LIMIT. Sends once `go` is closed."""
    os.close(go[1])
    os.nice(options.nice)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    alive, _writer = os.pipe()
    sockets = []
    for _ in range(count):
        sockets.append(connection_of_its_own(directory, alive))
        begin(sockets[-1], *card, "sender")
    os.write(ready, b"r")
    os.close(ready)
    os.read(go[0], 1)
    send_for_ever(sockets, options.message, told)


# ---- newcomers ----


def newcomer(directory, card):
    """Lets a new process register. Returns the milliseconds from connect() to WELCOME, ATTACHED and LIMIT."""
    r, w = os.pipe()

    def connect_and_leave():
        began = time.monotonic()
        with hostile.connect(directory) as s:
            times = begin(s, *card, "newcomer", CONTEXT)
            os.write(w, struct.pack("<3d", *((t - began) * 1000 for t in times)))
            s.send(wireclient.encode("BYE"))

    pid = child(connect_and_leave)
    os.close(w)
    with open(r, "rb") as f:
        figures = f.read()
    os.waitpid(pid, 0)
    if len(figures) != 24:
        sys.exit("newcomer.py: a newcomer got no answer")
    return struct.unpack("<3d", figures)


def share(times):
    ordered = sorted(times)
    at = lambda part: round(ordered[min(int(len(ordered) * part), len(ordered) - 1)], 2)
    return {"p50": at(0.5), "p99": at(0.99), "max": at(1.0)}


def measure(world, options):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < options.connections + 200:
        sys.exit(f"newcomer.py: {options.connections} connections need more than {hard} descriptors: raise ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    room = options.connections + 64
    config = {"clients_max": room, "connections_per_user": room}
    os.chmod(world.root, 0o755)
    world.start_daemon("--shared", config=config)
    os.chmod(world.dir, 0o755)
    gpu = world.status()["gpus"][0]
    card = (bytes.fromhex(gpu["uuid"].removeprefix("GPU-").replace("-", "")), gpu["total"])
    alone = [newcomer(world.dir, card) for _ in range(20)]
    told = [memoryview(mmap.mmap(-1, 8)) for _ in range(options.senders)]
    ready_r, ready_w = os.pipe()
    go_r, go_w = os.pipe()
    pids, left = [], options.connections
    try:
        for i in range(options.senders):
            uid = FIRST_UID + i % options.users if options.users else None
            count = left // (options.senders - i)
            pids.append(child(be_sender, world.dir, count, uid, options, card, told[i], ready_w, (go_r, go_w)))
            os.setpgid(pids[-1], pids[-1])
            left -= count
        os.close(ready_w)
        ready = b""
        while len(ready) < options.senders:
            got = os.read(ready_r, 16)
            if not got:
                sys.exit("newcomer.py: the senders have ended")
            ready += got
        os.close(go_w)
        time.sleep(1)  # until the sockets are full

        def heard():
            return sum(struct.unpack("<Q", t)[0] for t in told)

        daemon = world.worker()
        began, sent, used = time.monotonic(), heard(), cpu_s(daemon)
        times = []
        for _ in range(options.newcomers):
            times.append(newcomer(world.dir, card))
            time.sleep(REST_S)
        passed = time.monotonic() - began
        if any(os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) for pid in pids):
            sys.exit("newcomer.py: a sender has ended")
        return {
            "goal_ms": GOAL_MS, "processors": os.cpu_count(), "connections": options.connections,
            "senders": options.senders, "message": options.message, "users": options.users or "the newcomers' own",
            "newcomers": options.newcomers, "messages_a_second": round((heard() - sent) / passed),
            "daemon_processor_share": round((cpu_s(daemon) - used) / passed, 2),
            "alone_welcome_ms": share([t[0] for t in alone]), "alone_limit_ms": share([t[2] for t in alone]),
            **{f"{what}_ms": share([t[i] for t in times]) for i, what in enumerate(("welcome", "attached", "limit"))},
        }
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # the sender and its sleeping processes
        for pid in pids:
            os.waitpid(pid, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--connections", type=int, default=980)
    parser.add_argument("--newcomers", type=int, default=300)
    parser.add_argument("--senders", type=int, default=2, help="processes that send")
    parser.add_argument("--message", choices=("USAGE", "REQUEST"), default="USAGE")
    parser.add_argument("--users", type=int, default=0,
                        help="the senders are this many other users (needs root); 0: the newcomers' own user")
    parser.add_argument("--nice", type=int, default=10, help="how much the senders leave the processors to others")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.senders = max(options.senders, options.users)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing outlives this process
    os.environ["SUBLET_BUILD"] = os.path.abspath(options.build)
    sys.path.insert(0, SYSTEM_TESTS)
    global hostile, wireclient, cpu_s
    import hostile
    import wireclient
    from world import World, cpu_s

    world = World(memory=CARD)
    try:
        result = measure(world, options)
    finally:
        world.close()
    w, limit = result["welcome_ms"], result["limit_ms"]
    print(f"{options.newcomers} newcomers beside {options.connections} connections that send {options.message}"
          f" ({result['messages_a_second']} a second): WELCOME p50 {w['p50']} ms, p99 {w['p99']}, max {w['max']};"
          f" first LIMIT p50 {limit['p50']} ms, p99 {limit['p99']}, max {limit['max']} (goal: p99 {GOAL_MS:.0f})")
    print(json.dumps(result))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)


if __name__ == "__main__":
    main()
