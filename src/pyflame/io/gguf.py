"""GGUF files (llama.cpp's format): metadata and memory-mapped tensors in, bytes with the name of their encoding out.

Types, sizes of blocks and the writer are those of the `gguf` package; its `GGUFReader` is not used. It makes a NumPy
array of every token and every score (4 s for a vocabulary of 49,152), and it trusts the file: a cut or mutated header
gives an IndexError or KeyError, an array of 2**60 elements loops until memory ends, sizes are multiplied in 64 bits and
may wrap, and tensors may overlap. Here each count is compared with the bytes that are left before anything is made
of it, and tensors must follow each other without gaps, which is how all writers lay them out: a wrong shape
then is a wrong place of the next tensor, or of the end of the file.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from pyflame.core.atomic import atomic_path
from pyflame.core.errors import ArgumentError, FileFormatError, NotSupportedError
from pyflame.core.files import check_regular
from pyflame.core.optional import optional

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Types = tuple[int, ...]  # GGUF's number of a value's type; of an array's: that of arrays and that of its elements

_PLAIN = {
    "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64",
    "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
}  # fmt: skip
_SCALARS = ("B", "b", "H", "h", "I", "i", "f", "?", None, None, "Q", "q", "d")  # struct's letters by type number
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _UINT64, _INT64 = 4, 5, 6, 7, 8, 9, 10, 11
_VERSIONS = (2, 3)
_MAX_DIMS = 4
_MAX_NESTED = 4  # arrays in arrays
_ALIGNMENT = "general.alignment"
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True)
class GGUFTensor:
    """A tensor in a file. `encoding` is a dtype's name or that of a block format ("q4_0"); `bytes` has a row of
    bytes for each row of elements: (..., row elements) -> (..., row bytes)."""

    name: str
    shape: tuple[int, ...]
    encoding: str
    bytes: Bytes


class Writable(Protocol):
    """A tensor to be written. `bytes` is read once, when its turn comes: a class may make them there and then."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def encoding(self) -> str: ...
    @property
    def bytes(self) -> Bytes: ...


@dataclass(frozen=True)
class Format:
    """How a GGUF type number stores elements: so many in so many bytes."""

    number: int
    name: str
    block: int
    nbytes: int


@cache
def formats() -> dict[int, Format]:
    """All tensor types that the `gguf` package knows, by number."""
    sizes: dict[Any, tuple[int, int]] = _gguf().GGML_QUANT_SIZES
    return {
        int(kind): Format(int(kind), _PLAIN.get(kind.name, kind.name.lower()), block, nbytes)
        for kind, (block, nbytes) in sizes.items()
    }


def _gguf() -> ModuleType:
    return optional("gguf", "llm", "gguf")


