"""JSON lines in, JSON lines out: the file form of `pf.llm.batch`, which goes on where it was interrupted.

A line is an object with a `prompt` or the `messages` of a chat, perhaps options of its own, and whatever else its
author wants to find beside the answer. Answers are appended in the order of the lines, each as soon as all before it
are there, so the lines that the output has are those that are done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflame.core.errors import ArgumentError, FileFormatError
from pyflame.core.files import parse_json
from pyflame.llm.options import OPTIONS
from pyflame.llm.serving.engine import Engine
from pyflame.llm.serving.offline import answers
from pyflame.llm.text import Generation

_ASKED = ("prompt", "messages", "tools")
_ANSWER = ("text", "finish_reason", "tokens", "error")


def read_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The objects of a file of prompts."""
    found = []
    for number, line in enumerate(Path(path).read_text("utf-8").splitlines(), 1):
        if line.strip():
            one = _object(path, number, line)
            if ("prompt" in one) == ("messages" in one):
                raise FileFormatError(
                    f"[batch] expected a prompt or messages in line {number} of {path} but got {line}"
                )
            found.append(one)
    return found


def _object(path: str | os.PathLike[str], number: int, line: str) -> dict[str, Any]:
    try:
        one = parse_json(line)
    except ValueError as error:
        raise FileFormatError(f"[batch] expected JSON in line {number} of {path} but got {error}") from None
    if not isinstance(one, dict):
        raise FileFormatError(f"[batch] expected an object in line {number} of {path} but got {line}")
    return one


def done_lines(path: str | os.PathLike[str], lines: list[dict[str, Any]]) -> int:
    """How many lines have their answers in an output. Half a line at its end, of a run that was killed, is cut off; an
    output of other prompts is refused."""
    file = Path(path)
    if not file.exists():
        return 0
    whole = file.read_bytes()
    kept = whole[: whole.rfind(b"\n") + 1]
    answered = kept.decode("utf-8").splitlines()
    for number, line in enumerate(answered, 1):
        one = _object(path, number, line)
        if number > len(lines) or any(one.get(name) != lines[number - 1].get(name) for name in _ASKED):
            raise ArgumentError(
                f"[batch] expected answers to the same prompts but line {number} of {path} has another; name a new file"
            )
    if len(kept) < len(whole):
        os.truncate(file, len(kept))
    return len(answered)


def answer_lines(
    engine: Engine, lines: list[dict[str, Any]], path: str | os.PathLike[str], **options: Any
) -> Iterator[dict[str, Any]]:
    """Append the answer to each line to a file; gives it, too. A line that cannot be answered gets an `error`."""
    asked = ({key: value for key, value in one.items() if key in (*_ASKED, *OPTIONS)} for one in lines)
    with open(path, "a", encoding="utf-8") as out:
        for one, found in zip(lines, answers(engine, asked, **options), strict=True):
            answer = {key: value for key, value in one.items() if key not in _ANSWER} | _answer(found)
            out.write(json.dumps(answer, ensure_ascii=False) + "\n")
            out.flush()
            yield answer


def _answer(found: Generation | Exception) -> dict[str, Any]:
    if isinstance(found, Exception):
        return {"error": str(found)}
    return {"text": found.text, "finish_reason": found.finish_reason, "tokens": len(found.tokens)}
