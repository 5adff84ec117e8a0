"""Tensors: mutable cells over immutable Nodes, and the functions that make and use them."""

from pyflame.tensor.tensor import Tensor

__all__ = ["Tensor"]
