"""ONNX: files to modules that run on our engine (`load`), and functions and modules to files (`export`).

`table.py` maps operators to functions, `operators/` fills it by family, `graph.py` runs the nodes, `fold.py` keeps
shapes on the host. The `onnx` package parses and checks files; it is imported when it is first needed.
"""

from __future__ import annotations

from pyflame.bridge.onnx.export import export
from pyflame.bridge.onnx.info import info
from pyflame.bridge.onnx.module import OnnxModule, load, run

__all__ = ["OnnxModule", "export", "info", "load", "run"]
