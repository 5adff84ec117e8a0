"""attention.c: through the public op against float64 and torch, and by itself on every instruction set.

By itself it is compiled as the engine does, and called on one thread in chunks, out of order, with worker numbers, on
exactly the scratch its plan asks for: what a pool of threads may do to it.
"""

from __future__ import annotations

import ctypes
import platform
import random
import shutil
import subprocess
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame.core.device import CPU, Target
from pyflame.core.dtype import as_dtype
from pyflame.core.errors import ArgumentError, ArgumentTypeError
from pyflame.engine.devices import get_device
from pyflame.ir import OPS, Meta
from pyflame.ir.kernel import Anchor, Kernel, Launch, OperandView
from pyflame.kernels import attention as planner
from pyflame.kernels import specs
from tests.plans import plan_of

Array = np.ndarray[Any, Any]
NUMPY = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
# of the largest element: rounding of P to the dtype, and of sums in float32
TOLERANCE = {"float32": 3e-6, "bfloat16": 1.5e-2, "float16": 2e-3}

# batch, query heads, key heads, queries, keys, depth, width
SHAPES = [
    (2, 3, 3, 37, 45, 64, 64),
    (1, 2, 1, 300, 300, 32, 32),
    (1, 4, 2, 33, 129, 128, 40),
    (1, 6, 2, 70, 513, 33, 20),
    (2, 2, 2, 8, 1, 1, 2),
    (1, 1, 1, 129, 31, 80, 130),
]
MASKS = ["none", "causal", "bool", "float"]
# Least and greatest key - query that is seen, and the cap; with what makes them
RULES: dict[str, tuple[tuple[int | None, int | None, float], dict[str, Any]]] = {
    "back": ((-9, 0, 0.0), {"window": 9, "is_causal": True}),
    "both sides": ((-40, 7, 0.0), {"window": (40, 7)}),
    "to the end": ((-2, None, 0.0), {"window": (2, -1)}),
    "own key": ((0, 0, 0.0), {"window": 0}),
    "capped": ((None, None, 1.5), {"softcap": 1.5}),
    "all": ((-130, 0, 0.8), {"window": 130, "is_causal": True, "softcap": 0.8}),
}


def exact(
    q: Array, k: Array, v: Array, g: Array, mask: Array | None, causal: bool, scale: float,
    rule: tuple[int | None, int | None, float] | None = None,
) -> list[Array]:  # fmt: skip
    """Attention and its gradients in float64."""
    low, high, cap = rule or (None, 0 if causal else None, 0.0)
    shared = q.shape[1] // k.shape[1]
    q, g, k, v = (x.astype(np.float64) for x in (q, g, k, v))
    wide_k, wide_v = np.repeat(k, shared, 1), np.repeat(v, shared, 1)
    s = q @ wide_k.swapaxes(-1, -2) * scale
    bent: Any = 1.0
    if cap:
        s, bent = cap * np.tanh(s / cap), 1 - np.tanh(s / cap) ** 2
    ahead = np.arange(s.shape[-1]) - np.arange(s.shape[-2])[:, None]
    s = np.where((ahead < (-np.inf if low is None else low)) | (ahead > (np.inf if high is None else high)), -np.inf, s)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isinf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    p = e / np.where(total == 0, 1, total)
    out = p @ wide_v
    ds = p * (g @ wide_v.swapaxes(-1, -2) - (g * out).sum(-1, keepdims=True)) * scale * bent

    def joined(x: Array) -> Array:
        return x.reshape(*k.shape[:2], shared, *x.shape[2:]).sum(2)

    return [out, ds @ wide_k, joined(ds.swapaxes(-1, -2) @ q), joined(p.swapaxes(-1, -2) @ g)]


