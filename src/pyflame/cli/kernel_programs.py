"""Typical programs whose kernels `pyflame kernels` builds: fused ones, and one or more for each hand-written kernel.

A program is a function that gives another one and its example inputs. Shapes are those of real use, not of tests: long
rows, many of them, bfloat16 where models have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pyflame as pf
from pyflame import nn, optim
from pyflame.core.encoding import row_bytes

Program = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
PROGRAMS: dict[str, Program] = {}


def _program(fn: Program) -> Program:
    PROGRAMS[fn.__name__.strip("_")] = fn
    return fn


def _input(*shape: int, dtype: Any = pf.float32) -> pf.Tensor:
    return pf.tensor(np.zeros(shape, pf.as_dtype(dtype).numpy))


def _with_gradients(fn: Callable[..., Any], *inputs: pf.Tensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function and the gradients of its sum, by all its inputs."""
    return pf.value_and_grad(lambda *args: fn(*args).sum(), argnums=tuple(range(len(inputs)))), inputs


# --- fused ------------------------------------------------------------------------------------------------------------


@_program
def chain() -> Any:
    return (lambda x, y: pf.gelu(x * 0.5 + y).tanh() * x), (_input(4096, 1024), _input(1024))


@_program
def chain_bfloat16() -> Any:
    return (lambda x, y: pf.silu(x) * y), (_input(4096, 1024, dtype=pf.bfloat16), _input(4096, 1024, dtype=pf.bfloat16))


@_program
def transpose() -> Any:
    return (lambda x: x.T.contiguous() + 1.0), (_input(1024, 2048),)


@_program
def softmax() -> Any:
    return (lambda x: pf.softmax(x, axis=-1)), (_input(1024, 4096, dtype=pf.bfloat16),)


@_program
def softmax_long_rows() -> Any:
    return (lambda x: pf.softmax(x, axis=-1)), (_input(16, 100_003),)


@_program
def layer_norm() -> Any:
    return _with_gradients(
        lambda x, w, b: pf.layer_norm(x, (1024,), w, b), _input(2048, 1024), _input(1024), _input(1024)
    )


@_program
def rms_norm() -> Any:
    return _with_gradients(lambda x, w: pf.rms_norm(x, (1024,), w), _input(2048, 1024), _input(1024))


@_program
def cross_entropy() -> Any:
    labels = _input(256, dtype=pf.int64)
    return pf.value_and_grad(lambda x: pf.cross_entropy(x, labels)), (_input(256, 50_304, dtype=pf.bfloat16),)


@_program
def reductions() -> Any:
    return (lambda x: (x.sum(), x.mean(axis=0), x.amax(axis=1), x.argmax(axis=1))), (_input(4096, 1024),)


@_program
def embedding() -> Any:
    return (lambda table, index: pf.embedding(table, index)), (_input(50_304, 64), _input(512, dtype=pf.int64))


@_program
def dropout() -> Any:
    return (lambda x: pf.dropout(x, 0.1, training=True)), (_input(2048, 1024),)


@_program
def adamw() -> Any:
    weight = nn.Parameter(_input(1024, 1024))
    optimizer = optim.AdamW([weight], lr=1e-3)

    def step(gradient: pf.Tensor) -> None:
        weight.grad = gradient
        optimizer.step()
        weight.grad = None

    return step, (_input(1024, 1024),)


# --- with kernels of their own ----------------------------------------------------------------------------------------


@_program
def matmul() -> Any:
    return (lambda x, y: x @ y), (_input(1024, 1024), _input(1024, 1024))


@_program
def matmul_odd() -> Any:
    return (lambda x, y: x @ y), (_input(3, 1000, 77), _input(3, 77, 131))


@_program
def matmul_bfloat16() -> Any:
    return _with_gradients(lambda x, y: x @ y, *(_input(4096, 4096, dtype=pf.bfloat16) for _ in range(2)))


@_program
def matmul_float16() -> Any:
    return (lambda x, y: x @ y), (_input(4096, 4096, dtype=pf.float16), _input(4096, 4096, dtype=pf.float16))


@_program
def matmul_float64() -> Any:
    return (lambda x, y: x @ y), (_input(4096, 4096, dtype=pf.float64), _input(4096, 4096, dtype=pf.float64))


