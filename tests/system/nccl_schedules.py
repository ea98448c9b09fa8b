"""Runs schedules of sends and receives, and checks all bytes received. It needs only NCCL and the driver, so it runs on a
machine with GPUs, too, where rank i uses device i:

    python3 nccl_schedules.py --seed 1 --count 100 --ranks 2

prints a JSON line for each schedule: seed, ranks, and the result (ok, wrong, hang, or error with its text). Seeds follow one
another. NCCL_LIBRARY names another libnccl.so.2. With --name NAME it runs a schedule of this file.

A schedule is, for each rank, a list of groups: lists of (SEND or RECEIVE, peer). A group of one call is called without
ncclGroupStart. is_valid() says which schedules NCCL must complete; no other schedule is run."""

import argparse
import collections
import ctypes
import json
import multiprocessing
import os
import random
import sys
import time
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

SEND, RECEIVE = "send", "receive"
TYPES = {0: 1, 2: 4, 4: 8, 6: 2, 8: 8, 9: 2}  # NCCL's numbers: bytes
NOT_READY = 600
UNTOUCHED = 0xa5
GAP = 64  # bytes between messages in memory, at least


# ---- the rules ----


def is_valid(schedule):
    """Says whether a schedule ends if a call waits for its peer. Calls of a group progress beside each other, those to the same
    peer and in the same direction in their order. A group begins when the one before has ended."""
    at = [0] * len(schedule)
    open_calls = [collections.Counter(groups[0]) if groups else None for groups in schedule]
    moved = True
    while moved:
        moved = False
        for rank, calls in enumerate(open_calls):
            for (kind, peer) in list(calls or ()):
                if kind != SEND or not calls[SEND, peer] or not (open_calls[peer] or {}).get((RECEIVE, rank)):
                    continue
                calls[SEND, peer] -= 1
                open_calls[peer][RECEIVE, rank] -= 1
                moved = True
        for rank, calls in enumerate(open_calls):
            if calls is not None and not any(calls.values()):
                at[rank] += 1
                open_calls[rank] = collections.Counter(schedule[rank][at[rank]]) if at[rank] < len(schedule[rank]) else None
                moved = True
    return not any(open_calls)


def named(name, n):
    """A program that has hung, or a case that random schedules seldom have."""
    if name == "request_and_reply":
        return [[[(SEND, 1), (RECEIVE, 1)]], [[(RECEIVE, 0)], [(SEND, 0)]]]
    if name == "two_requests_and_one_reply":
        return [[[(SEND, 1), (SEND, 1), (RECEIVE, 1)]], [[(RECEIVE, 0)], [(RECEIVE, 0)], [(SEND, 0)]]]
    if name == "shift_with_one_group":
        return [[[(SEND, 1), (RECEIVE, n - 1)]]] + [[[(RECEIVE, i - 1)], [(SEND, (i + 1) % n)]] for i in range(1, n)]
    if name == "messages_for_a_later_group":
        # Rank 0 sends to all ranks but 1 and 2, and receives from these two. Before these, the others send one by one what
        # rank 0 wants only afterwards, but not before they have taken what rank 0 has sent.
        ahead = {i: [[(RECEIVE, 0)], *([[(RECEIVE, i - 1)]] if i > 3 else []), [(SEND, 0), (SEND, i + 1 if i < n - 1 else 1)]]
                 for i in range(3, n)}
        ahead[3][1:1] = [[(SEND, 4)], [(RECEIVE, 4)]]
        ahead[4][1:1] = [[(RECEIVE, 3)], [(SEND, 3)]]
        return [[[*((SEND, i) for i in ahead), (RECEIVE, 1), (RECEIVE, 2)], *[[(RECEIVE, i)] for i in ahead]],
                [[(RECEIVE, n - 1)], [(SEND, 0)], [(SEND, 2)]], [[(RECEIVE, 1)], [(SEND, 0)]], *ahead.values()]
    if name == "all_to_all":
        return [[[(kind, peer) for peer in range(n) for kind in (SEND, RECEIVE)]] for _ in range(n)]
    if name == "many_messages":
        return [[[(SEND, 1)] * 4000 + [(RECEIVE, 1)] * 10], [[(RECEIVE, 0)] * 4000 + [(SEND, 0)] * 10]]
    raise SystemExit(f"there is no schedule {name}")