def sample(shape: tuple[int, ...], kind: str, dtype: str = "float32") -> tuple[list[Array], Array | None]:
    """q, k, v, g and the mask; in bool masks one query sees nothing."""
    batch, heads, shared, queries, keys, depth, width = shape
    rng = np.random.default_rng(sum(shape))
    sizes = ((heads, queries, depth), (shared, keys, depth), (shared, keys, width), (heads, queries, width))
    arrays = [rng.standard_normal((batch, *s), dtype=np.float32).astype(NUMPY[dtype]) for s in sizes]
    mask = None
    if kind == "bool":
        mask = rng.random((batch, 1, queries, keys)) > 0.4
        mask[0, 0, queries // 2] = False
    if kind == "float":
        mask = rng.standard_normal((heads, 1, keys), dtype=np.float32)
        mask[0, 0, keys // 2 :: 5] = -np.inf if keys > 1 else 0
    return arrays, mask


def close(got: Array, want: Array, dtype: str) -> None:
    assert got.shape == want.shape
    difference = np.abs(got.astype(np.float64) - want)
    assert np.all(difference <= TOLERANCE[dtype] * max(1.0, np.abs(want).max())), difference.max()


def run(arrays: list[Array], mask: Array | None, **options: Any) -> list[Array]:
    """The public op: out and the gradients of query, key and value."""
    q, k, v, g = (pf.tensor(a) for a in arrays)
    for x in (q, k, v):
        x.requires_grad_()
    out = pf.scaled_dot_product_attention(
        q, k, v, None if mask is None else pf.tensor(mask), enable_gqa=True, **options
    )
    out.backward(g)
    return [x.numpy() for x in (out.detach(), q.grad, k.grad, v.grad)]


def implementations(*tensors: pf.Tensor) -> list[tuple[str, str]]:
    return [(launch.ops[-1], launch.implementation) for launch in plan_of(*tensors).launches]


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_float64(shape: tuple[int, ...], kind: str) -> None:
    arrays, mask = sample(shape, kind)
    got = run(arrays, mask, is_causal=kind == "causal")
    for a, b in zip(got, exact(*arrays, mask, kind == "causal", shape[5] ** -0.5), strict=True):
        close(a, b, "float32")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", [*SHAPES[:2], *SHAPES[3:]], ids=str)
def test_windows_and_caps(shape: tuple[int, ...], rule: str) -> None:
    """On the kernel, and with a mask beside it."""
    limits, options = RULES[rule]
    for kind in ("none",) if "is_causal" in options else ("none", "bool", "float"):
        arrays, mask = sample(shape, kind)
        for a, b in zip(
            run(arrays, mask, **options), exact(*arrays, mask, False, shape[5] ** -0.5, limits), strict=True
        ):
            close(a, b, "float32")


@pytest.mark.parametrize("rule", RULES)
def test_windows_and_caps_of_few_queries_and_with_dropout(rule: str) -> None:
    """Which are decomposed."""
    arrays, _ = sample((1, 2, 1, 5, 45, 8, 8), "none")
    limits, options = RULES[rule]
    for a, b in zip(run(arrays, None, **options), exact(*arrays, None, False, 8**-0.5, limits), strict=True):
        close(a, b, "float32")
    arrays[2][...] = 1.0
    q, k, v, _ = map(pf.tensor, arrays)
    out = pf.scaled_dot_product_attention(q, k, v, None, 0.5, **options).numpy()
    assert (out > 0).any() and out.max() <= 2.0 + 1e-5  # twice what is kept of weights that sum to 1


@pytest.mark.parametrize("window", [-2, (1, 2, 3), (1, -2), 1.5])
def test_what_is_no_window(window: Any) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError), match="window"):
        pf.scaled_dot_product_attention(*[pf.ones(1, 1, 9, 4)] * 3, window=window)


@pytest.mark.parametrize("softcap", [-1.0, float("inf"), float("nan")])
def test_what_is_no_cap(softcap: float) -> None:
    with pytest.raises(ArgumentError, match="softcap"):
        pf.scaled_dot_product_attention(*[pf.ones(1, 1, 9, 4)] * 3, softcap=softcap)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("shape", "kind"), list(zip(SHAPES[:4], MASKS, strict=True)), ids=str)
