"""Transformer layers and stacks against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from pyflame.core.errors import ArgumentError, ArgumentTypeError, ShapeError
from tests.nn.pairs import close, compare, numbers, same_weights

B, T, S, E, H, WIDE = 2, 3, 4, 8, 2, 12
LATER = np.triu(np.ones((T, T), bool), 1)
PADDED = np.array([[False, False, True], [False, False, False]])
MEMORY_PADDED = np.array([[False, False, False, True], [False, True, False, False]])


def pair(kind: str, **options: Any) -> tuple[nn.Module, torch.nn.Module]:
    torch.manual_seed(0)
    options = dict(dim_feedforward=WIDE, dropout=0.0, batch_first=True) | options
    ours, theirs = getattr(nn, kind)(E, H, **options), getattr(torch.nn, kind)(E, H, **options)
    same_weights(ours, theirs)
    return ours, theirs


@pytest.mark.parametrize(
    "options",
    [{}, {"norm_first": True, "activation": "gelu"}, {"bias": False, "batch_first": False, "layer_norm_eps": 1e-2}],
)
def test_encoder_layer(options: dict[str, Any]) -> None:
    ours, theirs = pair("TransformerEncoderLayer", **options)
    compare(ours, theirs, numbers(B, T, E))


def test_encoder_layer_with_masks() -> None:
    ours, theirs = pair("TransformerEncoderLayer")
    x = numbers(B, T, E)
    compare(ours, theirs, x, src_mask=LATER, src_key_padding_mask=PADDED)
    causal = compare(ours, theirs, x, src_mask=LATER, is_causal=True)
    close(ours(pf.tensor(x), is_causal=True), causal, "is_causal without a mask")


def test_activations_may_be_functions_and_modules() -> None:
    named = nn.TransformerEncoderLayer(E, H, WIDE, 0.0, "gelu")
    x = pf.tensor(numbers(T, B, E))
    for activation in (pf.gelu, nn.GELU()):
        layer = nn.TransformerEncoderLayer(E, H, WIDE, 0.0, activation)
        layer.load_state_dict(named.state_dict())
        close(layer(x), named(x), "activation")


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer(norm_first: bool) -> None:
    ours, theirs = pair("TransformerDecoderLayer", norm_first=norm_first)
    compare(ours, theirs, numbers(B, T, E), numbers(B, S, E))


def test_decoder_layer_with_masks() -> None:
    ours, theirs = pair("TransformerDecoderLayer")
    some = np.arange(T * S).reshape(T, S) == 6
    masks = dict(tgt_mask=LATER, tgt_key_padding_mask=PADDED, memory_mask=some, memory_key_padding_mask=MEMORY_PADDED)
    compare(ours, theirs, numbers(B, T, E), numbers(B, S, E), **masks)


def test_unbatched() -> None:
    ours, theirs = pair("TransformerDecoderLayer")
    compare(ours, theirs, numbers(T, E), numbers(S, E))


@pytest.mark.slow
def test_encoder_stack_copies_its_layer() -> None:
    options = dict(dim_feedforward=WIDE, dropout=0.0, batch_first=True)
    ours = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, **options), 2, nn.LayerNorm(E))
    theirs = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(E, H, **options), 2, torch.nn.LayerNorm(E), enable_nested_tensor=False
    )
    first, second = (dict(layer.named_parameters()) for layer in ours.layers)
    assert all(first[name] is not second[name] for name in first)
    close(first["linear1.weight"], second["linear1.weight"], "copies")
    same_weights(ours, theirs)
    compare(ours, theirs, numbers(B, T, E), mask=LATER, src_key_padding_mask=PADDED)


@pytest.mark.slow
def test_transformer() -> None:
    ours, theirs = pair("Transformer", num_encoder_layers=1, num_decoder_layers=2, norm_first=True)
    masks = dict(tgt_mask=LATER, src_key_padding_mask=MEMORY_PADDED, memory_key_padding_mask=MEMORY_PADDED)
    compare(ours, theirs, numbers(B, S, E), numbers(B, T, E), **masks)


def test_dropout_acts_in_training_only() -> None:
    ours, theirs = pair("TransformerEncoderLayer", dropout=0.5)
    compare(ours.eval(), theirs.eval(), numbers(B, T, E))
    ours.train()
    a, b = (ours(pf.tensor(numbers(B, T, E))).numpy() for _ in range(2))
    assert np.abs(a - b).max() > 1e-3


def test_square_mask() -> None:
    mask = nn.Transformer.generate_square_subsequent_mask(4, dtype=pf.float16)
    assert mask.dtype is pf.float16
    close(mask, torch.nn.Transformer.generate_square_subsequent_mask(4), "mask")


def test_custom_parts() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, WIDE), 1)
    model = nn.Transformer(E, H, 1, 1, WIDE, custom_encoder=encoder)
    assert model.encoder is encoder


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="did you mean 'relu'"):
        nn.TransformerEncoderLayer(E, H, activation="rellu")
    with pytest.raises(ArgumentTypeError, match="a layer to copy"):
        nn.TransformerEncoder("layer", 2)
    with pytest.raises(ShapeError, match="expected tgt with a last axis of 8"):
        nn.Transformer(E, H, 1, 1, WIDE)(pf.zeros(S, B, E), pf.zeros(T, B, E + 1))