def random_schedule(rng, n):
    """Begins with messages one after the other, which all ranks agree on. Then it groups calls, and moves them, as long as
    NCCL would still complete the schedule."""
    schedule = [[] for _ in range(n)]
    for _ in range(rng.randint(1, 2 * n)):
        source, to = rng.randrange(n), rng.randrange(n)
        if source == to:
            schedule[source].append([(SEND, to), (RECEIVE, to)])
            continue
        for a, b in [(source, to)] * rng.randint(1, 3) + [(to, source)] * rng.choice((0, 0, 1, 2)):
            schedule[a].append([(SEND, b)])
            schedule[b].append([(RECEIVE, a)])
    # Groups of calls that follow one another are always right. Some ranks have many of them, some have none.
    for groups in schedule:
        often = rng.choice((0, 0.3, 0.6, 0.9))
        for i in range(len(groups) - 2, -1, -1):
            if rng.random() < often:
                groups[i] += groups.pop(i + 1)
        for calls in groups:
            rng.shuffle(calls)
    for _ in range(rng.choice((0, 10, 60))):
        changed = [[list(calls) for calls in groups] for groups in schedule]
        groups = changed[rng.randrange(n)]
        if len(groups) < 2:
            continue
        i = rng.randrange(len(groups) - 1)
        if rng.random() < 0.3:
            groups[i] += groups.pop(i + 1)
        elif rng.random() < 0.5:
            groups[i], groups[i + 1] = groups[i + 1], groups[i]
        elif len(groups[i]) > 1 and rng.random() < 0.5:
            cut = rng.randrange(1, len(groups[i]))
            groups[i:i + 1] = [groups[i][:cut], groups[i][cut:]]
        else:
            groups[i + 1].append(groups[i].pop(rng.randrange(len(groups[i]))))
            groups[:] = [calls for calls in groups if calls]
        if is_valid(changed) and all(calls.count((SEND, rank)) == calls.count((RECEIVE, rank))
                                     for rank, all_calls in enumerate(changed) for calls in all_calls):
            schedule = changed
    return schedule


class Plan:
    """A schedule with the sizes, types and places of its messages, the same in each process."""

    def __init__(self, args, seed):
        rng = random.Random(f"{seed} {args.ranks} {args.name}")
        n = args.ranks
        self.groups = named(args.name, n) if args.name else random_schedule(rng, n)
        assert is_valid(self.groups)
        self.seed, self.messages, counts = seed, {}, collections.Counter()
        largest, small = rng.choice((1000, args.bytes, args.bytes)), rng.choice((0.2, 0.7))
        budget = 10 * args.bytes  # random schedules of many messages have smaller ones
        self.size = {SEND: [0] * n, RECEIVE: [0] * n}
        for rank, groups in enumerate(self.groups):
            for kind, peer in (call for group in groups for call in group):
                if kind == SEND:
                    kind_of = rng.choice(tuple(TYPES))
                    size = largest ** rng.random() if rng.random() < small else largest * rng.random()
                    size = max(min(args.bytes if args.name else int(size), budget), 0)
                    count = size // TYPES[kind_of] or rng.randrange(2)
                    budget -= count * TYPES[kind_of]
                    number = counts[rank, peer]
                    counts[rank, peer] += 1
                    self.messages[rank, peer, number] = {
                        "type": kind_of, "count": count, SEND: self.place(rng, SEND, rank, kind_of, count),
                        RECEIVE: self.place(rng, RECEIVE, peer, kind_of, count)}

    def place(self, rng, kind, rank, type_, count):
        """Returns an offset in the memory that a rank sends from, or receives in: often one that no vector begins at."""
        start = (self.size[kind][rank] + GAP + 15) // 16 * 16 + rng.choice((0, 0, rng.randrange(16))) * TYPES[type_]
        self.size[kind][rank] = start + count * TYPES[type_] + GAP
        return start

    def sent(self, rank, replay):
        """Returns what a rank's memory holds before the calls."""
        return random.Random(f"{self.seed} {rank} {replay}").randbytes(self.size[SEND][rank] + GAP)

    def received(self, rank, replay):
        """Returns what the memory in which a rank receives must hold afterwards."""
        memory = bytearray([UNTOUCHED]) * (self.size[RECEIVE][rank] + GAP)
        sources = {}
        for (source, to, _), m in self.messages.items():
            if to == rank:
                if source not in sources:
                    sources[source] = self.sent(source, replay)
                bytes_ = m["count"] * TYPES[m["type"]]
                memory[m[RECEIVE]:m[RECEIVE] + bytes_] = sources[source][m[SEND]:m[SEND] + bytes_]
        return bytes(memory)


