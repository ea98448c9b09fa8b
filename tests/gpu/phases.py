#!/usr/bin/env python3
"""A job of CPU parts and GPU parts, as in the pairs of tests/gpu/pairs.py. It knows nothing of sublet.

  --gib G           memory that it fills first, and keeps
  --parts CPU:GPU   seconds of the CPU part, steps of the GPU part; may be given several times, and is done in order
  --calibrate S     instead: steps for S seconds, to tell how many a second takes

Each answer is one JSON line. At the end the memory must be unchanged."""

import argparse
import json
import time


def say(event, **fields):
    print(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **fields}), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--gib", type=int, required=True)
    p.add_argument("--parts", action="append", default=[])
    p.add_argument("--calibrate", type=float)
    o = p.parse_args()

    import torch

    pieces = [torch.full((1 << 28,), i + 1, dtype=torch.int32, device="cuda") for i in range(o.gib)]
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def steps(n):
        b = a
        for _ in range(n):
            b = (a @ b).clamp_(-1, 1)
        torch.cuda.synchronize()

    steps(5)
    say("filled")
    if o.calibrate:
        n, began = 0, time.monotonic()
        while time.monotonic() - began < o.calibrate:
            steps(50)
            n += 50
        say("calibrated", steps_s=n / (time.monotonic() - began))
    for text in o.parts:
        cpu, gpu = text.split(":")
        until = time.monotonic() + float(cpu)
        while time.monotonic() < until:  # the CPU part computes, as a loader or a person's script does
            sum(range(10000))
        for _ in range(int(gpu) // 50):
            steps(50)
        say("part")
    wrong = sum(int(piece[:: 1 << 16].ne(i + 1).sum().item()) for i, piece in enumerate(pieces))
    say("end", wrong=wrong)


if __name__ == "__main__":
    main()
