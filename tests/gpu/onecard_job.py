#!/usr/bin/env python3
"""One rank of a job in PyTorch, as any user writes it: it knows nothing of sublet. The launcher's variables (RANK, LOCAL_RANK,
WORLD_SIZE, ...) tell which rank it is; without them the job has one rank.

Orders are the arguments, or else lines on the first rank's stdin until it ends. All ranks carry out each order, and each
rank says what came of it in one JSON line. An order is a name and settings, such as
`train model=resnet50 mode=ddp batch=64 steps=10`:

  train      trains a new network: losses as hexadecimal numbers, a hash of this rank's parameters, seconds a step
  measure    the seconds of so many steps; the network stays for the next order with the same settings
  allreduce  seconds of one sum of all ranks after a barrier, and of each of several queued ones; the sum is checked
  exchange   seconds of sums of so many bytes in pieces of `bucket` MiB
  graphs     collectives in CUDA graphs, which are replayed with other inputs each time
  big        steps that change `gib` GiB of memory, which is checked at the end
  absent     a sum in which the last rank does not take part

Settings of a network: model (resnet50, transformer), mode (single, ddp, fsdp, tp), dtype (fp32, bf16), batch (of all ranks
together), exact (1: the same bits in every run), bucket (MiB), exchange (0: gradients stay with their rank), ordered (1: the
processors add up gradients, in the order of the ranks)."""

import argparse
import collections
import contextlib
import ctypes
import datetime
import hashlib
import json
import os
import signal
import statistics
import sys
import time
import traceback

PR_SET_PDEATHSIG = 1
MIB = 1 << 20
PIECE = 1 << 28    # words of four bytes of a piece of memory: 1 GiB
REDUCED = 1 << 24  # words of a sum between two changes of that memory: 64 MiB
WRAP = 1 << 20     # words stay below this number, so that nothing overflows
KEPT = 2           # networks that are kept for the next order

# A rank must not outlive its launcher, because torchrun starts each rank in a session of its own.
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

RANK, LOCAL, WORLD = (int(os.environ.get(name, n)) for name, n in (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1)))


def say(event, **fields):
    """Writes a line in one piece, because all ranks write to the same pipe."""
    os.write(1, (json.dumps({"event": event, "rank": RANK, "t_ns": time.monotonic_ns(), **fields}) + "\n").encode())