# ---- a rank ----


class Failure(Exception):
    pass


class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def find_nccl():
    """sublet's library is loaded before the program, and has NCCL's functions."""
    loaded = ctypes.CDLL(None)
    if "NCCL_LIBRARY" not in os.environ and hasattr(loaded, "ncclCommInitRank"):
        return loaded
    return ctypes.CDLL(os.environ.get("NCCL_LIBRARY", "libnccl.so.2"))


class Rank:
    def __init__(self, args, rank, id_bytes):
        self.args, self.rank = args, rank
        self.cu, self.nccl = ctypes.CDLL("libcuda.so.1"), find_nccl()
        device, devices, context = c_int(), c_int(), c_void_p()
        self.cuda("cuInit", 0)
        self.cuda("cuDeviceGetCount", byref(devices))
        self.cuda("cuDeviceGet", byref(device), rank % devices.value)
        self.cuda("cuDevicePrimaryCtxRetain", byref(context), device)
        self.cuda("cuCtxSetCurrent", context)
        self.stream, self.comm, self.ballast = c_void_p(), c_void_p(), c_uint64()
        if args.fill:
            self.cuda("cuMemAlloc_v2", byref(self.ballast), c_size_t(args.fill))
            self.cuda("cuMemsetD8_v2", self.ballast, ctypes.c_ubyte(rank), c_size_t(args.fill))
        self.cuda("cuStreamCreate", byref(self.stream), 1)
        own = Id()
        if rank == 0:
            self.call("ncclGetUniqueId", byref(own))
            for other in id_bytes[1:]:
                other.send(bytes(own))
        else:
            own = Id.from_buffer_copy(id_bytes[rank].recv())
        self.call("ncclCommInitRank", byref(self.comm), args.ranks, own, rank)

    def cuda(self, name, *args):
        result = getattr(self.cu, name)(*args)
        if result:
            raise Failure(f"{name}: {result}")

    def call(self, name, *args):
        result = getattr(self.nccl, name)(*args)
        if result:
            raise Failure(f"{name}: {result}")

    def submit(self, plan, memory):
        counts = collections.Counter()
        for group in plan.groups[self.rank]:
            if len(group) > 1:
                self.call("ncclGroupStart")
            for kind, peer in group:
                pair = (self.rank, peer) if kind == SEND else (peer, self.rank)
                m = plan.messages[(*pair, counts[kind, peer])]
                counts[kind, peer] += 1
                self.call("ncclSend" if kind == SEND else "ncclRecv", c_void_p(memory[kind].value + m[kind]),
                          c_size_t(m["count"]), m["type"], peer, self.comm, self.stream)
            if len(group) > 1:
                self.call("ncclGroupEnd")

    def capture(self, plan, memory):
        graph, launch = c_void_p(), c_void_p()
        self.cuda("cuStreamBeginCapture_v2", self.stream, 1)
        self.submit(plan, memory)
        self.cuda("cuStreamEndCapture", self.stream, byref(graph))
        self.cuda("cuGraphInstantiateWithFlags", byref(launch), graph, c_uint64(0))
        self.cuda("cuGraphDestroy", graph)
        return launch

    def has_ended(self):
        end = time.monotonic() + self.args.seconds
        while (result := self.cu.cuStreamQuery(self.stream)) == NOT_READY and time.monotonic() < end:
            time.sleep(0.0005)
        if result not in (0, NOT_READY):
            raise Failure(f"cuStreamQuery: {result}")
        return result == 0

    def compare(self, plan, memory, replay):
        expected = plan.received(self.rank, replay)
        found = ctypes.create_string_buffer(len(expected))
        self.cuda("cuMemcpyDtoH_v2", found, memory[RECEIVE], c_size_t(len(expected)))
        if found.raw == expected:
            return "ok"
        at = next(i for i, (a, b) in enumerate(zip(found.raw, expected)) if a != b)
        m = next((key for key, m in plan.messages.items() if key[1] == self.rank and
                  0 <= at - m[RECEIVE] < m["count"] * TYPES[m["type"]]), "no message")
        return f"wrong: byte {at} of rank {self.rank}, replay {replay}, of {m}"

    def run(self, plan):
        """Returns ok, hang or wrong."""
        memory = {kind: c_uint64() for kind in (SEND, RECEIVE)}
        for kind, at in memory.items():
            self.cuda("cuMemAlloc_v2", byref(at), c_size_t(plan.size[kind][self.rank] + GAP))
        launch = self.capture(plan, memory) if self.args.graph else None
        result = "ok"
        for replay in range(2 if launch else 1):
            sent = plan.sent(self.rank, replay)
            self.cuda("cuMemcpyHtoD_v2", memory[SEND], sent, c_size_t(len(sent)))
            self.cuda("cuMemsetD8_v2", memory[RECEIVE], ctypes.c_ubyte(UNTOUCHED),
                      c_size_t(plan.size[RECEIVE][self.rank] + GAP))
            self.cuda("cuCtxSynchronize")  # the stream does not wait for the memset
            if launch:
                self.cuda("cuGraphLaunch", launch, self.stream)
            else:
                self.submit(plan, memory)
            if not self.has_ended():
                return "hang"
            result = self.compare(plan, memory, replay)
            if result != "ok":
                break
        if launch:
            self.cuda("cuGraphExecDestroy", launch)
        for at in memory.values():
            self.cuda("cuMemFree_v2", at)
        return result


