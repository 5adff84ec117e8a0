"""Layers as subclasses and older programs use them: private methods that they call or put their own in the place of,
and arguments by older names. Each program runs with both libraries and gives the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

PROGRAMS: list[Callable[[Any], Any]] = []


def program(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS.append(fn)
    return fn


def numbers(lib: Any, *shape: int, seed: int = 0) -> Any:
    return lib.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def filled(lib: Any, module: Any) -> Any:
    with lib.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(numbers(lib, *p.shape, seed=i) * 0.3)
    return module


@program
def convolutions_with_standardised_weights(lib: Any) -> list[Any]:
    class Standardised(lib.nn.Conv2d):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            w = self.weight
            mean, var = w.mean((1, 2, 3), keepdim=True), w.var((1, 2, 3), keepdim=True)
            return self._conv_forward(x, (w - mean) / (var + 1e-5).sqrt(), self.bias)

    found = []
    for mode in ("zeros", "reflect"):
        layer = filled(lib, Standardised(2, 3, 3, padding=1, padding_mode=mode))
        out = layer(numbers(lib, 1, 2, 5, 5))
        (out**2).sum().backward()
        found += [out, layer.weight.grad]
    return found


@program
def batch_norms_that_check_their_input_themselves(lib: Any) -> list[Any]:
    seen = []

    class Any2d(lib.nn.modules.batchnorm._BatchNorm):  # type: ignore[misc, name-defined]
        def _check_input_dim(self, input: Any) -> None:
            seen.append(tuple(input.shape))

    return [Any2d(3)(numbers(lib, 4, 3)), Any2d(3)(numbers(lib, 4, 3, 2, 2)), seen]


@program
def transformer_layers_with_blocks_of_their_own(lib: Any) -> list[Any]:
    class Encoder(lib.nn.TransformerEncoderLayer):  # type: ignore[misc, name-defined]
        def _sa_block(self, x: Any, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False) -> Any:
            return self.dropout1(self.self_attn(x + 1, x, x, need_weights=False)[0])

        def _ff_block(self, x: Any) -> Any:
            return super()._ff_block(x) * 2

    class Decoder(lib.nn.TransformerDecoderLayer):  # type: ignore[misc, name-defined]
        def _mha_block(self, x: Any, mem: Any, *args: Any, **options: Any) -> Any:
            return super()._mha_block(x, mem * 2, *args, **options)

    x, memory = numbers(lib, 5, 2, 8), numbers(lib, 4, 2, 8, seed=1)
    found = []
    for first in (False, True):
        encoder, decoder = (filled(lib, kind(8, 2, 16, norm_first=first)).eval() for kind in (Encoder, Decoder))
        found += [encoder(x), decoder(x, memory)]
    return found


@program
def weights_drawn_anew(lib: Any) -> list[Any]:
    attention, transformer = lib.nn.MultiheadAttention(8, 2), lib.nn.Transformer(8, 2, 1, 1, 16)
    for module, weight in (
        (attention, attention.in_proj_weight),
        (transformer, transformer.decoder.layers[0].linear1.weight),
    ):
        before = weight.detach().clone()
        module._reset_parameters()
        assert not (weight == before).any()
    return [attention.in_proj_bias]


@program
def attention_and_recurrent_functions_out_of_training(lib: Any) -> list[Any]:
    F, x = lib.nn.functional, numbers(lib, 5, 2, 8)
    w, b, o = numbers(lib, 24, 8, seed=1) * 0.3, numbers(lib, 24, seed=2), numbers(lib, 8, 8, seed=3)
    attended = F.multi_head_attention_forward(x, x, x, 8, 2, w, b, None, None, False, 0.5, o, None, training=False)
    layer = filled(lib, lib.nn.LSTM(8, 4, 2))
    start = lib.zeros(2, 2, 4), lib.zeros(2, 2, 4)
    out, _, _ = lib.lstm(x, start, list(layer.parameters()), True, 2, 0.5, False, False, False)
    return [*attended, out]


@program
def embeddings_of_given_tables(lib: Any) -> list[Any]:
    table = numbers(lib, 4, 3)
    layer = lib.nn.Embedding(4, 3, 1, None, 2.0, False, False, table)
    frozen, bag = lib.nn.Embedding(4, 3, _freeze=True), lib.nn.EmbeddingBag(4, 3, _weight=table)
    rows = lib.tensor([[0, 1], [3, 3]])
    return [layer(rows), layer.weight.requires_grad, frozen.weight.requires_grad, bag(rows), layer.padding_idx]


@program
def losses_with_older_words_for_reduction(lib: Any) -> list[Any]:
    nn, x, y = lib.nn, numbers(lib, 4, 3), numbers(lib, 4, 3, seed=1)
    classes, signs = lib.tensor([0, 2, 1, 1]), lib.sign(y)
    weight = lib.tensor([1.0, 2.0, 0.5])
    pairs = [
        nn.MSELoss(size_average=False), nn.MSELoss(False), nn.L1Loss(reduce=False), nn.L1Loss(True, False),
        nn.SmoothL1Loss(size_average=False, beta=0.5), nn.SoftMarginLoss(reduce=True),
        nn.KLDivLoss(size_average=False), nn.PoissonNLLLoss(True, False, False), nn.MSELoss(reduction="sum"),
    ]  # fmt: skip
    scored = [
        nn.CrossEntropyLoss(weight, False), nn.CrossEntropyLoss(None, None, 1), nn.NLLLoss(weight, False, 1),
        nn.MultiMarginLoss(1, 0.5, None, False),
    ]  # fmt: skip
    found = [loss(x, signs if type(loss).__name__ == "SoftMarginLoss" else y) for loss in pairs]
    found += [loss(x, classes) for loss in scored]
    found += [
        nn.BCEWithLogitsLoss(size_average=False)(x, y.sigmoid()),
        nn.BCELoss(None, False)(x.sigmoid(), y.sigmoid()),
    ]
    found += [
        nn.CosineEmbeddingLoss(0.1, size_average=False)(x, y, lib.ones(4)),
        nn.MarginRankingLoss(0.1, False)(x, y, signs), nn.HingeEmbeddingLoss(0.5, reduce=False)(x, signs),
        nn.TripletMarginLoss(1.0, 2.0, 1e-6, False, False)(x, y, x + 1),
        nn.MultiLabelSoftMarginLoss(weight, False)(x, y.sigmoid()),
    ]  # fmt: skip
    return [*found, *[loss.reduction for loss in (*pairs, *scored)]]


@program
def arguments_by_name(lib: Any) -> list[Any]:
    sync = lib.nn.SyncBatchNorm(3, process_group=None)
    given = lib.nn.ParameterDict(parameters={"a": lib.nn.Parameter(lib.ones(2))})
    return [sync.process_group, sync.num_features, list(given), given["a"]]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_program(fn: Callable[[Any], Any]) -> None:
    ours, theirs = fn(pf), fn(torch)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(b, torch.Tensor):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)
        else:
            assert a == b
