"""Row kernels over 4096x4096 floats: 64 MiB in, 64 MiB out, everything else should stay in cache; short rows; and a
norm's weight gradient, which adds up columns beside values for each row."""

from __future__ import annotations

import numpy as np

import pyflame as pf
from benchmarks.peers import have, jax_contender, onnx_contender, torch_contenders
from benchmarks.timing import Result, measure

SHAPE = (4096, 4096)
SHORT = (1 << 20, 8)


def _onnx(op: str, constants: dict[str, np.ndarray], x: np.ndarray, **attributes: object) -> dict:
    if not have("onnx"):
        return {}
    import onnx

    node = onnx.helper.make_node(op, ["x", *constants], ["y"], **attributes)
    return onnx_contender([node], {"x": x}, constants)


def run() -> list[Result]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(SHAPE, dtype=np.float32)
    w = rng.standard_normal(SHAPE[1], dtype=np.float32)
    short, column = x.reshape(-1)[: SHORT[0] * SHORT[1]].reshape(SHORT), x[:, :1].copy()
    t, tw, ts, tc = map(pf.tensor, (x, w, short, column))
    softmax = pf.jit(lambda v: pf.softmax(v, axis=-1))
    layer = pf.jit(lambda v, g: pf.layer_norm(v, (SHAPE[1],), g))
    rms = pf.jit(lambda v, g: pf.rms_norm(v, (SHAPE[1],), g))
    weight = pf.jit(lambda v, g, c: ((v - c) * c * g).sum(0))

    def numpy_softmax() -> np.ndarray:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def jax_layer(jax: object, jnp: object, v: object, g: object) -> object:
        mean = v.mean(-1, keepdims=True)
        return (v - mean) / jnp.sqrt(v.var(-1, keepdims=True) + 1e-5) * g

    jobs = [
        ("softmax 4096x4096 f32", 2 * x.nbytes, 1.0, {
            "pyflame": lambda: pf.eval(softmax(t)), "numpy": numpy_softmax,
            **torch_contenders(lambda torch, v: torch.softmax(v, -1), x),
            **jax_contender(lambda jax, jnp, v: jax.nn.softmax(v, -1), x), **_onnx("Softmax", {}, x, axis=-1),
        }),
        ("layer_norm 4096x4096 f32", 2 * x.nbytes, 1.0, {
            "pyflame": lambda: pf.eval(layer(t, tw)),
            **torch_contenders(lambda torch, v, g: torch.nn.functional.layer_norm(v, (SHAPE[1],), g), x, w),
            **jax_contender(jax_layer, x, w), **_onnx("LayerNormalization", {"g": w}, x, axis=-1),
        }),
        ("rms_norm 4096x4096 f32", 2 * x.nbytes, 0.9, {
            "pyflame": lambda: pf.eval(rms(t, tw)),
            **torch_contenders(lambda torch, v, g: torch.nn.functional.rms_norm(v, (SHAPE[1],), g, 1e-5), x, w),
            **jax_contender(lambda jax, jnp, v, g: v / jnp.sqrt((v * v).mean(-1, keepdims=True) + 1e-5) * g, x, w),
        }),
        ("softmax 1048576x8 f32", 2 * short.nbytes, 1.0, {
            "pyflame": lambda: pf.eval(softmax(ts)), **torch_contenders(lambda torch, v: torch.softmax(v, -1), short),
            **jax_contender(lambda jax, jnp, v: jax.nn.softmax(v, -1), short),
        }),
        ("a norm's weight gradient 4096x4096 f32", 2 * x.nbytes, 0.9, {
            "pyflame": lambda: pf.eval(weight(t, t, tc)),
            **torch_contenders(lambda torch, v, g, c: ((v - c) * c * g).sum(0), x, x, column),
            **jax_contender(lambda jax, jnp, v, g, c: ((v - c) * c * g).sum(0), x, x, column),
        }),
    ]  # fmt: skip
    return [Result(name, nbytes, "GB/s", measure(c, budget=1.5), reach) for name, nbytes, reach, c in jobs]
