"""`pyflame llm quantize IN OUT.gguf --to q4_k`: a model with its matrices in another encoding."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from pyflame.cli.llm_progress import progress
from pyflame.core.sizes import human_bytes
from pyflame.llm.convert import of_folder
from pyflame.llm.default import resolve
from pyflame.llm.export import Content, encoded, of_gguf, sizes, targets, write
from pyflame.llm.files import open_checkpoint

HELP = "write a model as a GGUF file with its matrices in another encoding"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT.gguf", type=Path, help="the file to write")
    parser.add_argument("--to", required=True, choices=targets(), type=str.lower, help="the encoding of matrices")
    parser.add_argument("--requantize", action="store_true", help="also encode what is encoded already")


def run(options: argparse.Namespace, console: Console) -> None:
    checkpoint = open_checkpoint(resolve(options.model))
    content = of_gguf(checkpoint) if checkpoint.kind == "gguf" else of_folder(checkpoint)
    content = encoded(content, options.to, options.requantize)
    save(content, options.out, checkpoint.path, console)


def save(content: Content, out: Path, source: Path, console: Console) -> None:
    """Write with a bar, and say what was written."""
    with progress(f"writing {out.name}", len(content.tensors)) as step:
        write(content, out, source, lambda tensor: step(tensor.name))
    parts = ", ".join(f"{name} {human_bytes(count)}" for name, count in sizes(content).items())
    console.print(f"{out}: {human_bytes(out.stat().st_size)} ({parts})", soft_wrap=True, markup=False)
