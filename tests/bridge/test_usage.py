"""What people do with compiled models: train and evaluate in turns, change the batch, checkpoint, generate."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.bridge.models import cnn, mlp
from tests.bridge.proof import Outcome, listening
from tests.bridge.zoo import language
from tests.bridge.zoo.vision import resnet


def _train(model: nn.Module, forward: Any, images: torch.Tensor, labels: torch.Tensor) -> list[float]:
    """Losses of training steps, each followed by an evaluation."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for x, y in zip(images, labels, strict=True):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.eval()
        with torch.no_grad():
            losses += [float(loss.detach()), float(F.cross_entropy(forward(images[0]), labels[0]))]
    return losses


@pytest.mark.slow
def test_training_and_evaluation_in_turns_compile_once_each() -> None:
    eager, found = cnn(), Outcome()
    model = copy.deepcopy(eager)
    images, labels = torch.randn(4, 8, 3, 16, 16), torch.randint(5, (4, 8))
    want = _train(eager, eager, images, labels)
    assert _train(model, listening(model, found), images, labels) == pytest.approx(want, rel=1e-4)
    assert [g.kind for g in found.graphs] == ["forward", "backward", "inference"] and not found.fallbacks


@pytest.mark.slow
def test_another_batch_size_makes_the_graph_dynamic_once() -> None:
    eager, found = resnet(widths=(4,)), Outcome()
    model = copy.deepcopy(eager)
    compiled = listening(model, found)
    for rows in (4, 6, 3, 6):
        x = torch.randn(rows, 3, 16, 16)
        got, want = (
            torch.autograd.grad(forward(x).square().mean(), list(m.parameters()))
            for forward, m in ((compiled, model), (eager, eager))
        )
        for mine, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
    assert found.compiled == 2 and not found.fallbacks


@pytest.mark.slow
def test_channels_last() -> None:
    eager, found = resnet(widths=(4,)).to(memory_format=torch.channels_last), Outcome()
    x = torch.randn(4, 3, 16, 16).contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(listening(copy.deepcopy(eager), found)(x), eager(x), rtol=1e-4, atol=1e-5)
    assert not found.fallbacks


def test_dropout_goes_by_the_seed_and_backward_uses_its_mask() -> None:
    found = Outcome()
    compiled = listening(lambda x: F.dropout(x.sin(), 0.5).cos(), found)
    x = torch.rand(1000) + 0.5
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        leaf = x.clone().requires_grad_()
        out = compiled(leaf)
        out.sum().backward()
        assert torch.equal(out != 1, leaf.grad != 0) and 400 < int((out != 1).sum()) < 600
        drawn.append(out.detach())
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    assert not found.fallbacks


def test_checkpointed_dropout_is_drawn_again_alike() -> None:
    """torch saves its generator's state and draws these in eager mode; the rest is ours."""
    found = Outcome()
    compiled = listening(lambda t: checkpoint(lambda u: F.dropout(u.sin(), 0.5).cos(), t, use_reentrant=False), found)
    x = torch.rand(1000) + 0.5
    x.requires_grad_()
    out = compiled(x)
    out.sum().backward()
    assert torch.equal(out != 1, x.grad != 0)
    assert set(found.fallbacks) == {"run_and_save_rng_state", "run_with_rng_state"}


@pytest.mark.slow
def test_an_optimizer_step_compiles() -> None:
    eager, found = mlp(), Outcome()
    model, x = copy.deepcopy(eager), torch.randn(4, 8)
    steps = []
    for m in (eager, model):
        optimizer = torch.optim.AdamW(m.parameters(), lr=torch.tensor(0.01), weight_decay=0.1)
        step = listening(optimizer.step, found) if m is model else optimizer.step
        for _ in range(3):
            optimizer.zero_grad()
            m(x).square().mean().backward()
            step()
        steps.append([p.detach() for p in m.parameters()])
    for got, want in zip(*steps, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
    assert found.compiled == 1 and not found.fallbacks


@pytest.mark.thorough
def test_checkpointed_layers_of_transformers() -> None:
    pytest.importorskip("transformers")
    eager, found = language.build("llama"), Outcome()
    eager.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = copy.deepcopy(eager)
    inputs = language.padded()
    got, want = (
        torch.autograd.grad(forward(**inputs).logits.square().mean(), list(m.parameters()))
        for forward, m in ((listening(model, found, fullgraph=True), model), (eager, eager))
    )
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-6)
    assert not found.fallbacks


@pytest.mark.thorough
def test_tied_weights_train_as_one() -> None:
    pytest.importorskip("transformers")
    eager = language.build("gpt2")
    model = copy.deepcopy(eager)
    inputs, losses = language.padded(), []
    for m, forward in ((eager, eager), (model, torch.compile(model, backend="pyflame"))):
        optimizer = torch.optim.AdamW(m.parameters(), lr=1e-2)
        losses.append([])
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(forward(**inputs).logits.flatten(0, 1), inputs["input_ids"].flatten())
            loss.backward()
            optimizer.step()
            losses[-1].append(float(loss.detach()))
    assert model.lm_head.weight is model.transformer.wte.weight
    assert losses[0][-1] < losses[0][0] - 0.5 and losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_generation_with_a_cache(name: str, cache: str) -> None:
    pytest.importorskip("transformers")
    model, found = language.build(name).eval(), Outcome()
    prompt = language.ids(2, 5)
    options = {
        "attention_mask": torch.ones_like(prompt), "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0,
        "use_cache": True, "cache_implementation": cache,
    }  # fmt: skip
    want = model.generate(prompt, **options)
    model.forward = listening(model.forward, found)
    assert torch.equal(model.generate(prompt, **options), want)
    assert found.here and not found.fallbacks
    assert found.compiled <= 3, "the prompt, a step, and a step of any length"
