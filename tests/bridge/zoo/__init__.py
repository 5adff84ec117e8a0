"""Models that `torch.compile(backend="pyflame")` is proved on: kinds that people train, small, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from tests.bridge.models import GPT, UNet, mlp
from tests.bridge.zoo import language, other, vision
from tests.bridge.zoo.language import ids, padded

Inputs = Callable[[], dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Sample:
    """A model, and arguments by name. `learns_inputs`: whether gradients of the arguments are asked for, too."""

    make: Callable[[], nn.Module]
    inputs: Inputs
    learns_inputs: bool = True


def _images(channels: int = 3, size: int = 16, rows: int = 4, name: str = "input") -> Inputs:
    return lambda: {name: torch.randn(rows, channels, size, size)}


def _edges() -> dict[str, torch.Tensor]:
    return {"x": torch.randn(12, 5), "edges": torch.randint(12, (2, 30))}


def _transformer(name: str, inputs: Inputs) -> Sample:
    return Sample(partial(language.build, name), inputs)


MODELS: dict[str, Sample] = {
    "mlp": Sample(mlp, lambda: {"input": torch.randn(4, 8)}),
    "gpt": Sample(GPT, lambda: {"tokens": ids(2, 16) % 50}),
    "resnet": Sample(vision.resnet, _images(size=32)),
    "vgg": Sample(vision.vgg, _images()),
    "mobilenet": Sample(vision.mobilenet, _images()),
    "efficientnet": Sample(vision.efficientnet, _images()),
    "densenet": Sample(vision.densenet, _images()),
    "shufflenet": Sample(vision.shufflenet, _images()),
    "convnext": Sample(vision.convnext, _images()),
    "mixer": Sample(vision.Mixer, _images(name="x")),
    "unet": Sample(UNet, _images(1, 8, 2, "x")),
    "autoencoder": Sample(other.Autoencoder, _images(1, 16, 2, "x")),
    "vae": Sample(other.VAE, lambda: {"x": torch.randn(4, 12), "noise": torch.randn(4, 4)}),
    "diffusion": Sample(other.Denoiser, lambda: {"x": torch.randn(2, 1, 8, 8), "t": torch.randint(100, (2,))}),
    "gcn": Sample(other.GCN, _edges),
    "gat": Sample(other.GAT, _edges),
    "dlrm": Sample(other.Recommender, lambda: {"x": torch.randn(4, 6), "categories": torch.randint(20, (4, 3, 2))}),
    "cells": Sample(other.CellLoop, lambda: {"x": torch.randn(2, 3, 6)}),
    "lstm": Sample(partial(other.Recurrent, nn.LSTM), lambda: {"x": torch.randn(2, 3, 6)}),
    "gru": Sample(partial(other.Recurrent, nn.GRU), lambda: {"x": torch.randn(2, 3, 6)}),
    "translator": Sample(other.Translator, lambda: {"source": ids(2, 7) % 20, "target": ids(2, 5) % 20}),
    "bert": _transformer("bert", padded),
    "distilbert": _transformer("distilbert", padded),
    "roberta": _transformer("roberta", padded),
    "gpt2": _transformer("gpt2", padded),
    "llama": _transformer("llama", padded),
    "mistral": _transformer("mistral", padded),
    "qwen2": _transformer("qwen2", padded),
    "gemma2": _transformer("gemma2", padded),
    "mixtral": _transformer("mixtral", padded),
    "t5": _transformer("t5", lambda: {**padded(), "decoder_input_ids": ids(2, 6)}),
    "bart": _transformer("bart", lambda: {**padded(), "decoder_input_ids": ids(2, 6)}),
    "whisper": _transformer(
        "whisper", lambda: {"input_features": torch.randn(2, 8, 24), "decoder_input_ids": ids(2, 6)}
    ),
    "vit": _transformer("vit", _images(rows=2, name="pixel_values")),
    "swin": _transformer("swin", _images(rows=2, name="pixel_values")),
    "clip": _transformer("clip", lambda: {**padded(), "pixel_values": torch.randn(2, 3, 16, 16)}),
    "wav2vec2": replace(  # which sets requires_grad of its argument itself
        _transformer("wav2vec2", lambda: {"input_values": torch.randn(2, 200)}), learns_inputs=False
    ),
}
