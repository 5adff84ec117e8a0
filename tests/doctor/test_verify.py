"""`pyflame verify`: it names the first op that differs with its line, and tells a wrong op from errors that grow."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.core.device import DeviceId
from pyflame.core.errors import ArgumentError, CompileError, DeviceFaultError, NotAvailableError, TraceError
from pyflame.core.state import state
from pyflame.doctor.verify import compare, graph
from pyflame.doctor.verify.page import page
from pyflame.engine.evaluate import evaluate
from pyflame.ir import OPS, Node
from pyflame.ir.opdef import CONST, LEAF
from tests.doctor.texts import forget_texts
from tests.llm import small
from tests.second_cpu import SECOND, second_cpu

Nodes = Sequence[Node]


@pytest.fixture(autouse=True)
def other() -> Iterator[DeviceId]:
    """A device beside the CPU, which computes as it does."""
    with second_cpu() as device:
        yield device


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Lets an op's kernels compute something else on the second device, for all evaluations or for some."""

    def breaks(op: str, c: str, when: Callable[[Nodes], bool] = lambda nodes: True) -> None:
        def wrongly(nodes: Nodes) -> None:
            forget_texts()
            with pytest.MonkeyPatch.context() as patch:
                if state.device is SECOND and when(nodes):
                    patch.setattr(OPS[op], "c", c)
                evaluate(nodes)

        monkeypatch.setattr(graph, "evaluate", wrongly)

    yield breaks
    forget_texts()


