#!/usr/bin/env python3
"""One rank of a job in PyTorch that adds its gradients up by NCCL in every step. It knows nothing of sublet. The launcher's
variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) tell which rank it is.

  --gib G     memory of this rank, in tensors of 1 GiB, all of which every step changes
  --steps N   steps to do; each computes for about --ms, adds up 64 MiB of all ranks, and adds the result to all memory
  --ms M      length of the computation of a step; or
  --multiplications N   what it computes, as an earlier run has told

Each answer is one JSON line. At the end all memory must be what the steps make of it, and the count of wrong words is said."""

import argparse
import datetime
import json
import os
import time

WORDS = 1 << 28        # 1 GiB of four-byte words
REDUCED = 1 << 24      # 64 MiB of four-byte words
WRAP = 1 << 20         # words stay below this number, so that nothing is rounded or overflows
PATIENCE_S = 500       # how long NCCL waits for the other rank: it may wait for its turn


def say(event, **fields):
    print(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **fields}), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--gib", type=int, required=True)
    p.add_argument("--steps", type=int, required=True)
    p.add_argument("--ms", type=float, default=20)
    p.add_argument("--multiplications", type=int, default=0)
    o = p.parse_args()

    import torch
    import torch.distributed as dist

    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    pieces = [torch.full((WORDS,), rank * 1000 + i, dtype=torch.int32, device=device) for i in range(o.gib)]
    torch.cuda.synchronize()
    say("filled", pid=os.getpid())
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=PATIENCE_S))
    part = torch.empty(REDUCED, dtype=torch.int32, device=device)
    a = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    b = torch.empty_like(a)

    def compute(n):
        for _ in range(n):
            torch.matmul(a, a, out=b)

    # As many multiplications as take --ms; a turn that ends in between makes a span long, so the shortest counts.
    compute(3)
    torch.cuda.synchronize()
    spans = []
    for _ in range(5):
        began = time.monotonic()
        compute(10)
        torch.cuda.synchronize()
        spans.append((time.monotonic() - began) / 10)
    n = o.multiplications or max(1, round(o.ms / 1e3 / min(spans)))
    part.fill_(rank)
    dist.all_reduce(part)  # makes NCCL's connections
    torch.cuda.synchronize()
    say("ready", multiplications=n, reserved=torch.cuda.memory_reserved())

    want = 0
    for step in range(o.steps):
        compute(n)
        part.fill_(step % 97 + rank)
        dist.all_reduce(part)  # each rank now has the same sum in every word
        for piece in pieces:
            piece[:REDUCED].add_(part)
            piece[REDUCED:].add_(part[0])
            piece.remainder_(WRAP)
        want += world * (step % 97) + world * (world - 1) // 2
        if step % 20 == 0:
            torch.cuda.synchronize()
            say("step", step=step)
    torch.cuda.synchronize()
    wrong = sum(int(some.ne((rank * 1000 + i + want) % WRAP).sum().item()) for i, piece in enumerate(pieces) for some in piece.split(1 << 24))
    dist.barrier(device_ids=[local])
    say("end", wrong=wrong, steps=o.steps, words=o.gib * WORDS)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