def test_small_floats(shape: tuple[int, ...], kind: str, dtype: str) -> None:
    arrays, mask = sample(shape, kind, dtype)
    got = run(arrays, mask, is_causal=kind == "causal", scale=0.2)
    for a, b in zip(got, exact(*arrays, mask, kind == "causal", 0.2), strict=True):
        assert a.dtype == NUMPY[dtype]
        close(a, b, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
def test_against_torch(causal: bool, dtype: str) -> None:
    """As torch computes in the same dtype, within what both lose."""
    arrays, _ = sample((2, 4, 4, 65, 65, 64, 64), "none", dtype)
    theirs = [torch.tensor(a.astype(np.float32)).to(getattr(torch, dtype)).requires_grad_(True) for a in arrays]
    out = torch.nn.functional.scaled_dot_product_attention(*theirs[:3], is_causal=causal)
    out.backward(theirs[3].detach())
    wanted = [out.detach(), *[x.grad for x in theirs[:3]]]
    for a, b in zip(run(arrays, None, is_causal=causal), wanted, strict=True):
        close(a, b.float().numpy(), dtype)


@pytest.mark.parametrize("scale", [-0.7, 0.0])
def test_scale_may_have_any_sign(scale: float) -> None:
    arrays, _ = sample(SHAPES[0], "none")
    for a, b in zip(run(arrays, None, is_causal=True, scale=scale), exact(*arrays, None, True, scale), strict=True):
        close(a, b, "float32")


# --- what a plan launches --------------------------------------------------------------------------------------------


def test_forward_and_backward_are_two_launches() -> None:
    """One projection in, its gradient out: no copy, and nothing of the size of the scores."""
    batch, time, heads, size = 2, 512, 3, 16
    x = pf.randn(batch, time, 3 * heads * size).requires_grad_()
    pf.eval(x)
    q, k, v = (p.reshape(batch, time, heads, size).transpose(1, 2) for p in x.chunk(3, -1))
    out = pf.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, time, heads * size)
    g = pf.randn(batch, time, heads * size)
    pf.eval(g)
    assert implementations(out) == [("attention", "flash")]
    out.backward(g)
    assert implementations(x.grad) == [("attention", "flash"), ("attention_backward", "flash")]
    assert plan_of(x.grad).arena_bytes == out.numel() * 4


def test_the_gradient_of_a_sliced_projection_is_no_copy() -> None:
    x = pf.randn(2, 40, 3, 4, 8).requires_grad_()
    pf.eval(x)
    pf.scaled_dot_product_attention(*(x[:, :, i].transpose(1, 2) for i in range(3))).sum().backward()
    assert [name for name, _ in implementations(x.grad)][-1] == "attention_backward"


def test_scratch_grows_with_the_length_not_with_its_square() -> None:
    for backward in (False, True):
        short, long = (
            planner.attention_plan(planner.AttentionShape(1, 8, 1, n, n, 64, 64), backward=backward, workers=2)
            for n in (2048, 16384)
        )
        ratio = (long.worker_bytes * 2 + long.scratch_bytes) / (short.worker_bytes * 2 + short.scratch_bytes)
        assert ratio <= 8
        assert short.worker_bytes * 2 < 8 * 2048 * 2048


@pytest.mark.parametrize(
    ("shape", "dtype"), [((1, 2, 20, 8), "float64"), ((1, 2, 7, 8), "float32"), ((1, 2, 20, 0), "float32")], ids=str
)
def test_what_the_kernel_declines_is_decomposed(shape: tuple[int, ...], dtype: str) -> None:
    q, k, v = (pf.randn(*shape, dtype=as_dtype(dtype)) for _ in range(3))
    v = pf.randn(*shape[:-1], 4, dtype=as_dtype(dtype))
    pf.eval(q, k, v)
    out = pf.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert all(way != "flash" for _, way in implementations(out))
    want, *_ = exact(*(x.numpy() for x in (q, k, v)), np.ones((*shape[:-1], 4)), None, True, max(shape[-1], 1) ** -0.5)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5, atol=1e-6)


def test_no_keys_give_zeros() -> None:
    out = pf.scaled_dot_product_attention(pf.ones(1, 2, 9, 4), pf.ones(1, 2, 0, 4), pf.ones(1, 2, 0, 3))
    np.testing.assert_array_equal(out.numpy(), np.zeros((1, 2, 9, 3)))


# --- views -----------------------------------------------------------------------------------------------------------


def one(x: pf.Tensor, i: int) -> pf.Tensor:
    return x[:, :, i].transpose(1, 2)


# Ways to get q, k, v of (2, 3, 24, 8) from a tensor (2, 24, 3, 3, 8)
VIEWS: dict[str, Callable[[pf.Tensor], list[pf.Tensor]]] = {
    "rows": lambda x: [one(x, i) for i in range(3)],
    "columns": lambda x: [x[:, :, :, i].transpose(1, 2) for i in range(3)],
    "reversed": lambda x: [one(x, i).flip((2, 3)) for i in range(3)],
    "transposed": lambda x: [one(x, i).transpose(-1, -2).contiguous().transpose(-1, -2) for i in range(3)],
    "shared": lambda x: [one(x, 0)] * 3,
    "expanded": lambda x: [one(x, 0), *[one(x[:1, :, :, :1], i).expand(2, 3, 24, 8) for i in (1, 2)]],
}


