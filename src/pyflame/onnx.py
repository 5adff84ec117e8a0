"""pf.onnx: ONNX files to modules, and functions and modules to ONNX files. See docs/onnx.md."""

from __future__ import annotations

from pyflame.bridge.onnx import OnnxModule, export, info, load, run

__all__ = ["OnnxModule", "export", "info", "is_in_onnx_export", "load", "run"]


def is_in_onnx_export() -> bool:
    """False: an export writes what the program does in any case.

    >>> pf.onnx.is_in_onnx_export()
    False
    """
    return False
