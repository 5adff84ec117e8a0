"""GPT against a twin in torch: logits, gradients, training, and generation with and without its cache."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import pyflame as pf
from pyflame import nn, optim
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.nn.gpt_decoder import GPTDecoder
from tests.nn.pairs import close, same_weights

SMALL = nn.GPTConfig(vocab_size=19, context=16, layers=2, heads=2, width=16)


class Attention(torch.nn.Module):
    def __init__(self, config: nn.GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.c_attn = torch.nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.c_proj = torch.nn.Linear(config.width, config.width, bias=config.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, width = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.c_attn(x).split(width, 2))
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf")).softmax(-1)
        return self.c_proj((weights @ v).transpose(1, 2).reshape(b, t, width))


class MLP(torch.nn.Module):
    def __init__(self, config: nn.GPTConfig) -> None:
        super().__init__()
        self.c_fc = torch.nn.Linear(config.width, 4 * config.width, bias=config.bias)
        self.c_proj = torch.nn.Linear(4 * config.width, config.width, bias=config.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(torch.nn.Module):
    def __init__(self, config: nn.GPTConfig) -> None:
        super().__init__()
        self.ln_1 = torch.nn.LayerNorm(config.width, bias=config.bias)
        self.attn = Attention(config)
        self.ln_2 = torch.nn.LayerNorm(config.width, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Twin(torch.nn.Module):
    def __init__(self, config: nn.GPTConfig) -> None:
        super().__init__()
        self.wte = torch.nn.Embedding(config.vocab_size, config.width)
        self.wpe = torch.nn.Embedding(config.context, config.width)
        self.h = torch.nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.ln_f = torch.nn.LayerNorm(config.width, bias=config.bias)
        self.lm_head = None if config.tie_weights else torch.nn.Linear(config.width, config.vocab_size, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        head = self.wte.weight if self.lm_head is None else self.lm_head.weight
        return functional.linear(self.ln_f(x), head)

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())


def batches(config: nn.GPTConfig, batch: int, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Sequences with something to learn: a token tells the next one, but for one in ten, which is random."""
    rng = np.random.default_rng(seed)
    while True:
        rows = [rng.integers(0, config.vocab_size, batch)]
        while len(rows) <= config.context:
            strange = rng.integers(0, config.vocab_size, batch)
            rows.append(np.where(rng.random(batch) < 0.1, strange, (5 * rows[-1] + 3) % config.vocab_size))
        text = np.stack(rows, 1)
        yield text[:, :-1].copy(), text[:, 1:].copy()


@pytest.mark.slow
@pytest.mark.parametrize("config", [SMALL, nn.GPTConfig(19, 16, 1, 4, 16, tie_weights=False, bias=False)])
def test_logits_loss_and_gradients(config: nn.GPTConfig) -> None:
    torch.manual_seed(0)
    ours, theirs = nn.GPT(config), Twin(config)
    same_weights(ours, theirs)
    tokens, targets = next(batches(config, 3))
    targets[0, :4] = -100
    logits = ours(pf.tensor(tokens))
    loss = ours.loss(pf.tensor(tokens), pf.tensor(targets))
    want = theirs.loss(torch.tensor(tokens), torch.tensor(targets))
    loss.backward()
    want.backward()
    pf.eval([logits, loss, *(p.grad for p in ours.parameters())])  # one plan, compiled at once
    close(logits, theirs(torch.tensor(tokens)), "logits")
    close(loss, want, "loss")
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        close(p.grad, q.grad, f"gradient of {name}")


def test_it_is_causal() -> None:
    model = nn.GPT(SMALL)
    tokens = np.arange(12)[None] % 19
    changed = tokens.copy()
    changed[0, 7:] = 3
    a, b = (model(pf.tensor(t)).numpy() for t in (tokens, changed))
    np.testing.assert_allclose(a[:, :7], b[:, :7], rtol=1e-5, atol=1e-6)
    assert np.abs(a[:, 7:] - b[:, 7:]).max() > 1e-3


