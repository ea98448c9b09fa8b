#!/usr/bin/env python3
"""A PyTorch program that is interrupted while it works. It knows nothing of sublet.

  --train    train a small network; otherwise multiply matrices
  --until    the file whose appearance ends the program

The program prints one JSON line with the moment of each KeyboardInterrupt, and works on. The last line says whether a
product computed after all interrupts is right."""

import argparse
import json
import os
import time

import torch


def say(event, **fields):
    print(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **fields}), flush=True)


def multiply(a):
    return torch.tanh(a @ a.T / 64)


def trainer():
    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.ReLU()) for _ in range(8)]).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x = torch.randn(256, 2048, device="cuda")

    def step():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return step


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--train", action="store_true")
parser.add_argument("--until", required=True)
arguments = parser.parse_args()
torch.manual_seed(1)
matrix = torch.randn(2048, 2048, device="cuda")
step = trainer() if arguments.train else lambda: multiply(matrix)
step()
torch.cuda.synchronize()
say("ready")
steps = 0
while not os.path.exists(arguments.until):
    try:
        try:
            step()
            steps += 1
            if steps % 50 == 0:
                torch.cuda.synchronize()
        except RuntimeError as e:  # the interrupted operation; KeyboardInterrupt follows, perhaps inside this handler
            say("failed", text=str(e)[:80])
    except KeyboardInterrupt:
        say("interrupted")
torch.cuda.synchronize()
right = torch.allclose(multiply(matrix).cpu(), torch.tanh(matrix.cpu() @ matrix.cpu().T / 64), atol=2e-2)
say("end", steps=steps, right=bool(right))
