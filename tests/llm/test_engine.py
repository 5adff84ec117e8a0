"""The engine: requests that join and leave, share pages, wait, are preempted, cancelled or late, and fail alone."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyflame as pf
from pyflame.llm import Engine, Model
from pyflame.llm.load import load_decoder
from pyflame.llm.serving.prefill import Prefill
from pyflame.llm.serving.rows import Rows
from tests.llm.checkpoints import MODELS, make
from tests.llm.letters import EOS, letters_model

CONTEXT = 128  # of the model: four pages
LONG = [n % 90 for n in range(100)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return letters_model(tmp_path_factory.mktemp("letters"))


@pytest.fixture
def engine(model: Model) -> Iterator[Engine]:
    """One that is stepped by the test."""
    made = Engine(model, rows=4, chunk=32, start=False)
    yield made
    made.close(drain=False)


def steps(engine: Engine, most: int = 1000) -> int:
    """Step until nothing is left to do; gives how often."""
    for count in range(1, most + 1):
        if not engine.step():
            return count
    raise AssertionError(f"not done after {most} steps")


def settled(engine: Engine) -> None:
    """Nothing waits or runs, and all pages are back."""
    stats = engine.stats()
    assert (stats.queued, stats.running, stats.free_pages) == (0, 0, stats.pages)


def prompts_of(count: int, longest: int = 60) -> list[list[int]]:
    rng = random.Random(0)
    return [[rng.randrange(90) for _ in range(rng.randrange(1, longest))] for _ in range(count)]


@pytest.mark.slow
def test_64_prompts_together_are_as_alone(model: Model) -> None:
    prompts = prompts_of(64)
    alone = [model.generate(p, max_tokens=10).tokens for p in prompts]
    with Engine(model) as engine:
        requests = [engine.submit(p, max_tokens=10) for p in prompts]
        assert [r.result()[0].tokens for r in requests] == alone
        settled(engine)
        stats = engine.stats()
    assert stats.finished == 64 and stats.tokens == stats.ttft.count + stats.inter_token.count
    assert stats.prompt_tokens == sum(map(len, prompts)) and stats.preempted == stats.restarts == 0
    assert stats.ttft.cumulative()[-1] == (float("inf"), 64)


@pytest.mark.slow(16)
def test_settings_of_rows_do_not_mix(model: Model) -> None:
    """Seeds, penalties, bias, constraints, stops and logprobs of neighbours, with rows that are used again."""
    kinds: list[dict[str, Any]] = [
        dict(temperature=1.5, seed=7),
        dict(temperature=1.0, top_p=0.9, seed=1, frequency_penalty=0.5, repetition_penalty=1.3),
        dict(regex="[a-c]{3,9}x", temperature=1.0, seed=3),
        dict(logit_bias={40: 100.0}),
        dict(),
        dict(logprobs=2, stop_tokens=[11]),
        dict(temperature=0.9, typical_p=0.5, min_p=0.01, seed=2),
        dict(json_schema={"type": "integer"}),
    ]
    asked = [dict(prompt=p, max_tokens=12, **kinds[n % 8]) for n, p in enumerate(prompts_of(24))]
    alone = [model.generate(**one) for one in asked]
    with Engine(model, rows=5) as engine:
        found = [r.result()[0] for r in [engine.submit(**one) for one in asked]]
    assert [(g.text, g.tokens, g.finish_reason) for g in found] == [(g.text, g.tokens, g.finish_reason) for g in alone]
    for mine, theirs in zip(found, alone, strict=True):
        assert (mine.logprobs is None) == (theirs.logprobs is None)
        for a, b in zip(mine.logprobs or [], theirs.logprobs or [], strict=True):
            assert a.token == b.token and abs(a.logprob - b.logprob) < 1e-4 and list(a.top) == list(b.top)


@pytest.mark.slow
def test_preempted_texts_go_on_as_if_nothing_had_been(model: Model) -> None:
    options: list[dict[str, Any]] = [
        dict(),
        dict(temperature=1.2, seed=4, frequency_penalty=1.0),
        dict(regex="[a-z]{60,}", temperature=1.0, seed=9),
    ]
    asked = [dict(prompt=p, max_tokens=60, ignore_eos=True, **options[n % 3]) for n, p in enumerate(prompts_of(9, 30))]
    alone = [model.generate(**one).tokens for one in asked]
    with Engine(model, rows=6, pages=7) as engine:
        requests = [engine.submit(**one) for one in asked]
        assert [r.result()[0].tokens for r in requests] == alone
        assert engine.stats().preempted > 0
        settled(engine)


@pytest.mark.slow
def test_requests_join_and_leave_at_every_step(engine: Engine, model: Model) -> None:
    first = engine.submit([1, 2, 3], max_tokens=20, ignore_eos=True)
    for _ in range(5):
        engine.step()
    second = engine.submit([4, 5], max_tokens=2, ignore_eos=True)
    for _ in range(3):
        engine.step()
    assert second.done and not first.done  # it came later and left earlier
    steps(engine)
    assert first.result()[0].tokens == model.generate([1, 2, 3], max_tokens=20, ignore_eos=True).tokens
    settled(engine)


@pytest.mark.slow
def test_a_long_prompt_does_not_stall_others(engine: Engine) -> None:
    short = engine.submit([1, 2, 3], max_tokens=20, ignore_eos=True)
    engine.step()
    before = engine.stats().tokens
    long = engine.submit(LONG, max_tokens=2, ignore_eos=True)
    counts = []
    while not long._chunks:
        engine.step()
        counts.append(engine.stats().tokens - before)
    assert counts[:3] == [1, 2, 3] and len(counts) == 4  # 100 tokens are 4 chunks of 32
    assert not short.done


@pytest.mark.slow
def test_short_prompts_take_turns_with_long_ones(engine: Engine) -> None:
    long = engine.submit(LONG, max_tokens=2)
    short = engine.submit([7, 8, 9], max_tokens=2)
    steps(engine)
    assert short.sequences[0].times[0] < long.sequences[0].times[0]


@pytest.mark.slow
def test_beginnings_are_shared(engine: Engine, model: Model) -> None:
    one = engine.submit([*LONG, 1], max_tokens=8, ignore_eos=True)
    steps(engine)
    other, same = engine.submit([*LONG, 2, 3], max_tokens=8, ignore_eos=True), engine.submit([*LONG, 1], max_tokens=8)
    steps(engine)
    assert (one.cached_tokens, other.cached_tokens, same.cached_tokens) == (0, 96, 96)
    assert other.result()[0].tokens == model.generate([*LONG, 2, 3], max_tokens=8, ignore_eos=True).tokens
    assert other.result()[0].timings.cached == 96 and engine.stats().cached_tokens == 192
    chat = engine.submit([*LONG, 1, *one.result()[0].tokens, 5], max_tokens=3)  # what was written is shared as well
    assert chat.prompt_tokens == 110
    settled_after = steps(engine)
    assert settled_after and chat.cached_tokens == 96
    settled(engine)
    assert engine.stats().cached_pages >= 3


def reads(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """What launches take in from here on: tokens of each piece."""
    found: list[list[int]] = []
    own = Rows.read
    monkeypatch.setattr(
        Rows, "read", lambda self, given: (found.append([p.count for p in given.pieces]), own(self, given))[1]
    )
    return found


def test_prompts_of_several_requests_are_read_in_one_launch(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, read = Engine(model, rows=16, chunk=128, start=False), reads(monkeypatch)
    prompts = [[n, *LONG[: 20 + n]] for n in range(6)] + [[50, *LONG[:70]]]
    requests = [engine.submit(p, max_tokens=6) for p in prompts]
    steps(engine)
    assert read == [[21, 22, 23, 24], [25, 26, 32, 32], [7]]  # a step may take in four pieces of 32, also of one prompt
    assert [r.result()[0].tokens for r in requests] == [model.generate(p, max_tokens=6).tokens for p in prompts]
    settled(engine)


def test_a_step_takes_in_more_where_more_wait_than_write(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, read = Engine(model, rows=8, chunk=32, burst=128, start=False), reads(monkeypatch)
    first = [engine.submit([n, *LONG[:31]], max_tokens=30, ignore_eos=True) for n in range(4)]
    engine.step()
    assert read == [[32] * 4]
    late = [engine.submit([n, *LONG[:31]], max_tokens=2, ignore_eos=True) for n in range(10, 14)]
    engine.step()
    assert read[1:] == [[32]]  # as many wait as write
    steps(engine)
    assert all(len(r.result()[0].tokens) == 30 for r in first) and all(r.done for r in late)


def test_prompts_end_where_the_context_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context that is no multiple of a page: padding lies behind it, where learned positions have no vector."""
    family, sizes = MODELS["gpt2"]
    monkeypatch.setitem(MODELS, "gpt2", (family, {**sizes, "n_positions": 100}))
    checkpoint, _ = make("gpt2", tmp_path)
    model = Model(load_decoder(checkpoint), None, None, "cpu", pf.float32, 100)
    prompts = [[n, *LONG[:98]] for n in range(3)]
    engine = Engine(model, rows=3, chunk=128, start=False)
    requests = [engine.submit(p, max_tokens=1) for p in prompts]
    steps(engine)
    assert [r.result()[0].tokens for r in requests] == [model.generate(p, max_tokens=1).tokens for p in prompts]


