"""NumPy's functions of our tensors give what they give of torch's."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import pyflame as pf

CALLS = {
    "ufunc": lambda t, m, i: np.sin(t),
    "ufunc and number": lambda t, m, i: np.add(1, t),
    "ufunc and array": lambda t, m, i: np.multiply(np.ones(3, np.float32), t),
    "ufunc and list": lambda t, m, i: np.add(t, [1.0, 2.0, 3.0]),
    "ufunc of integers": lambda t, m, i: np.add(i, 1.5),
    "mask": lambda t, m, i: np.greater(t, 0),
    "two results": lambda t, m, i: np.modf(t),
    "matmul": lambda t, m, i: np.matmul(m, m),
    "reduce": lambda t, m, i: np.add.reduce(t),
    "reduce an axis": lambda t, m, i: np.multiply.reduce(m, axis=0),
    "accumulate": lambda t, m, i: np.add.accumulate(t),
    "out": lambda t, m, i: np.add(t, 1, out=np.zeros(3, np.float32)),
    "method of NumPy's arguments": lambda t, m, i: np.cumsum(t),
    "transpose": lambda t, m, i: np.transpose(m),
    "linalg": lambda t, m, i: np.linalg.inv(m),
    "argsort": lambda t, m, i: np.argsort(t),
    "concatenate": lambda t, m, i: np.concatenate([t, t]),
    "stack": lambda t, m, i: np.stack([t, t]),
    "where": lambda t, m, i: np.where(t > 0, t, 0),
    "clip": lambda t, m, i: np.clip(t, 0, 1),
    "round": lambda t, m, i: np.round(t, 1),
    "dot": lambda t, m, i: np.dot(t, t),
    "norm": lambda t, m, i: np.linalg.norm(t),
    "NumPy's number": lambda t, m, i: np.float64(2) * t,
    "a number by a tensor": lambda t, m, i: np.float64(1) / t,
    "elements": lambda t, m, i: list(map(np.sin, t)),
    "strided": lambda t, m, i: np.add(t[::2], 1),
    "half": lambda t, m, i: np.exp(t.half()),
    "complex": lambda t, m, i: np.conj(t + 0j),
}


def described(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [described(v) for v in value]
    kind = "tensor" if type(value).__name__ == "Tensor" else type(value).__name__
    return kind, str(value.dtype).partition(".")[2] or str(value.dtype), tuple(value.shape), np.asarray(value).tolist()


@pytest.mark.parametrize("name", CALLS)
def test_numpy_functions(name: str) -> None:
    def run(lib: Any) -> Any:
        t = lib.tensor([-1.0, 0.5, 2.0])
        return described(CALLS[name](t, lib.tensor([[2.0, 1.0], [1.0, 3.0]]), lib.tensor([0, 1, 2])))

    assert run(pf) == run(torch)
