"""Files of settings: Dockerfiles (ENV, ARG, CMD, ENTRYPOINT), .env files, systemd units (Environment=, ExecStart=)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

from pyflame.doctor.environment.files.shell import assignments, known_value, split_words

_NAME = re.compile(r"[A-Za-z_]\w*")


def dockerfile(text: str) -> Iterator[tuple[str, str | None, int, str]]:
    """`ENV A=b C=d`, the old `ENV A b`, `ARG A=b`, what CMD and ENTRYPOINT set. What RUN sets ends with it."""
    for number, line in _continued(text):
        keyword, _, rest = line.strip().partition(" ")
        if keyword.upper() in ("CMD", "ENTRYPOINT"):
            yield from ((name, value, number, "") for name, value in assignments(_program(rest)))
        if keyword.upper() not in ("ENV", "ARG") or not rest.strip():
            continue
        if "=" not in rest.split()[0]:
            name, _, value = rest.strip().partition(" ")
            if keyword.upper() == "ENV":
                yield name, known_value(value.strip()), number, ""
            continue
        yield from _pairs(rest, number)


def _program(text: str) -> list[str]:
    """The words of `CMD ["a", "b"]` or `CMD a b`."""
    try:
        words = json.loads(text)
    except ValueError:
        return split_words(text)
    return [str(word) for word in words] if isinstance(words, list) else split_words(text)


def unit(text: str) -> Iterator[tuple[str, str | None, int, str]]:
    """`Environment="A=b c" D=e`, `ExecStart=env A=b program`; what EnvironmentFile names is a file of its own."""
    for number, line in _continued(text):
        key, found, rest = line.strip().partition("=")
        if found and key.strip() == "Environment":
            yield from _pairs(rest, number)
        elif found and key.strip().startswith("Exec"):
            words = split_words(rest.strip().lstrip("@-:+!"))  # signs of systemd's before the program
            yield from ((name, value, number, "") for name, value in assignments(words))


def dotenv(text: str) -> Iterator[tuple[str, str | None, int, str]]:
    """`A=b`, one for each line, with or without quotation marks and `export`."""
    for number, line in enumerate(text.splitlines(), 1):
        name, found, value = line.strip().removeprefix("export ").partition("=")
        if not found or not _NAME.fullmatch(name.strip()):
            continue
        value = value.strip()
        if value[:1] in ("'", '"') and value.rfind(value[0]) > 0:
            literal = value[0] == "'"
            value = value[1 : value.rfind(value[0])]
            yield name.strip(), value if literal else known_value(value), number, ""
        else:
            yield name.strip(), known_value(re.split(r"\s#", value)[0].strip()), number, ""


def _pairs(text: str, number: int) -> Iterator[tuple[str, str | None, int, str]]:
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    for word in words:
        name, found, value = word.partition("=")
        if found and _NAME.fullmatch(name):
            yield name, known_value(value), number, ""


def _continued(text: str) -> Iterator[tuple[int, str]]:
    """Lines, with those that a backslash continues; comments between them do not count."""
    begun, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().startswith(("#", ";")):
            continue
        begun = begun if parts else number
        parts.append(line.rstrip().removesuffix("\\"))
        if not line.rstrip().endswith("\\"):
            yield begun, " ".join(parts)
            parts = []
    if parts:
        yield begun, " ".join(parts)
