"""Elementwise ops of one tensor."""

from __future__ import annotations

import numpy as np

from pyflame.ir import F, Node, elementwise


@elementwise("-{x}", reference=np.negative, grad=lambda g: (-g,), torch="neg")
def neg(x: Node) -> Node:
    """-x."""


@elementwise("pf_exp({x})", reference=np.exp, grad=lambda g, out: (g * out,), dtype="float", cost=12, torch="exp")
def exp(x: Node) -> Node:
    """e to the power x."""


@elementwise("pf_log({x})", reference=np.log, grad=lambda g, x: (g / x,), dtype="float", cost=14, torch="log")
def log(x: Node) -> Node:
    """Natural logarithm."""


@elementwise("pf_rsqrt({x})", reference=lambda x: 1 / np.sqrt(x), grad=lambda g, out: (g * out * out * out * -0.5,), dtype="float", cost=4, torch="rsqrt")
def rsqrt(x: Node) -> Node:
    """1 / sqrt(x)."""


@elementwise("pf_tanh({x})", reference=np.tanh, grad=lambda g, out: (g * (1.0 - out * out),), dtype="float", cost=16, torch="tanh")
def tanh(x: Node) -> Node:
    """Hyperbolic tangent."""


@elementwise("{x} > 0 ? {x} : ({x} == {x} ? ({T})0 : {x})", reference=lambda x: np.maximum(x, 0), grad=lambda g, out: (F.where(out > 0.0, g, 0.0),), torch="relu")
def relu(x: Node) -> Node:
    """max(x, 0)."""
