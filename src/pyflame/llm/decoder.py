"""One decoder for all architectures: it reads a ModelConfig and takes weights by GGUF's names.

tokens (B, T) -> embeddings -> blocks -> norm -> logits (B, T, vocab). Encoders (BERT) stop at the last block.

Where several devices have a part of each layer (parallel.py), embeddings, attention and MLP of each give a summand. So
they are written as `Steps`, which hand such a value out and go on with the sum; on one device that is the value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from pyflame.core.dtype import DType, float32
from pyflame.core.state import state
from pyflame.llm.attention import Attention, LatentAttention, Rotary, Where
from pyflame.llm.cache import PAGE, Cache, cache_bytes, want_room
from pyflame.llm.config import ModelConfig
from pyflame.llm.layers import Embedding, Linear, Norm, Weights
from pyflame.llm.mlp import MLP
from pyflame.llm.moe import MixtureOfExperts
from pyflame.llm.placement import Placement
from pyflame.nn.containers import ModuleList
from pyflame.nn.module import Module
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange

Rotaries = tuple[Rotary | None, ...]  # two: of layers that see all, and of layers with a window
Steps = Generator[Tensor, Tensor, Tensor]  # yields summands, is sent their sums, returns what it computes


def in_step(parts: Sequence[Steps], sums: Callable[[list[Tensor]], list[Tensor]] = list) -> Tensor:
    """Run the steps of all devices side by side. `sums` gives each of them the sum of what all yield, so all come to
    the same result, and the first one's is given."""
    given = [next(part) for part in parts]
    while True:
        try:
            given = [part.send(value) for part, value in zip(parts, sums(given), strict=True)]
        except StopIteration as end:
            found: Tensor = end.value
            return found


class Block(Module):
    """Attention and an MLP, each beside a residual connection, one after the other or both at once (parallel)."""

    def __init__(self, config: ModelConfig, layer: int, weights: Weights, rotaries: Rotaries) -> None:
        super().__init__()
        self.config = config
        rotary = rotaries[config.windows[layer] is not None]
        for name in norm_names(config):
            setattr(self, name, Norm(weights, f"blk.{layer}.{name}", config))
        kind = LatentAttention if config.latent else Attention
        self.attention = kind(self, config, layer, weights, rotary)
        self.mlp: MLP | MixtureOfExperts
        if config.is_sparse(layer):
            self.mlp = MixtureOfExperts(self, config, layer, weights)
        else:
            self.mlp = MLP(self, config, layer, weights, config.ffn)

    def steps(self, x: Tensor, where: Where) -> Steps:
        config = self.config
        if not config.causal:  # BERT: norms of sums
            x = self.attn_output_norm(x + (yield self.attention(x, where)))
            return self.layer_output_norm(x + (yield self.mlp(x)))  # type: ignore[no-any-return]
        seen = self._normed(config.attention_norm, x)
        out = yield self.attention(seen, where)
        if config.parallel:
            also = seen if config.mlp_norm is None else self._normed(config.mlp_norm, x)
            return x + out + (yield self.mlp(also, where.cache is not None))
        x = x + (self.post_attention_norm(out) if config.post_norm else out)
        out = yield self.mlp(self._normed(config.mlp_norm, x), where.cache is not None)
        return x + (self.post_ffw_norm(out) if config.post_norm else out)

    def _normed(self, name: str | None, x: Tensor) -> Tensor:
        return getattr(self, name)(x) if name is not None and self.config.pre_norm else x


def norm_names(config: ModelConfig) -> list[str]:
    """The norms of a block."""
    if not config.causal:
        return ["attn_output_norm", "layer_output_norm"]
    before = [config.attention_norm, config.mlp_norm] if config.pre_norm else []
    return [n for n in before if n is not None] + (["post_attention_norm", "post_ffw_norm"] if config.post_norm else [])


