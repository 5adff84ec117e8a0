"""Functions of functions: jit, grad, checkpoint, autocast, explain; and ahead-of-time compilation (`aot`)."""

from pyflame.transform import autograd, torch_jit
from pyflame.transform.autocast import autocast
from pyflame.transform.checkpoint import checkpoint
from pyflame.transform.explain import explain
from pyflame.transform.grad import grad, value_and_grad
from pyflame.transform.jit import jit

torch_jit.install(jit)

__all__ = ["autocast", "autograd", "checkpoint", "explain", "grad", "jit", "value_and_grad"]
