"""Tensors by name in one file: https://huggingface.co/docs/safetensors.

The `safetensors` library checks files that are read. It does not give a tensor's place in the file, which memory
mapping needs, so that is read here, from the header that the library has found valid. Files are written here too: the
library puts metadata in a random order, and equal states shall be equal files. Those that we write carry checksums (see
checksums.py); those of other programs have none, and a flipped bit in one is not seen.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open

from pyflame.core import dtype as dt
from pyflame.core.atomic import atomic_path
from pyflame.core.dtype import DType
from pyflame.core.errors import ArgumentError, ArgumentTypeError, DTypeError, FileFormatError, suggest
from pyflame.core.files import check_regular, parse_json
from pyflame.io import checksums
from pyflame.tensor import Tensor
from pyflame.tensor.creation import from_numpy, tensor
from pyflame.tensor.modes import eval

CODES = {
    "BOOL": dt.bool_, "U8": dt.uint8, "I8": dt.int8, "I16": dt.int16, "I32": dt.int32, "I64": dt.int64,
    "U16": dt.uint16, "U32": dt.uint32, "U64": dt.uint64,
    "F8_E4M3": dt.float8_e4m3fn, "F8_E4M3FNUZ": dt.float8_e4m3fnuz, "F8_E5M2": dt.float8_e5m2,
    "F16": dt.float16, "BF16": dt.bfloat16, "F32": dt.float32, "F64": dt.float64, "C64": dt.complex64,
}  # fmt: skip
_CODE_OF = {dtype: code for code, dtype in CODES.items()}
_METADATA = "__metadata__"
_MAX_HEADER = 100_000_000 - 8  # bytes, of the library


@dataclass(frozen=True)
class TensorInfo:
    """A tensor in a file: the format's code of its dtype ("F32", "BF16"), its shape and the bytes it takes."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


@dataclass(frozen=True)
class FileInfo:
    """What stands in a file: its metadata, its tensors by name, and their checksums if it has any."""

    metadata: dict[str, str]
    tensors: dict[str, TensorInfo]
    checksums: dict[str, str] | None


