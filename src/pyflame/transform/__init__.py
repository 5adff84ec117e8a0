"""Functions of functions: jit, grad and explain."""

from pyflame.transform.explain import explain
from pyflame.transform.grad import grad, value_and_grad
from pyflame.transform.jit import jit

__all__ = ["explain", "grad", "jit", "value_and_grad"]
