"""`pyflame llm convert FOLDER OUT.gguf`: a Hugging Face folder as a GGUF file."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from pyflame.cli.llm_quantize import save
from pyflame.llm.convert import of_folder
from pyflame.llm.default import resolve
from pyflame.llm.export import encoded, targets
from pyflame.llm.files import open_checkpoint

HELP = "write a Hugging Face folder as a GGUF file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT.gguf", type=Path, help="the file to write")
    parser.add_argument("--to", choices=targets(), type=str.lower, help="the encoding of matrices (default: theirs)")


def run(options: argparse.Namespace, console: Console) -> None:
    checkpoint = open_checkpoint(resolve(options.model))
    content = of_folder(checkpoint)
    save(content if options.to is None else encoded(content, options.to), options.out, checkpoint.path, console)
