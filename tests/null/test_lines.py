"""Writes to a few lines on a GPU: computed where they are written, side by side with other small work."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.targets import TARGETS as GPUS
from pyflame.engine.texts import gpu_source
from tests.decoding import Layer
from tests.plans import plan_of

TARGETS = ("sm_90", "gfx942", "gfx1100")


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("target", TARGETS)
def test_a_decoder_turns_and_keeps_its_lines_in_one_launch(target: str, rows: int, interleaved: bool) -> None:
    with pf.device(f"null:{target}"):
        layer = Layer(rows, interleaved, pf.bfloat16)
        plan = layer.step().find((layer.x, layer.positions), {})[0].plan
    anchors = [x.kernel.anchor.op.name if x.kernel.anchor else "" for x in plan.launches]
    product, attention = anchors.index("matmul"), anchors.index("attend_pages")
    (between,) = plan.launches[product + 1 : attention]
    assert len(between.parts) == 3 and between.overwrites_input and len(plan.overwritten_inputs) == 2


def few(count: int, lines: int = 40) -> pf.Tensor:
    return pf.tensor(np.arange(count) * 7 % lines)


def held(*shape: int) -> pf.Tensor:
    return pf.tensor(np.ones(shape, np.float32))


def written(value: pf.Tensor, count: int, base: pf.Tensor | None = None) -> pf.Tensor:
    return (held(40, 16) * 2.0 if base is None else base).index_copy(0, few(count), value)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_written_is_computed_there(target: str) -> None:
    x = held(8, 16)
    plan = plan_of(written(pf.exp(x) + 1.0, 8), target=target)
    assert len(plan.launches) == 2 and not plan.launches[-1].kernel.anchor  # the base and its lines


def test_many_lines_and_sums_have_kernels_of_their_own() -> None:
    x = held(33, 16)
    for made in (written(pf.exp(x), 33), (held(40, 16) * 2.0).index_add(0, few(33), pf.exp(x))):
        assert "scatter_gpu" in [x.implementation for x in plan_of(made, target="sm_90").launches]


def test_what_reads_the_lines_is_computed_before() -> None:
    """Another thread may have written them by then."""
    base = held(40, 16) * 2.0
    plan = plan_of(written(base[8:16] + 1.0, 8, base), target="sm_90")
    assert plan.launches[-1].implementation == "scatter_gpu"


def test_a_bad_index_is_known_before_lines_are_written() -> None:
    """Of what is looked up for them, too: then nothing is written."""
    found = pf.embedding(held(9, 16), few(8, 9))
    plan = plan_of(written(found * 2.0, 8), target="sm_90")
    (last,) = [x for x in plan.launches if x.kernel.line is not None]
    assert "gather_at" not in last.ops


def test_work_of_other_indices_waits() -> None:
    """One that finds a bad index keeps the other from writing."""
    a, b = (held(40, 16) * 2.0 for _ in range(2))
    same, other = few(8), few(8, 39)
    plan = plan_of(a.index_copy(0, same, held(8, 16)), b.index_copy(0, other, held(8, 16)), target="sm_90")
    assert max(sum(p.kernel.line is not None for p in x.parts or (x,)) for x in plan.launches) == 1


def test_texts_serve_other_lengths() -> None:
    def text(lines: int, count: int) -> str:
        base = held(lines, 16) * 2.0
        plan = plan_of(base.index_copy(0, few(count, lines), pf.exp(held(count, 16))), target="gfx942")
        return gpu_source(plan.launches[-1], GPUS["gfx942"]).text

    assert text(40, 8) == text(80, 12)


def test_what_a_step_counts_stays_where_it_is() -> None:
    """It is written behind all that read it, not beside the lines."""
    with pf.device("null:sm_90"):
        kept, count = pf.zeros(40, 16), pf.zeros(8)
        pf.eval(kept, count)

        @pf.jit
        def step(at: pf.Tensor, x: pf.Tensor) -> pf.Tensor:
            kept.index_copy_(0, at, x * 2.0)
            seen = x + count.unsqueeze(1)
            count.add_(1.0)
            return seen.exp()

        traced, _ = step.find((few(8), pf.zeros(8, 16)), {})
    assert len(traced.plan.updated) == len(traced.rebound) == 2
