"""The inference of the part `overflow-inference`: an embedding, of which a token reads a row, and 12 layers that
together have the same size, which a token reads in full. The argument is the memory in MiB; a line on stdin runs some
tokens ("run") or names an order of priorities ("best", "worst")."""

import json
import sys
import time

import torch

import sublet

MIB = 1 << 20
WIDTH = 8192
LAYERS = 12


def say(event, **more):
    print(json.dumps({"event": event, **more}), flush=True)


def set_order(order, embedding):
    sublet.set_priority(embedding, -1 if order == "best" else 1)


def run(embedding, layers):
    times = []
    for token in range(5):
        began = time.perf_counter()
        with torch.inference_mode():
            x = embedding[(token * 7919) % embedding.shape[0]].clone()  # a lookup copies the row
            for a, b in layers:
                x = torch.tanh(x + b @ torch.tanh(a @ x))
            x.sum().item()  # waits for the result, as a program does that picks the next token
        times.append((time.perf_counter() - began) * 1e3)
    return sorted(times)[len(times) // 2]


def main():
    half = int(sys.argv[1]) * MIB // 2
    torch.manual_seed(1)
    # Many programs load their memory in this order: the most needed layers come last.
    embedding = torch.randn(half // (2 * WIDTH), WIDTH, dtype=torch.bfloat16, device="cuda")
    rows = half // LAYERS // 2 // (2 * WIDTH)
    layers = [(torch.randn(rows, WIDTH, dtype=torch.bfloat16, device="cuda"),
               torch.randn(WIDTH, rows, dtype=torch.bfloat16, device="cuda")) for _ in range(LAYERS)]
    torch.cuda.synchronize()
    say("ready")
    for line in sys.stdin:
        if line.strip() == "run":
            say("done", ms=run(embedding, layers))
        else:
            set_order(line.strip(), embedding)
            say("done", ms=0)


if __name__ == "__main__":
    main()
