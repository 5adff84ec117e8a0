"""ModelConfig: all that tells one decoder from another, as one frozen value. Weights are not part of it.

An architecture's file makes one of GGUF metadata or of a `config.json`; `decoder.py` and what it is made of read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

from pyflame.core.errors import ArgumentError

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "clamped_swiglu"]


@dataclass(frozen=True)
class Rope:
    """Rotary positions: the first `dims` of a head turn, in neighbouring pairs (interleaved) or by halves.

    Scaling stretches a trained context: "linear" divides positions by `factor`; "llama3" does so for low frequencies
    only; "yarn" blends by how often a pair turns within `original_context`; "factors" divides each frequency by a
    number of its own. What turns is multiplied with `attention_factor`.
    """

    dims: int
    base: float = 10000.0
    interleaved: bool = False
    scaling: Literal["none", "linear", "llama3", "yarn", "factors"] = "none"
    factor: float = 1.0
    original_context: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: `used` of `count` MLPs of width `ffn` serve a token.

    `gating` says how scores are made of the router's logits: of all by softmax or sigmoid, or by a softmax over the
    chosen ones. With groups, experts are chosen among the best `groups_used` of `groups` only. `own` are those that one
    of several devices has (shares.py).
    """

    count: int
    used: int
    ffn: int
    gating: Literal["softmax", "sigmoid", "softmax_chosen"] = "softmax"
    normalised: bool = True
    scale: float = 1.0
    shared_ffn: int = 0
    shared_gate: bool = False
    leading_dense: int = 0
    bias: bool = False
    router_bias: bool = False
    choice_bias: bool = False
    groups: int = 1
    groups_used: int = 1
    group_score: Literal["max", "top2"] = "max"
    own: tuple[int, int] | None = None


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: keys and values of all heads are made of one vector of `kv_rank` per token."""

    kv_rank: int
    rope_dims: int
    nope_dims: int
    value_size: int
    q_rank: int = 0


@dataclass(frozen=True)
class ModelConfig:
    """One model's sizes and choices. `windows` has one entry per layer: how many keys back it sees, or None for all."""

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocab: int
    context: int
    rope: Rope | None = None
    local_rope: Rope | None = None  # of layers with a window, where theirs differs
    norm: Literal["rms", "layer"] = "rms"
    norm_eps: float = 1e-5
    norm_bias: bool = False
    pre_norm: bool = True
    post_norm: bool = False
    attention_norm: str = "attn_norm"  # GGUF's names of what stands before attention and MLP
    mlp_norm: str | None = "ffn_norm"  # None: a parallel MLP reads what attention reads
    embedding_norm: bool = False
    qk_norm: Literal["none", "head", "each", "all"] = "none"  # per head, with weights per head, over all heads
    parallel: bool = False
    fused_qkv: bool = False
    mlp: Literal["gated", "fused", "plain"] = "gated"  # fused: gate and up are rows of one matrix
    activation: Activation = "silu"
    biases: frozenset[str] = frozenset()  # linear layers of a block that have one, by GGUF's name: {"attn_q", ...}
    output_bias: bool = False
    attention_scale: float | None = None
    attention_softcap: float | None = None
    final_softcap: float | None = None
    windows: tuple[int | None, ...] = ()
    sinks: bool = False
    experts: Experts | None = None
    latent: Latent | None = None
    tied: bool = False
    embedding_scale: float = 1.0
    position_embeddings: int = 0
    token_types: int = 0
    causal: bool = True
    pooling: Literal["none", "mean", "cls"] = "none"
    own_tokens: tuple[int, int] | None = None  # what one of several devices has of the vocabulary (shares.py)

    def __post_init__(self) -> None:
        if not self.windows:
            object.__setattr__(self, "windows", (None,) * self.layers)
        sizes = {n: getattr(self, n) for n in ("layers", "width", "heads", "kv_heads", "head_size", "vocab", "context")}
        self._want(all(type(n) is int and n >= 1 for n in sizes.values()), f"whole sizes of at least 1 but got {sizes}")
        self._want(self.heads % self.kv_heads == 0, f"kv_heads to divide {self.heads} heads but got {self.kv_heads}")
        self._want(len(self.windows) == self.layers, f"{self.layers} windows but got {len(self.windows)}")
        self._want(all(w is None or w >= 1 for w in self.windows), f"windows of at least 1 but got {self.windows}")
        self._want(self.ffn >= 1 or self.experts is not None, f"an MLP of at least 1 but got {self.ffn}")
        self._want(self.norm_eps >= 0.0, f"norm_eps of at least 0 but got {self.norm_eps}")
        for rope in (self.rope, self.local_rope):
            size = self.latent.rope_dims if self.latent else self.head_size
            fits = rope is None or (rope.dims % 2 == 0 and 0 < rope.dims <= size and rope.base > 0 and rope.factor > 0)
            self._want(fits, f"rope over an even part of {size}, with positive base and factor, but got {rope}")
        moe = self.experts
        if moe is not None:
            fits = 0 < moe.used <= moe.count and moe.ffn > 0 and moe.count % moe.groups == 0
            self._want(fits and 0 < moe.groups_used <= moe.groups, f"fewer used experts than there are but got {moe}")
        for field in fields(self):
            choices = _CHOICES.get(field.name)
            value = getattr(self, field.name)
            self._want(choices is None or value in choices, f"{field.name} of {choices} but got {value!r}")

    def _want(self, fits: bool, what: str) -> None:
        if not fits:
            raise ArgumentError(f"[{self.architecture}] expected {what}")

    def is_sparse(self, layer: int) -> bool:
        """Whether this layer has experts."""
        return self.experts is not None and layer >= self.experts.leading_dense

    def cached_sizes(self) -> tuple[int, int, int]:
        """Heads, key size and value size of what a cache keeps of a token; value size 0: values are part of keys."""
        if self.latent is not None:
            return 1, self.latent.kv_rank + self.latent.rope_dims, 0
        return self.kv_heads, self.head_size, self.head_size


_CHOICES: dict[str, Iterable[object]] = {
    "norm": ("rms", "layer"),
    "qk_norm": ("none", "head", "each", "all"),
    "mlp": ("gated", "fused", "plain"),
    "activation": ("silu", "gelu", "gelu_tanh", "relu", "clamped_swiglu"),
    "pooling": ("none", "mean", "cls"),
}