def test_initial_weights_are_those_of_gpt2() -> None:
    model = nn.GPT(nn.GPTConfig(vocab_size=64, context=64, layers=4, heads=2, width=64))
    weights = {name: p.numpy() for name, p in model.named_parameters()}
    for name, value in weights.items():
        if name.endswith("bias"):
            assert not value.any(), name
        elif "ln_" in name:
            assert (value == 1).all(), name
        else:
            std = 0.02 / 8**0.5 if "c_proj" in name else 0.02
            assert abs(value.std() / std - 1) < 0.05 and abs(value.mean()) < std / 10, name


@pytest.mark.slow(16)
def test_training_matches_torch() -> None:
    """The convergence test: the same start and data, AdamW, a jitted step; the loss falls and falls alike."""
    torch.manual_seed(0)
    config = nn.GPTConfig(vocab_size=19, context=16, layers=2, heads=2, width=32)
    ours, theirs = nn.GPT(config), Twin(config)
    theirs.load_state_dict({n: torch.from_numpy(v.numpy().copy()) for n, v in ours.state_dict().items()})
    mine = optim.AdamW(ours.parameters(), lr=3e-3, weight_decay=0.1)
    yours = torch.optim.AdamW(theirs.parameters(), lr=3e-3, weight_decay=0.1)

    @pf.jit
    def step(tokens: pf.Tensor, targets: pf.Tensor) -> pf.Tensor:
        loss = ours.loss(tokens, targets)
        loss.backward()
        mine.step()
        mine.zero_grad()
        return loss

    got, want = [], []
    for _, (tokens, targets) in zip(range(60), batches(config, 8), strict=False):
        got.append(step(pf.tensor(tokens), pf.tensor(targets)).item())
        loss = theirs.loss(torch.tensor(tokens), torch.tensor(targets))
        yours.zero_grad()
        loss.backward()
        yours.step()
        want.append(loss.item())
    assert step.traces == 1
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)
    assert np.mean(got[-5:]) < 0.75 * got[0]


@pytest.mark.slow
def test_dropout_acts_in_training_only() -> None:
    config = nn.GPTConfig(vocab_size=19, context=16, layers=1, heads=2, width=16, dropout=0.5)
    model = nn.GPT(config)
    tokens = pf.tensor(next(batches(config, 2))[0])
    a, b = (model(tokens).numpy() for _ in range(2))
    assert np.abs(a - b).max() > 1e-3
    model.eval()
    np.testing.assert_array_equal(model(tokens).numpy(), model(tokens).numpy())


# --- generation -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> nn.GPT:
    """Untrained, with weights so large that each next token depends on all before it."""
    pf.manual_seed(3)
    model = nn.GPT(dataclasses.replace(SMALL, tie_weights=False))
    with pf.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p *= 12.0
    return model


