"""Arguments that an op refuses as torch does, where it once took them or let Python's own error through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pyflame as pf
from pyflame import nn

X = pf.ones(2, 3)
NUMBER = pf.tensor(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pf.kthvalue(NUMBER, 2), r"\[kthvalue\] expected k in \[1, 1\] for shape \(\) but got 2"),
        (lambda: pf.kthvalue(NUMBER, 0), r"\[kthvalue\] expected k in \[1, 1\]"),
        (lambda: nn.functional.prelu(X, pf.ones(1, 3)), r"\[prelu\] expected a vector of 1 or 3 slopes"),
        (lambda: nn.functional.prelu(X, pf.ones(1, 1)), r"\[prelu\] expected a vector"),
        (
            lambda: pf.index_select(NUMBER, 0, pf.tensor([0, 0])),
            r"\[index_select\] expected one index for a 0-d tensor",
        ),
        (lambda: pf.index_fill(X, 0, pf.tensor([0]), pf.ones(3)), r"\[index_fill\] expected a number or a 0-d tensor"),
        (lambda: nn.Linear(2, 3, bia=3), r"\[Linear\] expected Linear\(in_features, .*did you mean 'bias'"),
        (lambda: nn.Linear(2), r"\[Linear\] expected Linear\(in_features, .*but got Linear\(2\)"),
        (lambda: nn.ReLU(True, 2), r"\[ReLU\] expected ReLU\(inplace=False\) but got ReLU\(True, 2\)"),
        (lambda: pf.bucketize(X, X), r"\[bucketize\] expected boundaries with one axis"),
    ],
)
def test_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(pf.PyFlameError, match=message):
        call()