@pytest.mark.parametrize("view", list(VIEWS))
def test_views_are_read_where_they_lie(view: str) -> None:
    rng = np.random.default_rng(3)
    array, slope = rng.standard_normal((2, 24, 3, 3, 8)), rng.standard_normal((2, 3, 24, 8))
    results = []
    for dtype in (pf.float32, pf.float64):
        x = pf.tensor(array, dtype=dtype).requires_grad_()
        out = pf.scaled_dot_product_attention(*VIEWS[view](x), is_causal=True)
        out.backward(pf.tensor(slope, dtype=dtype))
        results.append([out.detach().numpy(), x.grad.numpy()])
    for a, b in zip(*results, strict=True):
        close(a, b, "float32")


def test_any_number_of_batch_axes() -> None:
    rng = np.random.default_rng(4)
    for lead in ((), (3,), (2, 1, 3)):
        q, k, v = (rng.standard_normal((*lead, 12, 8), dtype=np.float32) for _ in range(3))
        masks = [None, rng.random((12, 12)) > 0.3]
        masks += [rng.random((2, 1, 1, 12, 12)) > 0.3, rng.random((1, 3, 12, 12)) > 0.3] if len(lead) == 3 else []
        for mask in masks:
            ours = pf.scaled_dot_product_attention(
                *map(pf.tensor, (q, k, v)), None if mask is None else pf.tensor(mask)
            )
            theirs = torch.nn.functional.scaled_dot_product_attention(
                *map(torch.tensor, (q, k, v)), attn_mask=None if mask is None else torch.tensor(mask)
            )
            close(ours.numpy(), np.nan_to_num(theirs.numpy()), "float32")


# --- masks and special values ----------------------------------------------------------------------------------------


def test_masks_get_gradients() -> None:
    arrays, mask = sample((1, 4, 2, 20, 30, 8, 8), "float")
    assert mask is not None
    mask = np.where(np.isinf(mask), -1, mask)
    q, k, v, g = (pf.tensor(a) for a in arrays)
    ours = pf.tensor(mask).requires_grad_()
    pf.scaled_dot_product_attention(q, k, v, ours, enable_gqa=True).backward(g)
    theirs = torch.tensor(mask.astype(np.float64), requires_grad=True)
    q, k, v, g = (torch.tensor(a.astype(np.float64)) for a in arrays)
    torch.nn.functional.scaled_dot_product_attention(q, k, v, theirs, enable_gqa=True).backward(g)
    close(ours.grad.numpy(), theirs.grad.numpy(), "float32")


def test_a_query_that_sees_nothing_gets_zeros() -> None:
    arrays, _ = sample((1, 1, 1, 9, 40, 16, 16), "none")
    for mask in (np.zeros((9, 40), bool), np.full((9, 40), -np.inf, np.float32)):
        for x in run(arrays, mask):
            np.testing.assert_array_equal(x, np.zeros_like(x))


def test_the_lowest_float_as_mask_leaves_an_average() -> None:
    """A row of finfo.min is not a row of -inf: all keys are equally far."""
    arrays, _ = sample((1, 1, 1, 9, 300, 16, 16), "none")
    mask = np.full((9, 300), np.finfo(np.float32).min, np.float32)
    out, *_ = run(arrays, mask)
    close(out, np.broadcast_to(arrays[2].mean(2, keepdims=True), out.shape), "float32")


def test_nan_stays_in_its_row_and_masked_keys_do_not_matter() -> None:
    arrays, _ = sample((1, 1, 1, 40, 300, 16, 16), "none")
    q, k = arrays[0].copy(), arrays[1].copy()
    q[0, 0, 3, 5] = np.nan
    out, *_ = run([q, *arrays[1:]], None)
    assert np.isnan(out[0, 0, 3]).all()
    assert not np.isnan(np.delete(out, 3, 2)).any()
    k[0, 0, 7] = np.nan
    seen = np.arange(300) != 7
    out, *_ = run([arrays[0], k, *arrays[2:]], np.broadcast_to(seen, (40, 300)).copy())
    close(out, exact(*(x if x.shape[2] != 300 else x[:, :, seen] for x in arrays), None, False, 0.25)[0], "float32")


def test_large_scores_do_not_overflow() -> None:
    arrays, _ = sample((1, 1, 1, 16, 600, 16, 16), "none")
    arrays[0] *= 300
    for a, b in zip(run(arrays, None), exact(*arrays, None, False, 0.25), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-4 * max(1, np.abs(b).max()))


