"""pf.onnx: ONNX files to modules, and functions and modules to ONNX files. See docs/onnx.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyflame.bridge.onnx import OnnxModule, export, info, load, run
from pyflame.core.torch_paths import below

__all__ = ["OnnxModule", "export", "info", "is_in_onnx_export", "load", "register_custom_op_symbolic", "run"]

__path__: list[str] = []  # torch has files below this path, and core/torch_paths.py finds them
__getattr__ = below("onnx")


def is_in_onnx_export() -> bool:
    """False: an export writes what the program does in any case.

    >>> pf.onnx.is_in_onnx_export()
    False
    """
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Taken and without effect: an export writes the ops that a custom op is made of."""


def parse_args(*kinds: str) -> Callable[[Any], Any]:
    """A decorator that gives the symbolic function itself: none is called here."""
    return lambda symbolic_fn: symbolic_fn
