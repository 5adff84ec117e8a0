"""Modules made without drawing their weights, and convolutions whose weights lie in another order."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from pyflame.core.errors import ArgumentError, ArgumentTypeError
from pyflame.nn.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from pyflame.nn.module import Module
from pyflame.nn.parameter import convert
from pyflame.tensor.random import get_rng_state, set_rng_state

M = TypeVar("M", bound=Module)


def skip_init(module_cls: type[M], *args: Any, **kwargs: Any) -> M:
    """A module whose parameters hold any values, for weights that are loaded next. The generator is as it was.

    >>> nn.utils.skip_init(nn.Linear, 3, 2).weight.shape
    (2, 3)
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise ArgumentTypeError(f"[skip_init] expected a class of modules but got {module_cls!r}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise ArgumentError(f"[skip_init] expected {module_cls.__name__} to take device but it does not")
    before = get_rng_state()
    made = module_cls(*args, **kwargs)
    set_rng_state(before)
    return made


def _converted(module: M, kinds: tuple[type[Module], ...], memory_format: Any) -> M:
    weights = [m.weight for m in module.modules() if isinstance(m, kinds)]
    convert(weights, lambda t: t.contiguous(memory_format=memory_format))
    return module


def convert_conv2d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Lay the weights of all 2-d convolutions out in a memory format.

    >>> layer = nn.utils.convert_conv2d_weight_memory_format(nn.Conv2d(3, 4, 3), pf.channels_last)
    >>> layer.weight.is_contiguous(memory_format=pf.channels_last)
    True
    """
    return _converted(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Lay the weights of all 3-d convolutions out in a memory format, as pf.channels_last_3d."""
    return _converted(module, (Conv3d, ConvTranspose3d), memory_format)
