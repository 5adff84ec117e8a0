"""Writes a model as a GGUF file: a GGUF file with its matrices in another encoding, or a Hugging Face folder.

Norms, biases, routers and other small tensors stay as they are. Matrices are written in the encoding that is asked for.
The one that makes logits (output.weight, or token_embd.weight where it serves as both) is written in q6_k where that is
finer, since its errors meet every token. Rows that are no whole blocks of 256 take the encoding with blocks of 32 that
llama.cpp takes then, and rows that are not even that float16. A tensor is encoded when it is written, so that one is in
memory at a time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pyflame.core.encoding import ENCODINGS, Encoding, encoding
from pyflame.core.errors import ArgumentError
from pyflame.core.optional import optional
from pyflame.io.gguf import Bytes, GGUFFile, Types, Writable, formats, write_gguf
from pyflame.llm.files import Checkpoint
from pyflame.llm.load import decoded
from pyflame.llm.names import is_matrix

Array = np.ndarray[Any, Any]
_NARROW = {"q2_k": "iq4_nl", "q3_k": "iq4_nl", "iq4_xs": "iq4_nl", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
_OUTPUT = "q6_k"
_ELEMENTS = 1 << 22  # that are encoded at once: encoders hold several float32 copies of them


@dataclass(frozen=True)
class Tensor:
    """A tensor that is made when it is written. `encoding` is GGUF's name, as in GGUFTensor; `numbers` decodes it."""

    name: str
    shape: tuple[int, ...]
    encoding: str
    make: Callable[[], Bytes]
    numbers: Callable[[], Array]

    @property
    def bytes(self) -> Bytes:
        return self.make()


@dataclass(frozen=True)
class Content:
    """What a GGUF file will hold."""

    metadata: dict[str, Any]
    types: dict[str, Types]
    tensors: list[Tensor]


def targets() -> list[str]:
    """The encodings that can be asked for: those that GGUF has and that can be written."""
    return [name for name, one in ENCODINGS.items() if one.ggml is not None and one.encode_blocks is not None]


def of_gguf(checkpoint: Checkpoint) -> Content:
    """What a GGUF file holds; of a split one that of all parts."""
    file = GGUFFile(checkpoint.path)
    metadata = {key: value for key, value in file.metadata.items() if not key.startswith("split.")}
    tensors = [
        Tensor(
            one.name,
            one.shape,
            one.encoding,
            partial(np.asarray, one.bytes),
            partial(decoded, checkpoint.stored(one.name)),
        )
        for one in file.tensors.values()
    ]
    return Content(metadata, file.types, tensors)


def encoded(content: Content, to: str, requantize: bool = False) -> Content:
    """The same with its matrices in the encoding `to`. Those that are encoded already would lose twice: they are
    refused, unless `requantize`."""
    if to not in targets():
        encoding(to, "quantize")
        raise ArgumentError(f"[quantize] expected one of {', '.join(targets())} but got {to!r}, which GGUF has not")
    tied = all(tensor.name != "output.weight" for tensor in content.tensors)
    tensors = []
    for tensor in content.tensors:
        kind = choose(tensor, encoding(to), tied)
        lossy = tensor.encoding in ENCODINGS and kind is not None and kind.block > 1
        if lossy and not requantize:
            raise ArgumentError(
                f"[quantize] expected plain weights but {tensor.name} is {tensor.encoding} already, and what that lost "
                "stays lost; start from a float16, bfloat16 or float32 model, or ask for it with --requantize"
            )
        tensors.append(tensor if kind is None else _in(tensor, kind))
    return Content(content.metadata | file_type(to), content.types, tensors)


def choose(tensor: Tensor, to: Encoding, tied: bool) -> Encoding | None:
    """What a tensor is written in; None: as it is."""
    if not is_matrix(tensor.name, tensor.shape):
        return None
    makes_logits = tensor.name == ("token_embd.weight" if tied else "output.weight")
    output = encoding(_OUTPUT)
    kind = output if makes_logits and to.nbytes / to.block < output.nbytes / output.block else to
    if tensor.shape[-1] % kind.block and kind.name in _NARROW:
        kind = encoding(_NARROW[kind.name])
    if tensor.shape[-1] % kind.block:
        kind = encoding("f16")
    return None if _gguf_name(kind) == tensor.encoding else kind


def _gguf_name(kind: Encoding) -> str:
    assert kind.ggml is not None
    return formats()[kind.ggml].name


def _in(tensor: Tensor, kind: Encoding) -> Tensor:
    return replace(tensor, encoding=_gguf_name(kind), make=lambda: _encode(tensor, kind))


def _encode(tensor: Tensor, kind: Encoding) -> Bytes:
    """Some rows at a time."""
    rows = np.asarray(tensor.numbers()).reshape(-1, tensor.shape[-1])
    step = max(1, _ELEMENTS // tensor.shape[-1])
    try:
        parts = [kind.encode(np.asarray(rows[at : at + step], np.float32)) for at in range(0, len(rows), step)]
    except ArgumentError as error:
        raise ArgumentError(f"{error} (in {tensor.name})") from None
    return np.concatenate(parts).reshape(*tensor.shape[:-1], -1)


def file_type(to: str) -> dict[str, int]:
    """What llama.cpp calls a file whose matrices are mostly in one encoding; K encodings without a mix are "small"."""
    kinds, name = optional("gguf", "llm", "quantize").LlamaFileType, to.upper()
    names = (f"MOSTLY_{name}", f"MOSTLY_{name}_S", f"ALL_{name}", f"MOSTLY_{name}_MOE")
    number = int(next(getattr(kinds, one) for one in names if hasattr(kinds, one)))
    return {"general.file_type": number, "general.quantization_version": 2}


def write(
    content: Content,
    out: str | os.PathLike[str],
    source: Path,
    written: Callable[[Writable], object] = lambda tensor: None,
) -> None:
    """Write a file, whole or not at all. `written` is called after each tensor; `source` must be another file."""
    if Path(out).exists() and Path(out).samefile(source):
        raise ArgumentError(f"[export] expected another file than {source}, which would be lost")
    write_gguf(out, content.metadata, content.tensors, content.types, written)


def sizes(content: Content) -> dict[str, int]:
    """Bytes by encoding."""
    found: dict[str, int] = {}
    known = {one.name: one for one in formats().values()}
    for tensor in content.tensors:
        kind = known[tensor.encoding]
        nbytes = math.prod(tensor.shape) // kind.block * kind.nbytes
        found[tensor.encoding] = found.get(tensor.encoding, 0) + nbytes
    return dict(sorted(found.items(), key=lambda one: -one[1]))
