"""Tensors in files: .safetensors, nested states, and writes that are whole or not at all."""

from pyflame.core.atomic import atomic_path, write_atomic
from pyflame.io.safetensors import FileInfo, TensorInfo, file_info, load_file, save_file
from pyflame.io.state import load, save

__all__ = [
    "FileInfo",
    "TensorInfo",
    "atomic_path",
    "file_info",
    "load",
    "load_file",
    "save",
    "save_file",
    "write_atomic",
]
