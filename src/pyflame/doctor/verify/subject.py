"""What `pyflame verify` is given: a Python script with a model and inputs, or a language model by its file or name.

A script defines `model` (a module or a function) and `inputs` (a tuple of arguments, a dict of keywords, or a tensor),
or a function `main()` that returns both. It is run with the reference as its current device.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyflame.core.device import DeviceId
from pyflame.core.errors import ArgumentError
from pyflame.core.state import mode

PROMPT = "The quick brown fox jumps over the lazy dog."
Subject = tuple[Callable[..., Any], Any]


def subject(name: str, device: DeviceId, prompt: str = PROMPT, dtype: str | None = None) -> Subject:
    """A function and its inputs: of a script where the name ends in .py, else of a language model and a prompt."""
    with mode(device=device):
        return _script(Path(name)) if name.endswith(".py") else _language_model(name, device, prompt, dtype)


def _script(path: Path) -> Subject:
    if not path.is_file():
        raise ArgumentError(f"[verify] expected a script but there is no file {path}")
    before = sys.path[:]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        names = runpy.run_path(str(path), run_name="__pyflame_verify__")
        given = names["main"]() if callable(names.get("main")) else (names.get("model"), names.get("inputs"))
    finally:
        sys.path[:] = before
    if not isinstance(given, tuple) or len(given) != 2 or not callable(given[0]) or given[1] is None:
        raise ArgumentError(
            f"[verify] expected {path} to define model and inputs, or main() that returns both, but got "
            f"{type(given[0]).__name__ if isinstance(given, tuple) and given else type(given).__name__}; model is a "
            "module or a function, inputs a tuple of its arguments"
        )
    return given


def _language_model(name: str, device: DeviceId, prompt: str, dtype: str | None) -> Subject:
    from pyflame.llm.load import load
    from pyflame.tensor.creation import tensor

    model = load(name, device=str(device), dtype=dtype, interleave=False)
    tokens = model.tokenizer.encode(prompt)
    return model.decoder, (tensor([list(tokens)], dtype="int64"),)
