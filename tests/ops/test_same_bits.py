"""`x == amax(x)` and its kind: what is chosen from a tensor is found in it again, however kernels round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pyflame as pf

Chosen = Callable[[pf.Tensor], pf.Tensor]
CHOSEN: dict[str, Chosen] = {
    "amax": lambda x: x.amax(-1, keepdim=True),
    "max": lambda x: x.max(-1, keepdim=True).values,
    "median": lambda x: x.median(-1, keepdim=True).values,
    "kthvalue": lambda x: x.kthvalue(2, -1, keepdim=True).values,
    "topk": lambda x: x.topk(2, -1).values[..., 1:],
    "sort": lambda x: x.sort(-1).values[..., :1],
    "cummax": lambda x: x.cummax(-1).values[..., -1:],
    "cummin": lambda x: x.cummin(-1).values[..., -1:],
    "gather": lambda x: x.gather(-1, x.argmin(-1, keepdim=True)),
}


def same_tensor_many_times(dtype: pf.DType, shape: tuple[int, ...], device: str) -> pf.Tensor:
    """A value so cheap that each kernel which reads it would compute it again."""
    numbers = np.random.default_rng(3).standard_normal(shape)
    x = pf.tensor(numbers).to(dtype).to(device)
    pf.eval(x)
    return x * 1.71 + 0.37


@pytest.mark.share(8)
@pytest.mark.parametrize("device", ["cpu", "sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_chosen_is_found(name: str, dtype: str, device: str) -> None:
    for shape in ((2,), (7, 33)):
        x = same_tensor_many_times(getattr(pf, dtype), shape, device)
        assert (x == CHOSEN[name](x)).any(-1).all().item()


@pytest.mark.share(8)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gradients_reach_what_was_chosen(dtype: str) -> None:
    x = pf.randn(2, 49, 1, 2, 49).to(getattr(pf, dtype)).requires_grad_()
    y = (x * 0.141).sum(-1)
    (y + (y.var(-2, correction=0, keepdim=True) + 0.1).sqrt()).amin().backward()
    assert x.grad is not None and x.grad.abs().amax().item() > 0.01


CHAINS: dict[str, Callable[[pf.Tensor], pf.Tensor]] = {
    "quotient": lambda x: x / (x * x + 0.7),
    "angle": lambda x: pf.atan2(x, x * x + 0.7),
    "product": lambda x: (x * 1.3 - 0.2) * (x * 0.7 + 0.1),
    "lerp": lambda x: pf.lerp(x, x * x, 0.3),
}


@pytest.mark.share(8)
@pytest.mark.parametrize("device", ["cpu", "sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize("first", ["value", "gradient"])
@pytest.mark.parametrize("name", CHAINS)
def test_gradients_when_a_value_is_computed_again(name: str, first: str, device: str) -> None:
    """A product that one loop also stores and another does not must not be contracted in one of them alone; nor in a
    kernel that runs later."""
    for dtype in (pf.float32, pf.float64):
        numbers = np.random.default_rng(4).standard_normal((5, 16, 4))
        x = pf.tensor(numbers).to(dtype).to(device).requires_grad_()
        y = CHAINS[name](x[:, 1:])
        low = y.amin(1, keepdim=True)
        (low * low).sum().backward()
        assert x.grad is not None
        if first == "value":
            low.numpy()
        gradient = x.grad.numpy()
        assert np.isfinite(gradient).all() and ((gradient != 0).sum(1) == 1).all()
