"""Every hand-written GPU kernel, and every shape of generated text, as machine code at shapes that reach its branches.

The results are those of the ops' NumPy twins. Each tensor is an allocation of its own, so bounds are exact; reads of
what nothing has written and races stop a kernel. What is reached is measured (coverage.py): every source line that the
compiler made code of, every function, both values of every compile-time flag.
"""

from __future__ import annotations

import re
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.encoding import ENCODINGS, encoding
from pyflame.core.window import adaptive_window, three
from pyflame.engine import reference
from pyflame.engine.evaluate import clear_plans, settle_copies
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.engine.texts import gpu_source
from pyflame.engine.value import Value
from pyflame.kernels import (
    attention_decode_gpu,
    conv_gpu,
    cumulative_gpu,
    encoded_gemm_gpu,
    experts_gpu,
    matmul_gpu,
    pool_gpu,
    scatter_gpu,
    sort_gpu,
)
from pyflame.kernels.matrix_cores import matrix_tiles
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.sim.memory import Memory
from pyflame.tensor import Tensor
from pyflame.tensor.creation import leaf
from tests.gpu import attention_cases, conv_cases, expert_cases, gemm_cases
from tests.null import test_gpu_kernels as kernels
from tests.null import test_gpu_text as texts
from tests.ops import test_attention_paged
from tests.plans import long_positions
from tests.sim import coverage
from tests.sim.coverage import Counting, LinedClang, missed_lines, missed_numbers
from tests.sim.devices import own_gpus

TARGETS = ("gfx942", "gfx1100")
Array = np.ndarray[Any, Any]


# --- cases ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Some results. `units`: for a GPU of so many compute units; `patch`: what is changed meanwhile, by its name."""

    build: Callable[[], Any]
    units: int = 0
    patch: str = ""
    bad: bool = False  # an index is out of range: what is to be changed stays as it was


@dataclass
class Family:
    """Kernels and their cases.

    `numbers`: function -> compile-time number -> values that it must take among others; what is not there is a flag.
    """

    files: tuple[str, ...]
    cases: dict[str, Case]
    numbers: dict[str, dict[str, set[Any]]] = field(default_factory=dict)
    ways: dict[str, str] = field(default_factory=dict)  # of generated text, as patterns
    templates: tuple[str, ...] = ()  # files beside those whose lines are watched, with the functions of `numbers`


def chosen(given: dict[str, Any], *names: str, units: int = 0, patch: str = "") -> dict[str, Case]:
    suffix = f" ({patch or units})" if patch or units else ""
    return {name + suffix: Case(given[name], units, patch) for name in names}


def on_device(array: Array) -> Tensor:
    """A tensor that begins one element behind what vectors ask for."""
    whole = pf.tensor(np.concatenate([array.reshape(-1)[:1], array.reshape(-1)])) + 0
    pf.eval(whole)
    meta, value = whole._node.meta, Value(whole._node.data.storage, array.itemsize)
    return Tensor(leaf(value, array.shape, meta.dtype, meta.device, committed=False))


def misaligned(
    m: int, k: int, n: int, dtype: pf.DType = pf.float32, transposed: bool = False
) -> Callable[[], list[Tensor]]:
    def build() -> list[Tensor]:
        a, b = gemm_cases.numbers((m, k), dtype, 1), gemm_cases.numbers((n, k) if transposed else (k, n), dtype, 2)
        right = on_device(b)
        return [on_device(a) @ (right.T if transposed else right)]

    return build


def numbers(*shape: int, seed: int = 0, dtype: pf.DType = pf.float32) -> Tensor:
    return pf.tensor(gemm_cases.numbers(shape, dtype, seed))


def epilogues(m: int, k: int, n: int, count: int = 7) -> Callable[[], list[Tensor]]:
    """What may follow a product in its kernel: rows, columns, whole tensors, numbers, casts, random numbers, a sum."""

    def build() -> list[Tensor]:
        x, w = numbers(m, k, seed=1), numbers(k, n, seed=2)
        row, column, rest = numbers(n, seed=3), numbers(m, 1, seed=4), numbers(m, n, seed=5)
        product = [x @ w for _ in range(7)]
        return [
            pf.gelu(product[0] + row) * 0.5 + rest,
            (product[1] * column).to(pf.bfloat16),
            pf.dropout(pf.relu(product[2]), 0.25),
            pf.where(product[3] > 0, product[3], rest),
            (product[4] + row).sum(1),
            pf.softmax(product[5] * 0.1, -1),
            product[6].T + rest.T,
        ][:count]

    return build


def accumulated() -> list[Tensor]:
    """The sum goes where its other term was."""
    total = numbers(40, 44, seed=3) + 0
    total += numbers(40, 24, seed=1) @ numbers(24, 44, seed=2)
    return [total, pf.addmm(numbers(44, seed=4), numbers(9, 24, seed=5), numbers(24, 44, seed=6))]


def integers(
    x: tuple[int, ...], y: tuple[int, ...], *views: str, units: int = 0, dtype: pf.DType = pf.int32
) -> dict[str, Case]:
    """A product for which no GPU has matrix instructions."""
    given = (views or ("plain", "plain"))[:2]
    return {f"{dtype.name} {x} {y} {given} ({units})": Case(gemm_cases.product(x, y, dtype, given), units)}


TILES = {
    "ROWS": {32, 64, 128}, "COLS": {32, 64, 128}, "DEPTH": {8, 16}, "HIGH": {4, 8}, "WIDE": {4, 8},
    "THREADS": {64, 256},
}  # fmt: skip

