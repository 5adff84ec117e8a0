"""The models of the zoo compiled by the bridge: as near to float64 as eager torch, and wholly here."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import pyflame as pf
from pyflame.bridge.torch import convert
from tests.bridge.proof import PRECISIONS, TIMES, prove
from tests.bridge.zoo import MODELS

EVERYDAY = ("mlp", "gpt", "vgg", "mobilenet", "convnext", "unet", "autoencoder", "gcn", "gat", "dlrm")
ON_SIM = ("mlp", "vae", "gcn", "dlrm", "gpt")
# Where Dynamo ends a graph in training, with any backend: layers that are dropped by a number that Python looks at, and
# a layer that sets requires_grad of what it is given.
BREAKS = {"bart": "Data-dependent", "whisper": "Data-dependent", "wav2vec2": "Data-dependent|requires_grad"}


def _check(name: str, precision: str, device: str | None = None) -> None:
    found = prove(MODELS[name], precision, {"device": device} if device else None)
    assert found.here and not found.fallbacks
    assert all(re.search(BREAKS.get(name, "$^"), why) for why in found.breaks)
    assert name in BREAKS or found.compiled == 1, "compiled again for another batch"
    assert found.worst <= TIMES, found.where


@pytest.mark.share(10)
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


def _outputs(out: Any, kind: type) -> list[Any]:
    return [leaf for leaf in tree_leaves(out) if isinstance(leaf, kind)]


def _check_converted(name: str) -> None:
    """Our module gives torch's results, and torch's gives ours with the weights that it has after a change here."""
    theirs, inputs = MODELS[name].make().eval(), MODELS[name].inputs()
    ours = convert(theirs, (), inputs)
    with pf.no_grad():
        for parameter in ours.parameters():
            parameter.mul_(0.9)
    state = {key: value.to_torch() for key, value in ours.state_dict().items()}
    assert state.keys() == theirs.state_dict().keys()
    theirs.load_state_dict(state)
    got = _outputs(ours(**{key: pf.from_torch(value) for key, value in inputs.items()}), pf.Tensor)
    with torch.no_grad():
        want = _outputs(theirs(**inputs), torch.Tensor)
    for mine, its in zip(got, want, strict=True):
        torch.testing.assert_close(mine.to_torch(), its, rtol=1e-4, atol=2e-5 * max(1.0, float(its.abs().max())))


@pytest.mark.share(3)
@pytest.mark.parametrize("name", ["vae", "gat", "mixer"])
def test_small_models_convert(name: str) -> None:
    _check_converted(name)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("vae", "gat", "mixer")])
def test_models_convert(name: str) -> None:
    pytest.importorskip("transformers")
    _check_converted(name)
