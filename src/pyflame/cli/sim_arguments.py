"""`--arg` of `pyflame sim trace`: texts to arrays and numbers, typed as the kernel's prototype says."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from pyflame.core.dtype import as_dtype
from pyflame.core.errors import ArgumentError, PyFlameError
from pyflame.engine.sim.run import Unwritten, element_type
from pyflame.engine.user.prototype import Parameter

_ARRAY = re.compile(r"(?P<type>[A-Za-z_][\w ]*)?\[(?P<shape>[\d, x]*)\](?:=(?P<content>.*))?$", re.DOTALL)
_RANDOM = re.compile(r"(?P<how>randn?)(?::(?P<seed>\d+))?$")
FORMS = (
    "TYPE[SHAPE]=CONTENT for a pointer: arange, zeros, ones, rand:SEED, randn:SEED, a file.npy or numbers with commas; "
    "without =CONTENT memory that nothing has written; file.npy or null; a number for a number"
)


def parse_argument(text: str, parameter: Parameter, position: int) -> Any:
    """What an argument's text means for a parameter.

    >>> parse_argument("float[2,3]=arange", find_prototype("__global__ void f(float* x)", "f")[0], 0).shape
    (2, 3)
    """
    text = text.strip()
    try:
        return _array(text, parameter) if parameter.pointer else _number(text, parameter)
    except (ValueError, TypeError, OSError, PyFlameError) as error:
        raise ArgumentError(
            f"[--arg] expected argument {position} for {parameter.text} but got {text!r}: {error}; give {FORMS}"
        ) from error


def _number(text: str, parameter: Parameter) -> Any:
    kind = "f" if parameter.number is None else parameter.number.kind
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind == "b":
        return bool(int(text, 0))
    if kind in "iu":
        return int(text, 0)
    value = float.fromhex(text) if text.lower().startswith(("0x", "-0x")) else float(text)
    if parameter.number is None:
        raise ValueError("a type that is not known here cannot be given as text")
    return value


def _array(text: str, parameter: Parameter) -> Any:
    if text == "null":
        return None
    if text.endswith(".npy") and "=" not in text:
        return np.load(Path(text), allow_pickle=False)
    found = _ARRAY.match(text)
    if not found:
        raise ValueError("it is no array")
    dtype = _dtype(found["type"], parameter)
    shape = tuple(int(n) for n in re.split(r"[,x]", found["shape"].replace(" ", "")) if n)
    if not shape:
        raise ValueError("it has no shape")
    return Unwritten(shape, dtype) if found["content"] is None else _content(found["content"].strip(), shape, dtype)


def _dtype(name: str | None, parameter: Parameter) -> np.dtype[Any]:
    wanted = element_type(parameter.text)
    if name is None:
        if wanted is None:
            raise ValueError("its type must be told")
        return wanted
    found = element_type(name)
    if found is None:
        found = np.dtype(as_dtype(name.strip()).numpy)
    return found


def _content(text: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    count = math.prod(shape)
    drawn = _RANDOM.match(text)
    if text in ("zeros", "ones"):
        return np.full(shape, int(text == "ones")).astype(dtype)
    if text == "arange":
        return np.arange(count).astype(dtype).reshape(shape)
    if drawn:
        generator = np.random.default_rng(int(drawn["seed"] or 0))
        made = generator.standard_normal(shape) if drawn["how"] == "randn" else generator.random(shape)
        return (made * 256 if dtype.kind in "iu" else made).astype(dtype)
    if text.endswith(".npy"):
        loaded = np.load(Path(text), allow_pickle=False)
        if loaded.size != count or loaded.dtype != dtype:
            raise ValueError(f"{text} holds {loaded.dtype.name} of shape {loaded.shape}")
        return loaded.reshape(shape)
    numbers = [int(n, 0) if dtype.kind in "iub" else float(n) for n in text.split(",")]
    if len(numbers) not in (1, count):
        raise ValueError(f"{len(numbers)} numbers for {count} elements")
    return np.array(numbers * (count if len(numbers) == 1 else 1)).astype(dtype).reshape(shape)
