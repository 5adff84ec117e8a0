"""LoRA: small matrices beside frozen layers of a model, trained in their place. Frozen weights may be encoded (QLoRA).

>>> model = pf.llm.load("folder", quantize="q8_0")
>>> pf.llm.add_lora(model, rank=8, targets=("attn_q", "attn_v"))
>>> optimizer = pf.optim.AdamW(pf.llm.lora_parameters(model), lr=1e-3)
>>> Trainer(model.decoder, optimizer, loss_fn, train_data=batches, max_steps=100).fit()
>>> pf.llm.save_adapter(model, "adapter")
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyflame.core.dtype import float32
from pyflame.core.errors import ArgumentError, NotSupportedError, suggest
from pyflame.llm.decoder import Decoder
from pyflame.llm.generate import Model
from pyflame.llm.layers import Linear
from pyflame.llm.parallel import parts_of
from pyflame.nn.init import kaiming_uniform_
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.nn.parameter import Parameter, replace
from pyflame.tensor import Tensor
from pyflame.tensor.creation import empty, zeros
from pyflame.tensor.encoded import quantize
from pyflame.tensor.gradients import no_grad


@dataclass(frozen=True, eq=False)
class LoraConfig:
    """What all adapters of a model have in common. Each `add_lora` makes one of its own, which plans are made for."""

    rank: int
    alpha: float
    dropout: float = 0.0
    rslora: bool = False

    def __post_init__(self) -> None:
        if type(self.rank) is not int or self.rank < 1:
            raise ArgumentError(f"[add_lora] expected a rank of at least 1 but got {self.rank!r}")
        if not 0.0 <= self.dropout < 1.0:
            raise ArgumentError(f"[add_lora] expected dropout in [0, 1) but got {self.dropout!r}")

    @property
    def scale(self) -> float:
        """What B A is multiplied by: rank-stabilised LoRA divides by the root."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)


class Lora(Module):
    """The adapter of one layer: A (rank, inputs), random, and B (outputs, rank), 0 at first. In float32, as in PEFT."""

    def __init__(self, inputs: int, outputs: int, config: LoraConfig, device: object = None) -> None:
        super().__init__()
        self.scale, self.dropout = config.scale, config.dropout
        self.A = Parameter(empty(config.rank, inputs, dtype=float32, device=device))
        self.B = Parameter(zeros(outputs, config.rank, dtype=float32, device=device))
        kaiming_uniform_(self.A, math.sqrt(5.0))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """y + scale (x A^T) B^T"""
        x = x.to(float32)
        if self.dropout:
            x = F["dropout"](x, self.dropout, self.training)
        return (y + F["linear"](F["linear"](x, self.A), self.B) * self.scale).to(y.dtype)

    def difference(self) -> Tensor:
        """What it adds to the weight: scale B A"""
        return (self.B @ self.A) * self.scale


def decoder_of(model: Model | Decoder) -> Decoder:
    return model.decoder if isinstance(model, Model) else model


def linear_layers(model: Model | Decoder) -> dict[str, Linear]:
    """All layers that can have an adapter, by GGUF's names without .weight."""
    return {name: layer for name, layer in decoder_of(model).named_modules() if isinstance(layer, Linear)}


def adapters(model: Model | Decoder) -> dict[str, Lora]:
    """The adapters, by the names of their layers."""
    return {name: layer.lora for name, layer in linear_layers(model).items() if isinstance(layer.lora, Lora)}


