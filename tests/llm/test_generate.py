"""Generation: greedy and sampled text, batches, stops, logprobs, limits, cancellation, over a small random Llama."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from tests.llm import small
from tests.llm.checkpoints import make

PROMPT = [5, 17, 3, 80, 22]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    checkpoint, _ = make("llama", tmp_path_factory.mktemp("llama"))
    return Model(load_decoder(checkpoint), None, None, "cpu", pf.float32, 64)


def plain_greedy(model: Model, prompt: list[int], count: int) -> list[int]:
    """Without a cache: the whole text anew for every token."""
    tokens = list(prompt)
    with pf.no_grad():
        for _ in range(count):
            padded = tokens + [0] * (64 - len(tokens))
            tokens.append(int(model.decoder(pf.tensor([padded]))[0, len(tokens) - 1].argmax()))
    return tokens[len(prompt) :]


def test_greedy_equals_whole_forwards(model: Model) -> None:
    assert model.generate(PROMPT, max_tokens=6).tokens == plain_greedy(model, PROMPT, 6)


def test_batch_equals_single_prompts(model: Model) -> None:
    prompts = [PROMPT, [9], list(range(40, 60))]
    together = model.generate(prompts, max_tokens=7)
    assert [g.tokens for g in together] == [model.generate(p, max_tokens=7).tokens for p in prompts]
    options = dict(temperature=1.5, top_p=0.9, seed=3, max_tokens=7)
    together = model.generate(prompts, **options)
    assert [g.tokens for g in together] == [model.generate(p, **options).tokens for p in prompts]


def test_seed_decides(model: Model) -> None:
    def draw(seed: int) -> list[int]:
        return model.generate(PROMPT, max_tokens=12, temperature=1.0, seed=seed).tokens

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_samples_share_a_prompt(model: Model) -> None:
    greedy = model.generate(PROMPT, max_tokens=5, n=3)
    assert [g.tokens for g in greedy] == [plain_greedy(model, PROMPT, 5)] * 3
    drawn = model.generate(PROMPT, max_tokens=9, n=3, temperature=1.0, seed=5)
    assert len({tuple(g.tokens) for g in drawn}) == 3
    assert drawn[0].tokens == model.generate(PROMPT, max_tokens=9, temperature=1.0, seed=5).tokens


def test_known_beginning_is_not_read_again(model: Model) -> None:
    first = model.generate(PROMPT, max_tokens=4)
    longer = model.generate([*PROMPT, *first.tokens, 7], max_tokens=4)
    assert longer.timings.cached == len(PROMPT) + 3  # the last token was never taken in
    assert longer.tokens == plain_greedy(model, [*PROMPT, *first.tokens, 7], 4)


def test_stop_token_and_limits(model: Model) -> None:
    tokens = plain_greedy(model, PROMPT, 6)
    stopped = model.generate(PROMPT, max_tokens=6, stop_tokens=[tokens[3]])
    assert stopped.tokens == tokens[: tokens.index(tokens[3])] and stopped.finish_reason == "stop"
    full = model.generate(PROMPT)
    assert len(full.tokens) == 64 - len(PROMPT) + 1 and full.finish_reason == "length"
    with pytest.raises(pf.ArgumentError, match="context of 64 tokens but got a prompt of 5 and max_tokens=61"):
        model.generate(PROMPT, max_tokens=61)
    with pytest.raises(pf.ArgumentError, match="at least one token"):
        model.generate([], max_tokens=1)
    with pytest.raises(pf.ArgumentError, match=r"each in \[0, 96\)"):
        model.generate([96], max_tokens=1)


def test_logprobs(model: Model) -> None:
    found = model.generate(PROMPT, max_tokens=3, logprobs=2, temperature=0.7, top_k=5)
    with pf.no_grad():
        whole = model.decoder(pf.tensor([[*PROMPT, *found.tokens]]))[0].log_softmax(-1).numpy()
    assert found.logprobs is not None
    for step, one in enumerate(found.logprobs):
        row = whole[len(PROMPT) - 1 + step]
        assert one.token == found.tokens[step]
        assert abs(one.logprob - row[one.token]) < 1e-4
        assert list(one.top) == np.argsort(-row)[:2].tolist()


def test_leaving_a_stream_leaves_the_model_usable(model: Model) -> None:
    for chunk in model.stream(PROMPT, max_tokens=8):
        if chunk.token is not None:
            break
    assert model.generate(PROMPT, max_tokens=6).tokens == plain_greedy(model, PROMPT, 6)


def test_leaving_a_loop_ends_a_generation_at_once(model: Model) -> None:
    """Not when the collector next runs: its batch is free for the next one."""
    with model.lease(1) as batch:
        pass
    for _ in model.stream(PROMPT, max_tokens=8):
        break
    with model.lease(1) as again:
        assert again is batch


def test_interrupt_leaves_the_model_usable(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyflame.llm.batch import Batch

    def interrupt(self: Batch, features: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "next", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.generate(PROMPT, max_tokens=8)
    assert model.generate(PROMPT, max_tokens=6).tokens == plain_greedy(model, PROMPT, 6)


def test_two_streams_at_once(model: Model) -> None:
    want = [plain_greedy(model, p, 5) for p in (PROMPT, [1, 2, 3])]
    pairs = list(zip(model.stream(PROMPT, max_tokens=5), model.stream([1, 2, 3], max_tokens=5), strict=True))
    assert [[a.token for a, _ in pairs], [b.token for _, b in pairs]] == want


def test_settings_are_data(model: Model) -> None:
    """Other numbers need no other plan."""
    with model.lease(1) as batch:
        pass
    model.generate(PROMPT, max_tokens=4, temperature=0.5, top_k=3, frequency_penalty=0.1)
    traces = batch._next.traces
    model.generate(PROMPT, max_tokens=4, temperature=0.9, top_p=0.5, min_p=0.1, presence_penalty=1.0, seed=9)
    assert batch._next.traces == traces


@pytest.mark.parametrize(
    ("kv", "worst"), [(pf.float16, 2e-3), (pf.bfloat16, 1e-2), (pf.int8, 2e-2), (pf.float8_e4m3fn, 8e-2)]
)
def test_narrow_keys_and_values(model: Model, kv: pf.DType, worst: float) -> None:
    """Logits of a narrow cache are near those of a wide one, over several chunks of a prompt."""
    prompts = [list(range(3, 50)), [7, 60, 2]]
    narrow = Model(model.decoder, None, None, "cpu", pf.float32, 64, kv)
    with model.lease(2) as wide, narrow.lease(2) as other:
        wanted, found = (batch.prefill(prompts).numpy() for batch in (wide, other))
    assert 0 < np.abs(found - wanted).max() <= worst * np.abs(wanted).max()


def test_templates_see_the_end_that_the_file_names(tmp_path: Path) -> None:
    """Not another token that ends a text, too."""
    path = small.gguf(tmp_path / "small.gguf", **{"tokenizer.chat_template": "{{ bos_token }}{{ eos_token }}"})
    model = pf.llm.load(path, device="cpu")
    assert model.tokenizer.eos == {0, 2} and model.chat_tokens([{"role": "user", "content": "hello"}]) == [1, 2]
