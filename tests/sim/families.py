"""Hand-written GPU kernels and shapes that reach their branches: products, convolutions, windows, sorts, scatters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import pyflame as pf
from pyflame.core.window import adaptive_window, three
from pyflame.engine.value import Value
from pyflame.tensor import Tensor
from pyflame.tensor.creation import leaf
from tests.gpu import conv_cases, gemm_cases
from tests.null import test_gpu_kernels as kernels
from tests.sim import coverage

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