class Net(pf.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = pf.nn.Linear(6, 8)
        self.last = pf.nn.Linear(8, 3)

    def forward(self, x: pf.Tensor) -> pf.Tensor:
        h = self.first(x)
        h = h.tanh() * 2  # the line that tests look for
        return self.last(h).softmax(-1)


HERE = Path(__file__)
LINE = 1 + next(n for n, text in enumerate(HERE.read_text().splitlines()) if "the line that tests look for" in text)
TWICE = f"(({OPS['tanh'].c}) * 2)"


def test_devices_that_agree(other: DeviceId) -> None:
    found = compare(Net(), pf.randn(5, 6), devices=("cpu", other))
    rows = found.comparisons[0].rows
    assert found.agrees and "agrees with cpu in all" in str(found)
    assert [r.op for r in rows] == ["linear", "tanh", "mul", "linear", "softmax"]
    assert [r.line for r in rows] == [f"{HERE}:{LINE + d}" for d in (-1, 0, 0, 1, 1)]
    assert [r.module for r in rows] == ["first", "Net", "Net", "last", "Net"]
    assert [r.terms for r in rows] == [8, 1, 1, 8, 5]
    assert rows[0].allowed_total < rows[-1].allowed_total and rows[-1].whole is not None


def test_a_wrong_op_is_named_with_its_line(other: DeviceId, broken: Callable[..., None]) -> None:
    broken("tanh", TWICE)
    found = compare(Net(), (pf.randn(5, 6),), devices=("cpu", other))
    assert not found.agrees
    (wrong,) = found.comparisons[0].wrong
    assert (wrong.op, wrong.line) == ("tanh", f"{HERE}:{LINE}")
    assert wrong.own.error > 0.4
    after = found.comparisons[0].rows[2:]
    assert all(r.own.error < r.allowed and r.total.error > r.allowed_total for r in after)
    assert found.comparisons[0].worst(1) == [wrong]
    assert f"op 1, tanh -> float32 5x8, {HERE}:{LINE}" in str(found)


def test_an_op_that_is_wrong_only_where_it_is_fused(other: DeviceId, broken: Callable[..., None]) -> None:
    def is_whole(nodes: Nodes) -> bool:
        return len(nodes) == 1 and nodes[0].op.name == "softmax" and nodes[0].srcs[0].op.kind not in (LEAF, CONST)

    broken("tanh", TWICE, is_whole)
    found = compare(Net(), pf.randn(5, 6), devices=("cpu", other))
    (wrong,) = found.comparisons[0].wrong
    assert wrong.op == "softmax" and "not in the whole call" in wrong.wrong


def test_nan_on_one_device_only(other: DeviceId, broken: Callable[..., None]) -> None:
    broken("tanh", f"({{x}} > 1.5f ? ({{T}})NAN : ({OPS['tanh'].c}))")
    found = compare(lambda x: x.tanh(), pf.tensor([0.0, 1.0, 2.0]), devices=("cpu", other))
    assert found.comparisons[0].wrong[0].wrong == "1 NaN where the reference has 0"
    nan = compare(lambda x: x.log(), pf.tensor([-1.0, 0.0, 2.0]), devices=("cpu", other))
    assert nan.agrees  # NaN and infinity on both


def test_rounding_that_grows_is_no_fault_of_an_op(other: DeviceId, broken: Callable[..., None]) -> None:
    broken("tanh", f"(({OPS['tanh'].c}) * 1.000002f)")  # 17 ulp: within what vendors differ by
    x = pf.full((4,), 0.5)
    found = compare(lambda x: (x.tanh() - float(np.tanh(0.5)) + 1e-6) * 1e6, x, devices=("cpu", other))
    assert found.agrees and found.comparisons[0].drifted[0].op == "sub"
    assert "the model amplifies rounding" in str(found)


def test_what_a_device_cannot_compute_is_told_and_the_rest_goes_on(
    other: DeviceId, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(nodes: Nodes) -> None:
        if state.device is SECOND and any(n.op.name == "tanh" for n in nodes):
            raise CompileError("no such instruction")
        evaluate(nodes)

    monkeypatch.setattr(graph, "evaluate", refuses)
    rows = compare(Net(), pf.randn(5, 6), devices=("cpu", other)).comparisons[0].rows
    assert rows[1].wrong == "no such instruction" and [r.number for r in rows if r.wrong] == [1]

    def faults(nodes: Nodes) -> None:
        if state.device is SECOND:
            raise DeviceFaultError("an illegal address")
        evaluate(nodes)

    monkeypatch.setattr(graph, "evaluate", faults)
    found = compare(Net(), pf.randn(5, 6), devices=("cpu", other))
    assert not found.agrees and "broke while ops 0 to 4 ran: an illegal address" in str(found)


@pytest.mark.slow
def test_a_training_step_with_dropout_changes_nothing(other: DeviceId) -> None:
    model = pf.nn.Sequential(Net(), pf.nn.Dropout(0.5))
    optimizer = pf.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    before = [p.numpy().copy() for p in model.parameters()]

    def step(x: pf.Tensor) -> pf.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    found = compare(step, {"x": pf.randn(5, 6)}, devices=("cpu", other))
    assert found.agrees and len(found.comparisons[0].rows) > 20
    assert len(found.outputs) > 4  # the loss, parameters and momenta
    for p, array in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.numpy(), array)


@pytest.mark.slow
def test_a_simulated_gpu_agrees() -> None:
    found = compare(Net(), pf.randn(2, 6), devices=("cpu", "sim:gfx1100"))
    assert found.agrees and found.comparisons[0].device == "sim:gfx1100"


@pytest.mark.slow
def test_many_ops_in_chunks_with_views_between(other: DeviceId) -> None:
    def fn(x: pf.Tensor) -> pf.Tensor:
        first = x.exp()
        y = first.T.reshape(2, 6)
        for _ in range(50):
            y = y * 0.9 + 0.1
        return y + first.T.reshape(2, 6)

    rows = compare(fn, pf.randn(3, 4), devices=("cpu", other)).comparisons[0].rows
    assert len(rows) == 102 and not any(r.wrong for r in rows)


def test_what_it_refuses(other: DeviceId) -> None:
    with pytest.raises(ArgumentError, match="at least two devices"):
        compare(Net(), pf.randn(5, 6), devices=("cpu",))
    with pytest.raises(ArgumentError, match="only plans"):
        compare(Net(), pf.randn(5, 6), devices=("cpu", "null"))
    with pytest.raises(NotAvailableError):
        compare(Net(), pf.randn(5, 6), devices=("cpu", "rocm:63"))
    with pytest.raises(TraceError, match="item"):
        compare(lambda x: x * x.sum().item(), pf.randn(3), devices=("cpu", other))


def test_the_page_stands_alone_and_shows_what_is_wrong(other: DeviceId, broken: Callable[..., None]) -> None:
    broken("tanh", TWICE)
    text = page(compare(Net(), pf.randn(5, 6), devices=("cpu", other)))
    assert not re.search(r"https?:|<script|<link|@import|url\(", text)
    assert "prefers-color-scheme:dark" in text and "<svg" in text and "var(--bad)" in text
    assert f"{HERE.name}:{LINE}" in text and "bad" in text


SCRIPT = "import pyflame as pf\nmodel = pf.nn.Linear(3, 2)\ninputs = (pf.ones(4, 3),)\n"
MAIN = "import pyflame as pf\ndef main():\n    return (lambda x: x.exp()), pf.ones(3)\n"


@pytest.mark.parametrize("text", [SCRIPT, MAIN])
def test_command_with_a_script(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, saved, html = tmp_path / "model.py", tmp_path / "ops.json", tmp_path / "ops.html"
    script.write_text(text)
    assert main(["verify", str(script), "--devices", "cpu,cpu", "--json", str(saved), "--html", str(html)]) == 0
    assert "agrees with cpu" in capsys.readouterr().out
    found = json.loads(saved.read_text())
    assert found["agrees"] and found["devices"][0]["ops"][0]["op"] in ("linear", "exp")
    assert html.read_text().startswith("<!doctype html>")
    script.write_text("model = 3\n")
    assert main(["verify", str(script), "--devices", "cpu,cpu"]) == 2
    assert "expected" in capsys.readouterr().err


@pytest.mark.slow
def test_command_with_a_language_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = small.gguf(tmp_path / "small.gguf")
    saved = tmp_path / "ops.json"
    assert main(["verify", str(file), "--devices", "cpu,cpu", "--prompt", "hello", "--json", str(saved)]) == 0
    modules = {op["module"] for op in json.loads(saved.read_text())["devices"][0]["ops"]}
    assert {"token_embd", "blk.0.attn_q", "blk.1.attn_q", "output_norm"} <= modules
    shown = capsys.readouterr().out
    assert "blk.0" in shown and "blk.1" in shown
