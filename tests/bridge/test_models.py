"""Models compiled by the bridge against eager torch: results, gradients, buffers, training."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from tests.bridge.models import GPT, Recurrent, UNet, cnn, mlp

MODELS: dict[str, Any] = {
    "mlp": (mlp, lambda: torch.randn(4, 8)),
    "cnn": (cnn, lambda: torch.randn(4, 3, 16, 16)),
    "gpt": (GPT, lambda: torch.randint(50, (2, 16))),
    "unet": (UNet, lambda: torch.randn(2, 1, 8, 8)),
}


def _gradients(model: nn.Module, out: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad((out.float() ** 2).mean(), list(model.parameters())))


def _far(got: list[torch.Tensor], want: list[torch.Tensor]) -> float:
    """How far results are, in parts of the largest value of all."""
    largest = max(float(w.detach().abs().max()) for w in want)
    return (
        max(float((g.detach().double() - w.detach().double()).abs().max()) for g, w in zip(got, want, strict=True))
        / largest
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_results_gradients_and_buffers_are_those_of_eager(name: str) -> None:
    make, data = MODELS[name]
    eager, x = make(), data()
    model = copy.deepcopy(eager)
    compiled = torch.compile(model, backend="pyflame", fullgraph=True)
    for _ in range(2):
        want, got = eager(x), compiled(x)
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert _far(_gradients(model, got), _gradients(eager, want)) < 1e-5
        for mine, theirs in zip(model.buffers(), eager.buffers(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    eager.eval(), model.eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), eager(x), rtol=1e-4, atol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), eager(x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_bfloat16_is_as_near_to_float64_as_eager_is(name: str) -> None:
    make, data = MODELS[name]
    exact, x = make(), data()
    eager = copy.deepcopy(exact).bfloat16()
    model = copy.deepcopy(eager)
    exact.load_state_dict(eager.state_dict())
    exact.double()
    wide = x.bfloat16().double() if x.is_floating_point() else x
    narrow = x.bfloat16() if x.is_floating_point() else x
    compiled = torch.compile(model, backend="pyflame", fullgraph=True)
    true, want, got = exact(wide), eager(narrow), compiled(narrow)
    assert got.dtype is torch.bfloat16
    assert _far([got], [true]) < 2 * _far([want], [true]) + 0.005
    true, want, got = (_gradients(m, out) for m, out in ((exact, true), (eager, want), (model, got)))
    assert _far(got, true) < 2 * _far(want, true) + 0.005


def test_training_takes_the_same_steps() -> None:
    eager = mlp()
    model = copy.deepcopy(eager)
    x, target = torch.randn(16, 8), torch.randint(4, (16,))
    losses = []
    for m, forward in ((eager, eager), (model, torch.compile(model, backend="pyflame", fullgraph=True))):
        optimizer = torch.optim.AdamW(m.parameters(), lr=1e-2)
        losses.append([])
        for _ in range(6):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(forward(x), target)
            loss.backward()
            optimizer.step()
            losses[-1].append(float(loss.detach()))
    assert losses[0][-1] < losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_a_training_step_compiles_as_a_whole() -> None:
    model, x = mlp(), torch.randn(4, 8)

    @torch.compile(backend="pyflame", fullgraph=True)
    def loss_of(given: torch.Tensor) -> torch.Tensor:
        return (model(given) ** 2).mean()

    loss_of(x).backward()
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    (model(x) ** 2).mean().backward()
    assert _far(got, [p.grad for p in model.parameters()]) < 1e-5


def test_an_lstm_is_left_to_torch_unless_dynamo_may_trace_it() -> None:
    model, x = Recurrent().eval(), torch.randn(2, 3, 6)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="pyflame")(x), model(x))
        torch._dynamo.reset()
        with torch._dynamo.config.patch(allow_rnn=True):
            got = torch.compile(model, backend="pyflame", fullgraph=True)(x)
        torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
def test_bert_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    eager = transformers.BertForSequenceClassification(config)
    model = copy.deepcopy(eager)
    compiled = torch.compile(model, backend="pyflame")
    ids = torch.randint(60, (2, 12))
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    want, got = (m(input_ids=ids, attention_mask=mask).logits for m in (eager, compiled))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert _far(_gradients(model, got), _gradients(eager, want)) < 1e-4


@pytest.mark.thorough
@torch._dynamo.config.patch(allow_rnn=True)
@torch.backends.mkldnn.flags(enabled=False)  # whose layer AOTAutograd cannot save, with torch's own backends neither
def test_an_lstm_trains() -> None:
    eager, x = Recurrent(), torch.randn(2, 3, 6)
    model = copy.deepcopy(eager)
    got, want = torch.compile(model, backend="pyflame", fullgraph=True)(x), eager(x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert _far(_gradients(model, got), _gradients(eager, want)) < 1e-5