def test_second_derivatives() -> None:
    """Those of the fused gradient come through its decomposition."""
    arrays, _ = sample((1, 2, 1, 12, 12, 8, 8), "none")
    ours = [pf.tensor(a).requires_grad_() for a in arrays[:3]]
    theirs = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays[:3]]
    out = pf.scaled_dot_product_attention(*ours, is_causal=True)
    firsts = pf.grad(out, ours, pf.tensor(arrays[3]), create_graph=True)
    sum((x * x).sum() for x in firsts).backward()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        wanted = torch.nn.functional.scaled_dot_product_attention(*theirs, is_causal=True, enable_gqa=True)
    slopes = torch.autograd.grad(wanted, theirs, torch.tensor(arrays[3].astype(np.float64)), create_graph=True)
    sum((x * x).sum() for x in slopes).backward()
    for a, b in zip(ours, theirs, strict=True):
        close(a.grad.numpy(), b.grad.numpy(), "float32")


# --- the kernel by itself --------------------------------------------------------------------------------------------

KERNELS = Path(planner.__file__).parent
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
FLAGS = ["-O1", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-std=gnu11", "-shared", "-fPIC", "-w"]
ISAS = {
    "native": (["-march=native"], None),
    "avx2": (["-mavx2", "-mfma", "-mf16c"], ("avx2", "fma")),
    "baseline": ([], ("asimd",) if platform.machine() == "aarch64" else ()),
}
PRELUDE = '#include "pf_abi.h"\n#include "pf_math.h"\n#include "pf_half.h"\n#define PF_KEY k\n'
WORKERS = 3
PLAIN: dict[bool, Any] = {False: (None, None, 0.0), True: (None, 0, 0.0)}  # by whether it is causal


CPU_ISA = get_device(CPU).target.isa


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], ctypes.CDLL]:
    folder = tmp_path_factory.mktemp("attention")

    @lru_cache
    def compiled(text: str, isa: str) -> ctypes.CDLL:
        if CC is None:
            pytest.skip("needs a C compiler")
        source = folder / f"k{len(list(folder.iterdir()))}.c"
        source.write_text(PRELUDE + text)
        library = source.with_suffix(".so")
        include = [f"-I{KERNELS}", f"-I{KERNELS / 'include'}"]
        subprocess.run([CC, *FLAGS, *ISAS[isa][0], *include, str(source), "-o", str(library)], check=True)
        loaded = ctypes.CDLL(str(library))
        loaded.k_permit.restype = ctypes.c_int64
        if loaded.k_permit() != 0:
            pytest.skip("the kernel does not grant AMX tiles")
        return loaded

    return compiled


