"""The pickles inside of PyTorch's files, read without running anything.

An unpickler calls what a file names. This one knows a short table of names, all of which build plain values: tensors,
storages, ordered dicts, sizes, dtypes, NumPy numbers. Anything else is an error that says its name.
"""

from __future__ import annotations

import codecs
import pickle
import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np

from pyflame.core import dtype as dt
from pyflame.core.dtype import DType
from pyflame.core.errors import DTypeError, FileFormatError, NotSupportedError
from pyflame.core.shape import Size
from pyflame.tensor import Tensor
from pyflame.tensor.creation import from_numpy

_STORAGES: dict[str, DType] = {
    "FloatStorage": dt.float32, "DoubleStorage": dt.float64, "HalfStorage": dt.float16, "BFloat16Storage": dt.bfloat16,
    "LongStorage": dt.int64, "IntStorage": dt.int32, "ShortStorage": dt.int16, "CharStorage": dt.int8,
    "ByteStorage": dt.uint8, "BoolStorage": dt.bool_, "UntypedStorage": dt.uint8,
}  # fmt: skip
# What pf.serialization.add_safe_globals has added, by module and name: it, or a pair of it and its name.
ALLOWED: dict[tuple[str, str], Any] = {}
_DTYPES = {d.name.rstrip("_"): d for d in dt.ALL}


@dataclass(frozen=True)
class Storage:
    """A storage of a file: its key, its dtype, its elements, and where PyTorch had it."""

    key: str
    dtype: DType
    numel: int
    location: str
    device: str | None = None  # where `map_location` puts it

    def cpu(self) -> Storage:
        """For map_location=lambda storage, location: storage.cpu()."""
        return replace(self, device="cpu")

    def cuda(self, index: int = 0) -> Storage:
        """For map_location=lambda storage, location: storage.cuda(0)."""
        return replace(self, device=f"cuda:{index}")


Read = Callable[[Storage], np.ndarray[Any, Any]]  # the elements of a storage, as one axis


class TorchUnpickler(pickle.Unpickler):
    """Reads one pickle. `read` gives the elements of a storage; `place` says where it shall be."""

    def __init__(self, file: IO[bytes], name: str, read: Read, place: Callable[[Storage], str | None]) -> None:
        super().__init__(file, encoding="utf-8")
        self._name = name
        self._read = read
        self._place = place
        self.storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _STORAGES[name]
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        builders = {"_rebuild_tensor": self._tensor, "_rebuild_tensor_v2": self._tensor, "_rebuild_tensor_v3": self._v3}
        if module == "torch._utils" and name in builders:
            return builders[name]
        if (module, name) in _PLAIN:
            return _PLAIN[module, name]
        if (module, name) in ALLOWED:
            found = ALLOWED[module, name]
            return found[0] if isinstance(found, tuple) else found
        other = name.endswith("Storage") or name.startswith(("complex", "quint", "qint", "uint", "bits"))
        if module.startswith("torch") and other:
            raise DTypeError(
                f"[load] expected dtypes among {', '.join(_DTYPES)} but {self._name} has tensors of {module}.{name}"
            )
        raise NotSupportedError(
            f"[load] expected tensors, numbers, text, lists and dicts but {self._name} holds {module}.{name}; PyFlame "
            "runs nothing that a file names: load it in torch and save its state_dict() alone, or allow the class by "
            "pf.serialization.add_safe_globals"
        )

    def persistent_load(self, pid: Any) -> Storage:
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage" or not isinstance(pid[1], DType):
            raise NotSupportedError(f"[load] expected storages but {self._name} refers to {pid!r:.80}")
        _, dtype, key, location, numel, *view = pid
        if view and view[0] is not None:
            raise NotSupportedError(f"[load] expected whole storages but {self._name} has views of storages, of 2017")
        found = self.storages.setdefault(str(key), Storage(str(key), dtype, int(numel), str(location)))
        return found

    def _v3(self, storage: Storage, offset: int, size: Any, stride: Any, grad: bool, hooks: Any, dtype: DType,
            metadata: Any = None) -> Tensor:  # fmt: skip
        return self._built(storage, dtype, offset, size, stride, grad)

    def _tensor(self, storage: Storage, offset: int, size: Any, stride: Any, grad: bool = False, *rest: Any) -> Tensor:
        return self._built(storage, storage.dtype, offset, size, stride, grad)

    def _built(self, storage: Storage, dtype: DType, offset: int, size: Any, stride: Any, grad: bool) -> Tensor:
        """A tensor over some elements of a storage. Nothing outside of the storage is ever read."""
        raw = self._read(storage).view(np.uint8)
        count = len(raw) // dtype.itemsize
        shape, steps = tuple(map(int, size)), tuple(map(int, stride))
        last = offset + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
        empty = 0 in shape
        if min((offset, *shape, *steps)) < 0 or (not empty and last >= count):
            raise FileFormatError(
                f"[load] expected tensors inside of their storages but {self._name} has one of shape {shape} and "
                f"strides {steps} at {offset} in a storage of {count} elements"
            )
        if empty:
            array: np.ndarray[Any, Any] = np.empty(shape, dtype.numpy)
        else:
            apart = tuple(s * dtype.itemsize for s in steps)
            array = np.ndarray(shape, dtype.numpy, raw, offset * dtype.itemsize, apart)
        made = from_numpy(array)
        device = self._place(storage)
        made = made if device is None else made.to(device=device)
        return made.requires_grad_() if grad else made


def _parameter(data: Tensor, requires_grad: bool, hooks: Any, state: Any = None) -> Tensor:
    if data is None:  # not read yet
        return data
    return data.detach().requires_grad_() if requires_grad else data


def _from_type(build: Callable[..., Any], kind: type, args: Any, state: Any) -> Any:
    return build(*args)


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return codecs.encode(text, encoding if encoding in ("latin1", "utf-8", "ascii") else "latin1")


class _NumpyDtype:
    """A NumPy dtype by its code. NumPy's own would take whatever state a file gives it, and crash later."""

    def __init__(self, code: object, align: object = False, copy: object = False) -> None:
        self.code = str(code)
        self.order = "<"

    def __setstate__(self, state: Any) -> None:
        self.order = ">" if state[1] == ">" else "<"


def _scalar(dtype: Any, data: Any = b"") -> Any:
    """A NumPy number."""
    known = isinstance(dtype, _NumpyDtype) and re.fullmatch("[biuf][1248]", dtype.code)
    if not known or not isinstance(data, bytes):
        raise NotSupportedError("[load] expected NumPy scalars that are numbers but got others")
    return np.frombuffer(data, np.dtype(dtype.order + dtype.code), 1).astype(dtype.code)[0]


_PLAIN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "defaultdict"): defaultdict,
    ("collections", "Counter"): Counter,
    ("torch", "Size"): Size,
    ("torch", "device"): lambda kind, index=None: str(kind) if index is None else f"{kind}:{index}",
    ("torch", "Tensor"): Tensor,
    ("torch.nn.parameter", "Parameter"): Tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch._tensor", "_rebuild_from_type_v2"): _from_type,
    ("numpy", "dtype"): _NumpyDtype,
    ("_codecs", "encode"): _encode,
    **{("builtins", kind.__name__): kind for kind in (set, frozenset, complex, list, dict, int, float, str)},
    **{("__builtin__", kind.__name__): kind for kind in (set, frozenset, complex, list, dict)},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
}
