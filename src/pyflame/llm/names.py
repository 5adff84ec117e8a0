"""From a checkpoint's own tensor names to GGUF's, which the decoder asks for.

The `gguf` package knows how Hugging Face calls the tensors of every architecture; what it does not know, an
architecture's `aliases` say. One name of the decoder may stand for several stored tensors (experts, to be stacked) or
for a part of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyflame.core.errors import FileFormatError, NotSupportedError
from pyflame.core.optional import optional
from pyflame.llm.architectures.base import Architecture

# Tensors that are stored one by one and used as a stack: experts, and norms of single heads.
_STACKED = (
    (r".*\.(\d+)\.(?:block_sparse_moe|mlp)\.experts\.(\d+)\.(?:w1|gate_proj)\.weight", "ffn_gate_exps"),
    (r".*\.(\d+)\.(?:block_sparse_moe|mlp)\.experts\.(\d+)\.(?:w2|down_proj)\.weight", "ffn_down_exps"),
    (r".*\.(\d+)\.(?:block_sparse_moe|mlp)\.experts\.(\d+)\.(?:w3|up_proj)\.weight", "ffn_up_exps"),
    (r".*\.(\d+)\.self_attn\.q_layernorm\.norms\.(\d+)\.weight", "attn_q_norm"),
    (r".*\.(\d+)\.self_attn\.k_layernorm\.norms\.(\d+)\.weight", "attn_k_norm"),
)
# Buffers that old checkpoints carry along: masks and frequencies that follow from the config.
_IGNORED = re.compile(r"(?:.*\.)?(rotary_emb\.inv_freq|attn\.bias|attn\.masked_bias|attention\.bias|position_ids)$")


@dataclass(frozen=True)
class Source:
    """Where a tensor of the decoder comes from: one stored tensor, or several to stack; `cut`: it is a part of that."""

    stored: tuple[str, ...]
    cut: bool = False


def sources(kind: str, architecture: Architecture, names: Iterable[str], layers: int) -> dict[str, Source]:
    """GGUF's name -> stored tensors, of all tensors that mean something."""
    found: dict[str, Source] = {}
    stacks: dict[str, dict[int, str]] = {}
    rename = _renamer(architecture, layers) if kind == "hf" else partial(_aliased, architecture)
    for name in names:
        if _IGNORED.fullmatch(name) or re.fullmatch(architecture.ignored, name):
            continue
        stacked = _stacked(name)
        if stacked is None:
            found[rename(name)] = Source((name,))
        else:
            stacks.setdefault(stacked[0], {})[stacked[1]] = name
    for name, numbered in stacks.items():
        if sorted(numbered) != list(range(len(numbered))):
            raise FileFormatError(
                f"[load] expected all of 0 to {len(numbered) - 1} of {name} but got {sorted(numbered)}"
            )
        found[name] = Source(tuple(numbered[n] for n in range(len(numbered))))
    return _cut(architecture, found)


def is_matrix(name: str, shape: Sequence[int]) -> bool:
    """Whether a tensor of this name may be encoded: a matrix that products read, and neither a norm, the router of
    experts, a table of positions or of kinds of tokens, nor a part of latent attention."""
    plain = ("norm", "ffn_gate_inp", "position_embd", "token_types", "attn_k_b", "attn_v_b")
    return len(shape) >= 2 and name.endswith(".weight") and not any(part in name for part in plain)


def _stacked(name: str) -> tuple[str, int] | None:
    """The stack that a tensor is a part of, and its place there."""
    for pattern, kind in _STACKED:
        if (match := re.fullmatch(pattern, name)) is not None:
            return f"blk.{match[1]}.{kind}.weight", int(match[2])
    return None


def _aliased(architecture: Architecture, name: str) -> str:
    for pattern, replacement in architecture.aliases.items():
        name = re.sub(pattern, replacement, name)
    return name


def _table(architecture: Architecture, layers: int) -> Any:
    """The gguf package's names of an architecture."""
    gguf = optional("gguf", "llm", "load")
    number = next(n for n, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture.name)
    return gguf.get_tensor_name_map(number, layers)


def module_names(architecture: Architecture, layers: int) -> dict[str, str]:
    """GGUF's name of a linear layer -> Hugging Face's module. The table knows the modules of all architectures;
    `architecture.modules` says which are its own."""
    found: dict[str, str] = {}
    for theirs, (_, ours) in _table(architecture, layers).mapping.items():
        if re.fullmatch(architecture.modules, theirs) and found.setdefault(ours, theirs) != theirs:
            raise NotSupportedError(
                f"[{architecture.name}] expected one module of Hugging Face for {ours} but got {found[ours]}, {theirs}"
            )
    return found


def _renamer(architecture: Architecture, layers: int) -> Callable[[str], str]:
    table = _table(architecture, layers)

    def rename(name: str) -> str:
        known = _aliased(architecture, name)
        if known != name and known.split(".")[0] in ("blk", "token_embd", "output", "output_norm"):
            return known
        found = table.get_name(known, (".weight", ".bias"))
        if found is None:
            raise FileFormatError(f"[load] expected tensors of {architecture.name} but got {name!r}, which it has not")
        return str(found)

    return rename


def _cut(architecture: Architecture, found: dict[str, Source]) -> dict[str, Source]:
    """Parts of tensors in place of the whole."""
    for whole, parts in architecture.parts.items():
        for name in [n for n in found if n.endswith(whole)]:
            source, prefix = found.pop(name), name[: -len(whole)]
            found |= {prefix + part: Source(source.stored, cut=True) for part in parts}
    return found
