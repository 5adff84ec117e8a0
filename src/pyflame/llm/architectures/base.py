"""What an architecture's file is made of: `Fields` reads GGUF's keys and config.json, `Architecture` has the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pyflame.core.errors import FileFormatError, NotSupportedError
from pyflame.llm.config import ModelConfig, Rope
from pyflame.llm.rope import yarn_attention_factor

Array = npt.NDArray[Any]
_REQUIRED = object()
QKV = frozenset({"attn_q", "attn_k", "attn_v"})


class Fields:
    """A checkpoint's settings. `fields("rope.freq_base", "rope_theta", 1e4)`: GGUF's key without the architecture, the
    name in config.json ("a|b": or b), and what holds where there is neither; without a default that is an error.

    `names` are the checkpoint's tensors by GGUF's names; `shape(name)` and `numbers(name)` look at one.
    `wanted_context`: how many tokens the user asks for, where that is known.
    """

    def __init__(
        self,
        kind: str,
        architecture: str,
        metadata: Mapping[str, Any],
        names: Collection[str],
        shape: Callable[[str], tuple[int, ...]],
        numbers: Callable[[str], Array],
        wanted_context: int | None = None,
    ) -> None:
        self.hf = kind == "hf"
        self.architecture = architecture
        self.metadata = {**metadata, **metadata.get("text_config", {})} if self.hf else metadata
        self.names, self.shape, self.numbers = names, shape, numbers
        self.wanted_context = wanted_context

    def __call__(self, gguf: str, hf: str, default: Any = _REQUIRED) -> Any:
        key = hf if self.hf else f"{self.architecture}.{gguf}"
        for one in key.split("|") if self.hf else [key]:
            if self.metadata.get(one) is not None:
                return self.metadata[one]
        if default is _REQUIRED:
            raise FileFormatError(f"[load] expected {self.architecture} metadata to have {key!r} but it is missing")
        return default

    @property
    def width(self) -> int:
        return int(self("embedding_length", "hidden_size"))

    @property
    def heads(self) -> int:
        return int(self("attention.head_count", "num_attention_heads"))

    @property
    def head_size(self) -> int:
        return int(self("attention.key_length", "head_dim", self.width // self.heads))

    def config(self, **changes: Any) -> ModelConfig:
        """Llama's choices with what the file says of sizes, and these changes."""
        heads, width = self.heads, self.width
        layers = int(self("block_count", "num_hidden_layers"))
        found: dict[str, Any] = {
            "layers": layers,
            "width": width,
            "heads": heads,
            "kv_heads": int(self("attention.head_count_kv", "num_key_value_heads", heads)),
            "head_size": self.head_size,
            "vocab": self.shape("token_embd.weight")[0],
            "context": int(self("context_length", "max_position_embeddings")),
            "tied": "output.weight" not in self.names and self.metadata.get("tie_word_embeddings") is not False,
        }
        if "ffn" not in changes:
            found["ffn"] = int(self("feed_forward_length", "intermediate_size"))
        if "norm_eps" not in changes:
            found["norm_eps"] = float(self("attention.layer_norm_rms_epsilon", "rms_norm_eps"))
        if "rope" not in changes:
            found["rope"] = self.rope()
        if "biases" not in changes:
            found["biases"] = self.biases()
        return ModelConfig(self.architecture, **{**found, **changes})

    def want_every_layer_sparse(self) -> None:
        """config.json may leave some layers without experts; no known model does."""
        step, dense = self("", "decoder_sparse_step", 1), self("", "mlp_only_layers", [])
        if step != 1 or dense:
            raise NotSupportedError(
                f"[{self.architecture}] expected experts in every layer but got decoder_sparse_step={step}, "
                f"mlp_only_layers={dense}"
            )

    def biases(self) -> frozenset[str]:
        """Linear layers of the first block that have a bias in the file."""
        prefix = "blk.0."
        found = (n[len(prefix) : -len(".bias")] for n in self.names if n.startswith(prefix) and n.endswith(".bias"))
        return frozenset(n for n in found if not n.endswith("norm") and "exps" not in n)

    def rope(self, base: float = 10000.0, size: int | None = None, **changes: Any) -> Rope:
        """Rotary positions as the file scales them, of a whole head or of `size` elements."""
        size = self.head_size if size is None else size
        scaling = self.scaling()
        share = self.metadata.get("partial_rotary_factor", scaling.get("partial_rotary_factor"))
        share = self.metadata.get("rotary_pct", 1.0) if share is None else share
        dims = int(size * share) if self.hf else int(self("rope.dimension_count", "", size))
        theta = scaling.get("rope_theta") or self("rope.freq_base", "rope_theta", base)
        stretched = {} if "scaling" in changes else self._stretched(scaling, dims)
        return Rope(**{"dims": dims, "base": float(theta), **stretched, **changes})

    def scaling(self) -> dict[str, Any]:
        """What stretches positions, by config.json's names."""
        if self.hf:
            given = self.metadata.get("rope_parameters") or self.metadata.get("rope_scaling") or {}
            return dict(given.get("full_attention", given))
        return {
            "rope_type": self("rope.scaling.type", "", "none"),
            "factor": self("rope.scaling.factor", "", 1.0),
            "original_max_position_embeddings": self("rope.scaling.original_context_length", "", 0),
            "attention_factor": self("rope.scaling.attn_factor", "", None),
            "beta_fast": self("rope.scaling.yarn_beta_fast", "", 32.0),
            "beta_slow": self("rope.scaling.yarn_beta_slow", "", 1.0),
        }

    def _stretched(self, scaling: dict[str, Any], dims: int) -> dict[str, Any]:
        kind = scaling.get("rope_type") or scaling.get("type") or "none"
        if "rope_freqs.weight" in self.names:  # GGUF stores what llama3 divides by
            return {"scaling": "factors", "factors": tuple(map(float, self.numbers("rope_freqs.weight")[: dims // 2]))}
        if kind in ("none", "default"):
            return {}
        factor = float(scaling.get("factor", 1.0))
        found: dict[str, Any] = {"scaling": kind, "factor": factor}
        trained = scaling.get("original_max_position_embeddings") or self("context_length", "max_position_embeddings")
        if kind == "llama3":
            names = ("low_freq_factor", "high_freq_factor")
            return found | {"original_context": int(trained)} | {n: float(scaling[n]) for n in names}
        if kind == "yarn":
            factors = [scaling.get(n) for n in ("attention_factor", "mscale", "mscale_all_dim")]
            return found | {
                "original_context": int(trained),
                "beta_fast": float(scaling.get("beta_fast") or 32.0),
                "beta_slow": float(scaling.get("beta_slow") or 1.0),
                "truncate": bool(scaling.get("truncate", True)),
                "attention_factor": _yarn_factor(factor, *factors),
            }
        if kind != "linear":
            raise FileFormatError(f"[load] expected rope scaling linear, llama3 or yarn but got {kind!r}")
        return found

    def windows(self, window: Any, is_local: Callable[[int], bool]) -> tuple[int | None, ...]:
        """One per layer: config.json may name the layers that have a window, else `is_local` does."""
        layers = int(self("block_count", "num_hidden_layers"))
        kinds = self.metadata.get("layer_types") if self.hf else None
        local = [k == "sliding_attention" for k in kinds] if kinds else [is_local(n) for n in range(layers)]
        return tuple(int(window) if window and one else None for one in local)


def _yarn_factor(factor: float, given: float | None, scale: float | None, scale_all: float | None) -> float:
    if given is not None:
        return float(given)
    if scale and scale_all:
        return yarn_attention_factor(factor, scale) / yarn_attention_factor(factor, scale_all)
    return yarn_attention_factor(factor)


LLAMA_MODULES = r"model\.layers\.\d+\.(?:self_attn|mlp)\.(?:q|k|v|o|gate|up|down)_proj|lm_head"


def as_stored(config: ModelConfig, name: str, x: Array) -> Array:
    return x


@dataclass(frozen=True)
class Architecture:
    """One architecture: its names, its config, and what its tensors need.

    `adapt(config, name, x)` makes a tensor of a Hugging Face checkpoint what GGUF means by that name ("attn_q.weight",
    without the block). `parts` names tensors that hold several of the decoder's; adapt then cuts one out.
    `rows(name, x)` is adapt for encoded blocks (.., rows, bytes of a row); without it they are decoded where adapt does
    something. `aliases` rewrites names: those of Hugging Face that `gguf` does not know (regular expressions, see
    names.py).
    """

    name: str  # GGUF's
    model_types: tuple[str, ...]  # config.json's
    config: Callable[[Fields], ModelConfig]
    adapt: Callable[[ModelConfig, str, Array], Array] = as_stored
    rows: Callable[[str, Array], Array] | None = None
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    modules: str = LLAMA_MODULES  # a regular expression: Hugging Face's names of linear layers (names.py)
    ignored: str = "(?!)"  # a regular expression: names of tensors that have no part in this


def add_one(config: ModelConfig, name: str, x: Array) -> Array:
    """Gemma stores norms as what is added to 1."""
    return np.asarray(x, np.float32) + 1.0 if name.endswith("norm.weight") else x
