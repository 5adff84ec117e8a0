"""What is computed on a device in a process of its own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pyflame.doctor import probe
from pyflame.doctor.machine import this_machine
from pyflame.doctor.probing import probed


@pytest.mark.parametrize("what", probe.PROBES)
def test_probes_on_the_cpu(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main("cpu", what) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["mode"] == "" and "right" in said["text"]


def test_wrong_results_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyflame as pf

    right = pf.Tensor.numpy
    monkeypatch.setattr(pf.Tensor, "numpy", lambda self: np.asarray(right(self)) + 1.0)
    assert probe.kernel("cpu")[0] == "wrong"
    assert probe.libraries("cpu")[0] == "wrong"
    monkeypatch.setattr(pf.Tensor, "tolist", lambda self: [0.0])
    assert probe.graph("cpu")[0] == "wrong"


def test_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main("rocm:77", "kernel") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["mode"] == "failed" and "Error: [rocm]" in said["text"]


@pytest.mark.slow
def test_in_a_process_of_its_own() -> None:
    (finding,) = probed(this_machine(), "cpu", "kernel")
    assert finding.text == "a fused kernel and a sum are right", finding
