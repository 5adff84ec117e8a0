"""torch.backends.cuda by its path: the precision of products, and which attention may run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyflame.core.precision import set_float32_matmul_precision, tf32_allowed
from pyflame.tensor.torch_cuda import cuda

__all__ = [
    "cudnn_sdp_enabled",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "is_built",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "sdp_kernel",
]


def is_built() -> bool:
    """Whether GPUs can be used."""
    return cuda.is_available()


class Products:
    """`torch.backends.cuda.matmul`.

    >>> pf.backends.cuda.matmul.allow_tf32
    False
    """

    # Remembered only: sums of 16-bit products are kept in float32.
    allow_fp16_reduced_precision_reduction = False
    allow_bf16_reduced_precision_reduction = False

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products may be rounded to TF32: pf.set_float32_matmul_precision."""
        return tf32_allowed()

    @allow_tf32.setter
    def allow_tf32(self, wanted: bool) -> None:
        set_float32_matmul_precision("high" if wanted else "highest")


matmul = Products()

# Which attention runs is chosen by the schedule. These are remembered and change nothing.
_attention = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def enable_flash_sdp(enabled: bool) -> None:
    """Remembered; attention is one fused kernel wherever there is one for its shape."""
    _attention["flash"] = bool(enabled)


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Remembered; see enable_flash_sdp."""
    _attention["mem_efficient"] = bool(enabled)


def enable_math_sdp(enabled: bool) -> None:
    """Remembered; see enable_flash_sdp."""
    _attention["math"] = bool(enabled)


def enable_cudnn_sdp(enabled: bool) -> None:
    """Remembered; see enable_flash_sdp."""
    _attention["cudnn"] = bool(enabled)


def flash_sdp_enabled() -> bool:
    """What enable_flash_sdp was told last."""
    return _attention["flash"]


def mem_efficient_sdp_enabled() -> bool:
    """What enable_mem_efficient_sdp was told last."""
    return _attention["mem_efficient"]


def math_sdp_enabled() -> bool:
    """What enable_math_sdp was told last."""
    return _attention["math"]


def cudnn_sdp_enabled() -> bool:
    """What enable_cudnn_sdp was told last."""
    return _attention["cudnn"]


@contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Iterator[None]:
    """The switches within a `with` block.

    >>> with pf.backends.cuda.sdp_kernel(enable_flash=False):
    ...     pf.backends.cuda.flash_sdp_enabled()
    False
    """
    before = dict(_attention)
    _attention.update(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn)
    try:
        yield
    finally:
        _attention.update(before)
