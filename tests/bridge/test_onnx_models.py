"""silero-vad and rapidocr, out of their wheels, equal onnxruntime: the example does it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

ROOT = Path(__file__).resolve().parent.parent.parent


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("onnx_models", ROOT / "examples" / "onnx_models.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLE = _example()


@pytest.mark.thorough
@pytest.mark.parametrize("name", EXAMPLE.MODELS)
def test_equals_onnxruntime(name: str) -> None:
    folder = EXAMPLE.fetched(EXAMPLE.models_dir() / "onnx")
    off, _, _ = EXAMPLE.compared(folder / name, EXAMPLE.MODELS[name], None)
    assert off < 1e-3
