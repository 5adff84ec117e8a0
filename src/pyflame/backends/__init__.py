"""torch.backends by its path: switches that programs set and facts that they ask for.

A switch with a meaning here has it (`cudnn.deterministic`, `cuda.matmul.allow_tf32`); the others are remembered and
change nothing, since what they choose is chosen by measurement. What is not there says so: `mps.is_available()`.
"""

from pyflame.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]
