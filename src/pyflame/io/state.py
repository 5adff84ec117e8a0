"""pf.save and pf.load: nested dicts, lists and tuples of tensors and plain values as one .safetensors file.

Tensors are stored under their path ("model.0.weight"), so any reader of the format finds them; the structure around
them is JSON in the file's metadata. Nothing in a file is executed, as unpickling would.
"""

from __future__ import annotations

import io
import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np

from pyflame.core.errors import ArgumentError, ArgumentTypeError, FileFormatError, NotSupportedError
from pyflame.core.files import parse_json
from pyflame.io.safetensors import opened, read, save_file
from pyflame.io.torch_file import is_torch_file, load_torch
from pyflame.tensor import Tensor
from pyflame.tensor.creation import from_numpy

_KEY, _FORMAT = "pyflame.structure", 1


def save(state: Any, path: str | os.PathLike[str] | IO[bytes]) -> None:
    """Write a nested structure to one file, whole or not at all; or to a file that is open for writing bytes.

    It may hold tensors, NumPy arrays, numbers, text, booleans and None in dicts, lists and tuples. A tensor that occurs
    twice is stored once, and occurs twice again when loaded.

    >>> pf.save({"step": 3, "model": model.state_dict()}, "state.safetensors")
    """
    writer = _Writer()
    try:
        root = writer.encode(state, ())
    except RecursionError:
        raise ArgumentError(
            "[save] expected a state of some nesting but got one that holds itself, or too deep"
        ) from None
    structure = {"format": _FORMAT, "checksums": True, "root": root}
    save_file(writer.tensors, path, {_KEY: json.dumps(structure, allow_nan=False, separators=(",", ":"))})


def load(
    path: str | os.PathLike[str] | IO[bytes],
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    device: object = None,
    memory_map: bool = True,
    verify: bool = True,
) -> Any:
    """What `save` wrote, compared with its checksums unless `verify` is False; or what torch.save wrote (.pt, .pth). A
    .safetensors file that another program wrote gives its tensors by name. `path` may be a file that is open.

    Nothing that a file names is ever run, whatever `weights_only` says: tensors, numbers, text, lists and dicts are
    read, and anything else is an error that names it, unless `pf.serialization.add_safe_globals` allows it.
    `map_location` says where tensors go, as in PyTorch: a device, a dict, or a function of storage and device; without
    it they belong nowhere in particular. `device` is the same.

    Tensors are read-only views of the file unless `memory_map` (or `mmap`) is False; see `load_file`.

    >>> pf.load("state.safetensors")["step"]
    3
    """
    if pickle_module is not None:
        raise NotSupportedError("[load] expected no pickle_module: nothing that a file names is run")
    place = map_location if device is None else device
    mapped = memory_map if mmap is None else mmap
    if hasattr(path, "read"):
        return _load_open(path, place, mapped, verify)
    with opened(path) as file:
        if is_torch_file(file.read(512)):
            file.seek(0)
            return load_torch(file, os.fspath(path), place, mapped)
    return _load_state(path, _device("load", place), mapped, verify)


def _load_open(file: Any, place: Any, memory_map: bool, verify: bool) -> Any:
    """From a file that is open. safetensors are read by path, so they are copied to a file of our own first."""
    name = str(getattr(file, "name", type(file).__name__))
    content = file.read()
    if not isinstance(content, bytes):
        raise ArgumentTypeError(f"[load] expected a file that is open for reading bytes but {name} gives text")
    raw = io.BytesIO(content)
    start = content[:512]
    if is_torch_file(start):
        return load_torch(raw, name, place, memory_map)
    with tempfile.NamedTemporaryFile() as copy:
        copy.write(raw.getbuffer())
        copy.flush()
        return _load_state(copy.name, _device("load", place), memory_map, verify)


def _device(op: str, place: Any) -> Any:
    """One device for all tensors: files of ours do not say where theirs were."""
    if isinstance(place, Mapping):
        found = sorted({str(d) for d in place.values()})
        return found[0] if len(found) == 1 else None
    return "cpu" if callable(place) and not isinstance(place, str) else place


def _load_state(path: str | os.PathLike[str], device: object, memory_map: bool, verify: bool) -> Any:
    info, tensors = read(path, device, memory_map=memory_map, verify=verify)
    text = info.metadata.get(_KEY)
    if text is None:
        return tensors
    try:
        structure = parse_json(text)
        if structure["format"] != _FORMAT:
            raise FileFormatError(
                f"[load] expected a structure of format {_FORMAT} but {os.fspath(path)} has format "
                f"{structure['format']}; a newer PyFlame reads it"
            )
        if structure.get("checksums") and info.checksums is None:  # files of older versions have none
            raise FileFormatError(f"[load] expected checksums but those of {os.fspath(path)} are gone: it is damaged")
        return _decode(structure["root"], tensors)
    except FileFormatError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(
            f"[load] expected the structure that pf.save writes but that of {os.fspath(path)} is damaged: "
            f"{type(error).__name__} {error}"
        ) from None


class _Writer:
    """Turns a structure into JSON values, and collects its tensors by name.

    What JSON lacks is an object with one key that starts with `$`.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._named: dict[int, str] = {}
        self._held: list[Any] = []  # ids are unique only while the objects live

    def encode(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, Tensor):
            return {"$tensor": self._name(value, path, lambda: value)}
        if isinstance(value, np.ndarray):
            return {"$array": self._name(value, path, lambda: from_numpy(value))}
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": repr(value)}
        if isinstance(value, list):
            return self._items(value, path)
        if isinstance(value, tuple):
            return {"$tuple": self._items(value, path)}
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        raise ArgumentTypeError(
            f"[save] expected tensors, arrays, numbers, text, None and dicts, lists and tuples of them but "
            f"{'.'.join(path) or 'the state'} is of type {type(value).__name__}"
        )

    def _items(self, values: list[Any] | tuple[Any, ...], path: tuple[str, ...]) -> list[Any]:
        return [self.encode(v, (*path, str(i))) for i, v in enumerate(values)]

    def _mapping(self, value: Mapping[Any, Any], path: tuple[str, ...]) -> dict[str, Any]:
        for key in value:
            if not isinstance(key, (str, int)):
                raise ArgumentTypeError(
                    f"[save] expected keys that are text or whole numbers but {'.'.join(path) or 'the state'} has "
                    f"{key!r}"
                )
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: self.encode(v, (*path, key)) for key, v in value.items()}
        return {"$dict": [[key, self.encode(v, (*path, str(key)))] for key, v in value.items()]}

    def _name(self, value: Any, path: tuple[str, ...], made: Callable[[], Tensor]) -> str:
        if id(value) not in self._named:
            wanted = name = ".".join(path) or "value"
            number = 1
            while name in self.tensors:  # {"a": {"b": x}, "a.b": y}
                number += 1
                name = f"{wanted}~{number}"
            self.tensors[name] = made()
            self._named[id(value)] = name
            self._held.append(value)
        return self._named[id(value)]


def _decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    tag: str = next(iter(value), "")
    inner: Any = value.get(tag)
    if not tag.startswith("$"):
        return {key: _decode(v, tensors) for key, v in value.items()}
    if tag == "$tensor":
        return tensors[inner]
    if tag == "$array":
        return np.array(tensors[inner].numpy())
    if tag == "$float":
        return float(inner)
    if tag == "$tuple":
        return tuple(_decode(v, tensors) for v in inner)
    if tag == "$dict":
        return {key: _decode(v, tensors) for key, v in inner}
    raise KeyError(tag)
