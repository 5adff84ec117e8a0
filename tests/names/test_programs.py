"""Public programs with one word changed give what they give with torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pyflame import nn
from tests.names import programs


def run(text: str, library: str, names: dict[str, Any]) -> list[float]:
    scope = dict(names)
    changed = text.replace("import torch\n", f"import {library} as torch\n").replace(
        "import torch.", f"import {library}."
    )
    exec(changed.replace("from torch", f"from {library}"), scope)
    return scope["result"]  # type: ignore[no-any-return]


def state(model: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {k: np.array(v.detach().numpy()) for k, v in model.state_dict().items()}


def compare(text: str, names: dict[str, Any], tolerance: float = 2e-4) -> None:
    want = run(text, "torch", names)
    np.testing.assert_allclose(run(text, "pyflame", names), want, rtol=tolerance, atol=1e-5)


@pytest.mark.slow
def test_a_classifier(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((24, 1, 8, 8)).astype(np.float32), rng.integers(0, 10, 24)
    torch.manual_seed(0)
    scope: dict[str, Any] = {}
    exec(programs.CLASSIFIER.partition("def train")[0], scope)
    compare(programs.CLASSIFIER, {"images": images, "labels": labels, "start": state(scope["Net"]())}, 2e-3)
    first, second = capsys.readouterr().out.strip().splitlines()
    assert second.endswith("lr 0.490, on cpu") and first.endswith("lr 0.490, on cpu")


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_a_language_model(compiled: bool) -> None:
    tokens = np.random.default_rng(0).integers(0, 11, 40)
    torch.manual_seed(0)
    scope: dict[str, Any] = {}
    exec(programs.LANGUAGE_MODEL.partition("device_type =")[0], scope)
    names = {"tokens": tokens, "start": state(scope["Model"](11, 8, 8))}
    want = run(programs.LANGUAGE_MODEL, "torch", {**names, "compiled": False})
    got = run(programs.LANGUAGE_MODEL, "pyflame", {**names, "compiled": compiled})
    np.testing.assert_allclose(got, want, rtol=2e-4)


@pytest.mark.slow
def test_a_policy() -> None:
    rng = np.random.default_rng(0)
    start = state(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
    names = {
        "observations": rng.standard_normal((10, 4)),
        "chosen": rng.integers(0, 2, 10).tolist(),
        "rewards": rng.standard_normal(10).tolist(),
        "start": {k: v.tolist() for k, v in start.items()},
    }
    compare(programs.POLICY, names)


def test_the_word_is_changed_everywhere() -> None:
    for text in (programs.CLASSIFIER, programs.LANGUAGE_MODEL, programs.POLICY):
        scope: dict[str, Any] = {}
        lines = [line for line in text.splitlines() if line.startswith(("import torch", "from torch"))]
        assert lines
        assert run("\n".join([*lines, "result = [torch.__name__]", ""]), "pyflame", scope) == ["pyflame"]
