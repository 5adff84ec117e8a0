"""`pyflame onnx run MODEL` and `pyflame onnx info MODEL`: run an ONNX file once, or see what it holds."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pyflame.bridge.onnx import info, load
from pyflame.core.errors import ArgumentError, PyFlameError
from pyflame.core.sizes import human_bytes


def options_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pyflame onnx", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    once = commands.add_parser("run", help="run a model once and show its outputs")
    once.add_argument(
        "--input", "-i", action="append", default=[], metavar="NAME=FILE.npy", help="an input; others are random"
    )
    once.add_argument(
        "--shape", action="append", default=[], metavar="NAME=1,3,32,32", help="of a random input (symbolic sizes: 1)"
    )
    once.add_argument("--seed", type=int, default=0, help="of random inputs (default 0)")
    once.add_argument("--output", "-o", type=Path, help="an .npz file for the outputs")
    once.add_argument("--device", help="the device to run on (default: the machine's best)")
    seen = commands.add_parser("info", help="operators with their counts, inputs, outputs and sizes")
    for command in (once, seen):
        command.add_argument("--json", action="store_true", help="print an object instead of tables")
        command.add_argument("model", metavar="MODEL", help="an .onnx file")
    return parser.parse_args(argv)


def run(argv: list[str]) -> int:
    options = options_from(argv)
    try:
        found = _run(options) if options.command == "run" else info(options.model)
    except (PyFlameError, OSError) as error:
        print(f"pyflame onnx: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        (_show_run if options.command == "run" else _show_info)(found, Console())
    return 0


def _run(options: argparse.Namespace) -> dict[str, Any]:
    given = {name: _array(Path(path)) for name, path in map(_pair, options.input)}
    shapes = {name: _sizes(text) for name, text in map(_pair, options.shape)}
    rng = np.random.default_rng(options.seed)
    for value in info(options.model)["inputs"]:
        if value["name"] not in given:
            given[value["name"]] = _random({**value, "shape": shapes.get(value["name"], value["shape"])}, rng)
    model = load(options.model, options.device)
    start = time.perf_counter()
    model.run(given)  # plans and compiles
    between = time.perf_counter()
    outputs = model.run(given)
    end = time.perf_counter()
    if options.output is not None:
        arrays: dict[str, Any] = outputs
        np.savez(options.output, **arrays)
    return {
        "outputs": [_summary(name, array) for name, array in outputs.items()],
        "first_run_seconds": between - start,
        "second_run_seconds": end - between,
    }


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ArgumentError(f"[onnx] expected --input NAME=FILE.npy or --shape NAME=1,3,32,32 but got {text!r}")
    return name, value


def _sizes(text: str) -> list[int]:
    if not all(part.isdecimal() for part in text.split(",")):
        raise ArgumentError(f"[onnx] expected sizes as in 1,3,32,32 but got {text!r}")
    return [int(part) for part in text.split(",")]


def _array(path: Path) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (ValueError, EOFError) as error:
        raise ArgumentError(f"[onnx] expected an array in {path} but got: {error}") from None


def _random(value: dict[str, Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """An input of the declared shape: normal floats, or zeros for integers, whose range only the model knows."""
    if value["shape"] is None:
        raise ArgumentError(f"[onnx] expected a declared shape but input {value['name']!r} has none; give --shape")
    shape = [n if isinstance(n, int) and n > 0 else 1 for n in value["shape"]]
    if value["dtype"].startswith(("float", "bfloat")):
        return rng.standard_normal(shape).astype(value["dtype"])
    return np.zeros(shape, value["dtype"])


def _summary(name: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    numbers = array.astype(np.float64) if array.size and array.dtype.kind not in "OSU" else None
    return {
        "name": name,
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "min": None if numbers is None else float(numbers.min()),
        "max": None if numbers is None else float(numbers.max()),
        "mean": None if numbers is None else float(numbers.mean()),
    }


def _show_run(found: dict[str, Any], console: Console) -> None:
    table = Table("output", "dtype", "shape", "min", "max", "mean")
    for o in found["outputs"]:
        numbers = ["" if o[key] is None else f"{o[key]:.6g}" for key in ("min", "max", "mean")]
        table.add_row(o["name"], o["dtype"], str(tuple(o["shape"])), *numbers)
    console.print(table)
    console.print(f"first run {found['first_run_seconds']:.3f} s, second {found['second_run_seconds']:.3f} s")


def _show_info(found: dict[str, Any], console: Console) -> None:
    console.print(
        f"opset {found['opset']}, {found['nodes']:,} nodes, {found['weights']:,} weights of "
        f"{human_bytes(found['weight_bytes'])}, made by {found['producer'] or 'an unknown program'}"
    )
    for kind in ("inputs", "outputs"):
        for v in found[kind]:
            console.print(f"{kind[:-1]} {v['name']}: {v['dtype']} {v['shape']}", markup=False)
    table = Table("operator", "nodes", "supported")
    for o in found["operators"]:
        table.add_row(o["name"], str(o["count"]), "yes" if o["supported"] else "no")
    console.print(table)
