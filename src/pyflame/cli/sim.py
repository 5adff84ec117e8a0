"""`pyflame sim trace kernel.hip ...`: run a HIP kernel on a simulated AMD GPU and show what it did, line by line."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from pyflame.cli.sim_arguments import FORMS, parse_argument
from pyflame.core.errors import ArgumentError, ArgumentTypeError, PyFlameError
from pyflame.engine.sections import Section
from pyflame.engine.sim.run import LIMIT, TARGETS, Run, Source
from pyflame.engine.sim.step import step
from pyflame.engine.sim.trace import Trace, trace
from pyflame.tensor.kernels import compiler_options

_CONTEXT = 2  # lines of source on both sides of a fault


def options_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pyflame sim",
        description=__doc__,
        epilog="Exits with 1 where the kernel faults or cannot be built, with 2 where an argument is wrong.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="trace")
    t = commands.add_parser("trace", description=__doc__, help="run a kernel and show what it did")
    t.add_argument("source", type=Path, help="a HIP file; names of HIP need no headers")
    t.add_argument("--target", default=TARGETS[0], choices=TARGETS, help=f"the GPU (default {TARGETS[0]})")
    t.add_argument("--kernel", metavar="NAME", help="which kernel, where the file has several")
    t.add_argument("--grid", type=_size, required=True, metavar="X[,Y[,Z]]", help="blocks")
    t.add_argument("--block", type=_size, required=True, metavar="X[,Y[,Z]]", help="threads of a block")
    t.add_argument("--shared", type=int, default=0, metavar="BYTES", help="dynamic shared memory of a block")
    t.add_argument("--arg", action="append", default=[], metavar="ARG", help=f"the next argument: {FORMS}")
    t.add_argument("--save", action="append", default=[], metavar="NAME=FILE.npy", help="write an output to a file")
    t.add_argument("--seed", type=int, default=0, help="orders blocks and waves (default 0)")
    t.add_argument("--checks", default="all", help="all, none, or some of uninitialised,races (default all)")
    t.add_argument("--limit", type=int, default=LIMIT, metavar="STEPS", help="most instructions of all waves together")
    t.add_argument("--lines", action="store_true", help="show the whole source, also lines without instructions")
    t.add_argument("--step", type=_place, metavar="ADDRESS|LINE", help="stop there (0x1a40, 12) and show registers")
    t.add_argument("--wave", type=int, default=0, help="of the block, which stops (default 0)")
    t.add_argument("--block-id", type=_number_list, default=[0], metavar="X[,Y[,Z]]", help="the block that stops")
    t.add_argument(
        "--hit",
        type=int,
        default=1,
        metavar="N",
        help="stop at the N-th instruction of the line, or the N-th time at the address",
    )
    t.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    t.add_argument("-D", dest="defines", action="append", default=[], metavar="NAME[=VALUE]", help="a macro")
    t.add_argument("-I", dest="folders", action="append", default=[], metavar="FOLDER", help="of headers")
    options = parser.parse_args(argv)
    if not options.source.is_file():
        t.error(f"argument source: expected a HIP file but there is no file {options.source}")
    for text in options.save:
        if "=" not in text:
            t.error(f"argument --save: expected NAME=FILE.npy but got {text!r}")
    if len(options.block_id) > 3:
        t.error("argument --block-id: expected one to three numbers")
    return options


def _number_list(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def _size(text: str) -> list[int]:
    """One to three numbers of at least 1."""
    numbers = _number_list(text)
    if not 1 <= len(numbers) <= 3 or min(numbers) < 1:
        raise ValueError(text)
    return numbers


def _place(text: str) -> dict[str, int]:
    """An address of the code object, or a line of the source."""
    return {"address": int(text, 16)} if text.startswith("0x") else {"line": int(text.rpartition(":")[2])}


def run(argv: list[str]) -> int:
    options = options_from(argv)
    try:
        return _trace(options, Console())
    except (ArgumentError, ArgumentTypeError, OSError) as error:  # OSError: a file that cannot be read or written
        print(f"pyflame sim: {error}", file=sys.stderr)
        return 2
    except PyFlameError as error:
        print(f"pyflame sim: {error}", file=sys.stderr)
        for row in _around(str(error), options.source):
            print(row, file=sys.stderr)
        return 1


def _trace(options: argparse.Namespace, console: Console) -> int:
    macros = dict(text.partition("=")[::2] if "=" in text else (text, None) for text in options.defines)
    given = compiler_options(options.folders, macros, ())
    text = options.source.read_text(encoding="utf-8")
    source = Source.build(text, options.kernel, options.target, str(options.source), given)
    parameters = source.kernel.parameters
    if len(options.arg) != len(parameters):
        raise ArgumentError(
            f"[{source.kernel.name}] expected {len(parameters)} --arg ({', '.join(p.text for p in parameters)}) but "
            f"got {len(options.arg)}"
        )
    values = [parse_argument(a, p, n) for n, (a, p) in enumerate(zip(options.arg, parameters, strict=True))]
    launch = Run(
        source, options.grid, options.block, values, options.shared, options.seed, options.checks, options.limit
    )
    if options.step is not None:
        x, y, z = (*options.block_id, 0, 0)[:3]
        stopped = step(launch, **options.step, wave=options.wave, block_id=(x, y, z), hit=options.hit)
        _show(console, stopped.head(), stopped.sections(), [])
        return 0
    found = trace(launch)
    _show(console, found.head(), found.sections(options.lines), found.notes)
    _save(found, options)
    return 0


def _save(found: Trace, options: argparse.Namespace) -> None:
    for text in options.save:
        name, _, file = text.partition("=")
        if name not in found.outputs:
            raise ArgumentError(f"[--save] expected one of {', '.join(found.outputs) or 'no output'} but got {name!r}")
        np.save(file, found.outputs[name])
        print(f"{file}  {name}")
    if options.json:
        print(f"{found.save(options.json)}  all numbers")


def _show(console: Console, head: str, sections: Iterable[Section], notes: Iterable[str]) -> None:
    """Tables are aligned already: long lines go on in the next one of a narrow terminal, so that no digit is lost."""
    console.print(Text(head, "bold"), soft_wrap=True)
    for section in sections:
        title, columns, *rows = str(section).splitlines()
        console.print()
        console.print(Text(title, "bold"), soft_wrap=True)
        console.print(Text(columns, "dim"), soft_wrap=True)
        for row in rows:
            console.print(Text(row, "reverse" if row.startswith("=>") else ""), soft_wrap=True)
    for note in notes:
        console.print(Text(f"\n{note}"), soft_wrap=True)


def _around(message: str, source: Path) -> list[str]:
    """The lines of the source around the one that an error names."""
    found = re.search(rf"{re.escape(source.name)}:(\d+)", message)
    if not found or "\n" in message:  # a compiler's words show the source themselves
        return []
    number = int(found[1])
    rows = source.read_text(encoding="utf-8").splitlines()
    near = range(max(number - _CONTEXT, 1), min(number + _CONTEXT, len(rows)) + 1)
    return [f"{'>' if n == number else ' '}{n:5d} | {rows[n - 1]}" for n in near]
