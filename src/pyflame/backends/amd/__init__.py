"""The AMD backend: models of torch and of ours on AMD GPUs, real or simulated (`device="sim:gfx942"`).

>>> from pyflame.core.config import AMDConfig
>>> backend = AMDBackend(AMDConfig(device="cpu"))
>>> backend.prepare_model(pf.nn.Linear(4, 2))(pf.ones(3, 4)).shape
(3, 2)
"""

from pyflame.backends.amd.backend import AMDBackend
from pyflame.backends.amd.compiler import ROCmCompiler
from pyflame.backends.amd.memory import AMDMemoryManager, AMDMemoryStats
from pyflame.backends.amd.optimizer import AMDOptimizer
from pyflame.backends.amd.utilities import HIPUtilities

__all__ = ["AMDBackend", "AMDMemoryManager", "AMDMemoryStats", "AMDOptimizer", "HIPUtilities", "ROCmCompiler"]
