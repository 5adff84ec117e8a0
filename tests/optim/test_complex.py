"""Complex parameters, as those of Fourier layers: every rule takes them for numbers of two parts, as PyTorch's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

RULES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1}), ("Adam", {"lr": 0.1, "amsgrad": True}), ("AdamW", {"lr": 0.1}), ("NAdam", {"lr": 0.1}),
    ("RAdam", {"lr": 0.1}), ("Adamax", {"lr": 0.1}), ("Adagrad", {"lr": 0.1, "initial_accumulator_value": 0.5}),
    ("Adadelta", {"lr": 0.1}), ("RMSprop", {"lr": 0.1, "momentum": 0.5, "centered": True}), ("Rprop", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1}),
]  # fmt: skip


def _trained(lib: Any, name: str, options: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    rng = np.random.default_rng(0)
    start = rng.standard_normal((2, 3)) + 1j * rng.standard_normal((2, 3))
    w = lib.nn.Parameter(lib.tensor(start.astype(np.complex64)))
    b = lib.nn.Parameter(lib.tensor([1.0, -2.0]))
    optimizer = getattr(lib.optim, name)([w, b], **options)
    x = lib.tensor(rng.standard_normal((4, 2)).astype(np.float32))
    for _ in range(4):
        optimizer.zero_grad()
        ((((x * b).to(lib.complex64) @ w).abs() ** 2).mean() + w.imag.sum()).backward()
        optimizer.step()
    return [w.detach().numpy(), b.detach().numpy()], optimizer.state_dict()["state"].get(0, {})


@pytest.mark.parametrize(("name", "options"), RULES, ids=lambda v: v if isinstance(v, str) else "-".join(v))
def test_rule(name: str, options: dict[str, Any]) -> None:
    (ours, state), (theirs, their_state) = _trained(pf, name, options), _trained(torch, name, options)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    for key, value in their_state.items():
        if isinstance(value, torch.Tensor) and value.is_complex():
            np.testing.assert_allclose(state[key].numpy(), value.numpy(), rtol=1e-3, atol=1e-5)


def test_in_a_jitted_step() -> None:
    w = pf.nn.Parameter(pf.tensor([1 + 1j, 2 - 1j]))
    optimizer = pf.optim.Adam([w], lr=0.1)

    @pf.jit
    def step() -> Any:
        optimizer.zero_grad()
        loss = (w.abs() ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step().item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_refused(name: str) -> None:
    with pytest.raises(pf.ArgumentError, match="complex64"):
        getattr(pf.optim, name)([pf.nn.Parameter(pf.ones(2, 2, dtype=pf.complex64))])
