"""AMDOptimizer: what each level changes, what is measured, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.backends import models
from pyflame.backends.amd import AMDOptimizer, optimizer, rewrites
from pyflame.core.config import AMDConfig
from pyflame.core.errors import AMDConfigurationError, AMDOptimizationError

torch = pytest.importorskip("torch")
SIM = "sim:gfx942"
LIBRARIES = pytest.mark.parametrize("library", [torch, pf], ids=["torch", "pyflame"])


def cnn(library: Any) -> Any:
    nn = library.nn
    library.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 4))
    with library.no_grad():
        model[1].running_mean.add_(0.3)
        model[1].running_var.mul_(2.0)
    return model.eval()


def kinds(model: Any) -> list[str]:
    return [type(m).__name__ for m in model.children()]


@pytest.mark.slow
@LIBRARIES
def test_levels_change_what_they_say(library: Any) -> None:
    """On a simulated GPU, where no time is judged, so that results alone decide."""
    tool = AMDOptimizer(AMDConfig(device=SIM))
    model, x = cnn(library), library.randn(2, 3, 8, 8)
    want = model(x).detach().numpy()
    applied = {}
    levels = ("conservative", "balanced", "aggressive") if library is pf else ("aggressive",)  # Dynamo is slow
    for level in levels:
        made = tool.optimize(model, level, (x,))
        told = tool.get_optimization_summary()
        applied[level] = told["optimizations_applied"]
        got = made(x.to(tool.backend.device)).detach().float().cpu().numpy()
        assert abs(got - want).max() / abs(want).max() < 2 * told["allowed_deviation"]
        assert told["gain"] is None and told["deviation"] <= told["allowed_deviation"]
        assert told["architecture"] == "cdna3" and told["matrix_cores_enabled"]
        assert kinds(made)[1] == "Identity"
    safe = ["operator_fusion", "batch_norm_folding"]
    want_applied = {
        "conservative": safe,
        "balanced": [*safe, "channels_last", "mixed_precision"],
        "aggressive": [*safe, "channels_last", "half_weights", "float8_weights"],
    }
    assert applied == {level: want_applied[level] for level in levels}
    assert kinds(made)[-1] == "Float8Linear" and "float8_e4m3fnuz" in str(made[4].weight.dtype)
    assert kinds(model)[1] == "BatchNorm2d" and np.array_equal(model(x).detach().numpy(), want)  # it stayed as it was


@pytest.mark.slow
def test_a_change_that_is_too_coarse_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rewrites.ALLOWED, "balanced", 1e-5)
    tool = AMDOptimizer(AMDConfig(device=SIM))
    tool.optimize(cnn(pf), "balanced")
    told = tool.get_optimization_summary()
    assert "mixed_precision" in told["optimizations_refused"]
    (change,) = [c for c in told["changes"] if c["name"] == "mixed_precision"]
    assert "results differ by" in change["why"] and change["deviation"] > 1e-5
    assert told["deviation"] <= 1e-5


def test_a_change_that_is_slower_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer, "SLOWER", 1e-9)
    tool = AMDOptimizer(AMDConfig(device="cpu"))
    tool.optimize(cnn(pf), "conservative")
    told = tool.get_optimization_summary()
    assert told["optimizations_applied"] == [] and all(c["gain"] > 0 for c in told["changes"])
    assert "slower" in told["changes"][0]["why"]


@LIBRARIES
def test_a_norm_whose_source_has_another_reader_is_not_folded(library: Any) -> None:
    class Both(library.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm = library.nn.Linear(4, 4), library.nn.BatchNorm1d(4)

        def forward(self, x: Any) -> Any:
            made = self.layer(x)
            return self.norm(made) + made

    model = Both().eval()
    with library.no_grad():
        model.norm.running_var.mul_(4.0)
    tool = AMDOptimizer(AMDConfig(device="cpu"))
    tool.optimize(model, "conservative", (library.randn(3, 4),))
    (change,) = [c for c in tool.get_optimization_summary()["changes"] if c["name"] == "batch_norm_folding"]
    assert change["outcome"] == "refused" and "results differ" in change["why"]


@pytest.mark.slow
@LIBRARIES
def test_a_model_in_training_keeps_its_parameters(library: Any) -> None:
    tool = AMDOptimizer(AMDConfig(device=SIM))
    model = library.nn.Sequential(*cnn(library), library.nn.Dropout(0.5)).train()
    before = model[1].running_mean.clone().cpu().numpy()
    made = tool.optimize(model, "aggressive")
    told = tool.get_optimization_summary()
    assert told["optimizations_applied"] == ["operator_fusion", "mixed_precision"]
    assert all(p is q for p, q in zip(made.parameters(), model.parameters(), strict=True))
    assert np.array_equal(model[1].running_mean.cpu().numpy(), before)  # measuring left the statistics alone
    made(library.randn(2, 3, 8, 8).to(tool.backend.device)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_targets_without_8_bit_floats_get_none() -> None:
    tool = AMDOptimizer(AMDConfig(device="sim:gfx1100"))
    tool.optimize(torch.nn.Linear(8, 8).eval(), "aggressive")
    told = tool.get_optimization_summary()
    assert "float8_weights" in told["optimizations_skipped"] and "half_weights" in told["optimizations_applied"]
    assert any("gfx1100 has no 8-bit floats" in c["why"] for c in told["changes"])


def test_switches_forbid_changes() -> None:
    config = AMDConfig(device=SIM, enable_operator_fusion=False, allow_bf16=False, allow_fp16=False)
    tool = AMDOptimizer(config)
    made = tool.optimize(torch.nn.Linear(8, 8).eval(), "balanced")
    assert tool.get_optimization_summary()["optimizations_applied"] == []
    assert not vars(made)["_prepared"].settings.fuse


def test_inputs_are_made_up_or_asked_for() -> None:
    class Pair(torch.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a @ b

    tool = AMDOptimizer(AMDConfig(device="cpu"))
    with pytest.raises(AMDOptimizationError, match="example_inputs"):
        tool.optimize(Pair())
    with pytest.raises(AMDOptimizationError, match="failed on them"):
        tool.optimize(Pair(), example_inputs=(torch.ones(2, 3), torch.ones(2, 3)))
    with pytest.raises(AMDConfigurationError, match="did you mean 'balanced'"):
        tool.optimize(Pair(), level="balance")
    made = tool.optimize(Pair(), "conservative", (torch.ones(2, 3), torch.ones(3, 2)))
    assert models.graphs_of(made) == [] and made(torch.ones(2, 3), torch.ones(3, 2)).shape == (2, 2)
    embedding = tool.optimize(pf.nn.Embedding(10, 4).eval(), "conservative")
    assert embedding(pf.tensor([[1, 2]])).shape == (1, 2, 4)
