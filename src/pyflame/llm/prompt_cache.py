"""Prompts on disk: tokens with their keys and values, so that another process need not read them again.

A file is one of safetensors, written whole or not at all and with checksums: `tokens` (n), and for each layer what the
cache keeps of these tokens, in its dtype. Lines depend on the weights, so the file says which made them: settings, rows
of every weight spread over it, the adapters, and the embeddings of its tokens. A file of other weights is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.core.dtype import int64
from pyflame.core.errors import ArgumentError, FileFormatError
from pyflame.core.files import parse_json
from pyflame.io.safetensors import file_info, opened, read, save_file
from pyflame.llm.batch import Batch, common
from pyflame.llm.layers import Matrix
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.tensor.modes import eval

if TYPE_CHECKING:
    from pyflame.llm.generate import Model

_KEY, _FORMAT = "pyflame.prompt", 1
_SAMPLES = 16  # rows of each weight


def save(path: str | os.PathLike[str], model: Model, batch: Batch) -> None:
    """Write what the one row of a batch holds."""
    tokens, count = batch.held[0], len(batch.held[0])
    tensors = {name: kept[:count] for name, kept in _lines(batch)}
    tensors["tokens"] = tensor(tokens, dtype=int64, device="cpu")
    save_file(tensors, path, {_KEY: json.dumps(_origin(model, tokens), sort_keys=True)})


def restore(path: str | os.PathLike[str], model: Model, batch: Batch, prompts: Sequence[Sequence[int]]) -> int:
    """Have every row of a batch hold the beginning of its prompt that a file has, unless it holds as much already;
    gives the number of tokens."""
    batch.want_weights()
    known = min(common(held, prompt) for held, prompt in zip(batch.held, prompts, strict=True))
    if min(common(_read(path, ("tokens",))[0], prompt) for prompt in prompts) <= known:
        return known
    tokens, lines, origin = _read(path)
    _want_origin(path, origin, _origin(model, tokens))
    count = min(common(tokens, prompt) for prompt in prompts)
    for name, kept in _lines(batch):
        line = lines.get(name)
        if line is None or line.dtype != kept.dtype or tuple(line.shape) != (len(tokens), *kept.shape[1:]):
            raise _damaged(path, f"{name} is missing or has another shape")
    for name, kept in _lines(batch):
        kept.reshape(batch.rows, -1, *kept.shape[1:])[:, :count] = lines[name][:count].to(kept.device)
    batch.held = [list(tokens[:count]) for _ in range(batch.rows)]
    return count


def _read(path: str | os.PathLike[str], names: Sequence[str] | None = None) -> tuple[list[int], dict[str, Tensor], str]:
    """The tokens of a file, its tensors, which checksums have found as they were, and what made them."""
    info = file_info(path)
    about = info.tensors.get("tokens")
    if _KEY not in info.metadata or info.checksums is None or about is None:
        raise _damaged(path, "it has no tokens, or no checksums")
    if about.dtype != "I64" or len(about.shape) != 1:
        raise _damaged(path, f"its tokens are {about.dtype}{list(about.shape)}")
    info, found = read(path, names=names, memory_map=True, verify=True)
    return found["tokens"].tolist(), found, info.metadata[_KEY]


def is_prompt(path: str | os.PathLike[str]) -> bool:
    """Whether a file was written by `save`, be it damaged or not."""
    with opened(path) as file:
        return f'"{_KEY}"'.encode() in file.read(256)


def _lines(batch: Batch) -> Iterator[tuple[str, Tensor]]:
    """What a batch's cache keeps, by names: keys, values and their scales."""
    for kind, layers in (("lines", batch.cache.layers), ("scales", batch.cache.scales)):
        for layer, kept in enumerate(layers):
            yield from ((f"{kind}.{layer}.{n}", one) for n, one in enumerate(kept))


def _damaged(path: str | os.PathLike[str], reason: str) -> FileFormatError:
    return FileFormatError(f"[prompt_cache] expected a file of save_prompt but {os.fspath(path)} is none: {reason}")


def _origin(model: Model, tokens: Sequence[int]) -> dict[str, Any]:
    """What made the lines of these tokens."""
    matrices = {n: m for n, m in model.decoder.named_modules() if isinstance(m, Matrix)}
    about = [asdict(model.config), [(n, m.encoding, m.activation_bits) for n, m in matrices.items()]]
    tables = {f"{n}.weight": m.first for n, m in matrices.items() if n.endswith("token_embd")}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=sorted).encode())
    weights = model.decoder.state_dict()
    samples = {name: _sampled(name, weight, tokens, tables.get(name)) for name, weight in sorted(weights.items())}
    eval(samples)
    for name, sample in samples.items():
        raw = np.ascontiguousarray(sample.numpy())
        digest.update(f"{name} {raw.dtype} {tuple(weights[name].shape)}".encode())
        digest.update(raw.reshape(-1).view(np.uint8).data)
    kinds = {"architecture": model.config.architecture, "dtype": model.dtype.name, "kv": model.kv.name}
    return {"format": _FORMAT, **kinds, "weights": digest.hexdigest()}


def _sampled(name: str, weight: Tensor, tokens: Sequence[int], first: int | None) -> Tensor:
    """Rows of a weight from its first to its last, an adapter whole; of embeddings, which begin with the row of the
    token `first`, those of the tokens."""
    if weight.ndim == 0 or ".lora." in name:
        return weight
    rows = weight.reshape(-1, weight.shape[-1])
    wanted = np.linspace(0, rows.shape[0] - 1, _SAMPLES).astype(np.int64)
    chosen = np.unique(wanted) if first is None else np.unique(np.clip(np.subtract(tokens, first), 0, len(rows) - 1))
    return rows.index_select(0, tensor(chosen, dtype=int64, device=weight.device))


def _want_origin(path: str | os.PathLike[str], origin: str, wanted: dict[str, Any]) -> None:
    try:
        found = {**dict.fromkeys(wanted), **parse_json(origin)}
    except (ValueError, TypeError):
        raise _damaged(path, "what it says of its origin is no JSON object") from None
    other = [key for key in wanted if found[key] != wanted[key]]
    if other:
        raise ArgumentError(
            "[prompt_cache] expected keys and values of this model with its adapters and settings but "
            f"{os.fspath(path)} has {', '.join(f'{key} {found[key]!r}' for key in other)} instead of "
            f"{', '.join(repr(wanted[key]) for key in other)}; save it anew"
        )
