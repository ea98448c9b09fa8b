#!/usr/bin/env python3
"""cacher.py in JAX: random weights that every step changes, and activations of 1 GiB each that are kept until the end
of a step. The environment chooses the allocator. It knows nothing of sublet. Each line "work" on stdin is a step, which
is checked and answered with one JSON line."""

import argparse
import json
import sys
import time

import jax
import jax.numpy as jnp

ROWS = 16384


def say(event, **fields):
    print(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **fields}), flush=True)


@jax.jit
def activation(w, i):
    return w.astype(jnp.float32) + i


@jax.jit
def mean(a):
    return a.mean(dtype=jnp.float32)


change = jax.jit(lambda w: (w + 1.0 / 128).astype(jnp.bfloat16), donate_argnums=0)


def step(weights, count):
    """Runs a step and checks its means: each activation is a weight plus the activation's number."""
    want = [mean(w) for w in weights]
    activations = [activation(weights[i % len(weights)], jnp.float32(i)) for i in range(count)]
    got = [mean(a) for a in activations]
    wrong = [i for i in range(count) if abs(float(got[i]) - i - float(want[i % len(weights)])) > 0.02]
    if wrong:
        sys.exit(f"cacher_jax.py: activation {wrong[0]} is not what was computed")
    del activations, got, want
    weights[:] = [change(w) for w in weights]
    jax.block_until_ready(weights)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=40)
    parser.add_argument("--weights", type=int, default=4)
    arguments = parser.parse_args()
    # A weight of 16384 x 16384 values of two bytes is half a GiB; an activation of four-byte values is 1 GiB.
    make = jax.jit(lambda key: jax.random.uniform(key, (ROWS, ROWS), jnp.bfloat16))
    weights = [make(jax.random.key(i)) for i in range(2 * arguments.weights)]
    step(weights, arguments.gib)
    say("ready", allocated=sum(w.nbytes for w in weights))
    for line in sys.stdin:
        if line.split() != ["work"]:
            break
        began = time.monotonic()
        step(weights, arguments.gib)
        say("done", seconds=time.monotonic() - began)
    say("end")


if __name__ == "__main__":
    main()
