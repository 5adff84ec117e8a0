"""A kernel stopped in its midst on a simulated GPU: the registers of a wave, and the code around."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyflame.core.errors import ArgumentError, DeviceFaultError
from pyflame.engine.sections import Section
from pyflame.engine.sim.run import Run
from pyflame.runtime.sim.decode.inst import AGPR_ROW, VCC
from pyflame.runtime.sim.stop import Stop

_AROUND = 5  # instructions shown on both sides
_COLUMNS = 8
_FRESH_VECTOR, _FRESH_SCALAR = 0xFFFFFFFF, 0xFFF7FFF7  # what registers hold that nothing has written (core.c)


@dataclass(frozen=True)
class Stopped:
    """Where a wave stands. Registers are 32-bit words; those of vectors have one per lane.

    >>> stopped.v[3].view("float32"), hex(stopped.exec), stopped.pc  # doctest: +SKIP
    """

    kernel: str
    target: str
    block_id: tuple[int, int, int]
    wave: int
    pc: int  # address in the code object of the instruction that comes next
    text: str
    file: str
    line: int  # 0 where it is not known
    s: Any  # scalar registers that the kernel may use
    v: Any  # vector registers x lanes
    a: Any  # accumulation registers x lanes
    exec: int
    vcc: int
    scc: int
    listing: tuple[tuple[int, str, str], ...]  # address, instruction, line, around pc
    source: str  # the line's text

    def head(self) -> str:
        where = f" ({self.file}:{self.line})" if self.line else ""
        return f"{self.kernel} on sim:{self.target}: block {self.block_id}, wave {self.wave} before {self.pc:#x}{where}"

    def sections(self) -> list[Section]:
        """The tables, in the order in which they are shown."""
        lanes = self.v.shape[1]
        code = [
            ("=>" if address == self.pc else "", f"{address:#x}", text, line) for address, text, line in self.listing
        ]
        state = [
            ("PC", f"{self.pc:#x}"),
            ("EXEC", f"{self.exec:#0{lanes // 4 + 2}x} ({self.exec.bit_count()} of {lanes} lanes on)"),
            ("VCC", f"{self.vcc:#0{lanes // 4 + 2}x}"),
            ("SCC", str(self.scc)),
        ]
        return [
            Section("code", ("", "address", "instruction", "line"), code, "llll"),
            Section("state", ("register", "value"), state, "ll"),
            *self._scalars(),
            *self._vectors("VGPRs", "v", self.v),
            *self._vectors("AGPRs", "a", self.a),
        ]

    def _scalars(self) -> list[Section]:
        rows = []
        for first in range(0, len(self.s), _COLUMNS):
            words = self.s[first : first + _COLUMNS]
            if (words != _FRESH_SCALAR).any():
                cells = ["........" if w == _FRESH_SCALAR else f"{w:08x}" for w in words]
                rows.append((f"s{first}", *cells, *[""] * (_COLUMNS - len(cells))))
        return [Section("SGPRs", ("", *(f"+{n}" for n in range(_COLUMNS))), rows)] if rows else []

    def _vectors(self, title: str, letter: str, registers: Any) -> list[Section]:
        """Lanes that are off in brackets; a register that is the same in all lanes in one cell."""
        rows, fresh = [], []
        for n, words in enumerate(registers):
            if (words == _FRESH_VECTOR).all():
                fresh.append(f"{letter}{n}")
            elif (words == words[0]).all():
                rows.append((f"{letter}{n}", "all", f"{words[0]:08x}", *[""] * (_COLUMNS - 1)))
            else:
                for first in range(0, len(words), _COLUMNS):
                    cells = [self._cell(first + k, words[first + k]) for k in range(_COLUMNS)]
                    rows.append((f"{letter}{n}" if first == 0 else "", str(first), *cells))
        if not rows:
            return []
        note = "lanes in brackets are off" if self.exec.bit_count() < registers.shape[1] else ""
        unused = f"never written: {' '.join(fresh)}" if fresh else ""
        head = ("", "lane", *(f"+{n}" for n in range(_COLUMNS)))
        return [Section(title, head, rows, "", "; ".join(filter(None, [note, unused])))]

    def _cell(self, lane: int, word: Any) -> str:
        return f"{word:08x}" if self.exec >> lane & 1 else f"[{word:08x}]"

    def table(self) -> str:
        """All of it as text."""
        return "\n\n".join([self.head(), *map(str, self.sections())]) + "\n"

    __str__ = table


def step(
    run: Run,
    *,
    line: int | None = None,
    address: int | None = None,
    wave: int = 0,
    block_id: tuple[int, int, int] = (0, 0, 0),
    hit: int = 1,
) -> Stopped:
    """Run a kernel until a wave comes to an instruction of a source line, or to an address, for the `hit`-th time."""
    name = run.source.kernel.name
    if (line is None) == (address is None):
        raise ArgumentError(f"[{name}] expected a line or an address to stop at but got {line!r} and {address!r}")
    if not 0 <= wave < run.waves or any(not 0 <= n < most for n, most in zip(block_id, run.grid, strict=True)):
        raise ArgumentError(
            f"[{name}] expected a wave below {run.waves} and a block within {run.grid} but got {wave} and {block_id}"
        )
    if hit < 1:
        raise ArgumentError(f"[{name}] expected to stop at a first or later time but got {hit}")
    stop = Stop(_numbers(run, line, address), wave, block_id, hit)
    run.go(stop)
    if stop.reached is None:
        place = f"{run.source.file}:{line}" if address is None else f"{address:#x}"
        raise NotReached(
            f"[{name}] expected wave {wave} of block {block_id} to come to {place}"
            f"{f' {hit} times' if hit > 1 else ''} but it ended without; choose another place, wave or block"
        )
    return _stopped(run, stop)


class NotReached(DeviceFaultError):
    """A launch that ended without coming to where it should have stopped."""


def _numbers(run: Run, line: int | None, address: int | None) -> list[int]:
    """The instructions of a place."""
    name, code, file = run.source.kernel.name, run.code, run.source.file
    if address is not None:
        if address not in code.numbers:
            first = run.kernel.entry
            raise ArgumentError(
                f"[{name}] expected the address of an instruction but got {address:#x}; the kernel begins at {first:#x}"
            )
        return [code.numbers[address]]
    if run.missing_lines:
        raise ArgumentError(f"[{name}] expected an address to stop at but got line {line}: {run.missing_lines}")
    lines: dict[int, list[int]] = {}
    for at, number in code.numbers.items():
        place = run.source.place(run.frames.get(at, ()))
        if place is not None and Path(place[0]).name == file:
            lines.setdefault(place[1], []).append(number)
    if line not in lines:
        raise ArgumentError(
            f"[{name}] expected a line with instructions but got line {line}; {file} has them in lines "
            f"{', '.join(map(str, sorted(lines)))}"
        )
    return lines[line]


def _stopped(run: Run, stop: Stop) -> Stopped:
    assert stop.reached is not None
    kernel, code = run.source.kernel, run.code
    told = run.kernel.metadata
    address = code.lines[stop.reached].address
    place = run.source.place(run.frames.get(address, ()))
    listing = sorted(code.numbers)
    at = listing.index(address)
    around = listing[max(at - _AROUND, 0) : at + _AROUND + 1]

    def line_of(where: int) -> str:
        found = run.source.place(run.frames.get(where, ()))
        return f"{Path(found[0]).name}:{found[1]}" if found else ""

    return Stopped(
        kernel=kernel.name,
        target=kernel.target.name,
        block_id=stop.block,
        wave=stop.wave,
        pc=address,
        text=code.texts[stop.reached],
        file=Path(place[0]).name if place else "",
        line=place[1] if place else 0,
        s=stop.scalars[: min(told.sgprs, VCC)],
        v=stop.vectors[: min(told.vgprs - told.agprs, AGPR_ROW)],
        a=stop.vectors[AGPR_ROW : AGPR_ROW + told.agprs],
        exec=stop.exec,
        vcc=stop.vcc,
        scc=stop.scc,
        listing=tuple((a, code.texts[code.numbers[a]], line_of(a)) for a in around),
        source=run.source.line(*place) if place else "",
    )
