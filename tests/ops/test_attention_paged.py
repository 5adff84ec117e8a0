"""Attention over pages: kernels and decomposition against NumPy in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import PyFlameError
from pyflame.ir import OPS

DEVICES = ("cpu", "sim:gfx942", "sim:gfx1100")
TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.5e-2}


@dataclass(frozen=True)
class Case:
    """A cache and queries of some kind."""

    heads: int = 4
    groups: int = 2
    queries: int = 1
    depth: int = 64
    width: int = 64
    page: int = 16
    columns: int = 4
    lengths: tuple[int, ...] = (20, 64, 1)
    dtype: str = "float32"
    pages: str = ""  # their dtype, where it is another
    scaled: bool = False
    sunk: bool = False
    options: tuple[tuple[str, Any], ...] = ()


CASES = {
    "one query": Case(),
    "half": Case(dtype="float16", lengths=(33, 2, 64)),
    "bfloat16": Case(dtype="bfloat16", heads=9, groups=3, lengths=(50, 17)),
    "three queries": Case(queries=3, lengths=(3, 30, 64)),
    "fewer positions than queries": Case(queries=4, lengths=(2, 0, 64)),
    "eight queries, many heads": Case(heads=14, groups=2, queries=8, depth=32, width=32, lengths=(40,)),
    "odd sizes": Case(depth=20, width=12, page=5, columns=7, lengths=(34, 11)),
    "more lengths than room": Case(lengths=(65, 80), columns=4),
    "window": Case(queries=2, options=(("window", 9),), lengths=(5, 50, 64)),
    "cap": Case(options=(("softcap", 3.0), ("scale", 0.9))),
    "sinks": Case(sunk=True, queries=2, lengths=(0, 1, 60)),
    "int8": Case(pages="int8", scaled=True, dtype="float16"),
    "float8": Case(pages="float8_e4m3fn", scaled=True),
    "odd": Case(depth=20, width=12),
    "odd int8": Case(depth=20, width=12, pages="int8", scaled=True),
    "odd float8": Case(depth=20, width=12, pages="float8_e4m3fn", scaled=True),
    "half pages": Case(pages="float16", lengths=(64, 33)),
    "long": Case(columns=80, lengths=(1279, 300), depth=64, width=64, dtype="float16"),
    "tiles": Case(
        dtype="bfloat16", heads=8, sunk=True, options=(("softcap", 3.0), ("window", 40)), lengths=(0, 1, 60, 64)
    ),
    "tiles, many rows": Case(
        dtype="bfloat16", heads=6, groups=1, queries=3, depth=128, width=128, columns=40, lengths=(639, 3, 300)
    ),
    "tiles, odd": Case(dtype="bfloat16", heads=10, depth=20, width=12, lengths=(64, 33)),
    "large lines": Case(depth=128, width=256, lengths=(21, 64)),
}


def numbers(case: Case) -> tuple[list[pf.Tensor], dict[str, Any]]:
    """Query, key, value, table and lengths, and what is named."""
    rng = np.random.default_rng(len(case.lengths) + case.depth)
    batch, kind = len(case.lengths), case.pages or case.dtype
    count = batch * case.columns + 1
    query = pf.tensor(rng.standard_normal((batch, case.heads, case.queries, case.depth))).to(getattr(pf, case.dtype))
    pages = []
    for width in (case.depth, case.width):
        x = rng.standard_normal((count, case.page, case.groups, width))
        pages.append(pf.tensor(np.round(x * 40) if kind == "int8" else x).to(getattr(pf, kind)))
    table = rng.permutation(count)[: batch * case.columns].reshape(batch, case.columns)
    named: dict[str, Any] = dict(case.options)
    if case.scaled:
        factor = 1 / 40 if kind == "int8" else 1.0
        for name in ("key_scale", "value_scale"):
            scale = rng.uniform(0.5, 1.5, (count, case.page, case.groups)) * factor
            named[name] = pf.tensor(scale.astype(np.float32))
    if case.sunk:
        named["sinks"] = pf.tensor(rng.standard_normal(case.heads).astype(np.float32))
    return [query, *pages, pf.tensor(table), pf.tensor(np.array(case.lengths))], named


def expected(tensors: list[pf.Tensor], named: dict[str, Any]) -> Any:
    wide = [t.to(pf.float64).numpy() if t.dtype.is_float else t.numpy() for t in tensors]
    more = {k: v.numpy() if isinstance(v, pf.Tensor) else v for k, v in named.items()}
    return OPS["paged_attention"].reference(*wide, **more)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_against_reference(name: str, device: str) -> None:
    tensors, named = numbers(CASES[name])
    there = [t.to(device) for t in tensors]
    out = pf.paged_attention(*there, **{k: v.to(device) if isinstance(v, pf.Tensor) else v for k, v in named.items()})
    wanted = expected(tensors, named)
    tolerance = TOLERANCE[CASES[name].dtype]
    np.testing.assert_allclose(out.to(pf.float64).numpy(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", ["cpu", "sim:gfx1100"])
def test_pages_of_a_larger_cache(device: str) -> None:
    """Views of a tensor that holds all layers, and of keys and values side by side."""
    rng = np.random.default_rng(0)
    both = pf.tensor(rng.standard_normal((2, 5, 16, 3, 2, 32)).astype(np.float32)).to(device)
    key, value = both[1, :, :, :, 0], both[1, :, :, :, 1]
    query = pf.tensor(rng.standard_normal((2, 1, 6, 32)).astype(np.float32)).to(device).transpose(1, 2)
    table, lengths = pf.tensor([[4, 1], [0, 2]]).to(device), pf.tensor([31, 18]).to(device)
    pf.eval(both, query)
    found = pf.paged_attention(query, key, value, table, lengths)
    wanted = expected([query, key, value, table, lengths], {})
    np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("device", ["cpu", "sim:gfx1100"])
def test_a_page_that_does_not_exist(device: str) -> None:
    pages = pf.ones(4, 8, 1, 16).to(device)
    query, lengths = pf.ones(1, 1, 1, 16).to(device), pf.tensor([9]).to(device)
    with pytest.raises(PyFlameError, match=r"index in \[-?\d+, 3\] but got 4"):
        pf.paged_attention(query, pages, pages, pf.tensor([[0, 4]]).to(device), lengths).numpy()
    fine = pf.paged_attention(query, pages, pages, pf.tensor([[0, 3]]).to(device), lengths)
    np.testing.assert_allclose(fine.numpy(), 1.0, rtol=1e-6)


def test_one_plan_for_a_growing_cache() -> None:
    """Under jit the table and the lengths are data."""
    tensors, _ = numbers(CASES["one query"])
    traced = 0

    @pf.jit
    def attend(*given: pf.Tensor) -> pf.Tensor:
        nonlocal traced
        traced += 1
        return pf.paged_attention(*given)

    for length in (1, 16, 17, 64):
        given = [*tensors[:4], pf.tensor(np.full(3, length))]
        np.testing.assert_allclose(attend(*given).numpy(), expected(given, {}), rtol=2e-6, atol=2e-6)
    assert traced == 1


@pytest.mark.parametrize(
    "change",
    [
        {0: (2, 3, 1, 64)}, {0: (3, 3, 1, 64)}, {0: (3, 4, 1, 60)}, {1: (13, 16, 2)}, {2: (13, 8, 2, 64)}, {3: (3,)},
        {4: (2,)},
    ],
)  # fmt: skip
def test_refused(change: dict[int, tuple[int, ...]]) -> None:
    tensors, _ = numbers(Case())
    for at, shape in change.items():
        tensors[at] = pf.zeros(shape).to(tensors[at].dtype)
    with pytest.raises(PyFlameError, match="paged_attention"):
        pf.paged_attention(*tensors)
