"""Reductions of reductions: rows inside of rows, and values that wait for the outer ones."""

import numpy as np
import pytest

import pyflame as pf


def weights_and_sums(x):
    weights = pf.softmax(x[0], -1)
    sums = x.sum(0)
    return (weights * sums).sum(), weights, sums


def scaled_by_a_sum(x):
    scaled = (x * pf.exp(x[1]).sum()).sum(0)
    return scaled.sum(), scaled


def squares_of_sums(x):
    sums = x.sum(0)
    return ((sums - sums.mean()) ** 2).sum(), sums.mean()


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (pf.softmax(x.sum(0), -1),),
        lambda x: (x.sum(1) / x.sum(1).square().sum().sqrt(),),
        lambda x: (pf.softmax(pf.exp(x).reshape(3, -1, x.shape[1]).sum(-1), -1),),
        weights_and_sums,
        scaled_by_a_sum,
        squares_of_sums,
    ],
)
@pytest.mark.parametrize("shape", [(6, 5), (96, 300)])
def test_reductions_of_reductions_agree_with_op_by_op(fn, shape):
    x = pf.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    got = pf.jit(fn)(x)
    with pf.eager():
        want = fn(x)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-4)
