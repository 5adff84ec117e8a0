"""Files of plain settings: Dockerfiles (ENV, ARG), .env files, systemd units (Environment=)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from pyflame.doctor.environment.files.shell import known_value

_NAME = re.compile(r"[A-Za-z_]\w*")


def dockerfile(text: str) -> Iterator[tuple[str, str | None, int, str]]:
    """`ENV A=b C=d`, the old `ENV A b`, and `ARG A=b`."""
    for number, line in _continued(text):
        keyword, _, rest = line.strip().partition(" ")
        if keyword.upper() not in ("ENV", "ARG") or not rest.strip():
            continue
        if "=" not in rest.split()[0]:
            name, _, value = rest.strip().partition(" ")
            if keyword.upper() == "ENV":
                yield name, known_value(value.strip()), number, ""
            continue
        yield from _pairs(rest, number)


def unit(text: str) -> Iterator[tuple[str, str | None, int, str]]:
    """`Environment="A=b c" D=e`; what EnvironmentFile names is a file of its own."""
    for number, line in _continued(text):
        key, found, rest = line.strip().partition("=")
        if found and key.strip() == "Environment":
            yield from _pairs(rest, number)


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
