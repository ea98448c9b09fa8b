"""JAX: a training loop as one program, and its libraries. The environment chooses the allocator."""

import os

import jax
import jax.numpy as jnp
import numpy as np

import common


def training():
    """The whole loop is one compiled scan; states are donated."""
    def layers(key):
        keys = jax.random.split(key, 4)
        sizes = [256, 1024, 1024, 1024, 10]
        return [(jax.random.normal(k, (i, o)) * (2 / i) ** 0.5, jnp.zeros(o)) for k, i, o in zip(keys, sizes, sizes[1:])]

    def loss(w, x, y):
        for m, b in w[:-1]:
            x = jax.nn.relu(x @ m + b)
        x = x @ w[-1][0] + w[-1][1]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1))

    @jax.jit
    def epoch(state, key):
        def step(state, key):
            w, m = state
            x = jax.random.normal(key, (512, 256))
            y = (jnp.abs(x[:, :10]).argmax(1)).astype(jnp.int32)
            value, g = jax.value_and_grad(loss)(w, x, y)
            m = jax.tree.map(lambda a, b: 0.9 * a + b, m, g)
            return (jax.tree.map(lambda a, b: a - 0.01 * b, w, m), m), value

        return jax.lax.scan(step, state, jax.random.split(key, 40))

    w = layers(jax.random.key(0))
    state, losses = (w, jax.tree.map(jnp.zeros_like, w)), []
    for i in range(12):
        state, values = epoch(state, jax.random.key(i))
        losses.append(np.asarray(values))
    common.result("losses", *losses)
    common.result("parameters", *jax.tree.leaves(state))


def arrays():
    """One operation at a time, results fetched and sent back."""
    key = jax.random.key(1)
    a = jax.random.normal(key, (600, 600))
    for i in range(30):
        a = jnp.tanh(a @ a.T / 600) + jnp.roll(a, i, 0)
        a = jax.device_put(np.asarray(a))
    common.result("loop", a)
    f = jnp.fft.fft2(a)
    common.result("fft", f.real, f.imag)
    common.result("solve", jnp.linalg.solve(a + 40 * jnp.eye(600), a))
    common.result("sort", jnp.sort(a.ravel()), jnp.cumsum(a, 0))
    common.result("qr", jnp.abs(jnp.linalg.qr(a)[1]))
    held = [jnp.full((1 << (10 + i),), i, jnp.float32) for i in range(14)]
    common.result("held", *[h.sum() for h in held])


def large():
    """Changes and sums LARGE_GIB arrays of 1 GiB twelve times, then trains beside them."""
    n = int(os.environ.get("LARGE_GIB", "1"))

    @jax.jit
    def fill(key):
        return jax.random.bits(key, (1 << 28,), jnp.uint32)

    @jax.jit
    def change(a):
        return a * jnp.uint32(5) + jnp.uint32(7), (a ^ (a >> 7)).sum(dtype=jnp.uint32)

    held = [fill(jax.random.key(i)) for i in range(n)]
    for _ in range(12):
        for i in range(n):
            held[i], total = change(held[i])
            common.result(f"sum-{i}", total)
    training()


if __name__ == "__main__":
    common.run({"training": training, "arrays": arrays, "large": large})