class Decoder(Module):
    """The model. Call it with tokens (B, T) for the logits of every position; `step` goes on from a cache."""

    def __init__(self, config: ModelConfig, weights: Weights, device: object = None) -> None:
        """`device`: of all layers, or a Placement of them; `weights` gives tensors where that says."""
        super().__init__()
        self.config = config
        self.places = device if isinstance(device, Placement) else Placement.whole(device, config)
        self.lora: object = None  # the LoraConfig of its adapters (lora.py)
        self.token_embd = Embedding(weights, "token_embd", config.vocab, config.width, config.own_tokens)
        if config.position_embeddings:
            self.position_embd = Embedding(weights, "position_embd", config.position_embeddings, config.width)
        if config.token_types:
            self.token_types = Embedding(weights, "token_types", config.token_types, config.width)
        if config.embedding_norm:
            self.token_embd_norm = Norm(weights, "token_embd_norm", config)
        ropes = (config.rope, config.local_rope or config.rope)
        size = config.latent.rope_dims if config.latent else config.head_size
        rotaries = {
            place: tuple(None if rope is None else Rotary(rope, size, place) for rope in ropes)
            for place in dict.fromkeys(self.places.layers)
        }
        self.blk = ModuleList([Block(config, n, weights, rotaries[p]) for n, p in enumerate(self.places.layers)])
        if config.causal:
            self.output_norm = Norm(weights, "output_norm", config)
            if not config.tied:
                first, end = config.own_tokens or (0, config.vocab)
                self.output = Linear(weights, "output", config.width, end - first, config.output_bias)
        self.eval()

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Logits (B, T, vocab); of an encoder the last block's output (B, T, width). `lengths`: without padding."""
        positions = arange(tokens.shape[1], device=tokens.device).unsqueeze(0).expand(*tokens.shape)
        x = self.hidden(tokens, Where(positions, lengths=lengths))
        return self.logits(x) if self.config.causal else x

    def hidden(self, tokens: Tensor, where: Where) -> Tensor:
        """What the blocks make of these tokens: (B, T, width)"""
        return in_step([self.steps(tokens, where)])

    def steps(self, tokens: Tensor, where: Where) -> Steps:
        """As `hidden`, of a device that may have a part of each layer."""
        config = self.config
        if state.tracer is not None:
            state.tracer.guard(self, "lora")  # other adapters, another plan
        x = yield self.token_embd(tokens)
        if config.embedding_scale != 1.0:
            x = x * config.embedding_scale
        if config.token_types:
            x = x + self.token_types.decoded(self.token_types.weight[0])
        if config.position_embeddings:
            x = x + self.position_embd(where.positions)
        if config.embedding_norm:
            x = self.token_embd_norm(x)
        return (yield from self._through_blocks(x, where))

    def join(self) -> None:
        """Make matrices of one input, of attention's queries, keys and values, rows of one matrix on GPUs.

        On CPUs, keep a copy of encoded matrices in the order that products are fastest with.
        """
        for block in self.blk:
            if isinstance(block.attention, Attention):
                block.attention.join()
            block.mlp.join()
        for layer in self.modules():
            if isinstance(layer, Linear) or (layer is self.token_embd and self.config.tied):
                layer.interleave()

    def _through_blocks(self, x: Tensor, where: Where) -> Steps:
        """From the first device over those of the blocks and back."""
        places = self.places
        if not places.split:
            for block in self.blk:
                x = yield from block.steps(x, where)
            return x
        there = {place: where.to(place) for place in dict.fromkeys(places.layers)}
        for block, place in zip(self.blk, places.layers, strict=True):
            x = yield from block.steps(x.to(place), there[place])
        return x.to(places.first)

    def logits(self, x: Tensor) -> Tensor:
        """From the last block to the vocabulary, in float32."""
        return self.capped(self.own_logits(x))

    def own_logits(self, x: Tensor) -> Tensor:
        """Of the tokens that this device has."""
        split = self.places.split
        x = self.output_norm(x.to(self.places.last) if split else x)
        y = (self.token_embd.product(x) if self.config.tied else self.output(x)).to(float32)
        return y.to(self.places.first) if split else y

    def capped(self, y: Tensor) -> Tensor:
        cap = self.config.final_softcap
        return y if cap is None else (y / cap).tanh() * cap

    def cache(self, rows: int, capacity: int, dtype: DType, device: object, pages: int | None = None) -> Cache:
        """An empty cache for so many sequences; `device`: of a model that lies on one. `pages`: as Cache's."""
        return Cache(self.config, rows, capacity, dtype, self.places if self.places.split else device, pages)

    def page_bytes(self, dtype: DType, device: object) -> dict[object, int]:
        """What a page of the cache takes on each device."""
        shares = self.places.shares() if self.places.split else {device: self.config.layers}
        page = cache_bytes(self.config, 1, PAGE, dtype)
        return {place: page * layers // self.config.layers for place, layers in shares.items()}

    def want_room(self, capacity: int, dtype: DType) -> None:
        """Refuse a context that the devices have no room for."""
        want_room(self.config, 1, capacity, dtype, self.places)