# ---- networks ----


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.head = width // heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm1(x)
        # A rank of tensor parallelism has some of the heads.
        q, k, v = (f(y).view(*x.shape[:2], -1, self.head).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Predicts the next byte."""

    def __init__(self, width, layers, heads, length):
        super().__init__()
        self.length = length
        self.byte = nn.Embedding(256, width)
        self.place = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, x):
        x = self.byte(x) + self.place
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x)).flatten(0, 1)

    def data(self, batch, generator):
        text = torch.randint(256, (batch, self.length + 1), generator=generator, device=generator.device)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()


class Pictures(nn.Module):
    def __init__(self, small):
        super().__init__()
        import torchvision

        self.side = 32 if small else 224
        net = torchvision.models.resnet18 if small else torchvision.models.resnet50
        self.net = net(num_classes=1000).to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.net(x)

    def data(self, batch, generator):
        x = torch.randn(batch, 3, self.side, self.side, generator=generator, device=generator.device)
        return (x.contiguous(memory_format=torch.channels_last),
                torch.randint(1000, (batch,), generator=generator, device=generator.device))


def tensor_parallel(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cuda", (WORLD,))
    for block in model.blocks:
        parallelize_module(block, mesh, {**{name: ColwiseParallel() for name in ("q", "k", "v", "up")},
                                         **{name: RowwiseParallel() for name in ("out", "down")}})
    return model


def fully_sharded(model, half):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)} if half else {}
    for block in model.blocks:
        fully_shard(block, **policy)
    fully_shard(model, **policy)
    return model


def add_in_order(_, bucket):
    """Sums a bucket of gradients on the processors. Additions of floats are the same on a processor and on a GPU, so sums that
    sublet's kernel makes in the order of the ranks have the same bits."""
    mine = bucket.buffer().mul_(1 / WORLD).cpu()  # DistributedDataParallel also divides before it sums
    parts = [torch.empty_like(mine) for _ in range(WORLD)]
    dist.all_gather(parts, mine, group=CONTROL)
    total = parts[0]
    for part in parts[1:]:
        total += part
    future = torch.futures.Future(devices=[DEVICE] if DEVICE.type == "cuda" else None)
    future.set_result(bucket.buffer().copy_(total))
    return future


class Work:
    """A network in training on data that is the same in every run."""

    RATES = {"resnet50": 0.01, "transformer": 0.02}

    def __init__(self, o):
        torch.use_deterministic_algorithms(bool(o.exact))
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.allow_tf32 = not o.exact  # PyTorch's default is to allow it
        for kernels in ("flash", "mem_efficient", "cudnn"):  # their backward passes add up in no fixed order
            getattr(torch.backends.cuda, f"enable_{kernels}_sdp", lambda _: None)(not o.exact)
        torch.manual_seed(1)
        small = DEVICE.type == "cpu"
        if o.model == "resnet50":
            self.model = Pictures(small)
        else:
            self.model = Transformer(*((64, 2, 8, 32) if small else (768, 8, 12, 512)))
        self.model.to(DEVICE)
        generator = torch.Generator(device=DEVICE).manual_seed(7)
        mine = slice(None)
        if o.mode in ("ddp", "fsdp"):
            each = o.batch // WORLD
            mine = slice(RANK * each, (RANK + 1) * each)
        self.batches = [tuple(t[mine].clone(memory_format=torch.preserve_format) for t in self.model.data(o.batch, generator)) for _ in range(2)]
        self.half = o.dtype == "bf16"
        self.net = self.of_mode(o)
        self.exchange = o.exchange
        # foreach=False: such steps do not take a distributed parameter beside a plain one.
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=self.RATES[o.model], momentum=0.9, foreach=o.mode != "tp")

    def of_mode(self, o):
        if o.mode == "ddp":
            net = nn.parallel.DistributedDataParallel(self.model, device_ids=[DEVICE.index] if DEVICE.type == "cuda" else None,
                                                      bucket_cap_mb=o.bucket)
            if o.ordered:
                net.register_comm_hook(None, add_in_order)
            return net
        if o.mode == "fsdp":
            return fully_sharded(self.model, self.half)
        return tensor_parallel(self.model) if o.mode == "tp" else self.model

    def step(self, n):
        x, y = self.batches[n % len(self.batches)]
        self.optimizer.zero_grad(set_to_none=True)
        with contextlib.nullcontext() if self.exchange else self.net.no_sync():
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=self.half):
                out = self.net(x)
            loss = nn.functional.cross_entropy(out.float(), y.flatten())
            loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fingerprint(self):
        """Returns a hash of this rank's parameters, and the root of the sum of their squares."""
        of_all, squares = hashlib.sha256(), 0.0
        for p in self.net.parameters():
            p = p.detach()
            p = (p.to_local() if hasattr(p, "to_local") else p).contiguous()
            if p.numel():
                of_all.update(p.flatten().view(torch.uint8).cpu().numpy())
                squares += p.double().square().sum().item()
        return of_all.hexdigest()[:16], squares ** 0.5


# ---- orders ----


def synchronize():
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def meet():
    """Waits for all ranks, on the processors."""
    if WORLD > 1:
        dist.barrier(CONTROL)


def train(o):
    """Trains a new network."""
    KEEP.clear()
    work, losses, times = Work(o), [], []
    for n in range(o.steps):
        began = time.monotonic()
        loss = work.step(n)
        losses.append(loss.item())
        times.append(time.monotonic() - began)
        if o.say and (n + 1) % o.say == 0:
            say("step", step=n + 1)
    meet()
    of_all, norm = work.fingerprint()
    return {"losses": [x.hex() for x in losses[:20]], "last": losses[-1], "hash": of_all, "norm": norm, "step_s": statistics.median(times)}


def measure(o):
    """Returns the seconds of so many steps."""
    key = str(o)
    if key not in KEEP:
        while len(KEEP) >= KEPT:
            KEEP.popitem(last=False)
        KEEP[key] = Work(o)
    work = KEEP[key]
    for n in range(o.warm):
        work.step(n)
    synchronize()
    meet()
    began = time.monotonic()
    for n in range(o.steps):
        loss = work.step(n)
    synchronize()
    return {"seconds": time.monotonic() - began, "steps": o.steps, "loss": loss.item()}


def timed(function, times):
    """Returns the median, least and most seconds of a call alone after a barrier, and those of each of queued calls."""
    function()
    alone = []
    for _ in range(times):
        synchronize()
        meet()
        began = time.perf_counter()
        function()
        synchronize()
        alone.append(time.perf_counter() - began)
    meet()
    began = time.perf_counter()
    for _ in range(times):
        function()
    synchronize()
    return {"median_s": statistics.median(alone), "min_s": min(alone), "max_s": max(alone), "queued_s": (time.perf_counter() - began) / times}


