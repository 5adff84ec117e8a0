"""The models of the training benchmark in plain jax, each as (parameters, loss(parameters, x, y)); Adam by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np


def adam_step(loss: Callable[..., Any], parameters: Any, x: Any, y: Any, blocking: bool = True) -> Callable[[], Any]:
    """A jitted training step whose buffers are donated, as a function without arguments. `blocking`: a call waits."""
    import jax
    import jax.numpy as jnp

    def step(p: Any, m: Any, v: Any, t: Any, x: Any, y: Any) -> Any:
        value, g = jax.value_and_grad(loss)(p, x, y)
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        a, b = 1e-3 / (1 - 0.9**t), 1 / (1 - 0.999**t)
        p = jax.tree.map(lambda p, m, v: p - a * m / (jnp.sqrt(v * b) + 1e-8), p, m, v)
        return value, p, m, v, t

    jitted = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    held = [parameters, zeros, jax.tree.map(jnp.zeros_like, parameters), jnp.zeros(())]

    def run() -> Any:
        value, *held[:] = jitted(*held, x, y)
        return value.block_until_ready() if blocking else value

    return run


def cross_entropy(logits: Any, y: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return -jnp.take_along_axis(jax.nn.log_softmax(logits.astype(jnp.float32)), y[:, None], 1).mean()


def _weight(rng: np.random.Generator, *shape: int) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(rng.standard_normal(shape, dtype=np.float32) * shape[-1] ** -0.5)


def mlp(sizes: tuple[int, ...]) -> tuple[Any, Callable[..., Any]]:
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    parameters = [(_weight(rng, b, a), jnp.zeros(b)) for a, b in itertools.pairwise(sizes)]

    def loss(p: Any, x: Any, y: Any) -> Any:
        for n, (w, b) in enumerate(p):
            x = x @ w.T + b
            x = jax.nn.relu(x) if n < len(p) - 1 else x
        return cross_entropy(x, y)

    return parameters, loss


def cnn() -> tuple[Any, Callable[..., Any]]:
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    parameters = {
        "c1": _weight(rng, 32, 3, 3, 3), "b1": jnp.zeros(32), "c2": _weight(rng, 64, 32, 3, 3) * 0.2,
        "b2": jnp.zeros(64), "w": _weight(rng, 10, 4096), "b": jnp.zeros(10),
    }  # fmt: skip

    def block(x: Any, w: Any, b: Any) -> Any:
        x = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME") + b[:, None, None]
        return jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def loss(p: Any, x: Any, y: Any) -> Any:
        x = block(block(x, p["c1"], p["b1"]), p["c2"], p["b2"])
        return cross_entropy(x.reshape(x.shape[0], -1) @ p["w"].T + p["b"], y)

    return parameters, loss


def gpt(vocab: int, context: int, layers: int, heads: int, width: int, low: bool) -> tuple[Any, Callable[..., Any]]:
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    kind = jnp.bfloat16 if low else jnp.float32
    block = lambda: {  # noqa: E731  a table
        "ln1": jnp.ones(width), "qkv": _weight(rng, 3 * width, width), "proj": _weight(rng, width, width),
        "ln2": jnp.ones(width), "up": _weight(rng, 4 * width, width), "down": _weight(rng, width, 4 * width),
    }  # fmt: skip
    parameters = {
        "wte": _weight(rng, vocab, width) * 0.1, "wpe": _weight(rng, context, width) * 0.1, "ln": jnp.ones(width),
        "blocks": [block() for _ in range(layers)],
    }  # fmt: skip

    def norm(x: Any, g: Any) -> Any:
        x = x.astype(jnp.float32)
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g

    def linear(x: Any, w: Any) -> Any:
        return x.astype(kind) @ w.T.astype(kind)

    def loss(p: Any, x: Any, y: Any) -> Any:
        batch, time = x.shape
        h = p["wte"][x] + p["wpe"]
        for b in p["blocks"]:
            parts = jnp.split(linear(norm(h, b["ln1"]), b["qkv"]), 3, -1)
            q, k, v = (t.reshape(batch, time, heads, -1) for t in parts)
            a = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(batch, time, width)
            h = h + linear(a, b["proj"])
            h = h + linear(jax.nn.gelu(linear(norm(h, b["ln2"]), b["up"])), b["down"])
        return cross_entropy(linear(norm(h, p["ln"]), p["wte"]).reshape(batch * time, -1), y.reshape(-1))

    return parameters, loss