GEMM = Family(
    ("matmul.hip", "pf_tile.h"),
    {
        **chosen(
            gemm_cases.CASES,
            "product (17, 1) (1, 19)", "product (33, 65) (65, 17)", "product (64, 64) (64, 64)",
            "product (130, 24) (24, 136)", "product (40, 2048) (2048, 36)", "product transposed plain",
            "product odd transposed transposed", "product flipped spread", "1 rows", "2 rows, transposed", "3 columns",
            "8 columns, transposed", "1 row of a spread few", "short dots", "long dots", "long columns", "batch",
            "batch of shared left", "batch of three axes", "batch of columns, transposed", "float64", "float64 rows",
            "float16", "bfloat16 long", "bfloat16 odd, transposed", "int8", "int8 rows", "int32 columns", "int64",
            "int64 long", "fused", "float16 columns", "batch of long dots", "normed row", "normed rows",
            "normed row, misaligned",
        ),
        **chosen(
            gemm_cases.CASES,
            "product (131, 37) (37, 67)", "product (130, 24) (24, 136)", "product transposed transposed",
            "product odd plain transposed", "5 rows", "2 rows, transposed", "short dots", "fused with its own operand",
            "float64 odd, transposed",
            units=1,
        ),
        **integers((131, 37), (37, 67), units=1), **integers((130, 24), (24, 136), units=1),
        **integers((40, 2048), (2048, 36)), **integers((33, 65), (65, 17), "transposed", "transposed"),
        **integers((68, 40), (40, 72), "transposed", "transposed", units=1),
        **integers((9, 8), (8, 12), "flipped", "spread"),
        **integers((3, 20, 24), (3, 24, 28)), **integers((2, 1, 3, 9, 8), (1, 4, 3, 8, 11)),
        **integers((300, 5), (5, 40)),  # more than 8 rows of tiles
        "one lane": Case(gemm_cases.product((600, 2), (2, 1))),
        "misaligned": Case(misaligned(36, 20, 40)),
        "misaligned, transposed": Case(misaligned(36, 20, 40, pf.bfloat16, True)),
        "misaligned row": Case(misaligned(1, 96, 64)),
        "epilogues": Case(epilogues(34, 20, 37)),
        "epilogues of a row": Case(epilogues(1, 40, 37, 3)),
        "epilogues of parts": Case(lambda: [pf.relu(numbers(9, 2600) @ numbers(2600, 10) + numbers(10)) * 2.0]),
        "accumulated": Case(accumulated),
    },
    {
        "pf_gemm_tile": {**TILES, "WIDTH": {2, 4}, "AXES": {0, 1, 3}},
        "pf_gemm_mma": {name: set() for name in coverage.MATRIX_NUMBERS},  # test_matrix_tiles.py
        "pf_gemm_dots": {
            "FEW": {1, 2, 3}, "LANES": {1, 4, 32}, "EACH": {1, 2, 4}, "WIDTH": {1, 4, 8}, "THREADS": {256},
            "TOGETHER": {1, 2}, "AXES": {0, 1}, "EARLY": {0},
        },
        "pf_finish": {"THREADS": {256}, "SHARE": {1, 8}},
        "pf_gemm_columns": {
            "FEW": {1, 2, 5, 8}, "ACROSS": {32}, "WIDTH": {1, 2, 4, 16}, "THREADS": {256}, "AXES": {0, 1},
        },
    },
)  # fmt: skip


def channels_last() -> list[Tensor]:
    """Images and weights whose channels lie together in memory."""
    x, w = numbers(2, 6, 7, 9).permute(0, 3, 1, 2), numbers(3, 3, 9, 12, seed=1).permute(3, 2, 0, 1)
    return [pf.conv2d(x, w), pf.conv2d(x, w[:1])]


def weight_gradient_channels_last() -> list[Tensor]:
    x, w = numbers(2, 6, 7, 9).permute(0, 3, 1, 2), numbers(12, 9, 3, 3, seed=1).requires_grad_()
    out = pf.conv2d(x, w)
    (out * numbers(*out.shape, seed=3)).sum().backward()
    assert w.grad is not None
    return [w.grad]


