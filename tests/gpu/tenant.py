#!/usr/bin/env python3
"""A process that holds memory on the GPU as real ones do, and obeys the lines on stdin. It knows nothing of sublet.
Each answer is one JSON line.

  --role weights   random weights that are read and never written, and a small adapter beside them
                   infer: every weight is multiplied by a vector   train: the same, then the adapter and its moments change
  --role zeros     memory that was made and not used yet
  --role jax       JAX with as much memory preallocated (XLA_PYTHON_CLIENT_MEM_FRACTION)
                   work: one small computation

At the end the weights must be unchanged."""

import argparse
import json
import sys
import time

WIDTH = 16384  # a square matrix of this width, with two bytes a value, is 512 MiB


def say(event, **fields):
    print(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **fields}), flush=True)


class Weights:
    ADAPTER = 1 << 27  # values of four bytes: half a GiB, and its two moments take as much each

    def __init__(self, gib):
        import torch

        self.torch = torch
        random = torch.Generator(device="cuda").manual_seed(1)
        self.weights = [torch.randn(WIDTH, WIDTH, generator=random, device="cuda", dtype=torch.bfloat16)
                        for _ in range(gib * 2)]
        self.x = torch.randn(WIDTH, 1, generator=random, device="cuda", dtype=torch.bfloat16)
        self.first = self.sums()
        self.adapter = None

    def sums(self):
        return [w.view(self.torch.int16).sum(dtype=self.torch.int64).item() for w in self.weights]

    def infer(self):
        y = self.x
        for w in self.weights:
            y = w @ y
            y = y / y.norm()
        return y.sum().item()

    def train(self):
        torch = self.torch
        if self.adapter is None:
            self.adapter = torch.nn.Parameter(torch.zeros(self.ADAPTER, device="cuda"))
            self.optimizer = torch.optim.Adam([self.adapter], lr=1e-3)
        self.optimizer.zero_grad()
        (self.adapter * (1.0 + self.infer())).square().add(self.adapter).mean().backward()
        self.optimizer.step()
        self.adapter.grad = None
        return 0.0

    def unharmed(self):
        return self.sums() == self.first


class Zeros:
    def __init__(self, gib):
        import torch

        self.pieces = [torch.zeros(1 << 28, device="cuda") for _ in range(gib)]
        self.counter = torch.zeros(1, device="cuda")

    def work(self):
        self.counter += 1
        return self.counter.item()

    def unharmed(self):
        return not any(p.any().item() for p in self.pieces)


class Jax:
    def __init__(self, _):
        import jax

        self.x = jax.numpy.arange(1 << 20, dtype=jax.numpy.float32)
        self.first = self.work()

    def work(self):
        return float((self.x * 2).sum())

    def unharmed(self):
        return self.work() == self.first


ROLES = {"weights": Weights, "zeros": Zeros, "jax": Jax}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--role", choices=ROLES, required=True)
    parser.add_argument("--gib", type=int, default=0)
    arguments = parser.parse_args()
    tenant = ROLES[arguments.role](arguments.gib)
    say("ready")
    for line in sys.stdin:
        order = line.strip()
        began = time.monotonic()
        value = getattr(tenant, order)()
        say("done", order=order, value=value, seconds=time.monotonic() - began)
    unharmed = tenant.unharmed()
    say("end", unharmed=unharmed)
    if not unharmed:
        sys.exit("tenant.py: the memory is not what it was")


if __name__ == "__main__":
    main()
