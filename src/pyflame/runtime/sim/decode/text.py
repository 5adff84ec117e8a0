"""A line of llvm-objdump, taken apart: the name of an instruction, its operands and its modifiers."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

_LABEL = re.compile(r"^(?P<address>[0-9a-f]+) <(?P<name>.+)>:$")
_ENCODING = re.compile(r"_(?:e32|e64|sdwa|dpp8|dpp|e64_dpp8|e64_dpp)$")


class Undecodable(Exception):
    """An instruction, or a part of it, that the simulator does not know."""


@dataclass(frozen=True)
class Line:
    """One instruction (or one half of a dual one)."""

    name: str  # without the suffix that names its encoding
    operands: tuple[str, ...]
    modifiers: Mapping[str, str]  # "offset" -> "16", "clamp" -> ""
    text: str
    address: int
    nbytes: int


def split(text: str, separator: str) -> list[str]:
    """Split where no bracket is open.

    >>> split("v[0:1], hwreg(HW_REG_MODE, 4, 2), 3", ",")
    ['v[0:1]', 'hwreg(HW_REG_MODE, 4, 2)', '3']
    """
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        if letter in "[(":
            depth += 1
        elif letter in "])":
            depth -= 1
        elif letter == separator and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def parse(text: str, address: int = 0, nbytes: int = 4) -> Line:
    """One instruction as it stands in a listing.

    >>> line = parse("global_load_dword v0, v[2:3], off offset:16 sc0")
    >>> line.operands, line.modifiers
    (('v0', 'v[2:3]', 'off'), {'offset': '16', 'sc0': ''})
    """
    return Line(*_parts(text.strip()), address, nbytes)


@functools.lru_cache(maxsize=1 << 16)  # kernels are much alike
def _parts(text: str) -> tuple[str, tuple[str, ...], Mapping[str, str], str]:
    name, _, rest = text.partition(" ")
    parts = split(rest, ",")
    modifiers: dict[str, str] = {}
    if parts:
        last, *behind = split(parts[-1], " ")
        if ":" in last and "[" not in last.split(":")[0]:  # no operand at all
            behind, parts = [last, *behind], parts[:-1]
        else:
            parts[-1] = last
        for modifier in behind:
            key, _, value = modifier.partition(":")
            modifiers[key] = value
    return _ENCODING.sub("", name), tuple(parts), modifiers, text


def read_listing(listing: str) -> tuple[list[list[Line]], dict[str, int]]:
    """The instructions of a listing, each as its one or two halves; and name -> address of its labels."""
    instructions: list[list[Line]] = []
    labels: dict[str, int] = {}
    padding: list[str] | None = None  # rows behind an s_endpgm that may fill the room between kernels
    for row in listing.splitlines():
        if row.startswith("\t"):
            text = row[1:].partition("//")[0].rstrip()
            if padding is not None and text in ("s_nop 0", "s_code_end"):
                padding.append(row)
                continue
            instructions += map(_instruction, [*(padding or ()), row])  # a block of the same kernel may begin with one
            padding = [] if text == "s_endpgm" else None
            continue
        label = _LABEL.match(row)
        if label:
            labels[label["name"]] = int(label["address"], 16)
            padding = None  # it is never run, and often more than the kernels
    return instructions, labels


def _instruction(row: str) -> list[Line]:
    text, _, where = row[1:].partition("//")
    address, _, words = where.partition(":")
    nbytes = 4 * len(words.partition("<")[0].split())
    return [parse(half, int(address, 16), nbytes) for half in text.rstrip().split(" :: ")]