def gradients(op: Callable[..., Tensor], x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> Case:
    def build() -> list[Tensor]:
        leaves = [numbers(*shape, seed=n).requires_grad_() for n, shape in ((1, x), (2, w))]
        out = op(*leaves, **options)
        (out * numbers(*out.shape, seed=3)).sum().backward()
        return [t.grad for t in leaves if t.grad is not None]

    return Case(build)


CONV = Family(
    ("conv.hip",),
    {
        **chosen(
            gemm_cases.CASES,
            "conv", "conv stride", "conv dilation", "conv negative pad", "conv 1x1", "conv 1d", "conv 3d",
            "conv groups", "conv long k", "conv dilated input", "conv dilated depthwise", "conv of last first",
            "conv by transposed", "conv of flipped", "depthwise", "depthwise 1d", "depthwise 3d", "few channels",
            "few long", "backward weight", "backward weight of depthwise", "backward weight of one", "conv float64",
            "conv bfloat16", "conv int8", "depthwise float16", "dot int64", "conv with bias",
        ),
        **chosen(gemm_cases.CASES, "conv large", "conv dilated input, stride", units=1),
        **chosen(gemm_cases.CASES, "conv", "depthwise", patch="wide"),
        **chosen(w := conv_cases.whole(), *w), **chosen(w := conv_cases.whole_large(), *w, units=1),
        "gradients": gradients(pf.conv2d, (2, 3, 8, 9), (5, 3, 3, 3), stride=2, padding=1),
        "gradients of 1d": gradients(pf.conv1d, (2, 4, 17), (9, 4, 3), padding=1, dilation=2),
        "gradients of groups": gradients(pf.conv2d, (2, 4, 8, 9), (4, 1, 3, 3), padding=1, groups=4),
        "gradients of 3d": gradients(pf.conv3d, (1, 2, 5, 6, 4), (3, 2, 3, 2, 2), dilation=2, padding=2),
        "gradients of transposed": gradients(pf.conv_transpose1d, (2, 3, 11), (3, 4, 3), stride=2, padding=1),
        "channels last": Case(channels_last),
        "weight gradient, channels last": Case(weight_gradient_channels_last),
        "dilated dot": Case(
            gemm_cases.convolution((1, 1, 9, 3, 5, 6), (1, 1, 9, 2, 3, 4), lhs=(1, 3, 3), rhs=(1, 2, 2))
        ),
        "dot 1d": Case(gemm_cases.convolution((1, 1, 20, 1, 1, 9), (1, 1, 20, 1, 1, 7))),
        "reflected": Case(
            lambda: [pf.conv2d(pf.pad(numbers(1, 2, 5, 6), (1, 2, 2, 1), "reflect"), numbers(9, 2, 3, 3), stride=2)]
        ),
    },
    {
        "pf_conv_tile": {**TILES, "WIDTH": {1}, "RANK": {1, 2, 3}, "O_LAST": {0}, "PHASES": {1, 4}},
        "pf_conv_finish": {"THREADS": {256}, "SHARE": {1, 8}},
        "pf_conv_mma": {name: set() for name in coverage.MATRIX_CONV_NUMBERS},  # test_matrix_tiles.py
        "pf_conv_direct": {
            "FEW": {1, 5}, "THREADS": {256}, "RANK": {1, 2, 3}, "C_LAST": {0}, "MASK": {0}, "PHASES": {1},
        },
        "pf_conv_dot": {
            "FEW": {1, 2, 3}, "THREADS": {256}, "RANK": {1, 2, 3}, "G_LAST": {0}, "MASK": {0}, "PHASES": {1},
        },
    },
)  # fmt: skip


def long_axis() -> gemm_cases.Case:
    """size * out above 2^31: the arithmetic of windows takes 64 bits."""
    windows, x = three((adaptive_window(70001, 35001),)), (np.arange(70001) * 7919 % 70001).astype(np.float32)
    want = np.array([x[first:end].max() for first, end, _ in windows[2].spans()], np.float32).reshape(1, 1, 1, 1, -1)
    return gemm_cases.Case([kernels.op("max_pool", pf.tensor(x.reshape(1, 1, 1, 1, -1)), windows)], [want])


POOL = Family(
    ("pool.hip",),
    {
        **chosen(
            kernels.CASES,
            "pool 2x2", "pool 3x3 padded", "pool overlapping", "pool ceil", "pool dilated", "pool apart",
            "pool adaptive", "pool one axis wide", "pool wide padded", "pool 3d", "pool bfloat16", "pool float16",
            "pool float64", "pool uint8", "pool int64", "pool carried", "pool carried adaptive", "pool carried dilated",
            "pool carried bfloat16", "pool carried float64", "pool carried uint8",
        ),
        **chosen(kernels.CASES, "pool 3x3 padded", patch="wide"),
        "long axis": Case(long_axis),
    },
    {
        "pf_pool": {"MODE": {"PF_MAX", "PF_INDICES", "PF_AVG"}, "EVEN": {0, 1, 2}, "MEMBERS": {1, 16}},
        "pf_pool_backward": {"EVEN": {0, 1}},
        "pf_pool_lines": {"MODE": {"PF_MAX", "PF_INDICES", "PF_AVG"}, "EVEN": {0, 1}, "VECTOR": {2, 4, 8, 16}},
        "pf_pool_lines_backward": {"EVEN": {0, 1}, "VECTOR": {2, 4, 8, 16}},
    },
)  # fmt: skip

RUNS = Family(
    ("cumulative.hip",),
    {
        **chosen(
            kernels.CASES,
            "runs (1,) 0", "runs (37, 5) 1", "runs (3, 131) 1", "runs (3, 1009) 1", "runs (3, 9001) 1",
            "runs (5, 40, 9) 1", "runs (2, 3001, 2) 1", "runs int16", "runs int64", "runs bfloat16",
            "runs columns float64",
        ),
        **chosen(kernels.CASES, "runs (2, 5003) 1", units=1),
        **chosen(kernels.CASES, "runs (3, 9001) 1", "runs (2, 3001, 2) 1", patch="wide"),
    },
    {"pf_scan_rows": {"MEMBERS": {1, 32, 128, 256}}},
)  # fmt: skip


def sort_case(shape: tuple[int, ...], take: int, dtype: pf.DType, way: int, patch: str = "") -> Case:
    """way: 0 upwards, 1 downwards, 2 and 3 the same with NaN and infinities."""
    return Case(lambda: kernels.sorts(shape, take, dtype)[way : way + 1], patch=patch)


SORT = Family(
    ("sort.hip",),
    {
        "one": sort_case((1,), 1, pf.float32, 1),
        "short": sort_case((5, 37), 37, pf.float32, 2),
        "one block": sort_case((4096,), 4096, pf.float32, 3),
        "several blocks": sort_case((2, 5003), 5003, pf.float32, 3),
        "several blocks upwards": sort_case((4100,), 4097, pf.float32, 2),
        "few": sort_case((3, 1009), 17, pf.float32, 3),
        "few, two passes": sort_case((2, 9001), 50, pf.float32, 2),
        "few, more passes": sort_case((20001,), 300, pf.float32, 2),
        "few int64": sort_case((4500,), 9, pf.int64, 1),
        "bool": sort_case((3, 130), 130, pf.bool_, 0),
        "float64": sort_case((3, 130), 130, pf.float64, 2),
        "float8": sort_case((3, 130), 130, pf.float8_e4m3fnuz, 3),
        "long int64": sort_case((4100,), 4100, pf.int64, 0),
        "long bfloat16": sort_case((4100,), 4100, pf.bfloat16, 3),
        "long (wide)": sort_case((4100,), 4100, pf.float32, 2, "wide"),
        "many tiles": sort_case((135_000,), 135_000, pf.uint8, 0),  # a block for each value adds up their counts
    },
    {"pf_sort_tiles": {"SIZE": {2, 64, 4096}, "ROOM": {1024, 4096}, "THREADS": {512}}},
)


def bad_index(mode: str, space: str) -> Callable[[], list[Tensor]]:
    base, *rest = kernels.SPACES[space]
    held = np.arange(np.prod(base), dtype=np.float32).reshape(base)
    return lambda: kernels.scattered(base, *rest, mode, bad=True, to=pf.tensor(held))


UNGUARDED = (("assign", "rows"), ("assign", "few that meet"), ("assign", "few pairs"), ("max", "rows"), ("add", "few"))


def made_here(mode: str, space: str) -> Callable[[], list[Tensor]]:
    """Into a base that nobody else knows."""
    base, *rest = kernels.SPACES[space]
    return lambda: kernels.scattered(base, *rest, mode, to=numbers(*base) * 2.0)


def embedded(count: int, dtype: pf.DType) -> list[Tensor]:
    """The gradient of an embedding whose rows are looked up again and again."""
    table = numbers(7, 5, dtype=dtype).requires_grad_()
    found = pf.embedding(table, pf.tensor(np.arange(count) ** 2 % 7))
    (found * numbers(count, 5, seed=1, dtype=dtype)).sum().backward()
    assert table.grad is not None
    return [table.grad]


SCATTER = Family(
    ("scatter.hip",),
    {
        **chosen(
            kernels.CASES,
            *(f"{mode} {space}" for mode in ("assign", "add") for space in ("rows", "along", "pairs", "few")),
            "add columns", "assign few pairs", "assign few pairs of columns", "assign few that meet",
            "assign few columns",
            *(f"{mode} {space}" for mode in ("max", "mul") for space in ("rows", "both", "broadcast")),
            "min few", "add one", "add many rows", "add int64", "add int8", "add bfloat16", "max bfloat16", "mul int16",
            "assign bool_", "assign float8_e5m2", "add into a region", "assign into a region", "add halves to floats",
            "long skewed add",
        ),
        **chosen(kernels.CASES, "assign rows", "add along", "max pairs", "add few", "assign few", patch="wide"),
        **chosen(kernels.CASES, "assign rows", "assign along", patch="unclaimed"),
        "two free axes": Case(lambda: kernels.scattered((9, 4, 8), (9, 40, 8), [(1, (40, 1))], (0, -1, 2), (), "add")),
        **{f"{mode} {space} of its own": Case(made_here(mode, space)) for mode, space in UNGUARDED},
        "embedding": Case(lambda: embedded(90, pf.float32)),
        "embedding in halves": Case(lambda: embedded(90, pf.bfloat16)),
        **{
            f"bad {mode} {space}": Case(bad_index(mode, space), bad=True)
            for mode, space in (("assign", "rows"), ("assign", "few"), ("add", "rows"), ("max", "rows"), ("add", "few"))
        },
    },
    {"pf_space": {"INDICES": {1, 2}, "KEYS": {1, 2}, "FREE": {1, 2}}},
)  # fmt: skip


def askew_attention(dtype: pf.DType = pf.float32) -> list[Tensor]:
    q, k, v = (on_device(gemm_cases.numbers((1, 2, 9, 8), dtype, seed)) for seed in range(3))
    return [pf.scaled_dot_product_attention(q, k, v, is_causal=True)]


def askew_decoding() -> list[Tensor]:
    q, k = (on_device(gemm_cases.numbers((1, 1, n, 8), pf.bfloat16, n)) for n in (1, 40))
    return [pf.scaled_dot_product_attention(q, k, k)]


PAGES = ("one query", "int8", "half pages", "sinks", "cap", "long", "odd", "odd int8", "odd float8")


def pages(name: str) -> list[Tensor]:
    tensors, named = test_attention_paged.numbers(test_attention_paged.CASES[name])
    return [pf.paged_attention(*tensors, **named)]


ATTENTION = Family(
    ("attention.hip",),
    {
        **chosen(
            attention_cases.CASES, "causal", "odd, turned", "hidden", "added, grouped", "wide", "widest", "long",
            "window", "behind a window", "capped", "lengths", "packed, window",
        ),
        "misaligned": Case(askew_attention),
    },
    {
        "pf_attend": {
            "RESULT": {64, 128, 256}, "MASK": {0, 1, 2},
            "WAY": {"PF_MIX", "PF_TOTALS", "PF_SLOPES", "PF_WEIGHTS"}, "CAP": {0, 1},
            "SPANS": {0, 1, 2},
        },
    },
)  # fmt: skip

TILED_ATTENTION = Family(
    ("attention_mma.hip",),
    {
        **chosen(attention_cases.TILED, *attention_cases.TILED),
        "misaligned": Case(lambda: askew_attention(pf.bfloat16)),
    },
)  # fmt: skip


def decoded(*names: str, dtype: pf.DType = pf.float32, blocks: int = 2) -> Callable[[], list[Tensor]]:
    """What encoded normals stand for."""

    def build() -> list[Tensor]:
        kinds = [encoding(name) for name in names]
        drawn = [gemm_cases.numbers((3, blocks * e.block), pf.float32, n) for n, e in enumerate(kinds)]
        given = [pf.tensor(e.encode(x)) for e, x in zip(kinds, drawn, strict=True)]
        return [pf.dequantize(x, dtype, encoding=e) for e, x in zip(kinds, given, strict=True)]

    return build


def askew_blocks() -> list[Tensor]:
    kinds = [encoding(name) for name in ("q4_0", "q4_k", "int4_g32")]
    return [pf.dequantize(on_device(e.encode(np.ones((2, e.block), np.float32))), encoding=e) for e in kinds]


DEQUANTIZE = Family(
    ("dequantize.hip", "pf_decode.h"),
    {
        "all": Case(decoded(*ENCODINGS, blocks=16)),
        "other dtypes": Case(lambda: [*decoded("q4_k", dtype=pf.bfloat16)(), *decoded("q4_0", dtype=pf.float64)()]),
        "odd": Case(decoded("f16", "f32", blocks=37)),
        "several blocks": Case(decoded("q8_0", blocks=130)),
        "misaligned": Case(askew_blocks),
    },
    {"pf_dequantize": {"VECTOR": {1, 2, 4, 8}, "THREADS": {256}}},
)


def encoded_layer(
    name: str,
    rows: int,
    out: int,
    width: int,
    dtype: pf.DType = pf.float32,
    bias: bool = False,
    patch: str = "",
    bits: int = 16,
) -> dict[str, Case]:
    """x W^T + b over an encoded W."""

    def build() -> list[Tensor]:
        data = pf.tensor(encoding(name).encode(gemm_cases.numbers((out, width), pf.float32, 1)))
        shift = numbers(out, seed=3, dtype=dtype) if bias else None
        x = numbers(rows, width, seed=2, dtype=dtype)
        return [pf.encoded_linear(x, data, shift, encoding=name, width=width, activation_bits=bits)]

    return {f"{name} {rows} {out} {width} {dtype.name}": Case(build, units=1 if out > 40 else 0, patch=patch)}


def normed_layer(name: str, rows: int, out: int, width: int) -> list[Tensor]:
    """An encoded W behind an RMS norm."""
    data = pf.tensor(encoding(name).encode(gemm_cases.numbers((out, width), pf.float32, 1)))
    x, scale = numbers(rows, width, seed=2), numbers(width, seed=3)
    return [pf.encoded_linear(pf.rms_norm(x, (width,), scale, 1e-3), data, encoding=name, width=width)]


def askew_layer(bits: int) -> list[Tensor]:
    x = on_device(gemm_cases.numbers((2, 64), pf.float32, 1))
    data = on_device(encoding("q4_0").encode(gemm_cases.numbers((5, 64), pf.float32, 2)))
    return [pf.encoded_linear(x, data, encoding="q4_0", width=64, activation_bits=bits)]


def fused_layers(bits: int) -> list[Tensor]:
    """A gate of a feed-forward network, a residual, and a sum that the epilogue's values are read for again."""
    x, rest, shift = numbers(2, 3, 64, seed=1), numbers(2, 3, 9, seed=2), numbers(9, seed=3)
    q4, q8 = (
        pf.tensor(encoding(e).encode(gemm_cases.numbers((9, 64), pf.float32, n))) for n, e in ((4, "q4_0"), (5, "q8_0"))
    )
    gate = pf.encoded_linear(x, q4, encoding="q4_0", width=64, activation_bits=bits)
    up = pf.encoded_linear(x, q8, shift, encoding="q8_0", width=64, activation_bits=bits)
    third = pf.encoded_linear(x, q4, shift, encoding="q4_0", width=64, activation_bits=bits)
    alone = pf.encoded_linear(x[0, 0], q4, shift, encoding="q4_0", width=64, activation_bits=bits)
    return [pf.silu(gate) * up + rest, up, (third * 0.5).to(pf.bfloat16), third.sum(-1), pf.relu(alone)]


ENCODED = Family(
    ("encoded.hip",),
    {
        **encoded_layer("q4_0", 1, 9, 1536, bits=32), **encoded_layer("q4_0", 2, 5, 64, bias=True, bits=32),
        **encoded_layer("q4_0", 1, 70, 2048, bits=32), **encoded_layer("q4_0", 13, 37, 96, pf.bfloat16, True),
        **encoded_layer("f16", 4, 9, 32, pf.float16), **encoded_layer("q8_0", 7, 3, 576, bits=32),
        **encoded_layer("fp8_g128", 1, 7, 512, pf.bfloat16), **encoded_layer("q4_k", 16, 67, 2048, bias=True),
        **encoded_layer("f16", 3, 5, 37), **encoded_layer("f16", 1, 5, 136, pf.float16),
        **encoded_layer("int4_g32", 2, 66, 1024, bits=32),
        "misaligned": Case(partial(askew_layer, 32)), "fused": Case(partial(fused_layers, 32)),
    },
    {
        "pf_encoded_linear": {
            "ROWS": {1, 2, 4, 8, 16}, "EACH": {1, 2}, "LANES": {1, 2, 4, 16, 32}, "VECTOR": {1, 4, 8},
            "THREADS": {256},
        },
    },
)  # fmt: skip
ENCODED_DOTS = Family(
    ("encoded_dots.hip",),
    {
        **encoded_layer("q4_0", 1, 9, 1536), **encoded_layer("q4_0", 2, 5, 64, bias=True),
        **encoded_layer("q4_0", 1, 70, 2048), **encoded_layer("q4_k", 3, 7, 4352, pf.bfloat16),
        **encoded_layer("q8_0", 4, 9, 32, pf.float16), **encoded_layer("q6_k", 1, 5, 512),
        **encoded_layer("q8_0", 2, 3, 17408, pf.bfloat16),  # two chunks
        "normed": Case(partial(normed_layer, "q4_0", 1, 9, 4352)),
        "normed rows": Case(partial(normed_layer, "q4_k", 3, 5, 512)),
        "misaligned": Case(partial(askew_layer, 16)), "fused": Case(partial(fused_layers, 16)),
    },
    {
        "pf_encoded_linear": {
            "ROWS": {1, 2, 4}, "PER": {1}, "DEEP": {1, 2}, "EACH": {1}, "TURNS": {1, 5}, "STAGES": {0},
            "VECTOR": {1, 4, 8}, "THREADS": {256}, "EARLY": {0},
        },
    },
)  # fmt: skip


def askew_experts(rows: int, dtype: pf.DType = pf.float32) -> list[Tensor]:
    x = on_device(gemm_cases.numbers((rows, 64), dtype, 1))
    data = on_device(encoding("q4_0").encode(gemm_cases.numbers((3, 5, 64), pf.float32, 2)))
    return [pf.expert_linear(x, data, pf.tensor(np.arange(rows) % 3), encoding="q4_0")]


EXPERTS = Family(
    ("experts.hip",),
    {
        **chosen(expert_cases.CASES, *expert_cases.CASES),
        **chosen(expert_cases.CASES, "a token", "many", units=1),
        **chosen(expert_cases.CASES, "many, plain", "many, float32", patch="plain"),
        **chosen(expert_cases.CASES, "many matrices", units=1, patch="plain"),
        "misaligned": Case(partial(askew_experts, 3)),
        "misaligned, many": Case(partial(askew_experts, 70, pf.bfloat16)),
        "misaligned, many (plain)": Case(partial(askew_experts, 70), patch="plain"),
    },
    {
        "pf_few_experts": {
            "ROWS": {1, 2, 4}, "EACH": {1, 2}, "LANES": {2, 8}, "VECTOR": {1, 4, 8}, "THREADS": {256},
        },
        "pf_sort_lines": {"ROWS": {32, 64}, "THREADS": {256, 512}},
        "pf_experts_mma": {**{name: set() for name in coverage.MATRIX_NUMBERS}, "A_VECTOR": {0, 1}},
        "pf_experts_tile": {
            "ROWS": {32, 64}, "COLS": {32, 64}, "DEPTH": {16}, "HIGH": {4}, "WIDE": {4}, "THREADS": {64, 256},
            "WIDTH": {4},
        },
    },
)  # fmt: skip


def askew_gemm() -> list[Tensor]:
    x = on_device(gemm_cases.numbers((20, 64), pf.bfloat16, 1))
    data = on_device(encoding("q4_0").encode(gemm_cases.numbers((5, 64), pf.float32, 2)))
    return [pf.encoded_linear(x, data, encoding="q4_0", width=64)]


def many_rows() -> list[Tensor]:
    """An activation and a residual behind one product, a sum of another."""
    x, rest = numbers(2, 10, 64, seed=1, dtype=pf.bfloat16), numbers(2, 10, 24, seed=2, dtype=pf.bfloat16)
    data = pf.tensor(encoding("q4_0").encode(gemm_cases.numbers((24, 64), pf.float32, 4)))
    first, second = (pf.encoded_linear(x, data, encoding="q4_0", width=64) for _ in range(2))
    return [pf.silu(first) * rest + rest, second.sum(-1)]


ENCODED_GEMM = Family(
    ("encoded_gemm.hip", "pf_decode_lines.h"),
    {
        **encoded_layer("q4_0", 20, 37, 96, pf.bfloat16, True), **encoded_layer("q4_k", 37, 24, 256, pf.float16),
        **encoded_layer("q8_0", 17, 12, 4096, pf.bfloat16, True), **encoded_layer("f16", 18, 9, 37, pf.bfloat16),
        **encoded_layer("q4_0", 18, 9, 64), **encoded_layer("q6_k", 2, 5, 256, pf.float64),
        **encoded_layer("q4_1", 19, 40, 64, pf.bfloat16, True, "lines"),
        **encoded_layer("q4_1", 19, 40, 4096, pf.float32, patch="lines"),
        **encoded_layer("q8_0", 19, 40, 4096, pf.bfloat16, True, "lines"),
        **encoded_layer("q5_1", 133, 130, 96, pf.bfloat16, patch="block 0"),
        **encoded_layer("q5_k", 19, 67, 256, pf.bfloat16, patch="block 5"),
        **encoded_layer("q3_k", 67, 18, 256, pf.float16, patch="block 7"),
        "misaligned": Case(askew_gemm), "fused": Case(many_rows),
    },
    {
        "pf_encoded_mma": {
            "ROWS": {16, 32, 64, 128}, "COLS": {16, 32, 64, 128}, "THREADS": set(), "WAVES_ACROSS": {1, 2, 4},
            "CHUNKS": {1, 2},
            "AS_IS": {1}, "OUT_WIDTH": {1, 4, 8}, "AXES": {0}, "A_ALONG_K": {1}, "B_ALONG_K": {1}, "B_VECTOR": {0, 1},
        },
    },
)  # fmt: skip

DECODING = Family(
    ("attention_decode.hip", "pf_attend_lines.h"),
    {
        **chosen(attention_cases.DECODED, *attention_cases.DECODED),
        **chosen(attention_cases.DECODED, "grouped, last", units=1),
        "misaligned": Case(askew_decoding),
        **{name: Case(partial(pages, name)) for name in PAGES},
    },
    {
        "pf_attend_few": {
            "LANES": {8, 16}, "PIECES": {1, 2, 4}, "ROWS": {1, 2, 4, 8}, "THREADS": {128}, "CLUSTER": {1},
            "VECTOR": {0, 1, 2}, "MASK": {0, 1, 2}, "CAP": {0, 1}, "SPANS": {0, 1},
        },
        "pf_attend_pages": {
            "LANES": {8, 16}, "PIECES": {1}, "ROWS": {2, 4}, "THREADS": {128}, "CLUSTER": {1}, "VECTOR": {0, 1, 2},
            "CAP": {0, 1}, "EARLY": {0},
        },
        "pf_attend_join": {"STEP": {32, 64}, "THREADS": {512}},
    },
)  # fmt: skip

DECODING_TILES = Family(
    ("attention_decode_mma.hip",),
    {
        **chosen(attention_cases.DECODED_TILES, *attention_cases.DECODED_TILES, patch="tiles"),
        **chosen(attention_cases.DECODED_TILES, "sixteen", "grown", units=1, patch="tiles"),
        **{
            name: Case(partial(pages, name), patch="tiles")
            for name in ("bfloat16", "tiles", "tiles, many rows", "tiles, odd")
        },
    },
    {
        "pf_attend_few_mma": {
            "DEPTH": {2, 4, 8}, "WIDTH": {1, 2}, "ROWS": {4, 8, 16}, "WAVES": {2, 4}, "STAGES": {0}, "MASK": {0, 1, 2},
        },
        "pf_attend_pages_mma": {
            "DEPTH": {1, 2, 4}, "WIDTH": {1}, "ROWS": {4, 8, 16}, "WAVES": {4}, "STAGES": {0}, "EARLY": {0},
        },
    },
)  # fmt: skip

GENERATED = Family(
    (),
    {
        **chosen(texts.CASES, *(name for name in texts.CASES if name not in ("mlp", "transposed odd", "chain 3d"))),
        **chosen(texts.CASES, "sum few columns", "softmax 20000", units=1),
        **chosen(texts.CASES, "chain", "turned", "softmax 1000", "sum 1 of permuted", "sum few rows", patch="wide"),
        "misaligned": Case(lambda: [(on_device(gemm_cases.numbers((6, 40), pf.float32, 1)) * 2.0).exp()]),
        "dropout": Case(lambda: [pf.dropout(numbers(3, 50), 0.5), pf.rand(70), pf.randn(9, dtype=pf.float64)]),
        "bytes": Case(lambda: [numbers(5, 64, dtype=pf.int8) + numbers(64, dtype=pf.int8), numbers(40) > 0.0]),
        "small floats": Case(lambda: [numbers(4, 33).to(d).to(pf.float32) * 2.0 for d in kernels.FLOAT8]),
    },
    ways={
        "flat": r"if \(t >= ",
        "turned": r"l\d+\[y \* \d+ \+ x\] = ",
        "turned back": r"l\d+\[x \* \d+ \+ y\]",
        "lanes": r"pf_shuffle_xor\(v\d+, w\)(?!(?s:.*)PF_SHARED)",
        "block": r"if \(tid % PF_WAVE == 0\) l\d+\[tid / PF_WAVE\]",
        "tile": r"l\d+\[tid\] = v\d+",
        "tile of one member": r"tid / 64;(?!(?s:.*)PF_SHARED)|tid / 32;(?!(?s:.*)PF_SHARED)",
        "chunks": r"pf_put\(scratch",
        "their sum": r"pf_get<\w+>\(scratch",
        "unrolled": r"for \(int s = 0; s < \d+; s\+\+\)",
        "looped": r"for \(int\w* g = member; g < ",
        "kept": r"^ +\w+ r\d+\[\d+\];",
        "kept as read": r"pf_hidden\(r\d+",
        "maximum and sum": r"pf_online\(",
        "vectors of columns": r"for \(int k = member; k < ",
        "rows for all": r"const int live = own",
        "vectors of 2": r"pf_vector<\w+, 2>",
        "vectors of 4": r"pf_vector<\w+, 4>",
        "vectors of 8": r"pf_vector<\w+, 8>",
        "gather": r"pf_checked\(",
        "uniforms": r"pf_uniform_at\(uni, ",
        "random": r"pf_random_",
        "long positions": r"const int64_t t = ",
    },
)

FAMILIES = {
    "gemm": GEMM, "conv": CONV, "attention": ATTENTION, "tiled attention": TILED_ATTENTION,
    "decoding": DECODING, "dequantize": DEQUANTIZE, "encoded": ENCODED, "experts": EXPERTS,
    "encoded dots": ENCODED_DOTS, "encoded gemm": ENCODED_GEMM,
    "pool": POOL, "runs": RUNS, "sort": SORT, "scatter": SCATTER,
    "generated": GENERATED,
}  # fmt: skip


# --- running ----------------------------------------------------------------------------------------------------------


@contextmanager
def patched(name: str) -> Iterator[None]:
    """wide: as for tensors of more than 2^31 elements; unclaimed: as for many more places than keys; plain: as without
    matrix instructions."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        if name == "wide":
            for module in (cumulative_gpu, pool_gpu, sort_gpu, scatter_gpu):
                patch.setattr(module, "position_type", lambda *counts: "int64_t")
            patch.setattr(conv_gpu.Convolution, "small", False)
            stack.enter_context(long_positions())
        elif name == "nchw":
            patch.setenv("PYFLAME_CONV_LAYOUT", name)
        elif name == "tiles":
            patch.setattr(attention_decode_gpu, "_MANY_BYTES", 0)
        elif name == "plain":
            patch.setattr(experts_gpu, "matrix_kind", lambda *given: None)
        elif name == "unclaimed":
            patch.setattr(scatter_gpu, "CLAIM_BYTES", 0)
        elif name == "lines":  # decoded first, few at a time
            for number, value in (("_MANY", 1), ("_LINES_BYTES", 1), ("_LINES_STEP", 16)):
                patch.setattr(encoded_gemm_gpu, number, value)
        elif name.startswith("block "):  # one of the blocks of matrix tiles
            only = int(name.removeprefix("block "))
            for module in (matmul_gpu, conv_gpu):
                patch.setattr(module, "matrix_tiles", lambda *given: matrix_tiles(*given)[only : only + 1])
        yield


def built(case: Case) -> tuple[list[Tensor], list[Array] | None]:
    """The tensors of a case and, where it tells, what they should be."""
    texts.rng = np.random.default_rng(0)
    pf.manual_seed(0)
    made = case.build()
    return (made.outputs, made.expected) if isinstance(made, gemm_cases.Case) else (made, None)


def expected(case: Case) -> list[Array]:
    """What NumPy says."""
    with pf.device("cpu"):
        outputs, told = built(case)
        if told is not None:
            return told
        order = PendingGraph([t._node for t in outputs], keep_held=False).order
        arrays = reference.compute(order)
        return [arrays[t._node] for t in outputs]


class Run:
    """A family on a simulated GPU."""

    def __init__(self, family: Family, gpu: GpuDevice) -> None:
        self.family, self.gpu = family, gpu
        self.whole = gpu.target
        self.texts: set[str] = set()
        self.wrong: dict[str, str] = {}

    def all(self) -> None:
        groups: dict[tuple[int, str], dict[str, Case]] = defaultdict(dict)
        for name, case in self.family.cases.items():
            groups[case.units, case.patch][name] = case
        with ExitStack() as stack:
            stack.enter_context(pf.device(str(self.gpu.id)))
            for (units, patch), cases in groups.items():
                clear_plans()  # they are of other compute units, or of other text
                self.gpu.target = replace(self.whole, workers=units or self.whole.workers)
                with patched(patch):
                    made = {name: built(case)[0] for name, case in cases.items()}
                    self.compile(list(made.values()))
                    for name, outputs in made.items():
                        self.check(name, cases[name], outputs)

    def compile(self, programs: list[list[Tensor]]) -> None:
        """All kernels together: one of many in a file costs little."""
        sources = {}
        for outputs in programs:
            nodes = [t._node for t in outputs]
            settle_copies(nodes)
            for launch in draft_plan(PendingGraph(nodes), self.gpu.target).launches:
                source = gpu_source(launch, self.gpu.target)
                sources[source.text] = tuple(dict.fromkeys(p.suffix for p in source.phases))
        self.gpu.functions(list(sources.items()))

    def check(self, name: str, case: Case, outputs: list[Tensor]) -> None:
        record = self.gpu.functions

        def functions(given: Any) -> Any:
            self.texts |= {text for text, _ in given}
            return record(given)

        self.gpu.functions = functions  # type: ignore[method-assign]
        try:
            if case.bad:
                with pytest.raises(pf.IndexError, match="expected an index in"):
                    outputs[0].numpy()
                np.testing.assert_array_equal(outputs[0].numpy().reshape(-1), np.arange(outputs[0].numel()))
                return
            pf.eval(*outputs)
            for got, want in zip(outputs, expected(case), strict=True):
                close(got.numpy(), want)
        except Exception:
            self.wrong[name] = traceback.format_exc(limit=1)[-1500:]
        finally:
            self.gpu.functions = record  # type: ignore[method-assign]


def close(got: Array, want: Array) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    if want.dtype.kind == "c":
        close(got.real, want.real)
        close(got.imag, want.imag)
        return
    loose = {8: 1e-11, 4: 3e-5, 2: 1e-2, 1: 0.1}[want.dtype.itemsize]
    right = want.astype(np.float64)
    scale = float(np.abs(right[np.isfinite(right)]).max(initial=1.0))
    np.testing.assert_allclose(got.astype(np.float64), right, rtol=loose, atol=loose * scale)


@pytest.mark.slow(20)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FAMILIES)
def test_kernels(name: str, target: str) -> None:
    run_family(FAMILIES[name], target)


def run_family(family: Family, target: str) -> None:
    """All cases are right, and between them they reach everything."""
    machines = list[Counting]()

    def machine(target: str, memory: Memory) -> Counting:
        machines.append(Counting(target, memory))
        return machines[-1]

    with own_gpus(target, pool="exact", make_machine=machine, make_compiler=LinedClang) as (gpu,):
        run = Run(family, gpu)
        run.all()
        assert not run.wrong, "\n".join(f"{case}: {why}" for case, why in run.wrong.items())
    (used,) = machines
    missed = missed_lines(used, family.files)
    missed += missed_numbers(run.texts, (*family.files, *family.templates), family.numbers)
    for way, pattern in family.ways.items():
        if not any(re.search(pattern, text, re.MULTILINE) for text in run.texts):
            missed.append(f"no text is {way}")
    assert not missed, "\n".join(missed)


@pytest.mark.slow(20)
@pytest.mark.parametrize("target", ["gfx942", "gfx90a", "gfx950"])
def test_decoding_by_tiles(target: str) -> None:
    """Where waves have 64 lanes."""
    run_family(DECODING_TILES, target)


@pytest.mark.parametrize("target", TARGETS)
def test_taps_beyond_the_last(target: str) -> None:
    """k = 27 ends inside of a step: the taps behind it are looked at before they are found not to count."""
    with pf.device(f"sim:{target}"):
        case = gemm_cases.CASES["conv"]()
        gemm_cases.check([t.numpy() for t in case.outputs], case)


def test_no_kernel_is_forgotten() -> None:
    covered = [f for y in (*FAMILIES.values(), DECODING_TILES) for f in y.files[:1]]
    assert sorted(coverage.kernel_files()) == sorted([*covered, "same.hip"])  # the last: test_same.py
