#!/usr/bin/env python3
"""A PyTorch process that frees most of its memory after every step, as with large activations. It knows nothing of
sublet, and answers each line on stdin with one JSON line.

  work     one step: an activation of 1 GiB for each of --gib, kept until the end of the step, then freed
  exit

The process also keeps --weights GiB of random weights, which every step changes. It checks the result of each step."""

import argparse
import json
import sys
import time

import torch

ROWS = 16384


def say(event, **fields):
    print(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **fields}), flush=True)


def step(weights):
    """Runs a step and checks its sums: each activation is a weight plus the activation's number."""
    activations = [weights[i % len(weights)].float() + i for i in range(arguments.gib)]
    got = torch.stack([a.double().mean() - i for i, a in enumerate(activations)])
    want = torch.stack([weights[i % len(weights)].double().mean() for i in range(arguments.gib)])
    del activations
    if not torch.allclose(got, want, atol=1e-3):
        sys.exit("cacher.py: activations are not what was computed")
    for w in weights:
        w.add_(1.0 / 128)
    torch.cuda.synchronize()


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--gib", type=int, default=40)
parser.add_argument("--weights", type=int, default=4)
parser.add_argument("--device", type=int, default=0)
arguments = parser.parse_args()
torch.cuda.set_device(arguments.device)
generator = torch.Generator(device="cuda").manual_seed(1)
# A weight of 16384 x 16384 values of two bytes is half a GiB; an activation of four-byte values is 1 GiB.
tensors = [torch.rand(ROWS, ROWS, generator=generator, device="cuda", dtype=torch.bfloat16)
           for _ in range(2 * arguments.weights)]
step(tensors)
say("ready", allocated=torch.cuda.memory_allocated(), reserved=torch.cuda.memory_reserved(),
    backend=torch.cuda.get_allocator_backend())
for line in sys.stdin:
    if line.split() != ["work"]:
        break
    began = time.monotonic()
    step(tensors)
    say("done", seconds=time.monotonic() - began)
say("end")