class GGUFFile:
    """A GGUF file, or all parts of a split one: any part's path, or a list of all parts in their order.

    Tensors are read-only views of the mapped files, which must not be overwritten in place meanwhile.

    >>> file = GGUFFile("model.gguf")
    >>> file.metadata["general.architecture"], file.tensors["token_embd.weight"].shape
    ('llama', (49152, 576))
    """

    def __init__(self, path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> None:
        if isinstance(path, (str, os.PathLike)):
            self.paths = _parts(Path(path))
        else:
            self.paths = [Path(p) for p in path]
        if not self.paths:
            raise ArgumentError("[gguf] expected a file or the parts of one but got an empty list")
        parts = [_Header(p) for p in self.paths]
        self.metadata: dict[str, Any] = parts[0].metadata
        self.types: dict[str, Types] = parts[0].types
        self.tensors: dict[str, GGUFTensor] = {}
        for number, part in enumerate(parts):
            _check_part(part, number, len(parts))
            for name, tensor in part.tensors.items():
                if name in self.tensors:
                    raise part.damaged(f"tensor {name!r}", "an earlier part has one of that name")
                self.tensors[name] = tensor
        whole = self.metadata.get("split.tensors.count", len(self.tensors))
        if len(parts) > 1 and whole != len(self.tensors):
            raise parts[0].damaged("split.tensors.count", f"{whole!r}, but the parts have {len(self.tensors)} tensors")


def _parts(path: Path) -> list[Path]:
    """All parts of the file that `path` is one of, by their names; itself where its name has no numbers."""
    found = _PART.fullmatch(path.name)
    if found is None:
        return [path]
    count = int(found["count"])
    paths = [path.with_name(f"{found['stem']}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]
    missing = next((p for p in paths if not p.exists()), None)
    if missing is not None or path not in paths:
        raise FileNotFoundError(
            f"[gguf] expected the {count} parts of {path.name} in {path.parent} but there is no "
            f"{(missing or path).name}"
        )
    return paths


def _check_part(part: _Header, number: int, count: int) -> None:
    """A part says which one it is."""
    said = part.metadata.get("split.count", 0)
    if said != count and not (count == 1 and said == 0):
        raise part.damaged(
            "split.count", f"{said!r}, but {count} are opened; parts are named -00001-of-{count:05}.gguf"
        )
    if count > 1 and part.metadata.get("split.no") != number:
        raise part.damaged("split.no", f"{part.metadata.get('split.no')!r}, but it is opened as number {number}")


class _Header:
    """One file's metadata and tensors: a cursor over the mapped file that never passes its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_dir():
            raise IsADirectoryError(f"[gguf] expected a .gguf file but {path} is a folder")
        check_regular(path)
        with path.open("rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            if self.size < 24:
                raise self.damaged("header", f"it has {self.size} bytes, a header at least 24")
            self.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.at = 0
        counts = self._start()
        self.metadata: dict[str, Any] = {}
        self.types: dict[str, Types] = {}
        self.tensors: dict[str, GGUFTensor] = {}
        self._read_metadata(self._bounded("metadata count", counts[1], 13))
        self._read_tensors(self._bounded("tensor count", counts[0], 24))

    def damaged(self, field: str, reason: str) -> FileFormatError:
        return FileFormatError(
            f"[gguf] expected a whole GGUF file but {self.path} is damaged, cut off or of another format: "
            f"{field}: {reason}"
        )

    def _start(self) -> tuple[int, int]:
        """Check magic and version; gives the counts of tensors and of metadata."""
        magic = bytes(self.memory[:4])
        version = self._number("header", "I", 4)
        if magic == b"FUGG" or (magic == b"GGUF" and version and not version & 0xFFFF):
            raise NotSupportedError(
                f"[gguf] expected a little-endian file but {self.path} is big-endian; convert it with the gguf "
                "package's gguf-convert-endian"
            )
        if magic != b"GGUF":
            raise self.damaged("magic", f"{magic!r} instead of b'GGUF'")
        if version not in _VERSIONS:
            raise self.damaged("version", f"{version}, known are 2 and 3; convert the model anew with llama.cpp")
        self.at = 24
        return struct.unpack_from("<QQ", self.memory, 8)

    def _bounded(self, field: str, count: int, nbytes: int) -> int:
        """A count of things that take at least so many bytes each, which must be there."""
        if count * nbytes > self.size - self.at:
            raise self.damaged(field, f"{count:,} at byte {self.at:,} do not fit into its {self.size:,} bytes")
        return count

    def _number(self, field: str, letter: str, at: int | None = None) -> Any:
        where = self.at if at is None else at
        end = where + struct.calcsize("<" + letter)
        if end > self.size:
            raise self.damaged(field, f"it ends at byte {self.size:,}")
        if at is None:
            self.at = end
        return struct.unpack_from("<" + letter, self.memory, where)[0]

    def _text(self, field: str) -> str:
        start = self.at + 8
        end = start + self._bounded(field, self._number(field, "Q"), 1)
        self.at = end
        try:
            return str(self.memory[start:end], "utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged(field, f"text at byte {start:,} is not UTF-8: {error.reason}") from None

    def _read_metadata(self, count: int) -> None:
        for number in range(count):
            key = self._text(f"metadata key {number}")
            if not key or key in self.metadata:
                raise self.damaged(f"metadata key {number}", f"{key!r} is empty or there twice")
            kind = self._number(key, "I")
            self.metadata[key], self.types[key] = self._value(key, kind, 0)

    def _value(self, key: str, kind: int, depth: int) -> tuple[Any, Types]:
        if kind == _STRING:
            return self._text(key), (kind,)
        if kind == _ARRAY:
            return self._array(key, depth)
        return self._scalars(key, kind, 1)[0], (kind,)

    def _array(self, key: str, depth: int) -> tuple[list[Any], Types]:
        kind, count = self._number(key, "I"), self._number(key, "Q")
        if kind == _STRING:
            return [self._text(key) for _ in range(self._bounded(key, count, 8))], (_ARRAY, kind)
        if kind == _ARRAY:
            if depth == _MAX_NESTED:
                raise self.damaged(key, f"arrays in arrays more than {_MAX_NESTED} deep")
            inner = [self._array(key, depth + 1) for _ in range(self._bounded(key, count, 12))]
            return [values for values, _ in inner], (_ARRAY, kind)
        return self._scalars(key, kind, count), (_ARRAY, kind)

    def _scalars(self, key: str, kind: int, count: int) -> list[Any]:
        letter = _SCALARS[kind] if kind < len(_SCALARS) else None
        if letter is None:
            raise self.damaged(key, f"type {kind} of a value is unknown")
        dtype = np.dtype("<u1" if kind == _BOOL else "<" + letter)
        self._bounded(key, count, dtype.itemsize)
        values = np.frombuffer(self.memory, dtype, count, self.at) if count else np.empty(0, dtype)
        if kind == _BOOL:
            if count and values.max() > 1:
                raise self.damaged(key, f"a truth value of {values.max()}")
            values = values.astype(bool)
        self.at += count * dtype.itemsize
        return list(values.tolist())

    def _read_tensors(self, count: int) -> None:
        rows = [self._tensor(number) for number in range(count)]
        alignment = self.metadata.get(_ALIGNMENT, 32)
        if self.types.get(_ALIGNMENT, (_UINT32,)) != (_UINT32,) or alignment < 1 or alignment & (alignment - 1):
            raise self.damaged(_ALIGNMENT, f"{alignment!r} is no power of two of type uint32")
        start = end = _aligned(self.at, alignment) if rows else self.at
        for name, shape, kind, offset in rows:
            if name in self.tensors:
                raise self.damaged(f"tensor {name!r}", "there twice")
            if start + offset != _aligned(end, alignment):
                want = _aligned(end, alignment) - start
                raise self.damaged(f"tensor {name!r}", f"offset {offset:,} where {want:,} follows from those before it")
            row = self._row_bytes(name, shape, kind)
            nbytes = row * math.prod(shape[:-1])
            if start + offset + nbytes > self.size:
                raise self.damaged(
                    f"tensor {name!r}",
                    f"{nbytes:,} bytes at {start + offset:,} do not fit into its {self.size:,} bytes",
                )
            raw = np.ndarray((*shape[:-1], row), np.uint8, self.memory, start + offset if nbytes else 0)
            self.tensors[name] = GGUFTensor(name, shape, kind.name, raw)
            end = start + offset + nbytes
        if self.size > _aligned(end, alignment):
            raise self.damaged("end", f"its tensors end at byte {end:,} but it has {self.size:,}")

    def _tensor(self, number: int) -> tuple[str, tuple[int, ...], Format, int]:
        name = self._text(f"name of tensor {number}")
        field = f"tensor {name!r}"
        dims = self._number(field, "I")
        if not 1 <= dims <= _MAX_DIMS:
            raise self.damaged(field, f"{dims} dimensions, expected 1 to {_MAX_DIMS}")
        shape = tuple(self._number(field, "Q") for _ in range(dims))[::-1]
        kind, offset = self._number(field, "I"), self._number(field, "Q")
        if kind not in formats():
            raise self.damaged(field, f"type {kind} is unknown")
        return name, shape, formats()[kind], offset

    def _row_bytes(self, name: str, shape: tuple[int, ...], kind: Format) -> int:
        if shape[-1] % kind.block or 0 in shape:
            raise self.damaged(
                f"tensor {name!r}", f"shape {shape}, but {kind.name} has rows of blocks of {kind.block} elements"
            )
        return shape[-1] // kind.block * kind.nbytes


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment


def write_gguf(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    tensors: Iterable[Writable],
    types: Mapping[str, Types] | None = None,
    written: Callable[[Writable], object] = lambda tensor: None,
) -> None:
    """Write a GGUF file, whole or not at all. `types`, as `GGUFFile.types` has them, say how values are stored;
    without them whole numbers are uint32 where they fit, those in lists int32, and others float32. Empty lists, which
    the format's readers do not expect, are left out. `written` is called after each tensor.

    >>> write_gguf("copy.gguf", file.metadata, file.tensors.values(), file.types)
    """
    gguf = _gguf()
    if not isinstance(metadata.get("general.architecture"), str):
        raise ArgumentError("[write_gguf] expected metadata with the text general.architecture")
    with atomic_path(path) as temporary:
        writer = gguf.GGUFWriter(temporary, metadata["general.architecture"])
        try:
            for key, value in metadata.items():
                if key != "general.architecture" and value != []:
                    _add_value(writer, key, value, (types or {}).get(key) or _type_of(key, value))
            rows = list(tensors)
            for tensor in rows:
                _add_tensor(writer, tensor)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for tensor in rows:
                writer.write_tensor_data(_checked_bytes(tensor))
                written(tensor)
        except (struct.error, TypeError, OverflowError) as error:
            raise ArgumentError(f"[write_gguf] expected values that fit their types but got: {error}") from None
        finally:
            writer.close()


def _add_value(writer: Any, key: str, value: Any, types: Types) -> None:
    kinds = [_gguf().GGUFValueType(number) for number in types]
    if key == _ALIGNMENT:
        writer.data_alignment = value
    writer.add_key_value(key, value, kinds[0], sub_type=kinds[1] if len(kinds) > 1 else None)


def _add_tensor(writer: Any, tensor: Writable) -> None:
    kind = _format(tensor)
    shape = _byte_shape(tensor)
    writer.add_tensor_info(
        tensor.name, shape, np.dtype(np.uint8), math.prod(shape), _gguf().GGMLQuantizationType(kind.number)
    )


def _format(tensor: Writable) -> Format:
    kind = next((one for one in formats().values() if one.name == tensor.encoding), None)
    if kind is None:
        raise ArgumentError(f"[write_gguf] expected an encoding that GGUF has but got {tensor.encoding!r}")
    if not tensor.shape or tensor.shape[-1] % kind.block:
        raise ArgumentError(
            f"[write_gguf] expected rows of blocks of {kind.block} elements in {kind.name} but {tensor.name!r} has the "
            f"shape {tensor.shape}"
        )
    return kind


def _byte_shape(tensor: Writable) -> tuple[int, ...]:
    kind = _format(tensor)
    return (*tensor.shape[:-1], tensor.shape[-1] // kind.block * kind.nbytes)


def _checked_bytes(tensor: Writable) -> Bytes:
    raw, want = tensor.bytes, _byte_shape(tensor)
    if raw.dtype != np.uint8 or raw.shape != want:
        raise ArgumentError(
            f"[write_gguf] expected uint8 of shape {want} for {tensor.shape} in {tensor.encoding} but {tensor.name!r} "
            f"is {raw.dtype} of shape {raw.shape}"
        )
    return raw


def _type_of(key: str, value: object) -> Types:
    if isinstance(value, bool):
        return (_BOOL,)
    if isinstance(value, int):
        return (_UINT32 if 0 <= value < 1 << 32 else _UINT64 if value > 0 else _INT64,)
    if isinstance(value, float):
        return (_FLOAT32,)
    if isinstance(value, str):
        return (_STRING,)
    if isinstance(value, (list, tuple)) and value:
        (inner,) = _type_of(key, value[0]) if not isinstance(value[0], (list, tuple)) else (_ARRAY,)
        return _ARRAY, _INT32 if inner == _UINT32 else inner
    raise ArgumentError(f"[write_gguf] expected text, numbers, truth values or lists of them for {key!r}: {value!r}")