@_program
def matmul_int8() -> Any:
    return (lambda x, y: pf._int_mm(x, y.T)), (_input(4096, 4096, dtype=pf.int8), _input(4096, 4096, dtype=pf.int8))


@_program
def matmul_16_rows() -> Any:
    return (lambda x, w: pf.linear(x, w)), (_input(16, 4096, dtype=pf.bfloat16), _input(4096, 4096, dtype=pf.bfloat16))


@_program
def linear_bfloat16() -> Any:
    return _with_gradients(
        lambda x, w, b: pf.gelu(pf.linear(x, w, b)),
        *(_input(*shape, dtype=pf.bfloat16) for shape in ((1024, 1024), (4096, 1024), (4096,))),
    )


@_program
def conv2d() -> Any:
    return _with_gradients(
        lambda x, w: pf.conv2d(x, w, stride=2, padding=1), _input(8, 32, 56, 56), _input(64, 32, 3, 3)
    )


@_program
def conv2d_bfloat16() -> Any:
    return _with_gradients(
        lambda x, w: pf.conv2d(x, w, stride=2, padding=1),
        _input(8, 32, 56, 56, dtype=pf.bfloat16),
        _input(64, 32, 3, 3, dtype=pf.bfloat16),
    )


@_program
def conv1d_grouped() -> Any:
    return _with_gradients(lambda x, w: pf.conv1d(x, w, groups=4), _input(4, 32, 500), _input(32, 8, 5))


@_program
def max_pool2d() -> Any:
    return _with_gradients(lambda x: pf.max_pool2d(x, 3, stride=2, padding=1), _input(8, 32, 56, 56))


@_program
def max_pool2d_indices() -> Any:
    return (lambda x: pf.max_pool2d(x, 2, return_indices=True)), (_input(8, 32, 56, 56),)


@_program
def avg_pool2d() -> Any:
    return _with_gradients(lambda x: pf.avg_pool2d(x, 2), _input(8, 32, 56, 56))


@_program
def embedding_gradient() -> Any:
    index = _input(4096, dtype=pf.int64)
    return pf.grad(lambda table: pf.embedding(table, index).sum()), (_input(50_304, 64),)


@_program
def scatter_reduce() -> Any:
    index = _input(4096, 64, dtype=pf.int64)
    return (lambda x, y: pf.scatter_reduce(x, 0, index, y, "amax")), (_input(512, 64), _input(4096, 64))


@_program
def scatter_add_bfloat16() -> Any:
    index = _input(4096, 64, dtype=pf.int64)
    return (
        (lambda x, y: pf.scatter_add(x, 0, index, y)),
        (_input(512, 64, dtype=pf.bfloat16), _input(4096, 64, dtype=pf.bfloat16)),
    )


@_program
def sort() -> Any:
    return (lambda x: pf.sort(x, axis=-1)), (_input(64, 5000),)


@_program
def topk() -> Any:
    return (lambda x: pf.topk(x, 40)), (_input(16, 50_304),)


@_program
def cumsum() -> Any:
    return (lambda x: (pf.cumsum(x, 1), pf.cumsum(x, 0))), (_input(256, 10_000),)


@_program
def cumprod() -> Any:
    return (lambda x: pf.cumprod(x, 1)), (_input(256, 1000),)


def _encoded_linear(name: str, rows: int) -> Any:
    data = _input(4096, row_bytes(name, 4096), dtype=pf.uint8)
    return (
        (lambda x, w, b: pf.encoded_linear(x, w, b, encoding=name, width=4096)),
        (_input(rows, 4096, dtype=pf.bfloat16), data, _input(4096, dtype=pf.bfloat16)),
    )


@_program
def encoded_linear_q4_0() -> Any:
    return _encoded_linear("q4_0", 1)


@_program
def encoded_linear_q4_k() -> Any:
    return _encoded_linear("q4_k", 16)


