"""pf.onnx: ONNX files to modules, and functions and modules to ONNX files. See docs/onnx.md."""

from __future__ import annotations

from pyflame.bridge.onnx import OnnxModule, export, info, load, run

__all__ = ["OnnxModule", "export", "info", "load", "run"]
