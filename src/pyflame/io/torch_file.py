"""PyTorch's .pt and .pth files: the zip archives of torch 1.6 and later, and the streams of before.

Storages of an archive are mapped into memory where the file has a path, so a tensor's pages are read when they are
used. torch_pickle.py reads the structure around them.
"""

from __future__ import annotations

import io
import mmap
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np

from pyflame.core.errors import ArgumentTypeError, FileFormatError, NotSupportedError, PyFlameError
from pyflame.io.torch_pickle import Storage, TorchUnpickler

ZIP = b"PK\x03\x04"
_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY = pickle.dumps(_MAGIC, 2)
_TAR = b"ustar"
_LOCAL_HEADER = 30  # bytes of a member's header before its name

MapLocation = Any  # None, a device, a dict of devices by device, or a function of storage and device


def is_torch_file(start: bytes) -> bool:
    """Whether a file that starts so is one of PyTorch's, or a pickle."""
    # a .safetensors file starts with the length of its header, which may look like a pickle's first bytes, then `{`
    pickled = start[:1] == b"\x80" and start[1:2] in (b"\2", b"\3", b"\4", b"\5") and start[8:9] != b"{"
    return pickled or start.startswith(ZIP) or start[257:262] == _TAR


def load_torch(file: IO[bytes], name: str, map_location: MapLocation, memory_map: bool) -> Any:
    """What torch.save wrote."""
    start = file.read(512)
    file.seek(0)
    place = _placer(map_location)
    try:
        if start.startswith(ZIP):
            return _Archive(file, name, memory_map).load(place)
        if start.startswith(LEGACY):
            return _load_stream(file, name, place)
    except PyFlameError:
        raise
    except (pickle.UnpicklingError, zipfile.BadZipFile, EOFError, ValueError, KeyError, TypeError, IndexError,
            AttributeError, OverflowError, MemoryError, struct.error, RecursionError) as error:  # fmt: skip
        raise FileFormatError(
            f"[load] expected a whole file of torch.save but {name} cannot be read: {type(error).__name__} {error}"
        ) from None
    tar = start[257:262] == _TAR
    what = "a tar archive of PyTorch before 0.1.10" if tar else "a pickle that torch.save did not make"
    raise NotSupportedError(f"[load] expected a file of torch.save or pf.save but {name} is {what}; save it again")


def _placer(map_location: MapLocation) -> Callable[[Storage], str | None]:
    """Where each storage goes; None leaves its tensors uncommitted."""
    if map_location is None or isinstance(map_location, str):
        return lambda storage: map_location
    if isinstance(map_location, Mapping):
        return lambda storage: map_location.get(storage.location)
    if not callable(map_location):
        raise ArgumentTypeError(
            f"[load] expected a device, a dict or a function as map_location but got {type(map_location).__name__}"
        )

    def place(storage: Storage) -> str | None:
        found = map_location(storage, storage.location)
        return found.device or "cpu" if isinstance(found, Storage) else found

    return place


class _Archive:
    """A zip archive: `<name>/data.pkl`, and one member for each storage, not compressed."""

    def __init__(self, file: IO[bytes], name: str, memory_map: bool) -> None:
        self.name = name
        self.file = file
        self.zip = zipfile.ZipFile(file)
        names = self.zip.namelist()
        root = next((n for n in names if n.endswith("/data.pkl")), None)
        if root is None:
            raise NotSupportedError(f"[load] expected a file of torch.save but {name} is a zip without data.pkl")
        self.root = root.removesuffix("data.pkl")
        if f"{self.root}constants.pkl" in names:
            raise NotSupportedError(
                f"[load] expected a file of torch.save but {name} is a TorchScript program of torch.jit.save; save its "
                "state_dict() with torch.save"
            )
        if f"{self.root}byteorder" in names and self.zip.read(f"{self.root}byteorder") != b"little":
            raise NotSupportedError(f"[load] expected little-endian numbers but those of {name} are big-endian")
        self.mapped = _map(file) if memory_map else None
        self.known: dict[str, np.ndarray[Any, Any]] = {}

    def load(self, place: Callable[[Storage], str | None]) -> Any:
        """The saved object."""
        pickled = io.BytesIO(self.zip.read(f"{self.root}data.pkl"))
        return TorchUnpickler(pickled, self.name, self._read, place).load()

    def _read(self, storage: Storage) -> np.ndarray[Any, Any]:
        if storage.key not in self.known:
            info = self.zip.getinfo(f"{self.root}data/{storage.key}")
            size = storage.numel * storage.dtype.itemsize
            if info.file_size < size:
                raise FileFormatError(
                    f"[load] expected {size:,} bytes of storage {storage.key} but {self.name} has {info.file_size:,}"
                )
            self.known[storage.key] = np.frombuffer(self._bytes(info, size), storage.dtype.numpy, storage.numel)
        return self.known[storage.key]

    def _bytes(self, info: zipfile.ZipInfo, size: int) -> Any:
        if self.mapped is None or info.compress_type != zipfile.ZIP_STORED:
            return self.zip.read(info)
        # the local header repeats the name and may have other extra fields than the directory
        header = self.mapped[info.header_offset : info.header_offset + _LOCAL_HEADER]
        name, extra = struct.unpack("<HH", header[26:30])
        start = info.header_offset + _LOCAL_HEADER + name + extra
        if start + size > len(self.mapped):
            raise FileFormatError(f"[load] expected storage {info.filename} inside of {self.name} but it is cut off")
        return memoryview(self.mapped)[start : start + size]


def _map(file: IO[bytes]) -> mmap.mmap | None:
    """The file as memory; None for what is no file of the system."""
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError, AttributeError):
        return None


def _load_stream(file: IO[bytes], name: str, place: Callable[[Storage], str | None]) -> Any:
    """Five pickles (magic number, version, machine, the object, keys of storages), then the storages.

    The storages come last, so the object is read twice: first to know what storages there are and where they lie.
    """

    def unread(storage: Storage) -> np.ndarray[Any, Any]:
        return np.broadcast_to(np.zeros((), storage.dtype.numpy), (storage.numel,))

    def next_pickle(read: Any) -> TorchUnpickler:
        return TorchUnpickler(file, name, read, lambda storage: None)

    for expected in (_MAGIC, 1001):
        if next_pickle(unread).load() != expected:
            raise NotSupportedError(f"[load] expected version 1001 of PyTorch's older format but {name} has another")
    if not next_pickle(unread).load().get("little_endian", True):
        raise NotSupportedError(f"[load] expected little-endian numbers but those of {name} are big-endian")
    start = file.tell()
    first = _Skim(file, name, unread, lambda storage: None)
    first.load()
    values: dict[str, np.ndarray[Any, Any]] = {}
    for key in next_pickle(unread).load():
        storage = first.storages[str(key)]
        (numel,) = struct.unpack("<q", file.read(8))
        raw = file.read(numel * storage.dtype.itemsize)
        if numel != storage.numel or len(raw) != numel * storage.dtype.itemsize:
            raise FileFormatError(f"[load] expected {storage.numel} elements of storage {key} but {name} is cut off")
        values[str(key)] = np.frombuffer(raw, storage.dtype.numpy)
    file.seek(start)
    return TorchUnpickler(file, name, lambda storage: values[storage.key], place).load()


class _Skim(TorchUnpickler):
    """Only finds out which storages there are."""

    def _built(self, *args: Any) -> Any:
        return None