def save_file(
    tensors: Mapping[str, Tensor], path: str | os.PathLike[str] | IO[bytes], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to a .safetensors file, whole or not at all: what was there before stays until the end. Or to an
    open file.

    Checksums of the tensors and of all that is said of them go into the metadata.

    >>> pf.io.save_file({"weight": pf.ones(2, 3)}, "model.safetensors", {"made_by": "me"})
    """
    for name, value in tensors.items():
        if not isinstance(name, str) or name == _METADATA:
            raise ArgumentError(f"[save_file] expected names that are strings other than {_METADATA} but got {name!r}")
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(
                f"[save_file] expected tensors but {name!r} is of type {type(value).__name__}; pf.save takes nested "
                "lists and dicts of tensors and numbers"
            )
    for key, text in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise ArgumentTypeError(f"[save_file] expected metadata that is text but got {key!r}: {text!r}")
        if key == checksums.KEY:
            raise ArgumentError(f"[save_file] expected metadata without {key}, which is written by itself")
    eval(dict(tensors))
    arrays = {name: np.asarray(value.numpy(), order="C") for name, value in tensors.items()}
    header = _header(arrays, {name: value.dtype for name, value in tensors.items()}, metadata or {})
    parts: list[bytes | memoryview] = [
        len(header).to_bytes(8, "little"),
        header,
        *(_raw(arrays[name]) for name in _in_order(arrays)),
    ]
    if hasattr(path, "write"):
        for part in parts:
            path.write(part)
        return
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        for part in parts:
            file.write(part)


def _in_order(arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[str]:
    """Wide elements first, so that all lie at multiples of their size."""
    return sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))


def _header(
    arrays: Mapping[str, np.ndarray[Any, Any]], dtypes: Mapping[str, DType], metadata: Mapping[str, str]
) -> bytes:
    for name, dtype in dtypes.items():
        if dtype not in _CODE_OF:
            raise DTypeError(
                f"[save] expected a dtype that safetensors files have but {name!r} is {dtype.name}; save its real and "
                "imaginary parts, or a complex64"
            )
    sums = checksums.of_tensors({name: _raw(array) for name, array in arrays.items()})
    rows = {name: (_CODE_OF[dtypes[name]], array.shape, sums[name]) for name, array in arrays.items()}
    checked = json.dumps({"header": checksums.of_header(rows, metadata), "tensors": sums})
    header: dict[str, Any] = {_METADATA: {**metadata, checksums.KEY: checked}}
    at = 0
    for name in _in_order(arrays):
        code, shape, _ = rows[name]
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [at, at + arrays[name].nbytes]}
        at += arrays[name].nbytes
    try:
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"[save_file] expected names and metadata that are text but got {error.object!r}") from None
    if len(text) > _MAX_HEADER:
        raise ArgumentError(
            f"[save_file] expected at most {_MAX_HEADER:,} bytes of names and metadata, what readers take, but "
            f"got {len(text):,}; save long lists of numbers as arrays"
        )
    return text + b" " * (-len(text) % 8)


def file_info(path: str | os.PathLike[str]) -> FileInfo:
    """Metadata, and name, shape and dtype of the tensors in a .safetensors file, without reading them.

    >>> pf.io.file_info("model.safetensors").tensors["weight"].shape
    (2, 3)
    """
    with opened(path) as file:
        return _info(file, path)


def map_file(path: str | os.PathLike[str]) -> tuple[FileInfo, dict[str, np.ndarray[Any, np.dtype[np.uint8]]]]:
    """What stands in a file, and each tensor's bytes: read-only views of the mapped file with a row of bytes for each
    row of elements. They are not compared with checksums, and dtypes need not be ours."""
    with opened(path) as file:
        info = _info(file, path)
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return info, {name: _rows(memory, about) for name, about in info.tensors.items()}


def _rows(memory: mmap.mmap, info: TensorInfo) -> np.ndarray[Any, np.dtype[np.uint8]]:
    outer = info.shape[:-1]
    row = info.nbytes // math.prod(outer) if math.prod(outer) else 0
    return np.ndarray((*outer, row), np.uint8, memory, info.start if info.nbytes else 0)


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """A file for reading bytes; no folder, pipe or device."""
    if os.path.isdir(path):
        raise IsADirectoryError(f"[load_file] expected a .safetensors file but {os.fspath(path)} is a folder")
    check_regular(Path(path))
    return open(path, "rb")


def _info(file: BinaryIO, path: str | os.PathLike[str]) -> FileInfo:
    try:
        # This very file: another may have taken its name by now.
        with safe_open(f"/proc/self/fd/{file.fileno()}", framework="numpy"):
            pass
        size = int.from_bytes(file.read(8), "little")
        header = parse_json(file.read(size))
    except (SafetensorError, ValueError) as error:
        raise _damaged(path, str(error)) from None
    metadata = header.pop(_METADATA, {})
    tensors = {}
    for name, about in header.items():
        start, end = about["data_offsets"]
        tensors[name] = TensorInfo(about["dtype"], tuple(about["shape"]), 8 + size + start, end - start)
    return FileInfo(metadata, tensors, _checked(metadata.pop(checksums.KEY, None), metadata, tensors, path))


def _checked(
    text: str | None, metadata: dict[str, str], tensors: dict[str, TensorInfo], path: str | os.PathLike[str]
) -> dict[str, str] | None:
    """The tensors' checksums, which the header must agree with."""
    if text is None:
        return None
    try:
        known = parse_json(text)
        rows = {name: (info.dtype, info.shape, known["tensors"][name]) for name, info in tensors.items()}
        right = known["header"] == checksums.of_header(rows, metadata)
    except (KeyError, TypeError, ValueError):
        right = False
    if not right:
        raise _damaged(path, "its header does not have the checksum that stands in it")
    sums: dict[str, str] = known["tensors"]
    return sums


def _damaged(path: str | os.PathLike[str], reason: str) -> FileFormatError:
    return FileFormatError(
        f"[load_file] expected a whole .safetensors file but {os.fspath(path)} is damaged, cut off or of another "
        f"format: {reason}"
    )


def _raw(array: np.ndarray[Any, Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def load_file(
    path: str | os.PathLike[str],
    device: object = None,
    *,
    names: Iterable[str] | None = None,
    memory_map: bool = True,
    verify: bool = True,
) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or only those in `names`.

    With `memory_map` tensors are read-only views of the file, whose pages the system loads when they are used and may
    drop again. The file must not be overwritten in place meanwhile (replacing it, as `save_file` does, is safe).
    Without it the values are copied into memory. With `verify` they are read now and compared with the file's
    checksums, if it has any.

    >>> pf.io.load_file("model.safetensors")["weight"].shape
    (2, 3)
    """
    return read(path, device, names=names, memory_map=memory_map, verify=verify)[1]


def read(
    path: str | os.PathLike[str],
    device: object = None,
    *,
    names: Iterable[str] | None = None,
    memory_map: bool,
    verify: bool,
) -> tuple[FileInfo, dict[str, Tensor]]:
    """As `file_info` and `load_file`, of one and the same file."""
    with opened(path) as file:
        info = _info(file, path)
        wanted = _wanted(info, names, path)
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if verify and info.checksums is not None:
        places = {name: info.tensors[name] for name in wanted}
        found = checksums.of_tensors({n: memoryview(memory)[t.start : t.start + t.nbytes] for n, t in places.items()})
        wrong = [name for name in wanted if found[name] != info.checksums[name]]
        if wrong:
            raise FileFormatError(
                f"[load_file] expected the values that were saved but {', '.join(map(repr, wrong[:5]))} in "
                f"{os.fspath(path)} is damaged: the checksum is wrong; take another copy, or verify=False to read it "
                "all the same"
            )
    return info, {name: _loaded(memory, info.tensors[name], device, memory_map) for name in wanted}


def _wanted(info: FileInfo, names: Iterable[str] | None, path: str | os.PathLike[str]) -> list[str]:
    wanted = list(info.tensors) if names is None else list(dict.fromkeys(names))
    for name in wanted:
        if name not in info.tensors:
            raise ArgumentError(
                f"[load_file] expected the name of a tensor in {os.fspath(path)} but got "
                f"{name!r}{suggest(name, info.tensors)}"
            )
        if info.tensors[name].dtype not in CODES:
            raise DTypeError(
                f"[load_file] expected dtypes among {', '.join(CODES)} but {name!r} in {os.fspath(path)} is "
                f"{info.tensors[name].dtype}; load the others with names=[...]"
            )
    return wanted


def _loaded(memory: mmap.mmap, info: TensorInfo, device: object, mapped: bool) -> Tensor:
    array: np.ndarray[Any, Any] = np.ndarray(info.shape, CODES[info.dtype].numpy, memory, info.start)
    if not mapped:
        return tensor(array, device=device)
    out = from_numpy(array)
    return out if device is None else out.to(device=device)
