"""A small GPT: a causal transformer over tokens, with GPT-2's layout, names and initialisation.

The demo, the examples and the benchmarks train it. Names are those of GPT-2 (`wte`, `wpe`, `h.0.attn.c_attn`, ...);
its checkpoints store the matrices transposed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.nn.containers import ModuleList
from pyflame.nn.embedding import Embedding
from pyflame.nn.gpt_decoder import Cache, GPTDecoder
from pyflame.nn.init import normal_, zeros_
from pyflame.nn.linear import Linear
from pyflame.nn.module import Module
from pyflame.nn.norm import LayerNorm
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS as F


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a GPT. `context` is the longest sequence it sees; `tie_weights` makes the head the token embedding."""

    vocab_size: int
    context: int = 256
    layers: int = 6
    heads: int = 6
    width: int = 384
    dropout: float = 0.0
    tie_weights: bool = True
    bias: bool = True

    def __post_init__(self) -> None:
        sizes = {n: getattr(self, n) for n in ("vocab_size", "context", "layers", "heads", "width")}
        if min(sizes.values()) < 1 or self.width % self.heads:
            raise ArgumentError(
                f"[GPTConfig] expected sizes of at least 1 and a width that heads divides but got {sizes}"
            )


class Attention(Module):
    """Causal self-attention, with queries, keys and values from one projection."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.c_attn = Linear(config.width, 3 * config.width, bias=config.bias)
        self.c_proj = Linear(config.width, config.width, bias=config.bias)

    def forward(self, x: Tensor, dropout: float, cache: Cache | None) -> Tensor:
        batch, time, width = x.shape
        # (B, T, 3 * width) -> 3 of (B, T, width) -> 3 of (B, H, T, D)
        parts = self.c_attn(x).chunk(3, -1)
        q, k, v = (p.reshape(batch, time, self.heads, -1).transpose(1, 2) for p in parts)
        if cache is None:
            out = F["scaled_dot_product_attention"](q, k, v, None, dropout, True)
        else:
            keys, values, positions, seen = cache
            keys.index_copy_(2, positions, k)
            values.index_copy_(2, positions, v)
            out = F["scaled_dot_product_attention"](q, keys, values, seen)
        return self.c_proj(out.transpose(1, 2).reshape(batch, time, width)).dropout(dropout)  # type: ignore[no-any-return]


class MLP(Module):
    """Two linear layers around a GELU."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_fc = Linear(config.width, 4 * config.width, bias=config.bias)
        self.c_proj = Linear(4 * config.width, config.width, bias=config.bias)

    def forward(self, x: Tensor, dropout: float) -> Tensor:
        return self.c_proj(self.c_fc(x).gelu("tanh")).dropout(dropout)  # type: ignore[no-any-return]


class Block(Module):
    """Attention, then the MLP, each behind a norm and beside a residual connection."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(config.width, bias=config.bias)
        self.attn = Attention(config)
        self.ln_2 = LayerNorm(config.width, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, dropout: float, cache: Cache | None = None) -> Tensor:
        x = x + self.attn(self.ln_1(x), dropout, cache)
        return x + self.mlp(self.ln_2(x), dropout)  # type: ignore[no-any-return]


class GPT(Module):
    """A language model: tokens (batch, time) -> logits of the next token (batch, time, vocabulary).

    >>> model = nn.GPT(nn.GPTConfig(vocab_size=256, context=32, layers=2, heads=2, width=64))
    >>> model(pf.randint(0, 256, (4, 16))).shape
    (4, 16, 256)
    >>> bytes(model.generate(b"def f(x):", 4)) != b""
    True
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.wte = Embedding(config.vocab_size, config.width)
        self.wpe = Embedding(config.context, config.width)
        self.h = ModuleList([Block(config) for _ in range(config.layers)])
        self.ln_f = LayerNorm(config.width, bias=config.bias)
        self.lm_head = None if config.tie_weights else Linear(config.width, config.vocab_size, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """GPT-2's: normal numbers of 0.02, less by sqrt(2 * layers) in what adds to the residual stream; biases 0."""
        for name, module in self.named_modules():
            if isinstance(module, (Linear, Embedding)):
                shrink = (2 * self.config.layers) ** -0.5 if name.endswith("c_proj") else 1.0
                normal_(module.weight, 0.0, 0.02 * shrink)
            if isinstance(module, Linear) and module.bias is not None:
                zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the token that follows each of these."""
        if tokens.ndim != 2 or not 1 <= tokens.shape[1] <= self.config.context:
            raise ShapeError(
                f"[GPT] expected tokens (batch, time) with time in [1, {self.config.context}] but got {tokens.shape}"
            )
        dropout = self.config.dropout if self.training else 0.0
        x = (self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]).dropout(dropout)
        for block in self.h:
            x = block(x, dropout)
        return self.logits(x)

    def logits(self, x: Tensor) -> Tensor:
        """From the last block to the vocabulary."""
        head = self.wte.weight if self.lm_head is None else self.lm_head.weight
        return F["linear"](self.ln_f(x), head)  # type: ignore[no-any-return]

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy of `targets`, the tokens that follow (same shape); -100 is left out."""
        logits = self(tokens).reshape(-1, self.config.vocab_size)
        return F["cross_entropy"](logits, targets.reshape(-1))  # type: ignore[no-any-return]

    def generate(
        self,
        prompt_tokens: Sequence[int] | Tensor,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | None = None,
    ) -> Iterator[int]:
        """Tokens that continue the prompt, one by one as they are drawn. Temperature 0 takes the likeliest.

        Keys and values are kept, so a token costs one step of one plan. When the context is full the model goes on
        from the latter half of it.

        >>> model = nn.GPT(nn.GPTConfig(vocab_size=256, context=32, layers=1, heads=2, width=32))
        >>> len(list(model.generate([1, 2, 3], 5, top_k=10, seed=0)))
        5
        """
        given = prompt_tokens.reshape(-1).tolist() if isinstance(prompt_tokens, Tensor) else prompt_tokens
        tokens = [int(t) for t in given]
        vocabulary = self.config.vocab_size
        if not tokens or not all(0 <= t < vocabulary for t in tokens):
            raise ArgumentError(
                f"[generate] expected a prompt of at least one token, each in [0, {vocabulary}), but got {tokens[:8]}"
            )
        if not temperature >= 0.0 or max_new_tokens < 0 or (top_k is not None and top_k < 1):
            raise ArgumentError(
                "[generate] expected temperature >= 0, max_new_tokens >= 0 and top_k >= 1 or None but got "
                f"{temperature}, {max_new_tokens} and {top_k}"
            )
        return self._stream(tokens, max_new_tokens, float(temperature), top_k and min(top_k, vocabulary), seed)

    def _stream(
        self, tokens: list[int], count: int, temperature: float, top_k: int | None, seed: int | None
    ) -> Iterator[int]:
        context, decoder = self.config.context, GPTDecoder(self, seed)
        fresh, start = tokens[-context:], 0
        for _ in range(count):
            token = decoder.next(fresh, start, temperature, top_k)
            yield token
            tokens.append(token)
            start += len(fresh)
            fresh = [token]
            if start == context:
                fresh, start = tokens[-max(1, context // 2) :], 0
