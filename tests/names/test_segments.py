"""Reductions of segments, and row pointers, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

X = np.random.default_rng(0).normal(size=(6, 2)).astype("float32")


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 0.5])
def test_segment_reduce(reduce: str, initial: float | None) -> None:
    found = []
    for lib in (torch, pf):
        x = lib.tensor(X, requires_grad=True)
        a = lib.segment_reduce(x, reduce, lengths=lib.tensor([2, 0, 4]), initial=initial)
        b = lib._segment_reduce(x.detach(), reduce, offsets=lib.tensor([0, 2, 3, 6]), initial=initial)
        c = lib.segment_reduce(lib.tensor(X.T.copy()), reduce, lengths=lib.tensor([[2, 4], [1, 5]]), axis=1)
        a[::2].sum().backward()
        found.append([t.detach().numpy() for t in (a, b, c, x.grad)])
    for ours, theirs in zip(*reversed(found), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_segments_that_do_not_fit_raise() -> None:
    for lib in (torch, pf):
        x: Any = lib.tensor(X)
        for wrong in ({"lengths": lib.tensor([2, 1])}, {}):
            with pytest.raises(RuntimeError):
                lib.segment_reduce(x, "sum", **wrong)


@pytest.mark.parametrize("narrow", [False, True])
def test_row_pointers(narrow: bool) -> None:
    found = []
    for lib in (torch, pf):
        rows, pointers, columns = lib.tensor([0, 0, 2, 3]), lib.tensor([0, 2, 2, 3]), lib.tensor([1, 0, 2])
        made = [
            lib._convert_indices_from_coo_to_csr(rows, 5, out_int32=narrow),
            lib._convert_indices_from_coo_to_csr(rows[:0], 2),
            lib._convert_indices_from_csr_to_coo(pointers, columns, out_int32=narrow),
            lib._convert_indices_from_csr_to_coo(pointers, columns, transpose=True),
        ]
        found.append([(t.tolist(), str(t.dtype).split(".")[-1]) for t in made])
    assert found[0] == found[1]


def test_samples_by_private_names() -> None:
    for lib in (torch, pf):
        drawn = lib._sample_dirichlet(lib.ones(4, 3))
        np.testing.assert_allclose(drawn.sum(-1).numpy(), 1.0, rtol=1e-5)
        assert tuple(lib._standard_gamma(lib.ones(5)).shape) == (5,)