@pytest.mark.slow
def test_prompts_that_are_read_at_once_are_read_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also samples of one prompt, which all have its pages."""
    read = reads(monkeypatch)
    request = engine.submit(LONG, n=4, max_tokens=4, ignore_eos=True, temperature=1.0, seed=5)
    engine.step()
    engine.step()
    while any(not s.times for s in request.sequences):
        engine.step()
    used = engine.stats().pages - engine.stats().free_pages
    assert sum(map(sum, read)) == 96 + 4 * 4 and used == 3 + 4
    steps(engine)
    settled(engine)


@pytest.mark.slow
def test_samples_are_those_of_generate(engine: Engine, model: Model) -> None:
    options: dict[str, Any] = dict(n=3, max_tokens=9, temperature=1.0, seed=5)
    request = engine.submit(LONG, **options)
    steps(engine)
    assert [g.tokens for g in request.result()] == [g.tokens for g in model.generate(LONG, **options)]
    assert {c.index for c in request} == {0, 1, 2}


def test_pages_used_longest_ago_go_first(model: Model) -> None:
    engine = Engine(model, rows=1, pages=8, start=False)
    for first in (1, 2, 3):  # each leaves 3 full pages
        engine.submit([first, *LONG], max_tokens=1)
        steps(engine)
    again = [engine.submit([first, *LONG], max_tokens=1) for first in (3, 2)]
    steps(engine)
    assert [r.cached_tokens for r in again] == [96, 96]
    gone = engine.submit([1, *LONG], max_tokens=1)
    steps(engine)
    assert gone.cached_tokens < 96
    settled(engine)


def test_other_weights_share_nothing(tmp_path: Path) -> None:
    model = letters_model(tmp_path)
    engine = Engine(model, rows=1, start=False)
    for _ in range(2):
        request = engine.submit(LONG, max_tokens=4)
        steps(engine)
    assert request.cached_tokens == 96
    pf.llm.add_lora(model, rank=2, targets=("attn_q",))
    with pf.no_grad():
        for p in pf.llm.lora_parameters(model):
            p.copy_(pf.ones(*p.shape) * 0.3)
    changed = engine.submit(LONG, max_tokens=4)
    steps(engine)
    assert changed.cached_tokens == 0
    assert changed.result()[0].tokens == model.generate(LONG, max_tokens=4).tokens


def test_higher_priorities_come_first(model: Model) -> None:
    engine = Engine(model, rows=1, chunk=32, start=False)
    running = engine.submit([1, 2], max_tokens=6, ignore_eos=True)
    engine.step()
    ended: list[str] = []
    asked = {"low": 0, "high": 5, "middle": 3, "also low": 0}
    waiting = {name: engine.submit([3, 4], max_tokens=3, priority=p, ignore_eos=True) for name, p in asked.items()}
    while engine.step():
        ended += [name for name, r in waiting.items() if r.done and name not in ended]
    ended += [name for name, r in waiting.items() if r.done and name not in ended]
    assert ended == ["high", "middle", "low", "also low"]
    assert engine.stats().preempted == 1  # the row was taken from what ran, which came back
    assert running.result()[0].tokens == model.generate([1, 2], max_tokens=6, ignore_eos=True).tokens


@pytest.mark.slow
def test_cancel_frees_pages_within_a_step(engine: Engine) -> None:
    running = engine.submit(LONG, max_tokens=20, ignore_eos=True)
    other = engine.submit([1], max_tokens=4)
    while not running._chunks:
        engine.step()
    running.cancel()
    engine.step()
    assert isinstance(running.error, pf.RequestCancelledError)
    with pytest.raises(pf.RequestCancelledError):
        list(running)
    steps(engine)
    assert other.result() and engine.stats().cancelled == 1
    settled(engine)
    running.cancel()  # has ended: nothing happens
    assert not engine.step()


def test_late_requests_end(engine: Engine) -> None:
    late = engine.submit([1, 2], max_tokens=100, ignore_eos=True, timeout=0.0)
    fine = engine.submit([1, 2], max_tokens=2, timeout=600.0)
    steps(engine)
    with pytest.raises(pf.RequestTimeoutError, match="within 0 s"):
        late.result()
    assert fine.result() and engine.stats().failed == 1
    settled(engine)


def test_a_full_queue_refuses(model: Model) -> None:
    engine = Engine(model, rows=1, queue=2, start=False)
    for _ in range(2):
        engine.submit([1], max_tokens=2)
    with pytest.raises(pf.QueueFullError, match="2 of 2 texts wait; try again in") as found:
        engine.submit([1], max_tokens=2)
    assert found.value.retry_after >= 1.0
    engine.step()
    engine.submit([1], max_tokens=2)
    steps(engine)
    settled(engine)


def test_what_can_never_be_is_refused(engine: Engine, model: Model) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "fit into a context of 128": dict(prompt=LONG, max_tokens=100),
        "either a prompt or messages": dict(),
        "one prompt but got several": dict(prompt=["a", "b"]),
        "temperature >= 0": dict(prompt="a", temperature=-1.0),
        "n >= 1": dict(prompt="a", n=0),
        "did you mean 'temperature'": dict(prompt="a", temprature=1.0),
        "logit_bias of tokens": dict(prompt="a", logit_bias={1000: 1.0}),
        "an option of generate": dict(prompt="a", lookup=8),
    }
    for message, options in wrong.items():
        with pytest.raises(pf.ArgumentError, match=message):
            engine.submit(**options)
    small = Engine(model, rows=1, pages=2, start=False)
    with pytest.raises(pf.ArgumentError, match="fit into 2 pages of 32 tokens"):
        small.submit(LONG, max_tokens=1)
    for options in (dict(chunk=8), dict(rows=0), dict(queue=0), dict(pages=0), dict(burst=32), dict(burst=1000)):
        with pytest.raises(pf.ArgumentError, match="a chunk that is a multiple of 32"):
            Engine(model, start=False, **options)  # type: ignore[arg-type]


@pytest.mark.slow
def test_stop_strings_and_chunks(engine: Engine, model: Model) -> None:
    options: dict[str, Any] = dict(max_tokens=20, temperature=2.0, seed=1, logit_bias={EOS: -100.0})
    whole = model.generate("Hello", **options).text
    request = engine.submit("Hello", **options, stop=whole[4:6])
    steps(engine)
    assert "".join(c.text for c in request) == request.result()[0].text == whole[:4]
    assert [c.finish_reason for c in request][-1] == "stop" and "".join(c.text for c in request) == whole[:4]


@pytest.mark.slow
def test_asyncio(model: Model) -> None:
    async def read(engine: Engine, prompt: list[int]) -> list[int]:
        return [chunk.token async for chunk in engine.submit(prompt, max_tokens=6, ignore_eos=True)]

    async def all_of(engine: Engine) -> list[list[int]]:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0)

        beating = asyncio.create_task(beat())
        found = await asyncio.gather(*(read(engine, p) for p in prompts))
        beating.cancel()
        assert beats > 10  # the loop was not held up
        late = engine.submit([1], max_tokens=100, ignore_eos=True, timeout=0.0)
        with pytest.raises(pf.RequestTimeoutError):
            async for _ in late:
                pass
        return found

    prompts = prompts_of(6)
    with Engine(model, rows=4) as engine:
        found = asyncio.run(all_of(engine))
        settled(engine)
    assert found == [model.generate(p, max_tokens=6, ignore_eos=True).tokens for p in prompts]


@pytest.mark.slow
def test_several_threads_submit(model: Model) -> None:
    prompts = prompts_of(12)
    found: dict[int, list[int]] = {}

    def ask(engine: Engine, number: int) -> None:
        for n in range(number, 12, 4):
            found[n] = [chunk.token for chunk in engine.submit(prompts[n], max_tokens=8, ignore_eos=True)]

    with Engine(model, rows=4) as engine:
        threads = [threading.Thread(target=ask, args=(engine, n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [found[n] for n in range(12)] == [model.generate(p, max_tokens=8, ignore_eos=True).tokens for p in prompts]


@pytest.mark.slow
def test_close(model: Model) -> None:
    with Engine(model, rows=2) as engine:
        requests = [engine.submit(p, max_tokens=5) for p in prompts_of(5)]
    assert all(r.done and r.error is None for r in requests)  # drained
    with pytest.raises(pf.EngineStoppedError, match="it is closed"):
        engine.submit([1])
    assert not engine.stats().healthy
    engine = Engine(model, rows=1)
    requests = [engine.submit([1], max_tokens=100, ignore_eos=True) for _ in range(20)]
    engine.close(drain=False)
    assert all(r.done for r in requests) and isinstance(requests[-1].error, pf.EngineStoppedError)
    settled(engine)
    engine = Engine(model, rows=1)
    requests = [engine.submit([1], max_tokens=100, ignore_eos=True) for _ in range(200)]
    engine.close(timeout=0.05)
    assert isinstance(requests[-1].error, pf.EngineStoppedError)


@pytest.mark.slow
def test_memory_stays_flat(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    before = pf.memory_allocated("cpu")
    engine = Engine(model, rows=4, pages=12, start=False)
    kept = []

    def serve(rounds: int) -> int:
        for _ in range(rounds):
            requests = [engine.submit(p, max_tokens=5, temperature=0.5) for p in prompts_of(12)]
            requests[3].cancel()
            steps(engine)
            kept.append(requests)
        settled(engine)
        return pf.memory_allocated("cpu")

    begun = serve(2)
    assert serve(10) - begun <= 4096
    fail_once(monkeypatch, "next", lambda rows, features: True, pf.OutOfMemoryError("no room"))
    with pytest.warns(RuntimeWarning, match="no room"):
        serve(2)
    assert engine.stats().restarts == 1 and serve(2) - begun <= 4096  # though requests keep their errors
    engine.close()
    assert pf.memory_allocated("cpu") - before <= 4096


def fail_once(monkeypatch: pytest.MonkeyPatch, name: str, when: Any, error: Exception) -> None:
    """Let a step of the device raise, the first time that `when` says so."""
    own, failed = getattr(Rows, name), []

    def step(self: Rows, *args: Any) -> Any:
        if not failed and when(*args):
            failed.append(True)
            raise error
        return own(self, *args)

    monkeypatch.setattr(Rows, name, step)


@pytest.mark.slow
def test_a_fault_in_a_prompt_fails_its_request_alone(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model, rows=4, chunk=128, start=False)
    own = Rows.read

    def read(self: Rows, given: Prefill) -> Any:
        if any(p.sequence.request.prompt[0] == 77 for p in given.pieces):
            raise pf.OutOfMemoryError("no room")
        return own(self, given)

    monkeypatch.setattr(Rows, "read", read)
    running = engine.submit([1, 2, 3], max_tokens=12, ignore_eos=True, temperature=1.0, seed=3)
    for _ in range(4):
        engine.step()
    wrong, waits = engine.submit([77] * 20, max_tokens=4), [engine.submit(p, max_tokens=4) for p in prompts_of(6)]
    with pytest.warns(RuntimeWarning, match="starts anew: OutOfMemoryError: no room"):
        steps(engine)
    with pytest.raises(pf.OutOfMemoryError, match="no room"):
        wrong.result()
    alone = model.generate([1, 2, 3], max_tokens=12, ignore_eos=True, temperature=1.0, seed=3)
    assert running.result()[0].tokens == alone.tokens
    assert [w.result()[0].tokens for w in waits] == [model.generate(p, max_tokens=4).tokens for p in prompts_of(6)]
    stats = engine.stats()
    # first with those that it was read with, of which none fails; then by itself
    assert (stats.failed, stats.restarts, stats.healthy, stats.fault) == (1, 2, True, "OutOfMemoryError: no room")
    settled(engine)


@pytest.mark.slow
def test_a_fault_while_writing_fails_those_that_write(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_once(monkeypatch, "next", lambda rows, features: len(rows) == 2, pf.DeviceFaultError("illegal address"))
    engine = Engine(model, rows=2)
    requests = [engine.submit(p, max_tokens=8, ignore_eos=True) for p in prompts_of(5)]
    with pytest.warns(RuntimeWarning, match="illegal address"):
        failed = [isinstance(_outcome(r), pf.DeviceFaultError) for r in requests]
    assert failed == [True, True, False, False, False]
    assert engine.submit([1], max_tokens=3).result() and engine.stats().healthy
    settled(engine)
    engine.close()


def test_an_engine_that_cannot_start_anew_says_so(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model, rows=2, start=False)
    fail_once(monkeypatch, "next", lambda rows, features: True, pf.DeviceFaultError("illegal address"))
    monkeypatch.setattr(Rows, "__init__", lambda self, *args: (_ for _ in ()).throw(pf.DeviceFaultError("it is dead")))
    requests = [engine.submit([1], max_tokens=8, ignore_eos=True) for _ in range(5)]
    with pytest.warns(RuntimeWarning, match="illegal address"):
        steps(engine)
    assert isinstance(requests[0].error, pf.DeviceFaultError)
    with pytest.raises(pf.EngineStoppedError, match="it is dead"):
        requests[4].result()
    assert not engine.stats().healthy and engine.stats().failed == 5
    with pytest.raises(pf.EngineStoppedError, match="it is dead"):
        engine.submit([1])


def _outcome(request: Any) -> Any:
    try:
        return request.result()
    except pf.PyFlameError as error:
        return error


@pytest.mark.slow
def test_a_broken_grammar_fails_its_request_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyflame.llm.constraint import Matcher

    def broken(self: Matcher, token: int) -> bool:
        raise pf.ArgumentError("no such rule")

    monkeypatch.setattr(Matcher, "push", broken)
    wrong, fine = engine.submit("a", regex="[a-z]+", max_tokens=5), engine.submit("b", max_tokens=5)
    steps(engine)
    assert "no such rule" in str(wrong.error) and fine.result() and engine.stats().restarts == 0
    settled(engine)


def test_an_idle_engine_sleeps(model: Model) -> None:
    with Engine(model, rows=1) as engine:
        engine.submit([1], max_tokens=2).result()
        begun = engine._loop.steps
        time.sleep(0.05)
        assert engine._loop.steps - begun <= 1


def test_few_plans_report_log_probabilities(engine: Engine) -> None:
    for count in (1, 2, 3, 4, 5):
        request = engine.submit([1, 2], max_tokens=3, logprobs=count, ignore_eos=True)
        steps(engine)
        found = request.result()[0].logprobs
        assert found is not None and [len(one.top) for one in found] == [count] * 3
    assert engine._loop.rows._next[1].traces == 1


def test_steps_of_all_sizes_are_planned_once(model: Model) -> None:
    engine = Engine(model, rows=4, start=False)
    for count in (4, 2, 1, 3, 2, 4):
        for p in prompts_of(count, 8):
            engine.submit(p, max_tokens=4, ignore_eos=True)
        steps(engine)
    assert {n: step.traces for n, step in engine._loop.rows._next.items()} == {1: 1, 2: 1, 4: 1}


def test_prepared_steps_are_not_planned_again(model: Model) -> None:
    engine = Engine(model, rows=3, chunk=32, start=False, prepare=True)
    steps_of = [*engine._loop.rows._take_in.values(), *engine._loop.rows._next.values()]
    before = [step.traces for step in steps_of]
    for options in (dict(), dict(temperature=1.0)):
        requests = [engine.submit(p, max_tokens=4, **options) for p in prompts_of(5)]
        steps(engine)
        alone = [model.generate(p, max_tokens=4, **options).tokens for p in prompts_of(5)]
        assert [r.result()[0].tokens for r in requests] == alone
    assert [step.traces for step in steps_of] == before
