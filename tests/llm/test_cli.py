"""`pyflame chat` and `pyflame generate`, over a small random model."""

from __future__ import annotations

import io
from typing import Any

import pytest

from pyflame.cli import main
from pyflame.cli.chat import Chat
from pyflame.llm.generate import Model
from tests.llm.letters import letters_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return letters_model(tmp_path_factory.mktemp("letters"))


@pytest.fixture(autouse=True)
def _loads_it(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyflame.cli.llm_arguments.load", lambda *args: model)


def test_generate(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "Hello", "-n", "9", "-t", "0", "--stats"]) == 0
    out, err = capsys.readouterr()
    assert out == "Hello" + model.generate("Hello", max_tokens=9).text + "\n"
    assert "tokens read in" in err


def test_generate_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "Hello", "-n", "1000"]) == 1
    assert "expected prompt and text to fit into a context of 128" in capsys.readouterr().err


def test_chat_one_question(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "Hi", "-n", "9", "-t", "0", "--system", "Be"]) == 0
    assert capsys.readouterr().out == model.generate("sBeuHi", max_tokens=9).text + "\n"


def test_chat_remembers(model: Model, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\n\nMore\n/clear\nHi\n"))
    assert main(["chat", "-n", "5", "-t", "0"]) == 0
    first = model.generate("uHi", max_tokens=5).text
    second = model.generate(f"uHia{first}uMore", max_tokens=5).text
    assert capsys.readouterr().out == f"{first}\n{second}\n{first}\n"


def test_chat_forgets_what_does_not_fit(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    chat = Chat(model, "Be", {"max_tokens": 20, "temperature": 0.0}, stats=False)
    for _ in range(8):
        chat.ask("Tell me more")
    assert chat.messages[0]["role"] == "user" and 2 <= len(chat.messages) < 16


def test_interrupted_answer(model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    chat = Chat(model, None, {"max_tokens": 20, "temperature": 0.0}, stats=True)
    shown: list[str] = []

    def stop_after_two(text: str) -> Any:
        shown.append(text)
        if len(shown) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("pyflame.cli.chat.write", stop_after_two)
    chat.ask("Hi")
    assert chat.messages[-1]["role"] == "assistant" and chat.messages[-1]["content"] == "".join(shown[:2])
    assert model.generate("uHi", max_tokens=4).text.startswith("".join(shown[:2]))
