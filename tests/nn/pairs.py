"""A layer of ours beside torch's: the same weights, then the same outputs and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import pyflame as pf
from pyflame.doctor.samples import outputs_of
from pyflame.nn import Module
from tests.oracle import to_array

RTOL, ATOL = 2e-4, 2e-5


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def same_weights(ours: Module, theirs: torch.nn.Module) -> None:
    """Give ours the weights of theirs; names, order and shapes agree, and ours load into theirs as well."""
    theirs_state = theirs.state_dict()
    with torch.no_grad():  # biases and norms too start at something other than 0 or 1
        for parameter in theirs.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    assert [(n, tuple(t.shape)) for n, t in theirs_state.items()] == [
        (n, t.shape) for n, t in ours.state_dict().items()
    ]
    ours.load_state_dict(theirs_state)
    back = {name: torch.from_numpy(value.numpy().copy()) for name, value in ours.state_dict().items()}
    theirs.load_state_dict(back)


def close(got: Any, want: Any, what: str, rtol: float = RTOL, atol: float = ATOL) -> None:
    left, right = to_array(got), to_array(want)
    assert left.shape == right.shape, f"{what}: shape {left.shape}, torch has {right.shape}"
    np.testing.assert_allclose(left, right, rtol=rtol, atol=atol, err_msg=what)


def compare(ours: Module, theirs: torch.nn.Module, *inputs: Any, **options: Any) -> Any:
    """Outputs, gradients of float inputs and gradients of parameters. Options may hold arrays. Gives our outputs."""

    def both(value: Any) -> tuple[Any, Any]:
        if isinstance(value, np.ndarray):
            grad = value.dtype.kind == "f" and not np.isinf(value).any()
            return pf.tensor(value, requires_grad=grad), torch.tensor(value, requires_grad=grad)
        if isinstance(value, tuple):
            pairs = [both(v) for v in value]
            return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
        return value, value

    given = [both(value) for value in inputs]
    named = {name: both(value) for name, value in options.items()}
    out = ours(*[a for a, _ in given], **{n: a for n, (a, _) in named.items()})
    want = theirs(*[b for _, b in given], **{n: b for n, (_, b) in named.items()})
    results = [(o, w) for o, w in zip(outputs_of(out), outputs_of(want), strict=True) if w is not None or o is not None]
    ours.zero_grad()
    theirs.zero_grad()
    total, total_want = 0.0, 0.0
    for number, (o, w) in enumerate(results):
        weight = numbers(*o.shape, seed=number + 1)
        total, total_want = total + (o * pf.tensor(weight)).sum(), total_want + (w * torch.from_numpy(weight)).sum()
    total.backward()
    total_want.backward()
    cells = [*outputs_of([a for a, _ in [*given, *named.values()]]), *ours.parameters()]
    grads = [c.grad for c in cells if isinstance(c, pf.Tensor) and c.grad is not None]
    pf.eval([*(o for o, _ in results), *grads])  # in one plan: kernels that are compiled together cost less
    for number, (o, w) in enumerate(results):
        close(o, w, f"output {number}")
    for number, (a, b) in enumerate([*given, *named.values()]):
        for x, y in zip(outputs_of(a), outputs_of(b), strict=True):
            if isinstance(y, torch.Tensor) and y.requires_grad:
                close(x.grad, y.grad, f"gradient of input {number}")
    wanted = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        want_grad = wanted[name].grad
        if want_grad is None:
            assert parameter.grad is None, f"gradient of {name}"
        else:
            close(parameter.grad, want_grad, f"gradient of {name}")
    return out
