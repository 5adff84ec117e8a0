"""Small things that programs written for PyTorch rely on, each compared with PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import pyflame as pf

NAN = float("nan")


def test_searching_among_elements_that_end_in_nan() -> None:
    for sequence in ([0.0, 1, 2, NAN], [0.0, NAN, NAN], [0.0, 1, NAN, NAN, NAN], [NAN], []):
        for right in (False, True):
            ours, theirs = (
                m.searchsorted(m.tensor(sequence), m.tensor([1.0, NAN, 3, -1, float("inf")]), right=right).tolist()
                for m in (pf, torch)
            )
            assert ours == theirs


@pytest.mark.parametrize("m", [pf, torch])
def test_generators_and_their_states(m: Any) -> None:
    assert (m.Generator().device.type, m.Generator("cpu").device.index) == ("cpu", None)
    saved = m.get_rng_state()
    assert saved.dtype is m.uint8
    first = m.rand(3)
    m.set_rng_state(saved.cpu().byte())
    assert first.equal(m.rand(3))


@pytest.mark.parametrize("m", [pf, torch])
def test_windows_of_one_image(m: Any) -> None:
    image = m.arange(40.0).reshape(2, 4, 5)
    columns = m.nn.functional.unfold(image, 2)
    assert tuple(columns.shape) == (8, 12)
    counts = m.nn.functional.fold(m.nn.functional.unfold(m.ones(2, 4, 5), 2), (4, 5), 2)
    assert m.nn.functional.fold(columns, (4, 5), 2).equal(image * counts)


def test_pivots_of_complex_numbers_are_lapacks() -> None:
    values = [[3.0 + 0.0j, 1.0j], [2.0 + 2.0j, 1.0 + 0.0j]]  # 3 > |2 + 2i|, but 3 < 2 + 2
    ours, theirs = (m.linalg.lu_factor(m.tensor(values)) for m in (pf, torch))
    assert ours.pivots.tolist() == theirs.pivots.tolist()
    assert abs(ours.LU.numpy() - theirs.LU.numpy()).max() < 1e-6


def _matrix(m: Any) -> Any:
    return m.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])


OLDER: dict[str, Any] = {
    "qr": lambda m, x: m.qr(x[:, :2], some=False)[1],
    "qr by position": lambda m, x: m.qr(x[:, :2], True)[1],
    "qr of a tensor": lambda m, x: x.qr(some=True)[1],
    "cholesky": lambda m, x: m.cholesky(x, True),
    "cholesky of a tensor": lambda m, x: x.cholesky(True),
    "pinverse": lambda m, x: m.pinverse(x, rcond=0.6),
    "pinverse of a tensor": lambda m, x: x.pinverse(0.6),
    "pinv": lambda m, x: m.linalg.pinv(x, 0.6),
    "lu": lambda m, x: m.lu(x, get_infos=True),
    "lu of a tensor": lambda m, x: x.lu(),
    "gather": lambda m, x: x.gather(1, m.tensor([[0], [2]]), sparse_grad=False),
    "scatter": lambda m, x: x.scatter(0, m.tensor([[0, 2]]), value=7.0),
    "scatter_": lambda m, x: x.clone().scatter_(dim=0, index=m.tensor([[0, 2]]), value=7.0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OLDER)
def test_older_signatures(name: str) -> None:
    ours, theirs = (OLDER[name](m, _matrix(m)) for m in (pf, torch))
    for got, want in zip(*(v if isinstance(v, tuple) else (v,) for v in (ours, theirs)), strict=True):
        assert got.shape == tuple(want.shape) and str(got.dtype).split(".")[1] == str(want.dtype).split(".")[1]
        assert abs(got.abs().numpy() - want.abs().numpy()).max(initial=0) < 1e-5  # signs of a QR are free
