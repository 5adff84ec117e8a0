"""selftest and verify on a real NVIDIA GPU: it passes in two minutes, and a wrong op is named with its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

import pyflame as pf
from pyflame.core.state import state
from pyflame.doctor.selftest import families, selftest
from pyflame.doctor.verify import compare, graph
from pyflame.engine.evaluate import evaluate
from pyflame.ir import OPS, Node
from pyflame.runtime.cuda.device import CUDA
from tests.doctor.texts import forget_texts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(CUDA.count() == 0, reason=CUDA.why_absent() or "there is one"),
]


def test_selftest_passes() -> None:
    found = selftest("cuda:0", 120)
    assert found.failures == [], found.report()
    assert {r.family for r in found.results} == set(families())
    assert any("cuBLASLt" in note for r in found.results for note in r.notes)


def model(x: pf.Tensor, w: pf.Tensor) -> pf.Tensor:
    return ((x @ w).tanh() * 2).softmax(-1)


@pytest.fixture
def wrong_tanh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On the GPU, off by a thousandth."""

    def wrongly(nodes: Sequence[Node]) -> None:
        forget_texts()
        with pytest.MonkeyPatch.context() as patch:
            if state.device.kind == "cuda":
                patch.setattr(OPS["tanh"], "c", f"(({OPS['tanh'].c}) * 1.001f)")
            evaluate(nodes)

    monkeypatch.setattr(graph, "evaluate", wrongly)
    yield
    forget_texts()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_verify_agrees(dtype: str) -> None:
    inputs = (pf.randn(65, 256, dtype=dtype, device="cpu"), pf.randn(256, 129, dtype=dtype, device="cpu"))
    found = compare(model, inputs, devices=("cpu", "cuda:0"))
    assert found.agrees, str(found)


def test_verify_names_a_wrong_op(wrong_tanh: None) -> None:
    found = compare(model, (pf.randn(5, 8, device="cpu"), pf.randn(8, 4, device="cpu")), devices=("cpu", "cuda:0"))
    (wrong,) = found.comparisons[0].wrong
    assert wrong.op == "tanh" and wrong.line == f"{__file__}:{model.__code__.co_firstlineno + 1}"