def serve(args, rank, commands, id_bytes):
    """Runs schedules for the parent until it says None."""
    r = None
    while (seed := commands.recv()) is not None:
        try:
            r = r or Rank(args, rank, id_bytes)
            commands.send(r.run(Plan(args, seed)))
        except Failure as e:
            commands.send(f"error: {e}")
    os._exit(0)


# ---- all ranks ----


class Job:
    def __init__(self, args):
        fork = multiprocessing.get_context("fork")
        ids = [fork.Pipe() for _ in range(args.ranks)]
        pipes = [fork.Pipe() for _ in range(args.ranks)]
        self.args, self.ends = args, [ours for ours, _ in pipes]
        self.processes = [fork.Process(target=serve, daemon=True, args=(
            args, i, pipes[i][1], [ours for ours, _ in ids] if i == 0 else [theirs for _, theirs in ids]))
            for i in range(args.ranks)]
        for p in self.processes:
            p.start()

    def run(self, seed):
        for end in self.ends:
            end.send(seed)
        results, until = [], time.monotonic() + 3 * self.args.seconds
        for end, process in zip(self.ends, self.processes):
            while not end.poll(0.01) and time.monotonic() < until and process.is_alive():
                pass
            results.append(end.recv() if end.poll() else "hang" if process.is_alive() else "error: the process has ended")
        # The first failure that says more than that a rank has waited.
        return min(results, key=lambda r: (r == "ok", r == "hang"))

    def end(self):
        for p in self.processes:
            p.kill()
        for p in self.processes:
            p.join()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=1, help="of the first schedule")
    p.add_argument("--count", type=int, default=10, help="number of schedules")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--name", help="run this schedule in place of random ones")
    p.add_argument("--bytes", type=int, default=3 << 20, help="of the largest message")
    p.add_argument("--graph", action="store_true", help="capture each schedule in a graph, and launch it twice")
    p.add_argument("--fill", type=int, default=0, help="bytes of memory that each rank holds besides")
    p.add_argument("--seconds", type=float, default=20, help="until a schedule counts as hanging")
    args = p.parse_args()
    job, failures = None, 0
    for seed in range(args.seed, args.seed + args.count):
        job = job or Job(args)
        start = time.monotonic()
        result = job.run(seed)
        print(json.dumps({"event": "schedule", "seed": seed, "ranks": args.ranks, "result": result.split(":")[0],
                          "seconds": round(time.monotonic() - start, 3), **({} if ":" not in result else {"text": result})}),
              flush=True)
        if result != "ok":
            failures += 1
            job.end()
            job = None
    if job:
        job.end()
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
