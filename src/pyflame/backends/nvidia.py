"""NVIDIABackend: models on an NVIDIA GPU, as `pyflame.backends.amd` does it on AMD's.

A state dict of one fits the other: names and shapes are the model's.
"""

from __future__ import annotations

from pyflame.backends.base import Backend
from pyflame.core.config import KernelPyTorchConfig
from pyflame.tensor.torch_cuda import TorchGpus

__all__ = ["NVIDIABackend"]


class NVIDIABackend(Backend[KernelPyTorchConfig]):
    """Models on an NVIDIA GPU; where there is none, on the CPU, with a warning.

    >>> NVIDIABackend(KernelPyTorchConfig(device="cpu")).is_available()
    False
    """

    gpus = TorchGpus("cuda", "an NVIDIA GPU")
    vendor = "NVIDIA"
    language = "cuda"
    config_class = KernelPyTorchConfig