def allreduce(o):
    group = CONTROL if o.backend == "gloo" else None
    x = torch.zeros(o.bytes // 4, device=DEVICE)  # sums of zeros stay zeros
    found = timed(lambda: dist.all_reduce(x, group=group), o.times)
    each = torch.arange(len(x), device=DEVICE) % 1000
    x.copy_(each + RANK)
    dist.all_reduce(x, group=group)
    wrong = int(x.ne(each * WORLD + WORLD * (WORLD - 1) // 2).sum().item())
    return {**found, "wrong": wrong}


def exchange(o):
    pieces = torch.zeros(o.bytes // 4, device=DEVICE).split(o.bucket * MIB // 4)

    def all_pieces():
        for piece in pieces:
            dist.all_reduce(piece)

    return {**timed(all_pieces, o.times), "pieces": len(pieces)}


def in_graphs():
    """Returns {operation: (function to capture, input, output, what the output must be for an addend)}. Numbers stay below 2**24."""
    n = 1 << 20
    base = (torch.arange(n, device=DEVICE) % 97).float()
    own = base + 100 * RANK
    of_ranks = 100.0 * (WORLD * (WORLD - 1) // 2)
    x, doubled = torch.empty(n, device=DEVICE), torch.empty(n, device=DEVICE)
    gathered, every = torch.empty(n * WORLD, device=DEVICE), torch.empty(n, device=DEVICE)
    parts, scattered = torch.empty(n * WORLD, device=DEVICE), torch.empty(n, device=DEVICE)

    def sum_of_doubles():
        doubled.copy_(x).mul_(2)
        dist.all_reduce(doubled)
        doubled.add_(1)

    places = torch.arange(WORLD, device=DEVICE).repeat_interleave(n)
    return {
        "all_reduce": (sum_of_doubles, x, own, doubled, lambda i: 2 * (WORLD * base + of_ranks + WORLD * i) + 1),
        "all_gather": (lambda: dist.all_gather_into_tensor(gathered, every), every, own, gathered,
                       lambda i: base.repeat(WORLD) + 100 * places + i),
        "reduce_scatter": (lambda: dist.reduce_scatter_tensor(scattered, parts), parts, own.repeat(WORLD) + 10 * places, scattered,
                           lambda i: WORLD * (base + 10 * RANK + i) + of_ranks),
    }


def captured(function, mode):
    """Returns a graph of the function's work, which has run before, so that communicators exist."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function()
    torch.cuda.current_stream().wait_stream(side)
    synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        function()
    return graph


def graphs(o):
    function, put, start, got, want = in_graphs()[o.operation]
    put.copy_(start)
    graph, wrong = captured(function, o.capture), torch.zeros((), dtype=torch.int64, device=DEVICE)
    synchronize()
    meet()
    began = time.monotonic()
    for i in range(o.times):
        put.copy_(start + i)
        graph.replay()
        wrong += got.ne(want(i)).sum()
    count = int(wrong.item())
    seconds = time.monotonic() - began
    meet()
    del graph
    return {"wrong": count, "words": o.times * got.numel(), "seconds": seconds}


def multiplications(a, b, ms):
    """Returns how many multiplications take so long. A turn that ends in between makes a span long, so the shortest counts."""
    spans = []
    for _ in range(5):
        synchronize()
        began = time.monotonic()
        for _ in range(10):
            torch.matmul(a, a, out=b)
        synchronize()
        spans.append((time.monotonic() - began) / 10)
    return max(1, round(ms / 1e3 / min(spans)))


def of_first(value):
    """Returns the first rank's value."""
    box = [value]
    if WORLD > 1:
        dist.broadcast_object_list(box, 0, CONTROL)
    return box[0]


def big(o):
    """Each step computes for `ms`, adds up 64 MiB of all ranks, and adds the result to all memory."""
    side, words, reduced = (256, 1 << 18, 1 << 16) if DEVICE.type == "cpu" else (8192, PIECE, REDUCED)
    began = time.monotonic()
    pieces = [torch.full((words,), RANK * 1000 + i, dtype=torch.int32, device=DEVICE) for i in range(o.gib)]
    part = torch.full((reduced,), RANK, dtype=torch.int32, device=DEVICE)
    a = torch.randn(side, side, device=DEVICE, dtype=torch.bfloat16)
    b = torch.empty_like(a)
    dist.all_reduce(part)  # makes the connections
    synchronize()
    meet()
    n = of_first(multiplications(a, b, o.ms) if RANK == 0 else None)  # the other ranks are idle meanwhile
    say("filled", seconds=time.monotonic() - began, multiplications=n)
    meet()
    began = last = time.monotonic()
    want, times = 0, []
    while of_first(len(times) < o.steps and time.monotonic() - began < o.seconds):
        for _ in range(n):
            torch.matmul(a, a, out=b)
        step = len(times) % 97
        part.fill_(step + RANK)
        dist.all_reduce(part)  # each rank now has the same sum in every word
        for piece in pieces:
            piece[:reduced].add_(part)
            piece[reduced:].add_(part[0])
            piece.remainder_(WRAP)
        want += WORLD * step + WORLD * (WORLD - 1) // 2
        synchronize()
        now = time.monotonic()
        times.append(now - last)
        last = now
        say("step", step=len(times), seconds=times[-1])
    wrong = sum(int(some.ne((RANK * 1000 + i + want) % WRAP).sum().item())
                for i, piece in enumerate(pieces) for some in piece.split(1 << 24))
    meet()
    return {"wrong": wrong, "words": o.gib * words, "steps": len(times), "step_s": statistics.median(times) if times else None}


def absent(o):
    x = torch.ones(1 << 20, device=DEVICE)
    dist.all_reduce(x)
    synchronize()
    meet()
    say("step", step=1)
    if RANK == WORLD - 1:
        time.sleep(o.seconds)
    else:
        dist.all_reduce(x)
        synchronize()
    return {}


ORDERS = {f.__name__: f for f in (train, measure, allreduce, exchange, graphs, big, absent)}
DEFAULTS = {"model": "resnet50", "mode": "single", "dtype": "fp32", "batch": 64, "exact": 0, "bucket": 25, "exchange": 1, "ordered": 0, "steps": 10, "warm": 5,
            "say": 0, "bytes": MIB, "times": 20, "backend": "nccl", "operation": "all_reduce", "capture": "global", "gib": 1, "seconds": 60,
            "ms": 20}
KEEP = collections.OrderedDict()
DEVICE, CONTROL = torch.device("cpu"), None


def settings(words):
    given = dict(word.split("=", 1) for word in words)
    unknown = set(given) - set(DEFAULTS)
    if unknown:
        raise ValueError(f"unknown settings: {', '.join(sorted(unknown))}")
    return argparse.Namespace(**{**DEFAULTS, **{k: type(DEFAULTS[k])(v) for k, v in given.items()}})


def carry_out(line):
    name, *words = line.split()
    try:
        say("done", order=line, **ORDERS[name](settings(words)))
    except Exception as e:  # the other ranks learn of it from the launcher
        traceback.print_exc()
        say("failed", order=line, error=f"{type(e).__name__}: {e}"[:900])
        sys.stderr.flush()
        os._exit(1)  # an orderly end would wait for ranks that no longer answer


def lines(given):
    """Yields the orders, which all ranks get from the first one."""
    source = iter(given or sys.stdin)
    while True:
        line = of_first(next(source, "exit") if RANK == 0 else None).strip()
        if line == "exit":
            return
        if line:
            yield line


def main():
    global DEVICE, CONTROL
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--timeout", type=int, default=60, help="seconds until a collective fails")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: small networks, to try this program")
    parser.add_argument("orders", nargs="*")
    arguments = parser.parse_args()
    say("started", pid=os.getpid())
    if arguments.device == "cuda":
        # NCCL wants a device for each rank. Gloo does not, so its ranks share the devices that there are.
        DEVICE = torch.device("cuda", LOCAL if arguments.backend == "nccl" else LOCAL % torch.cuda.device_count())
        torch.cuda.set_device(DEVICE)
    if WORLD > 1:
        dist.init_process_group(arguments.backend, timeout=datetime.timedelta(seconds=arguments.timeout))
        CONTROL = dist.new_group(backend="gloo", timeout=datetime.timedelta(hours=1))  # for words, not for work
        meet()
    say("ready", pid=os.getpid(), device=str(DEVICE), devices=torch.cuda.device_count() if DEVICE.type == "cuda" else 0)
    for line in lines(arguments.orders):
        carry_out(line)
    KEEP.clear()
    meet()
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