def _normed(name: str | None) -> Any:
    """A row's norm and the layer behind it."""
    data = (
        _input(4096, 4096, dtype=pf.bfloat16) if name is None else _input(4096, row_bytes(name, 4096), dtype=pf.uint8)
    )

    def layer(x: pf.Tensor, scale: pf.Tensor, w: pf.Tensor) -> pf.Tensor:
        unit = pf.rms_norm(x, (4096,), scale, 1e-5)
        return pf.linear(unit, w) if name is None else pf.encoded_linear(unit, w, encoding=name, width=4096)

    return layer, (_input(1, 4096, dtype=pf.bfloat16), _input(4096, dtype=pf.bfloat16), data)


@_program
def norm_linear() -> Any:
    return _normed(None)


@_program
def norm_linear_q4_0() -> Any:
    return _normed("q4_0")


def _experts(name: str, tokens: int, dtype: pf.DType = pf.bfloat16) -> Any:
    """Eight of 64 matrices for each token."""
    plain = name == "bf16"
    data = _input(64, 768, 2048 if plain else row_bytes(name, 2048), dtype=dtype if plain else pf.uint8)
    kind = None if plain else name
    given = _input(tokens, 2048, dtype=dtype), data, _input(tokens, 8, dtype=pf.int64)
    return (lambda x, w, ids: pf.expert_linear(x, w, ids, encoding=kind)), given


@_program
def expert_linear() -> Any:
    return _experts("q4_0", 1)


@_program
def expert_linear_shared() -> Any:
    return _experts("q4_k", 8)


@_program
def expert_linear_prompt() -> Any:
    return _experts("bf16", 512)


@_program
def expert_linear_prompt_q4_k() -> Any:
    return _experts("q4_k", 4096)


@_program
def expert_linear_prompt_float32() -> Any:
    return _experts("q6_k", 128, pf.float32)


@_program
def encoded_linear_rows() -> Any:
    return _encoded_linear("q4_k", 512)


@_program
def encoded_linear_many_rows() -> Any:
    return _encoded_linear("q6_k", 4096)


@_program
def dequantize() -> Any:
    data = [_input(4096, row_bytes(name, 4096), dtype=pf.uint8) for name in ("q4_0", "q6_k")]
    return (
        (lambda x, y: (pf.dequantize(x, encoding="q4_0"), pf.dequantize(y, pf.bfloat16, encoding="q6_k"))),
        tuple(data),
    )


def _attention(q: pf.Tensor, k: pf.Tensor, v: pf.Tensor) -> pf.Tensor:
    return pf.scaled_dot_product_attention(q, k, v, is_causal=True)


def _attention_gradient(dtype: pf.DType) -> Any:
    heads = [_input(2, 8, 512, 64, dtype=dtype) for _ in range(4)]
    return _with_gradients(lambda q, k, v, w: _attention(q, k, v) * w, *heads)


@_program
def attention() -> Any:
    return _attention, tuple(_input(2, 8, 512, 64, dtype=pf.bfloat16) for _ in range(3))


@_program
def attention_decode() -> Any:
    heads = _input(4, 32, 1, 128, dtype=pf.bfloat16), *[_input(4, 8, 4096, 128, dtype=pf.bfloat16) for _ in range(2)]
    return lambda q, k, v: pf.scaled_dot_product_attention(q, k, v, enable_gqa=True), heads


def _pages(dtype: pf.DType, scaled: bool) -> Any:
    query, pages = _input(4, 32, 1, 128, dtype=pf.bfloat16), [_input(1024, 16, 8, 128, dtype=dtype) for _ in range(2)]
    data = pf.zeros(4, 256, dtype=pf.int32), pf.zeros(4, dtype=pf.int32)
    scales = [_input(1024, 16, 8) for _ in range(2)] if scaled else []

    def attend(*given: pf.Tensor) -> pf.Tensor:
        by = given[5:] or (None, None)
        return pf.paged_attention(*given[:5], key_scale=by[0], value_scale=by[1])

    return attend, (query, *pages, *data, *scales)


@_program
def attention_pages() -> Any:
    return _pages(pf.bfloat16, scaled=False)


@_program
def attention_pages_int8() -> Any:
    return _pages(pf.int8, scaled=True)


@_program
def attention_gradient() -> Any:
    return _attention_gradient(pf.bfloat16)


@_program
def attention_gradient_float32() -> Any:
    return _attention_gradient(pf.float32)
