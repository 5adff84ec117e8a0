"""The models of the zoo compiled by the bridge: as near to float64 as eager torch, and wholly here."""

from __future__ import annotations

import re

import pytest

from tests.bridge.proof import PRECISIONS, prove
from tests.bridge.zoo import MODELS

EVERYDAY = ("mlp", "gpt", "vgg", "mobilenet", "convnext", "unet", "diffusion", "gcn", "gat", "dlrm")
ON_SIM = ("mlp", "vae", "gcn", "dlrm", "gpt")
# Where Dynamo ends a graph in training, with any backend: layers that are dropped by a number that Python looks at, and
# a layer that sets requires_grad of what it is given.
BREAKS = {"bart": "Data-dependent", "whisper": "Data-dependent", "wav2vec2": "Data-dependent|requires_grad"}


def _check(name: str, precision: str, device: str | None = None) -> None:
    found = prove(MODELS[name], precision, {"device": device} if device else None)
    assert found.here and not found.fallbacks
    assert all(re.search(BREAKS.get(name, "$^"), why) for why in found.breaks)
    assert name in BREAKS or found.compiled == 1, "compiled again for another batch"
    assert found.worst <= 1, found.where


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", EVERYDAY)
def test_small_models(name: str, precision: str) -> None:
    _check(name, precision)


@pytest.mark.thorough
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", [name for name in MODELS if name not in EVERYDAY])
def test_models(name: str, precision: str) -> None:
    pytest.importorskip("transformers")
    _check(name, precision)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ON_SIM)
def test_models_on_a_simulated_gpu(name: str) -> None:
    _check(name, "float32", "sim:gfx1100")
