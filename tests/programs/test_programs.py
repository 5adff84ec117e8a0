"""New random programs for every state of the code, the ones that once failed, and the generator itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.engine.evaluate import clear_plans
from tests.programs import compare
from tests.programs.__main__ import Session, explore
from tests.programs.builder import Draw, Unsuited
from tests.programs.draw import draw
from tests.programs.ops import KINDS
from tests.programs.pool import KNOBS, Worker
from tests.programs.program import MODES, Input, Program, Step, Unfit, from_json, to_json
from tests.programs.script import script
from tests.programs.shrink import shrink
from tests.programs.worker import judge
from tests.seed import code_seed

FOUND = Path(__file__).parent / "found"  # by the CPU, and in folders by the simulated GPUs they are named after
SECONDS = {"cpu": 40, "emulated": 15, "sim:gfx942": 15, "sim:gfx1100": 15}
LONG = 120


@pytest.fixture(autouse=True)
def knobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of the processes that look for programs."""
    for name, value in KNOBS.items():
        monkeypatch.setenv(name, value)
    yield
    clear_plans()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "seconds"),
    [*SECONDS.items(), *(pytest.param(device, LONG, marks=pytest.mark.thorough) for device in SECONDS)],
)
def test_new_programs(device: str, seconds: float) -> None:
    seed = code_seed() + (seconds == LONG) * 100_000
    session = Session(device, small=device.startswith("sim"), modes=MODES)
    explore(session, range(seed, seed + 100_000), jobs=1, seconds=seconds, keep_going=False)
    assert session.run["ok"], session.summary()
    repeat = [f"python -m tests.programs --device {device} --count 1 --seed {s}" for _, _, s in session.found.values()]
    assert not repeat, "\n".join([*repeat, session.summary()])


@pytest.mark.parametrize("file", sorted(FOUND.rglob("*.json")), ids=lambda f: f.stem)
def test_found(file: Path) -> None:
    program = from_json(file.read_text())
    device = "cpu" if file.parent == FOUND else f"sim:{file.parent.name}"
    assert judge(program, compare.expected(program), device) == ("ok", "")


def one_step(text: str, shape: tuple[int, ...] = (3, 4), **how: object) -> Program:
    return Program((Input(shape, seed=1),), (Step("planted", text, (0,)),), (1,), **how)  # type: ignore[arg-type]


@pytest.mark.slow(16)
def test_a_planted_fault_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    right = pf.tanh
    monkeypatch.setattr(pf, "tanh", lambda x: right(x) + (x.ndim > 1) * 1e-3)

    def outcome(program: Program) -> str:
        return judge(program, compare.expected(program), "cpu")[0]

    def fails(program: Program) -> bool:
        try:
            return outcome(program).startswith("wrong")
        except (Unfit, RuntimeError, ValueError, IndexError, TypeError):
            return False

    drawn = (d[0] for d in map(draw, range(1000)) if d is not None)
    program = next(p for p in drawn if any("L.tanh" in s.text for s in p.steps) and fails(p))
    small = shrink(program, fails)
    assert [s.text for s in small.steps] == ["L.tanh({0})"] and small.mode == "lazy" and small.order == 0
    assert all(n <= 3 for n in small.inputs[0].shape) and len(small.inputs) == 1
    assert "v1 = L.tanh(v0)" in script(small)


@pytest.mark.slow(16)
def test_a_dead_process_is_laid_at_its_program() -> None:
    worker = Worker("cpu")
    abort = one_step("{0} * 1.0 if L.__name__ == 'torch' else __import__('os').abort()")
    answer = worker.ask({"program": to_json(abort)})
    assert answer.outcome.startswith("crash (-6)") and from_json(answer.program or "") == abort
    assert worker.ask({"program": to_json(one_step("{0} * 2.0"))}).outcome == "ok"  # by a new process
    worker.stop()


@pytest.mark.slow
def test_a_hanging_process_is_ended() -> None:
    worker = Worker("cpu")
    assert worker.ask({"program": to_json(one_step("{0} * 2.0"))}).outcome == "ok"
    worker.timeout = 2.0
    hang = one_step("{0} * 1.0 if L.__name__ == 'torch' else __import__('time').sleep(1000)")
    assert worker.ask({"program": to_json(hang)}).outcome == "hang"
    worker.stop()


def test_a_script_shows_what_the_program_does(capsys: pytest.CaptureFixture[str]) -> None:
    program = replace(one_step("L.sum({0} * 2.0, dim=1)"), inputs=(Input((2, 1), grad=True, seed=1),), order=1)
    exec(compile(script(program), "script", "exec"), {})
    ours, theirs = capsys.readouterr().out.split("torch", 1)
    assert ours.replace("pyflame", "torch").split() == ("torch" + theirs).split()


@pytest.mark.parametrize("text", ["{0} / 0.0", "{0} * 1e9", "L.take_along_dim({0}, L.tensor([[4]]), dim=1)"])
def test_what_cannot_be_compared_is_unfit(text: str) -> None:
    with pytest.raises(Unfit):
        compare.expected(one_step(text))


def test_a_comparison_that_a_rounding_turns_over_is_unfit() -> None:
    one = Step("one", "L.sin({0}) ** 2 + L.cos({0}) ** 2", (0,))
    with pytest.raises(Unfit, match="rounding"):
        compare.expected(Program((Input((9,)),), (one, Step("compare", "{0} >= 1.0", (1,))), (2,)))


def test_a_guard_keeps_off_discontinuities() -> None:
    near = one_step("L.relu({0} - {0} * (1 + 1e-9))")
    step = replace(near.steps[0], guard="off({0} * 1e-9, 0.0)")
    with pytest.raises(Unfit, match="discontinuity"):
        compare.expected(replace(near, steps=(step,)))


@pytest.mark.slow
def test_programs_survive_json() -> None:
    for seed in range(20):
        drawn = draw(seed)
        assert drawn is None or from_json(to_json(drawn[0])) == drawn[0]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_drawn(name: str) -> None:
    for seed in range(300):
        d = Draw(str(seed), "lazy", small=True)
        try:
            for other in ("unary", "compare"):  # some kinds want computed values
                KINDS[other][0](d)
            before = len(d.steps)
            KINDS[name][0](d)
        except (Unsuited, Unfit, RuntimeError, ValueError, IndexError, NotImplementedError):
            continue
        if len(d.steps) > before:
            return
    raise AssertionError(f"no program with {name} in 300 tries")


def test_a_state_of_roundings_is_unfit() -> None:
    """The sum of what was normed is 0 but for the rounding of its mean, which no result of a step shows."""
    inputs = (Input((2, 17), seed=1), Input((2,), seed=2), Input((2, 17), seed=3), Input((31, 2, 17), seed=5))
    steps = (
        Step("linear", "L.nn.functional.linear({0}, {1}, {2})", (3, 0, 1)),
        Step("movement", "{0}.transpose(0, 2)", (4,)),
        Step("norm", "L.nn.functional.layer_norm({0}, (31,), eps=0.1)", (5,)),
        Step("reduction", "L.sum({0}, dim=-1)", (6,)),
        Step("matmul", "L.matmul({0}, {1})", (7, 2)),
    )
    with pytest.raises(Unfit, match="call 0 state 0 depends on roundings"):
        compare.expected(Program(inputs, steps, (4,), mode="state", state=((0, 8),)))