def recomputed(model: nn.GPT, prompt: list[int], count: int) -> list[int]:
    """The likeliest tokens, from the whole text each time, as far as the context reaches."""
    tokens = list(prompt)
    for _ in range(count):
        row = tokens + [0] * (model.config.context - len(tokens))  # one shape; nothing sees the padding
        with pf.no_grad():
            tokens.append(int(model(pf.tensor([row]))[0, len(tokens) - 1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("prompt", [[1], [5, 2, 7], [3, 1, 4, 1, 5, 9, 2]])
def test_the_cache_changes_nothing(model: nn.GPT, prompt: list[int]) -> None:
    count = model.config.context - len(prompt) + 1
    got = list(model.generate(prompt, count, temperature=0.0))
    assert got == recomputed(model, prompt, count)
    assert len(set(got)) > 2


def test_past_the_context_it_goes_on_from_the_latter_half(model: nn.GPT) -> None:
    prompt, context = [5, 2, 7], model.config.context
    got = list(model.generate(prompt, 20, temperature=0.0))
    first = context - len(prompt) + 1
    text = prompt + got[:first]
    assert got[first:] == recomputed(model, text[-(context // 2) :], 20 - first)
    long = prompt + got
    assert list(model.generate(long, 1, temperature=0.0)) == recomputed(model, long[-context:], 1)


def test_one_trace_serves_all_positions(model: nn.GPT) -> None:
    decoder = GPTDecoder(model)
    decoder.next([1, 2, 3], 0, 0.7, 5)
    for start in range(3, 10):
        decoder.next([start], start, 0.1 * start, 5)
    assert decoder.step.traces == 2  # the prompt, and any step


@pytest.mark.slow
def test_seeds_temperature_and_top_k(model: nn.GPT) -> None:
    def text(**options: float | int | None) -> list[int]:
        return list(model.generate([1, 2], 12, **options))

    assert text(seed=1) == text(seed=1) != text(seed=2)
    assert text(seed=1, top_k=5) == text(seed=1, top_k=5)
    likeliest = text(temperature=0.0)
    assert text(seed=3, top_k=1) == likeliest == text(seed=4, temperature=1e-3)
    assert text(top_k=1000, seed=1) != likeliest


@pytest.mark.slow
def test_draws_follow_the_probabilities() -> None:
    flat = nn.GPT(nn.GPTConfig(vocab_size=4, context=4, layers=1, heads=1, width=4, tie_weights=False))
    with pf.no_grad():
        for p in flat.parameters():
            p.zero_()
        flat.ln_f.bias.copy_(pf.ones(4))
        flat.lm_head.weight.copy_(pf.tensor([[0.0] * 4, [0.25] * 4, [0.5] * 4, [0.75] * 4]))  # logits 0, 1, 2, 3
    decoder = GPTDecoder(flat, seed=0)
    counts = np.bincount([decoder.next([0], 0, 2.0, 3) for _ in range(600)], minlength=4)
    share = np.exp([1 / 2, 2 / 2, 3 / 2])
    assert counts[0] == 0  # not among the top 3
    np.testing.assert_allclose(counts[1:] / 600, share / share.sum(), atol=0.06)


def test_streams_do_not_disturb_each_other_nor_the_model(model: nn.GPT) -> None:
    model.train()
    alone = [list(model.generate(p, 6, temperature=0.0)) for p in ([1, 2], [7])]
    together = list(zip(*[model.generate(p, 6, temperature=0.0) for p in ([1, 2], [7])], strict=True))
    assert [list(t) for t in zip(*together, strict=True)] == alone
    assert model.training and pf.is_grad_enabled()
    other = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert list(other.generate(pf.tensor([[1, 2]]), 6, temperature=0.0)) == alone[0]


def test_it_streams(model: nn.GPT) -> None:
    stream = model.generate([1, 2], 10**9)
    assert all(0 <= next(stream) < 19 for _ in range(3))


def test_errors(model: nn.GPT) -> None:
    with pytest.raises(ArgumentError, match="a width that heads divides"):
        nn.GPTConfig(vocab_size=8, heads=5, width=16)
    with pytest.raises(ShapeError, match=r"time in \[1, 16\] but got \(1, 17\)"):
        model(pf.zeros(1, 17, dtype=pf.int64))
    for prompt, options in (([], {}), ([19], {}), ([1], {"temperature": -1.0}), ([1], {"top_k": 0})):
        with pytest.raises(ArgumentError, match=r"\[generate\]"):
            model.generate(prompt, 4, **options)


@pytest.mark.slow
def test_checkpointed_blocks_take_a_smaller_arena() -> None:
    """The memory of one training step's plan, with and without computing each block again in the backward pass."""
    model = nn.GPT(nn.GPTConfig(vocab_size=32, context=64, layers=6, heads=2, width=32))
    tokens, targets = (pf.randint(0, 32, (4, 64)) for _ in range(2))

    def arena(run: Any) -> tuple[int, list[np.ndarray]]:
        def step(tokens: pf.Tensor, targets: pf.Tensor) -> tuple[pf.Tensor, ...]:
            x = model.wte(tokens) + model.wpe.weight
            for block in model.h:
                x = run(lambda x, block=block: block(x, 0.0), x)
            loss = pf.cross_entropy(model.logits(x).reshape(-1, 32), targets.reshape(-1))
            return pf.autograd.grad(loss, list(model.parameters()))

        jitted = pf.jit(step)
        gradients = [g.numpy().copy() for g in jitted(tokens, targets)]
        traced, _ = jitted.find((tokens, targets), {})
        return traced.plan.arena_bytes, gradients

    (plain, want), (less, got) = arena(lambda f, x: f(x)), arena(pf.checkpoint)
    assert less < 0.5 * plain
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
