"""ctc_loss and max_unpool against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from pyflame.core.errors import ArgumentError, ShapeError
from tests.nn.pairs import close, numbers

T, N, C = 7, 4, 5
TARGETS = np.array([[1, 2, 2], [3, 1, 4], [2, 2, 2], [4, -1, 99]])
STEPS, LETTERS = [7, 6, 4, 5], [3, 2, 3, 1]  # the third one just does not fit: two blanks and three letters


def both(shape: tuple[int, ...], *rest: Any, **options: Any) -> None:
    """The loss, and its gradients for the logits."""
    x = numbers(*shape)
    ours, theirs = pf.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    rest_ours = [pf.tensor(r) if isinstance(r, np.ndarray) else r for r in rest]
    rest_theirs = [torch.tensor(r) if isinstance(r, np.ndarray) else r for r in rest]
    got = nn.functional.ctc_loss(ours.log_softmax(-1), *rest_ours, **options)
    want = torch.nn.functional.ctc_loss(theirs.log_softmax(-1), *rest_theirs, **options)
    close(got.detach(), want.detach(), "loss")
    if np.isfinite(want.detach().numpy()).all():
        got.sum().backward()
        want.sum().backward()
        close(ours.grad, theirs.grad, "gradient", atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc_over_rows(reduction: str) -> None:
    both((T, N, C), TARGETS, STEPS, LETTERS, reduction=reduction, zero_infinity=True)
    both((T, N, C), TARGETS, STEPS, LETTERS, reduction=reduction)


def test_ctc_over_targets_behind_each_other() -> None:
    behind = np.concatenate([row[:count] for row, count in zip(TARGETS, LETTERS, strict=True)])
    both((T, N, C), behind, np.array(STEPS), np.array(LETTERS), reduction="none", zero_infinity=True)


@pytest.mark.slow
def test_ctc_of_one_sequence_with_another_blank() -> None:
    both((T, C), np.array([1, 0, 0]), np.array(7), np.array(3), blank=4)


@pytest.mark.slow(16)
def test_ctc_of_empty_texts() -> None:
    both((T, 2, C), np.array([[1, 2], [3, 3]]), [5, 7], [0, 2], reduction="none")
    both((T, 2, C), np.zeros((2, 0), np.int64), [5, 7], [0, 0], reduction="none")


@pytest.mark.slow
def test_ctc_layer_and_errors() -> None:
    loss = nn.CTCLoss(blank=1, reduction="sum", zero_infinity=True)
    want = torch.nn.CTCLoss(blank=1, reduction="sum", zero_infinity=True)
    x, targets = numbers(T, 2, C), np.array([[0, 2], [3, 0]])
    got = loss(pf.tensor(x).log_softmax(-1), pf.tensor(targets), [7, 7], [2, 1])
    close(got, want(torch.tensor(x).log_softmax(-1), torch.tensor(targets), [7, 7], [2, 1]), "loss")
    with pytest.raises(ArgumentError, match="blank from 0 to 4"):
        nn.functional.ctc_loss(pf.zeros(T, 2, C), pf.tensor(targets), [7, 7], [2, 1], blank=5)
    with pytest.raises(ShapeError, match="2 whole numbers as input_lengths"):
        nn.functional.ctc_loss(pf.zeros(T, 2, C), pf.tensor(targets), [7], [2, 1])
    with pytest.raises(ShapeError, match="as many targets as their lengths say"):
        nn.functional.ctc_loss(pf.zeros(T, 2, C), pf.tensor([1, 2]), [7, 7], [2, 1])


UNPOOLS: list[tuple[int, tuple[int, ...], dict[str, Any], Any]] = [
    (1, (2, 3, 9), {"kernel_size": 2}, None),
    (1, (3, 9), {"kernel_size": 2}, (9,)),
    (2, (2, 3, 6, 8), {"kernel_size": 2, "stride": 2}, None),
    (2, (3, 7, 9), {"kernel_size": (3, 2), "stride": 2, "padding": 1}, (7, 9)),
    (3, (1, 2, 4, 4, 6), {"kernel_size": 2}, None),
]


@pytest.mark.parametrize(("rank", "shape", "options", "size"), UNPOOLS, ids=str)
def test_max_unpool(rank: int, shape: tuple[int, ...], options: dict[str, Any], size: Any) -> None:
    x = np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape).astype(np.float32)
    results = []
    for t in (pf, torch):
        leaf = t.tensor(x, requires_grad=True)
        values, where = getattr(t.nn, f"MaxPool{rank}d")(**options, return_indices=True)(leaf)
        out = getattr(t.nn, f"MaxUnpool{rank}d")(**options)(values, where, output_size=size)
        (out * out).sum().backward()
        results.append((out.detach(), leaf.grad))
    close(results[0][0], results[1][0], "output")
    close(results[0][1], results[1][1], "gradient")


def test_max_unpool_errors() -> None:
    values, where = nn.functional.max_pool2d(pf.zeros(1, 4, 4), 2, return_indices=True)
    with pytest.raises(ShapeError, match="output_size less than a stride"):
        nn.functional.max_unpool2d(values, where, 2, output_size=(7, 4))
    with pytest.raises(ShapeError, match="indices of that shape"):
        nn.functional.max_unpool2d(values, where[:, :1], 2)
