"""The inner loop of a kernel's machine code: what a wave issues in each round, by kind, as llvm-objdump shows it.

In goes a listing with symbolic labels. A loop is what lies between a label and a later branch to it; inner ones hold no
other. Of several the one with the most matrix instructions is taken, else the one with the most of all.
"""

from __future__ import annotations

import re
from collections import Counter

_FUNCTION = re.compile(r"^(?:[0-9a-f]+ )?<(.+)>:$")
_LOCAL = re.compile(r"^L\d+$")
_BRANCH = re.compile(r"^\s+s_c?branch\w*\s+(L\d+)\b")
_INSTRUCTION = re.compile(r"^\s+([a-z]\w+)")
_MATRIX = re.compile(r"v_\w*(?:mfma|wmma)\w*?_(\d+x\d+x\d+)_?(bf16|xf32|f16|f32|f64|fp8|bf8|f8f6f4|iu8|iu4|i8)")
_TYPES = {"fp8": "f8", "bf8": "f8", "f8f6f4": "f8", "iu8": "i8", "iu4": "i4"}
_KINDS = (("lds", "ds_"), ("load", "global_load"), ("load", "buffer_load"), ("load", "flat_load"), ("vector", "v_"))

Loop = dict[str, int]  # kind -> instructions: "vector", "lds", "load", and "matrix f16 16x16x16"


def inner_loops(listing: str) -> dict[str, Loop]:
    """Function -> its inner loop; all of its code where it has none."""
    bodies: dict[str, list[str]] = {}
    for line in listing.splitlines():
        label = _FUNCTION.match(line)
        if label and not _LOCAL.match(label[1]):
            bodies[label[1]] = []
        elif bodies:
            bodies[next(reversed(bodies))].append(line)
    return {name: _inner_loop(lines) for name, lines in bodies.items()}


def _inner_loop(lines: list[str]) -> Loop:
    spans = _loops(lines)
    inner = [(a, b) for a, b in spans if not any((a, b) != (c, d) and a <= c and d <= b for c, d in spans)]
    found = [_counted(lines[a:b]) for a, b in inner] or [_counted(lines)]
    return max(found, key=lambda loop: (sum(n for kind, n in loop.items() if "matrix" in kind), sum(loop.values())))


def _loops(lines: list[str]) -> list[tuple[int, int]]:
    """First and last line of each loop."""
    labels: dict[str, int] = {}
    spans = {}
    for at, line in enumerate(lines):
        if label := _FUNCTION.match(line):
            labels[label[1]] = at
        elif (branch := _BRANCH.match(line)) and branch[1] in labels:
            spans[labels[branch[1]]] = at  # of several branches back to one label the last
    return sorted(spans.items())


def _counted(lines: list[str]) -> Loop:
    found: Counter[str] = Counter()
    for line in lines:
        if instruction := _INSTRUCTION.match(line):
            name = instruction[1]
            if matrix := _MATRIX.match(name):
                found[f"matrix {_TYPES.get(matrix[2], matrix[2])} {matrix[1]}"] += 1
                continue
            kind = next((kind for kind, start in _KINDS if name.startswith(start)), "")
            found[kind] += bool(kind)
    return {kind: count for kind, count in sorted(found.items()) if count}