def direct(build: Any, isa: str, workers: int, name: str, sources: list[Array], shape: Any, rule: Any) -> Array:
    """One launch of the kernel of op `name`, on scratch with guards around it."""
    dtype = as_dtype(str(sources[0].dtype))
    kinds = [as_dtype("bool_" if a.dtype == bool else str(a.dtype)) for a in sources]
    metas = tuple(Meta(a.shape, kind, None) for a, kind in zip(sources, kinds, strict=True))
    out = np.zeros(shape, sources[0].dtype)
    anchor = Anchor(OPS[name], (rule[0], rule[1], 0.3, rule[2]), metas, Meta(out.shape, dtype, None))
    operands = [
        OperandView(i, a.shape, tuple(s // a.itemsize for s in a.strides), kind)
        for i, (a, kind) in enumerate(zip(sources, kinds, strict=True))
    ]
    kernel = Kernel(((),), (), (), (name,), anchor)
    launch = Launch(name, kernel, [], operands, (name,), 0, 0, "flash", "")
    flags = ISAS[isa][1]
    target = Target("cpu", "c", CPU_ISA if flags is None else flags, workers)
    source = specs()[name, "flash"].source(launch, target, None)
    library = build(source.text, isa)
    size = source.scratch_bytes + WORKERS * source.worker_bytes
    raw = np.full(size + 192, 77, np.uint8)
    start = 64 + -raw.ctypes.data % 64
    raw[start : start + size] = 255  # NaN: nothing may be read before it was written
    pointers = [a.ctypes.data for a in (*sources, out)] + [raw.ctypes.data + start]
    buffers, args = (ctypes.c_void_p * len(pointers))(*pointers), (ctypes.c_int64 * len(source.args))(*source.args)
    for phase in source.phases:
        tasks = list(range(phase.iterations))
        random.Random(phase.iterations).shuffle(tasks)
        for number, task in enumerate(tasks):
            bounds = (task, task + 1, WORKERS - 1 - number % WORKERS)
            getattr(library, "k" + phase.suffix)(buffers, args, None, *map(ctypes.c_int64, bounds))
    assert np.all(raw[:start] == 77)
    assert np.all(raw[start + size :] == 77)
    return out


def both(
    build: Any, isa: str, workers: int, arrays: list[Array], mask: Array | None, rule: Any, spans: Array | None = None
) -> list[Array]:
    """out and the gradients as one buffer."""
    q, k, v, g = arrays
    batch, heads, queries, _ = q.shape
    masks = [] if mask is None else [np.broadcast_to(mask, (1,) * (4 - mask.ndim) + mask.shape)]
    masks += [] if spans is None else [spans]
    shape = (batch, queries, heads, v.shape[3])
    out = direct(build, isa, workers, "attention", [q, k, v, *masks], shape, rule)
    sources = [g, q, k, v, out.swapaxes(1, 2), *masks]
    return [out, direct(build, isa, workers, "attention_backward", sources, q.size + k.size + v.size, rule)]


BUILDS = [("native", "float32"), ("native", "bfloat16"), ("avx2", "float32")]
BUILDS += [("baseline", "float32"), ("baseline", "bfloat16")]


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "dtype"), BUILDS)
def test_every_instruction_set(build: Any, isa: str, dtype: str) -> None:
    if isa == "avx2" and not {"avx2", "fma"} <= set(CPU_ISA):
        pytest.skip("this CPU has no AVX2")
    cases = [
        (shape, kind, PLAIN[kind == "causal"])
        for shape, kind in zip([*SHAPES, SHAPES[0]], [*MASKS, "none", "causal", "float"], strict=True)
    ]
    cases += [(SHAPES[1], "none", RULES["all"][0]), (SHAPES[3], "bool", RULES["both sides"][0])]
    for shape, kind, rule in cases:
        arrays, mask = sample(shape, kind, dtype)
        got = both(build, isa, 1, arrays, mask, rule)
        want = exact(*arrays, mask, False, 0.3, rule)
        close(got[0], want[0].swapaxes(1, 2), dtype)
        if shape[3] == shape[4]:  # side by side in a row
            rows = [x.swapaxes(1, 2).reshape(shape[0], shape[3], -1) for x in want[1:]]
            close(got[1], np.concatenate(rows, -1).reshape(-1), dtype)
        else:
            close(got[1], np.concatenate([x.swapaxes(1, 2).reshape(-1) for x in want[1:]]), dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_workers_do_not_change_a_bit(build: Any, dtype: str) -> None:
    """Few workers take whole heads and one phase, many share heads and take two."""
    for shape, kind, rule in (
        ((2, 2, 1, 300, 300, 64, 32), "none", PLAIN[True]),
        ((1, 3, 3, 70, 400, 33, 20), "bool", PLAIN[False]),
        ((1, 2, 1, 300, 290, 20, 20), "none", (-50, 3, 1.0)),
    ):
        arrays, mask = sample(shape, kind, dtype)
        runs = [both(build, "native", workers, arrays, mask, rule) for workers in (1, 2, 64)]
        for other in runs[1:]:
            for a, b in zip(runs[0], other, strict=True):
                np.testing.assert_array_equal(a, b)
    spans = [
        [[0, 70, 0, 400, 150, 30], [0, 70, 0, 400, 400, 0]],
        [[0, 70, 0, 150, 140, 70], [70, 70, 150, 650, 600, -9], [0] * 6],
    ]
    for batch, listed in zip((2, 1), spans, strict=True):
        arrays, _ = sample((batch, 2, 1, 140 // batch, 800 // batch, 33, 20), "none", dtype)
        table = np.array(listed, np.int32)
        runs = [both(build, "native", workers, arrays, None, (-90, 20, 1.0), table) for workers in (1, 2, 64)]
        for other in runs[1:]:
            for a, b in zip(runs[0], other, strict=True):
                np.testing.assert_array_equal(a, b)
    sizes = planner.AttentionShape(2, 1, 2, 300, 300, 64, 32)
    assert len(planner.attention_plan(sizes, backward=True, workers=1).phases) == 1
    assert len(planner.attention_plan(sizes, backward=True, workers=64).phases) == 2
