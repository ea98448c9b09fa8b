"""A program whose ranks call NCCL in ways that nccl_checks does not: python3 nccl_ranks.py SCENARIO RANKS. It ends with 0 if
each rank found what it expects."""

import ctypes
import multiprocessing
import os
import random
import sys
import threading
import time
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

SUCCESS, CUDA_ERROR, INVALID_ARGUMENT, REMOTE_ERROR, IN_PROGRESS = 0, 1, 4, 6, 7
FLOAT32, SUM = 7, 0
SHRINK_ABORT = 1
COUNT = 3000


class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    """The beginning of ncclConfig_t, as of NCCL 2.14."""
    _fields_ = [("size", c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("blocking", c_int)]


class Rank:
    """One process: a context, a stream and memory. The driver and NCCL are looked up as a program does."""

    def __init__(self, rank, n, barrier, ids):
        self.rank, self.n, self.barrier, self.ids = rank, n, barrier, ids
        self.cu, self.nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
        device, self.context = c_int(), c_void_p()
        self.cuda("cuInit", 0)
        self.cuda("cuDeviceGet", byref(device), rank)
        self.cuda("cuDevicePrimaryCtxRetain", byref(self.context), device)
        self.cuda("cuCtxSetCurrent", self.context)
        self.stream, self.memory = self.new_stream(), c_uint64()
        self.cuda("cuMemAlloc_v2", byref(self.memory), c_size_t(2 * 4 * COUNT))
        self.cuda("cuMemsetD32_v2", self.memory, 0x3f800000, c_size_t(2 * COUNT))

    def cuda(self, name, *args):
        r = getattr(self.cu, name)(*args)
        assert r == 0, f"{name}: {r}"

    def call(self, name, *args, expect=SUCCESS):
        r = getattr(self.nccl, name)(*args)
        assert r == expect, f"{name}: {r}, not {expect}"

    def new_stream(self):
        stream = c_void_p()
        self.cuda("cuStreamCreate", byref(stream), 1)
        return stream

    def new_id(self):
        """All ranks get the identifier that rank 0 has made."""
        own = Id()
        if self.rank == 0:
            self.call("ncclGetUniqueId", byref(own))
            self.ids[:] = bytes(own)
        self.barrier.wait()
        own = Id.from_buffer_copy(bytes(self.ids[:]))
        self.barrier.wait()
        return own

    def new_comm(self, config=None, expect=SUCCESS):
        comm = c_void_p()
        name, more = ("ncclCommInitRankConfig", [byref(config)]) if config else ("ncclCommInitRank", [])
        self.call(name, byref(comm), self.n, self.new_id(), self.rank, *more, expect=expect)
        return comm

    def all_reduce(self, comm, stream=None, expect=SUCCESS):
        self.call("ncclAllReduce", self.memory, c_void_p(self.memory.value + 4 * COUNT), c_size_t(COUNT), FLOAT32, SUM, comm,
                  stream or self.stream, expect=expect)

    def results(self):
        out = (ctypes.c_float * COUNT)()
        self.cuda("cuMemcpyDtoH_v2", out, c_void_p(self.memory.value + 4 * COUNT), c_size_t(4 * COUNT))
        return set(out)

    def error(self, comm):
        error = c_int()
        self.call("ncclCommGetAsyncError", comm, byref(error))
        return error.value

    def await_remote_error(self, comm, seconds=10):
        end = time.monotonic() + seconds
        while self.error(comm) == SUCCESS and time.monotonic() < end:
            time.sleep(0.001)
        assert self.error(comm) == REMOTE_ERROR

    def has_ended(self, stream=None, seconds=15):
        end = time.monotonic() + seconds
        while (r := self.cu.cuStreamQuery(stream or self.stream)) == 600 and time.monotonic() < end:
            time.sleep(0.001)
        return r != 600


def nothing(r):
    comm = r.new_comm()
    r.all_reduce(comm)
    assert r.has_ended() and r.results() == {float(r.n)}
    r.call("ncclCommDestroy", comm)


def a_root_is_one_of_the_ranks(r):
    comm, out = r.new_comm(), c_void_p(r.memory.value + 4 * COUNT)
    for root in (-1, r.n):
        for name in ("ncclGather", "ncclScatter"):
            r.call(name, r.memory, out, c_size_t(1), FLOAT32, root, comm, r.stream, expect=INVALID_ARGUMENT)
    r.all_reduce(comm)
    assert r.has_ended() and r.results() == {float(r.n)}
    r.call("ncclCommDestroy", comm)


def abort_is_an_error_for_others(r):
    """Rank 0 aborts an operation that the last rank never joins. What that lets through must not pass for a result."""
    comm = r.new_comm()
    r.all_reduce(comm)
    assert r.has_ended()
    r.barrier.wait()
    if r.rank < r.n - 1:
        r.all_reduce(comm)
    if r.rank == 0:
        time.sleep(0.3)
        r.call("ncclCommAbort", comm)
    elif r.rank < r.n - 1 and r.has_ended():
        assert r.error(comm) == REMOTE_ERROR
    r.barrier.wait()
    if r.rank:
        r.call("ncclCommAbort", comm)


def abort_without_work_is_no_error(r):
    """A rank that has all results aborts in place of ncclCommDestroy, while others still use what they have."""
    comm = r.new_comm()
    r.all_reduce(comm)
    assert r.has_ended()
    r.barrier.wait()
    if r.rank == 0:
        r.call("ncclCommAbort", comm)
    r.barrier.wait()
    if r.rank:
        assert r.error(comm) == SUCCESS
        r.call("ncclCommDestroy", comm)


def abort_ends_a_graph(r):
    """Rank 0 replays an operation that no other rank replays, and aborts."""
    graph, launch = c_void_p(), c_void_p()
    comm = r.new_comm()
    r.cuda("cuStreamBeginCapture_v2", r.stream, 1)
    r.all_reduce(comm)
    r.cuda("cuStreamEndCapture", r.stream, byref(graph))
    r.cuda("cuGraphInstantiateWithFlags", byref(launch), graph, c_uint64(0))
    r.barrier.wait()
    if r.rank == 0:
        r.cuda("cuGraphLaunch", launch, r.stream)
        time.sleep(0.3)
        assert not r.has_ended(seconds=0)
        r.call("ncclCommAbort", comm)
        assert r.has_ended()
    r.barrier.wait()
    if r.rank:
        r.call("ncclCommAbort", comm)


def abort_ends_a_group(r):
    """Each rank receives from the next one in a group with a send that nobody takes. Rank 0 aborts."""
    comm, place = r.new_comm(), c_void_p(r.memory.value + 4 * COUNT)
    r.call("ncclGroupStart")
    r.call("ncclSend", r.memory, c_size_t(COUNT), FLOAT32, (r.rank + 1) % r.n, comm, r.stream)
    r.call("ncclRecv", place, c_size_t(COUNT), FLOAT32, (r.rank - 1) % r.n, comm, r.stream)
    r.call("ncclRecv", place, c_size_t(COUNT), FLOAT32, (r.rank + 1) % r.n, comm, r.stream)
    r.call("ncclGroupEnd")
    r.barrier.wait()
    if r.rank == 0:
        time.sleep(0.3)
        assert not r.has_ended(seconds=0)
        r.call("ncclCommAbort", comm)
        assert r.has_ended(seconds=5)
    else:
        r.await_remote_error(comm)
        r.call("ncclCommAbort", comm)
        assert r.has_ended(seconds=5)


def communicators_of_a_group_may_have_any_order(r):
    comms = [r.new_comm() for _ in range(3)]
    r.call("ncclGroupStart")
    for comm in comms if r.rank % 2 else reversed(comms):
        r.all_reduce(comm)
    r.call("ncclGroupEnd")
    assert r.has_ended() and r.results() == {float(r.n)}
    for comm in comms:
        r.call("ncclCommDestroy", comm)


def a_pair_may_have_a_communicator_of_its_own(r):
    """PyTorch makes one for sends outside of groups, and puts each communicator in a stream of its own. Then all ranks reduce,
    and send in a group."""
    place, pair, event = c_void_p(r.memory.value + 4 * COUNT), c_void_p(), c_void_p()
    stream, id = r.new_stream(), r.new_id()
    r.cuda("cuEventCreate", byref(event), 2)
    if r.rank < 2:
        r.call("ncclCommInitRank", byref(pair), 2, id, r.rank)
        for _ in range(20):
            r.call("ncclRecv" if r.rank else "ncclSend", place, c_size_t(COUNT), FLOAT32, 1 - r.rank, pair, stream)
            r.cuda("cuEventRecord", event, stream)
            r.cuda("cuStreamWaitEvent", r.stream, event, 0)
    comm = r.new_comm()
    r.all_reduce(comm)
    assert r.has_ended() and r.results() == {float(r.n)}
    for i in range(20):
        value = ctypes.c_uint.from_buffer(ctypes.c_float(r.rank + i))
        r.cuda("cuMemsetD32Async", r.memory, value, c_size_t(COUNT), r.stream)
        r.call("ncclGroupStart")
        r.call("ncclSend", r.memory, c_size_t(COUNT), FLOAT32, (r.rank + 1) % r.n, comm, r.stream)
        r.call("ncclRecv", place, c_size_t(COUNT), FLOAT32, (r.rank - 1) % r.n, comm, r.stream)
        r.call("ncclGroupEnd")
        assert r.has_ended() and r.results() == {float((r.rank - 1) % r.n + i)}
    for c in (pair, comm) if r.rank < 2 else (comm,):
        r.call("ncclCommDestroy", c)


def a_communicator_in_progress_is_no_communicator(r):
    """The last rank is late."""
    config = Config(ctypes.sizeof(Config), 0xcafebeef, 21400, 0)
    comm, child, id = c_void_p(), c_void_p(), r.new_id()
    late = r.rank == r.n - 1
    if late:
        r.barrier.wait()
    r.call("ncclCommInitRankConfig", byref(comm), r.n, id, r.rank, byref(config), expect=IN_PROGRESS)
    if not late:
        assert r.error(comm) == IN_PROGRESS
        r.all_reduce(comm, expect=INVALID_ARGUMENT)
        r.call("ncclCommSplit", comm, 0, 0, byref(child), None, expect=INVALID_ARGUMENT)
        r.call("ncclCommShrink", comm, byref(c_int(r.n - 1)), 1, byref(child), None, 0, expect=INVALID_ARGUMENT)
        r.barrier.wait()
    while r.error(comm) == IN_PROGRESS:
        time.sleep(0.001)
    r.all_reduce(comm)
    assert r.has_ended() and r.results() == {float(r.n)}
    r.call("ncclCommDestroy", comm)


def a_configuration_may_end_before_its_group(r):
    libc, comm, id = ctypes.CDLL(None), c_void_p(), r.new_id()
    libc.mmap.restype = c_void_p
    page = c_void_p(libc.mmap(None, c_size_t(4096), 3, 0x22, -1, c_size_t(0)))
    Config.from_address(page.value).__init__(ctypes.sizeof(Config), 0xcafebeef, 21400, 0)
    r.call("ncclGroupStart")
    r.call("ncclCommInitRankConfig", byref(comm), r.n, id, r.rank, page, expect=IN_PROGRESS)
    libc.munmap(page, c_size_t(4096))
    r.call("ncclGroupEnd")
    while r.error(comm) == IN_PROGRESS:
        time.sleep(0.001)
    r.all_reduce(comm)
    assert r.has_ended() and r.results() == {float(r.n)}
    r.call("ncclCommDestroy", comm)


def abort_ends_a_split(r):
    """The last rank never splits. The others abort in another thread meanwhile."""
    comm, child = r.new_comm(), c_void_p()
    if r.rank < r.n - 1:
        results = []
        thread = threading.Thread(target=lambda: results.append(r.nccl.ncclCommSplit(comm, 0, 0, byref(child), None)))
        thread.start()
        time.sleep(0.3)
        r.call("ncclCommAbort", comm)
        thread.join()
        assert results[0] != SUCCESS and not child
    r.barrier.wait()
    if r.rank == r.n - 1:
        r.call("ncclCommAbort", comm)


def abort_ends_a_shrink(r):
    """Rank 0, which the others meet, never shrinks."""
    comm, child = r.new_comm(), c_void_p()
    if r.rank == 1:
        results = []
        thread = threading.Thread(target=lambda: results.append(r.nccl.ncclCommShrink(comm, byref(c_int(2)), 1, byref(child),
                                                                                      None, 0)))
        thread.start()
        time.sleep(0.3)
        r.call("ncclCommAbort", comm)
        thread.join()
        assert results[0] != SUCCESS and not child
    r.barrier.wait()
    if r.rank != 1:
        r.call("ncclCommAbort", comm)


def shrink_ends_what_waits(r):
    """The last rank never joins an operation. The others exclude it, which ends theirs, and go on in the same stream."""
    comm, child = r.new_comm(), c_void_p()
    if r.rank < r.n - 1:
        r.all_reduce(comm)
    r.barrier.wait()  # an abort is an error for those that come later
    if r.rank < r.n - 1:
        r.call("ncclCommShrink", comm, byref(c_int(r.n - 1)), 1, byref(child), None, SHRINK_ABORT)
        r.all_reduce(child)
        assert r.has_ended(seconds=5) and r.results() == {float(r.n - 1)}
        r.call("ncclCommDestroy", child)
        r.call("ncclCommAbort", comm)
    r.barrier.wait()
    if r.rank == r.n - 1:
        r.call("ncclCommAbort", comm)


def splits_and_shrinks_follow_one_another(r):
    """Not all ranks take part in a shrink."""
    comm, children = r.new_comm(), []
    for excluded in (r.n - 1, 0, 0, None):
        children.append((c_void_p(), r.n if excluded is None else r.n - 1))
        if excluded is None:
            r.call("ncclCommSplit", comm, 0, 0, byref(children[-1][0]), None)
        elif r.rank == excluded:
            children.pop()
        else:
            r.call("ncclCommShrink", comm, byref(c_int(excluded)), 1, byref(children[-1][0]), None, 0)
    for child, n in children:
        r.all_reduce(child)
        assert r.has_ended() and r.results() == {float(n)}
        r.call("ncclCommDestroy", child)
    r.call("ncclCommDestroy", comm)


def a_thread_is_not_taken_for_another_one(r):
    """CU_STREAM_PER_THREAD is another stream in each thread. Rank 0 uses it in two threads before the others come."""
    comm, stream, submitted = r.new_comm(), c_void_p(2), threading.Semaphore(0)

    def use():
        r.cuda("cuCtxSetCurrent", r.context)
        for _ in range(10):
            r.all_reduce(comm, stream)
        submitted.release()
        time.sleep(0.3)  # the stream stays

    if r.rank:
        r.barrier.wait()
    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
        submitted.acquire()
    if not r.rank:
        r.barrier.wait()
    for thread in threads:
        thread.join()
    r.all_reduce(comm)
    assert r.has_ended() and r.results() == {float(r.n)}
    r.call("ncclCommDestroy", comm)


def an_operation_that_is_half_submitted_is_the_last_one(r):
    """The driver refuses rank 1's last copy. Flags that the other ranks set are left, which no operation may take for its
    own."""
    comm = r.new_comm()
    if r.rank == 1:
        r.call("ncclAllReduce", r.memory, c_void_p(r.memory.value + (1 << 30)), c_size_t(COUNT), FLOAT32, SUM, comm, r.stream, expect=CUDA_ERROR)
        assert r.error(comm) == CUDA_ERROR
        r.all_reduce(comm, expect=CUDA_ERROR)
    else:
        r.all_reduce(comm)
    r.barrier.wait()
    r.call("ncclCommAbort", comm)
    assert r.has_ended()


def a_rank_that_exits_is_an_error_only_for_later_operations(r, leave=ctypes.CDLL(None).exit):
    """Rank 0, which serves the name, ends as many programs do: its work is done, and it destroys nothing."""
    comm = r.new_comm()
    r.all_reduce(comm)
    assert r.has_ended()
    r.barrier.wait()
    if r.rank == 0:
        leave(0)
    time.sleep(0.3)
    assert r.error(comm) == SUCCESS
    r.all_reduce(comm)
    r.await_remote_error(comm)
    r.call("ncclCommAbort", comm)
    assert r.has_ended()


def a_rank_may_end_by_os_exit(r):
    a_rank_that_exits_is_an_error_only_for_later_operations(r, os._exit)


def os_exit_amid_work_is_an_error(r):
    a_rank_that_exits_amid_its_work_is_an_error(r, os._exit)


def a_rank_that_exits_amid_its_work_is_an_error(r, leave=ctypes.CDLL(None).exit):
    comm = r.new_comm()
    r.all_reduce(comm)
    assert r.has_ended()
    r.barrier.wait()
    if r.rank == 0:
        r.all_reduce(comm)
        leave(0)
    r.await_remote_error(comm)
    r.call("ncclCommAbort", comm)


def streams_wait_for_events(r):
    """Rank 1 is late. A stream of rank 0 waits for the event behind the operation, and one for an event without such work."""
    comm, event, other, late, plain = r.new_comm(), c_void_p(), c_void_p(), r.new_stream(), r.new_stream()
    for e in (event, other):
        r.cuda("cuEventCreate", byref(e), 2)
    if r.rank:
        r.barrier.wait()
    r.all_reduce(comm)
    if r.rank == 0:
        r.cuda("cuEventRecord", event, r.stream)
        r.cuda("cuStreamWaitEvent", late, event, 0)
        r.cuda("cuEventRecord", other, plain)
        r.cuda("cuStreamWaitEvent", r.stream, other, 0)
        r.barrier.wait()
    assert r.has_ended() and r.has_ended(late) and r.results() == {float(r.n)}
    r.call("ncclCommDestroy", comm)


def events_order_streams_that_come_and_go(r):
    """Each stream sets a word, and another one that waits for its event takes the word. Meanwhile streams wait for other ranks,
    and streams and events are destroyed, so that their handles are used again."""
    comm, rounds, chosen = r.new_comm(), 300, random.Random(r.rank)
    words, streams, events = c_uint64(), [r.new_stream() for _ in range(5)], {}
    r.cuda("cuMemAlloc_v2", byref(words), c_size_t(4 * (rounds + 1)))
    for i in range(rounds):
        a, b = chosen.sample(range(len(streams)), 2)
        if i % 10 == 0:
            r.all_reduce(comm, streams[i // 10 % len(streams)])
        if a not in events:
            events[a] = c_void_p()
            r.cuda("cuEventCreate", byref(events[a]), 2)
        r.cuda("cuMemsetD32Async", words, i + 1, c_size_t(1), streams[a])
        r.cuda("cuEventRecord", events[a], streams[a])
        r.cuda("cuStreamWaitEvent", streams[b], events[a], 0)
        r.cuda("cuMemcpyDtoDAsync_v2", c_uint64(words.value + 4 * (i + 1)), words, c_size_t(4), streams[b])
        event = c_void_p()
        r.cuda("cuEventCreate", byref(event), 2)
        r.cuda("cuEventRecord", event, streams[b])
        if i % 7 == 0:
            r.cuda("cuStreamDestroy_v2", streams[a])
            streams[a] = r.new_stream()
        for stream in streams:
            r.cuda("cuStreamWaitEvent", stream, event, 0)
        r.cuda("cuEventDestroy_v2", event)
        if i % 5 == 0:
            r.cuda("cuEventDestroy_v2", events.pop(a))
    for stream in streams:
        assert r.has_ended(stream, seconds=30)
    out = (ctypes.c_uint32 * (rounds + 1))()
    r.cuda("cuMemcpyDtoH_v2", out, words, c_size_t(4 * (rounds + 1)))
    assert list(out)[1:] == list(range(1, rounds + 1))
    r.call("ncclCommDestroy", comm)


def a_communicator_of_the_real_nccl_need_not_block(r):
    comm = r.new_comm(Config(ctypes.sizeof(Config), 0xcafebeef, 21400, 0), expect=IN_PROGRESS)
    half, value = c_void_p(), c_int(-1)
    while r.error(comm) == IN_PROGRESS:
        time.sleep(0.001)
    r.all_reduce(comm)
    assert r.has_ended() and r.results() == {float(r.n)}
    r.call("ncclCommSplit", comm, 0, -r.rank, byref(half), None)
    for name, expected in (("ncclCommCuDevice", r.rank), ("ncclCommUserRank", r.n - 1 - r.rank), ("ncclCommCount", r.n)):
        r.call(name, half, byref(value))
        assert value.value == expected, name
    r.call("ncclCommDestroy", half)
    r.call("ncclCommDestroy", comm)


def main():
    scenario, n = globals()[sys.argv[1]], int(sys.argv[2])
    barrier, ids = multiprocessing.Barrier(n), multiprocessing.Array("B", 128)

    def run(rank):
        scenario(Rank(rank, n, barrier, ids))

    ranks = [multiprocessing.get_context("fork").Process(target=run, args=(i,), daemon=True) for i in range(n)]
    for p in ranks:
        p.start()
    end = time.monotonic() + 40
    while any(p.exitcode is None for p in ranks) and time.monotonic() < end:
        if any(p.exitcode for p in ranks):
            end = min(end, time.monotonic() + 1)
        time.sleep(0.01)
    print([p.exitcode for p in ranks], flush=True)
    for p in ranks:
        if p.exitcode is None:
            p.kill()
    os._exit(0 if all(p.exitcode == 0 for p in ranks) else 1)


main()