def add_lora(
    model: Model | Decoder,
    rank: int = 8,
    alpha: float = 16,
    dropout: float = 0.0,
    targets: Sequence[str] = ("attn_q", "attn_v"),
    rslora: bool = False,
) -> None:
    """Put an adapter beside each layer that `targets` name, and freeze everything else.

    Layers have GGUF's names: "attn_q" is that of every block, "blk.0.attn_q" that of the first. A layer then gives
    x W^T + b + scale (x A^T) B^T with scale = alpha / rank (`rslora`: alpha / sqrt(rank)); B is 0 at first, so nothing
    changes before it is trained.

    >>> pf.llm.add_lora(model, rank=16, targets=("attn_q", "attn_k", "attn_v", "attn_output"))
    """
    decoder, layers = decoder_of(model), linear_layers(model)
    want_whole_layers("add_lora", decoder)
    if decoder.lora is not None:
        raise ArgumentError("[add_lora] expected a model without adapters but it has some; merge or remove them first")
    wanted = [targets] if isinstance(targets, str) else list(targets)
    chosen = {target: [n for n in layers if n == target or n.endswith(f".{target}")] for target in wanted}
    missing = [target for target, names in chosen.items() if not names]
    if missing or not chosen:
        known = sorted({name.rsplit(".", 1)[-1] for name in layers})
        hint = suggest(missing[0], known) if missing else ""
        raise ArgumentError(f"[add_lora] expected targets among {', '.join(known)} but got {wanted}{hint}")
    put_lora(decoder, {n for names in chosen.values() for n in names}, LoraConfig(rank, alpha, dropout, rslora))


def want_whole_layers(op: str, decoder: Decoder) -> None:
    """Refuse to train, or to write, adapters of layers that are divided over devices."""
    if decoder.places.parallel:
        raise NotSupportedError(
            f"[{op}] expected a model whose layers lie on one device each but got {decoder.places}; train without "
            "tensor_parallel, and give a divided model the adapter with load_adapter"
        )


def put_lora(decoder: Decoder, names: set[str], config: LoraConfig) -> None:
    """Put new adapters beside these layers."""
    for parameter in decoder.parameters():
        parameter.requires_grad = False
    for name, layer in linear_layers(decoder).items():
        if name in names:
            layer.lora = Lora(layer.inputs, layer.weight.shape[0], config, layer.weight.device).train(layer.training)
    decoder.lora = config


def lora_parameters(model: Model | Decoder) -> list[Parameter]:
    """A and B of every adapter, for an optimiser."""
    return [p for one in adapters(model).values() for p in (one.A, one.B)]


def remove_lora(model: Model | Decoder) -> None:
    """Take the adapters off: the model is what it was before."""
    for layer in linear_layers(model).values():
        layer.lora = None
    decoder = decoder_of(model)
    for one in (decoder, *(part for part, _ in parts_of(decoder))):
        one.lora = None


def merge_lora(model: Model | Decoder, encode: bool = False) -> None:
    """Add the adapters to the weights and take them off: the same model at the cost of none.

    Encoded weights would be rounded anew, by about as much as training changed them; `encode=True` asks for that.
    """
    adapted = {name: layer for name, layer in linear_layers(model).items() if isinstance(layer.lora, Lora)}
    if not adapted:
        raise ArgumentError("[merge_lora] expected a model with adapters but it has none")
    encoded = {name: layer.encoding for name, layer in adapted.items() if layer.encoding is not None}
    if encoded and not encode:
        name, kind = next(iter(encoded.items()))
        raise NotSupportedError(
            f"[merge_lora] expected plain weights but {name} is encoded as {kind}, which would round the sum; pass "
            "encode=True to encode it anew, or keep the adapter"
        )
    with no_grad():
        merged = {name: _merged(layer) for name, layer in adapted.items()}
        for name, layer in adapted.items():
            replace(layer.weight, merged[name])
    remove_lora(model)


def _merged(layer: Linear) -> Tensor:
    """The weight with its adapter in it, as it is stored."""
    assert isinstance(layer.lora, Lora)
    if layer.encoding is None:
        return (layer.weight.to(float32) + layer.lora.difference()).to(layer.weight.dtype)
    plain = F["dequantize"](layer.weight, encoding=layer.encoding, dtype=float32)
    return quantize(plain + layer.lora.difference(), layer.encoding).data.to(layer.weight.device)
