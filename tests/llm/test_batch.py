"""Many prompts without a server: `pf.llm.batch` and `pyflame llm batch`, over a small random model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.llm import Engine, Generation, Model, Request
from pyflame.llm.serving.offline import answers
from tests.llm.letters import letters_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return letters_model(tmp_path_factory.mktemp("letters"))


@pytest.fixture(autouse=True)
def _loads_it(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyflame.cli.llm_arguments.load", lambda *args: model)


LINES: list[dict[str, Any]] = [
    {"id": "a", "prompt": "Hello"},
    {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3},
    {"prompt": "x" * 500},
    {"prompt": "Warm", "temperature": 1.0, "seed": 4, "note": [1]},
]


def written(model: Model, lines: list[dict[str, Any]] = LINES) -> list[dict[str, Any]]:
    """What the command should write."""
    made = [
        model.generate("Hello", max_tokens=5),
        model.generate(messages=lines[1]["messages"], max_tokens=3),
        None,
        model.generate("Warm", max_tokens=5, temperature=1.0, seed=4),
    ]
    found = []
    for line, g in zip(lines, made, strict=True):
        answer = {"error": ""} if g is None else dict(text=g.text, finish_reason=g.finish_reason, tokens=len(g.tokens))
        found.append({**line, **answer})
    return found


@pytest.mark.slow
def test_batch(model: Model) -> None:
    prompts = ["Hello", [5, 6, 7], {"prompt": "Warm", "temperature": 1.0, "seed": 4}]
    found = pf.llm.batch(prompts, model, rows=2, max_tokens=5)
    alone = [model.generate("Hello", max_tokens=5), model.generate([5, 6, 7], max_tokens=5)]
    alone.append(model.generate("Warm", max_tokens=5, temperature=1.0, seed=4))
    assert [g.tokens for g in found] == [g.tokens for g in alone]
    with pytest.raises(pf.ArgumentError, match="fit into a context"):
        pf.llm.batch(["a", "b" * 500], model, max_tokens=1)


@pytest.mark.slow
def test_more_prompts_than_the_queue_has_room_for(model: Model) -> None:
    with Engine(model, rows=2, queue=3) as engine:
        found = list(answers(engine, ([n] for n in range(20)), max_tokens=2))
    assert [g.tokens for g in found if isinstance(g, Generation)] == [
        model.generate([n], max_tokens=2).tokens for n in range(20)
    ]


@pytest.mark.slow
def test_command(model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(map(json.dumps, LINES)) + "\n\n")
    assert main(["llm", "batch", str(source), str(target), "-n", "5", "--rows", "2"]) == 0
    out, err = capsys.readouterr()
    found = [json.loads(line) for line in target.read_text().splitlines()]
    assert "fit into a context of 128" in found[2]["error"]
    found[2]["error"] = ""
    assert found == written(model)
    assert "4 lines" in out and "1 could not be answered" in out and "batch: 4 of 4" in err


@pytest.mark.slow
def test_command_goes_on_where_it_was(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(map(json.dumps, LINES)))
    main(["llm", "batch", str(source), str(target), "-n", "5"])
    whole = target.read_bytes()
    lines = whole.splitlines(keepends=True)
    target.write_bytes(lines[0] + lines[1] + lines[2][:20])  # killed in the middle of a line
    asked: list[Any] = []
    own = Engine.submit
    monkeypatch.setattr(Engine, "submit", lambda self, *a, **k: (asked.append(a), own(self, *a, **k))[1])
    capsys.readouterr()
    assert main(["llm", "batch", str(source), str(target), "-n", "5"]) == 0
    assert target.read_bytes() == whole and len(asked) == 2
    assert "4 lines, 2 were there" in capsys.readouterr().out
    assert main(["llm", "batch", str(source), str(target), "-n", "5"]) == 0 and len(asked) == 2  # all is there


def test_command_refuses_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"prompt": "a"}\n')
    target.write_text('{"prompt": "b", "text": "c"}\n')
    for text, message in {
        '{"prompt": "a"}\n': "line 1 of .* has another; name a new file",
        '{"prompt": "a"}\n[]': "an object in line 2",
        "{": "JSON in line 1",
        '{"text": "a"}': "a prompt or messages in line 1",
    }.items():
        source.write_text(text)
        assert main(["llm", "batch", str(source), str(target)]) == 1
        with pytest.raises(AssertionError, match=message):
            raise AssertionError(capsys.readouterr().err.replace("\n", " "))
    assert target.read_text() == '{"prompt": "b", "text": "c"}\n'


@pytest.mark.slow
def test_command_is_interrupted(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"prompt": f"{n}"}) + "\n" for n in range(6)))
    own, calls = Request.result, []

    def result(self: Request) -> list[Generation]:
        calls.append(self)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return own(self)

    with monkeypatch.context() as patch:
        patch.setattr(Request, "result", result)
        assert main(["llm", "batch", str(source), str(target), "-n", "5"]) == 130
    assert "the same command goes on" in capsys.readouterr().err and len(target.read_text().splitlines()) == 2
    assert main(["llm", "batch", str(source), str(target), "-n", "5"]) == 0
    found = [json.loads(line)["text"] for line in target.read_text().splitlines()]
    assert found == [model.generate(f"{n}", max_tokens=5).text for n in range(6)]
