"""How ops of the catalogue are written in ONNX, one file per family. Importing this fills the table."""

from pyflame.bridge.onnx.forms import elementwise, structure, windows  # noqa: F401
