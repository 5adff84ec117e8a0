"""Checkpoints: a GGUF file (or a part of a split one) or a Hugging Face folder in, named bytes out.

Nothing is copied: tensors are views of the mapped files. Nothing of a file is executed.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyflame.core.encoding import encoding
from pyflame.core.errors import ArgumentError, FileFormatError, suggest
from pyflame.core.files import MAX_JSON, plain_name, read_file, read_json
from pyflame.io.gguf import Bytes, GGUFFile
from pyflame.io.safetensors import CODES, map_file
from pyflame.llm.gguf_tokenizer import from_gguf
from pyflame.llm.packed import Method, method_of, numbers_of, packed_weights, repacked
from pyflame.llm.tokenizer import Tokenizer, from_json


@dataclass(frozen=True)
class Stored:
    """A tensor as it lies in its file: `encoding` is a dtype's name or that of a block format ("q4_0"), `bytes` holds a
    row of bytes for each row of elements."""

    shape: tuple[int, ...]
    encoding: str
    bytes: Bytes


class Checkpoint(abc.ABC):
    """A model's files: settings, tensors by name, tokenizer and chat template."""

    kind: str  # "gguf" or "hf"
    path: Path
    architecture: str
    metadata: dict[str, Any]
    chat_template: str | None

    def __init__(self, path: Path, tensors: dict[str, Stored]) -> None:
        self.path = path
        self._tensors = tensors

    def names(self) -> list[str]:
        return list(self._tensors)

    def stored(self, name: str) -> Stored:
        if name not in self._tensors:
            raise ArgumentError(
                f"[checkpoint] expected the name of a tensor in {self.path} but got {name!r}"
                f"{suggest(name, self._tensors)}"
            )
        return self._tensors[name]

    def mapped(self) -> list[Bytes]:
        """The bytes of all tensors as they lie in the files."""
        return [stored.bytes for stored in self._tensors.values()]

    def size(self, name: str) -> int:
        """The bytes that a tensor takes in the files."""
        return self._tensors[name].bytes.nbytes

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return sum(stored.bytes.nbytes for stored in self._tensors.values())

    @abc.abstractmethod
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, made anew at each call."""


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """A model's files: a .gguf file, any part of a split one, or a Hugging Face folder.

    >>> open_checkpoint("SmolLM2-135M-Instruct.Q4_1.gguf").architecture
    'llama'
    """
    place = Path(path)
    if place.is_dir():
        return _Folder(place)
    if not place.exists():
        raise FileNotFoundError(f"[checkpoint] expected a .gguf file or a Hugging Face folder but there is no {place}")
    if place.suffix in (".safetensors", ".json"):
        raise ArgumentError(
            f"[checkpoint] expected a .gguf file or a Hugging Face folder but got {place}; give the folder it is in"
        )
    return _Gguf(place)


class _Gguf(Checkpoint):
    kind = "gguf"

    def __init__(self, path: Path) -> None:
        file = GGUFFile(path)
        super().__init__(path, {n: Stored(t.shape, t.encoding, t.bytes) for n, t in file.tensors.items()})
        self.metadata = file.metadata
        self.architecture = _text(path, self.metadata, "general.architecture")
        template = self.metadata.get("tokenizer.chat_template")
        self.chat_template = template if isinstance(template, str) and template else None

    def tokenizer(self) -> Tokenizer:
        return from_gguf(self.metadata, self.path)


class _Folder(Checkpoint):
    kind = "hf"

    def __init__(self, path: Path) -> None:
        if not (path / "config.json").exists():
            raise FileNotFoundError(
                f"[checkpoint] expected a Hugging Face folder with config.json but {path} has none"
                + _instead(path, "*.gguf")
            )
        self.metadata = _object(path / "config.json")
        self.architecture = _text(path / "config.json", self.metadata, "model_type")
        self.metadata["generation_config"] = _object(path / "generation_config.json", missing={})
        super().__init__(path, _tensors(path))
        quantised = self.metadata.get("quantization_config")
        self._method = method_of(quantised, path) if isinstance(quantised, dict) else None
        self._repacked: tuple[str, Stored] | None = None  # the last one, which may be asked for again for another part
        self._packed = {} if self._method is None else packed_weights(self._method, self._tensors)
        self._tokens = _object(path / "tokenizer_config.json", missing={})
        self.chat_template = _chat_template(path, self._tokens)

    def names(self) -> list[str]:
        """Of weights; the tensors that one is packed in have none of their own."""
        inside = {name for parts in self._packed.values() for name in parts.values()}
        return [*self._packed, *(name for name in self._tensors if name not in inside)]

    def size(self, name: str) -> int:
        return sum(map(super().size, self._packed.get(name, {"": name}).values()))

    def stored(self, name: str) -> Stored:
        if name not in self._packed or self._method is None:
            return super().stored(name)
        if self._repacked is None or self._repacked[0] != name:
            self._repacked = name, self._made(name, self._method)
        return self._repacked[1]

    def _made(self, name: str, method: Method) -> Stored:
        parts = {end: super(_Folder, self).stored(part) for end, part in self._packed[name].items()}
        arrays = {end: numbers_of(s.bytes, s.encoding, s.shape) for end, s in parts.items()}
        kind, rows = repacked(method, self.path, name, arrays)
        return Stored((*rows.shape[:-1], encoding(kind).width(rows.shape[-1])), kind, rows)

    def tokenizer(self) -> Tokenizer:
        file = self.path / "tokenizer.json"
        if not file.exists():
            raise FileNotFoundError(
                f"[checkpoint] expected tokenizer.json but {self.path} has none; write it with transformers: "
                "AutoTokenizer.from_pretrained(...).save_pretrained(...)" + _instead(self.path, "*.model")
            )
        ids = self.metadata["generation_config"], self.metadata
        bos = next((found for part in ids for found in _ids(part, "bos_token_id")), None)
        return from_json(file, self._tokens, {end for part in ids for end in _ids(part, "eos_token_id")}, bos)


def _ids(config: Mapping[str, Any], key: str) -> list[int]:
    """A token id, or a list of them; anything else is none."""
    value = config.get(key)
    return [n for n in (value if isinstance(value, list) else [value]) if isinstance(n, int) and n >= 0]


def _text(path: Path, metadata: Mapping[str, Any], key: str) -> str:
    value = metadata.get(key)
    if not isinstance(value, str) or not value:
        raise FileFormatError(f"[checkpoint] expected {path} to name its architecture but {key} is {value!r}")
    return value


def _object(path: Path, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object of a JSON file; `missing` where there is no such file."""
    if missing is not None and not path.exists():
        return missing
    try:
        value = read_json(path)
    except ValueError as error:
        raise FileFormatError(f"[checkpoint] expected JSON but {path} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise FileFormatError(f"[checkpoint] expected an object in {path} but got {type(value).__name__}")
    return value


def _instead(path: Path, pattern: str) -> str:
    found = sorted(file.name for file in path.glob(pattern))
    return f"; it has {', '.join(found[:4])}" if found else ""


def _tensors(path: Path) -> dict[str, Stored]:
    index = path / "model.safetensors.index.json"
    if index.exists():
        return _sharded(index)
    file = path / "model.safetensors"
    if not file.exists():
        raise FileNotFoundError(
            f"[checkpoint] expected model.safetensors or model.safetensors.index.json but {path} has neither"
            + (_instead(path, "*.safetensors") or _instead(path, "*.bin"))
        )
    return _of_file(file)


def _of_file(file: Path) -> dict[str, Stored]:
    info, raw = map_file(file)
    names = {code: dtype.name for code, dtype in CODES.items()}  # others keep the format's own name
    return {name: Stored(t.shape, names.get(t.dtype, t.dtype), raw[name]) for name, t in info.tensors.items()}


def _sharded(index: Path) -> dict[str, Stored]:
    """Tensors of several files. The index and the files must agree on who has what."""
    wanted = _object(index).get("weight_map")
    if not isinstance(wanted, dict) or not wanted or not all(isinstance(file, str) for file in wanted.values()):
        raise FileFormatError(f"[checkpoint] expected {index} to have a weight_map of tensor names to file names")
    found: dict[str, Stored] = {}
    for name in dict.fromkeys(wanted.values()):
        try:
            file = index.parent / plain_name("checkpoint", name)
        except ArgumentError as error:
            raise FileFormatError(f"[checkpoint] expected {index} to name files beside it: {error}") from None
        if not file.exists():
            raise FileNotFoundError(f"[checkpoint] expected {name}, which {index} names, but it is missing")
        for tensor, stored in _of_file(file).items():
            if wanted.get(tensor) != name:
                raise FileFormatError(f"[checkpoint] expected {index} to know of {tensor!r} in {name} but it does not")
            found[tensor] = stored
    missing = [tensor for tensor in wanted if tensor not in found]
    if missing:
        raise FileFormatError(
            f"[checkpoint] expected {missing[0]!r} in {wanted[missing[0]]}, as {index} says, but it is not there"
        )
    return found


def _chat_template(path: Path, config: Mapping[str, Any]) -> str | None:
    """The template of chat_template.jinja or of tokenizer_config.json; of several that named "default"."""
    file = path / "chat_template.jinja"
    if file.exists():
        try:
            return read_file(file, MAX_JSON).decode()
        except UnicodeDecodeError as error:
            raise FileFormatError(f"[checkpoint] expected text but {file} is damaged: {error.reason}") from None
    value = config.get("chat_template")
    if isinstance(value, list):
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
        value = named.get("default")
    if value is not None and not isinstance(value, str):
        raise FileFormatError(
            f"[checkpoint] expected chat_template in {path / 'tokenizer_config.json'} to be text but got "
            f"{type(value).__name__}"
        )
    return value or None
