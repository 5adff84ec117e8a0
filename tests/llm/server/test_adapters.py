"""Adapters over HTTP: each is a model of its own name, and requests of one batch take different ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.cli.serve import add_adapters, options_from
from pyflame.core.errors import ArgumentError
from pyflame.llm.server import Served
from tests.llm.server.live import Engine, letters, running
from tests.llm.test_lora_rows import adapter

ASK = {"prompt": "hello", "max_tokens": 8, "temperature": 0}


@pytest.mark.slow(16)
def test_models_and_their_adapters(tmp_path: Path) -> None:
    model = letters(tmp_path)
    folder = adapter(model, tmp_path / "pirate", 4, ("attn_q", "ffn_down"), 1)
    alone = {None: model.generate("hello", max_tokens=8).text}
    pf.llm.load_adapter(model, folder)
    alone["pirate"] = model.generate("hello", max_tokens=8).text
    pf.llm.remove_lora(model)
    assert alone[None] != alone["pirate"]

    add_adapters({"letters": model}, [f"pirate={folder}"])
    with running([Served("letters", model, Engine(model, rows=4))]) as live:
        names = [one["id"] for one in live.http.get("/v1/models").json()["data"]]
        assert names == ["letters", "letters:pirate"]

        def asked(changes: dict[str, str]) -> str:
            answer = live.http.post("/v1/completions", json={**ASK, **changes})
            assert answer.status_code == 200, answer.text
            return str(answer.json()["choices"][0]["text"])

        kinds = [
            ({"model": "letters"}, None),
            ({"model": "letters:latest"}, None),
            ({"model": "letters:pirate"}, "pirate"),
            ({"model": "letters", "adapter": "pirate"}, "pirate"),
            ({"model": "letters:pirate", "adapter": "pirate"}, "pirate"),
        ] * 2
        with ThreadPoolExecutor(len(kinds)) as clients:
            found = list(clients.map(asked, [changes for changes, _ in kinds]))
        assert found == [alone[name] for _, name in kinds]
        for changes, status, words in (
            ({"model": "letters", "adapter": "pirat"}, 400, "did you mean 'pirate'"),
            ({"model": "letters:pirate", "adapter": "other"}, 400, "expected one adapter"),
            ({"model": "letters:other"}, 404, "letters:pirate"),
        ):
            answer = live.http.post("/v1/completions", json={**ASK, **changes})
            assert answer.status_code == status
            assert words in answer.json()["error"]["message"]
        metrics = live.http.get("/metrics").text
        assert 'model="letters"' in metrics
        assert "pirate" not in metrics  # an engine is counted once


@pytest.mark.parametrize("text", ["pirate", "pirate=", "=folder", "other:pirate=folder"])
def test_mistakes_of_the_command_line(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"--adapter \[MODEL:\]NAME=FOLDER with a model among base"):
        add_adapters({"base": object()}, [text])  # type: ignore[dict-item]
    assert options_from(["--adapter", text]).adapter == [text]
