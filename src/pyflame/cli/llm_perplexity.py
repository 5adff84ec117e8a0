"""`pyflame llm perplexity MODEL --file TEXT`: how well a model knows a text."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from pyflame.cli.llm_arguments import add_computing, load_model
from pyflame.cli.llm_progress import progress
from pyflame.core.errors import ArgumentError
from pyflame.llm.perplexity import perplexity, windows

HELP = "the perplexity of a text, by llama.cpp's windows or by overlapping ones"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--file", "-f", type=Path, required=True, help="a text in UTF-8")
    add("--context", "-c", type=int, default=512, help="tokens of a window; the second half is scored (default 512)")
    add("--stride", type=int, help="begin a window every so many tokens, and score each token once")
    add_computing(parser)
    parser.set_defaults(kv=None)  # a window is read at once, without a cache
    add("--json", action="store_true", help="print an object instead of a line")


def run(options: argparse.Namespace, console: Console) -> None:
    try:
        text = options.file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"[perplexity] expected UTF-8 but got {options.file}: {error}") from None
    model = load_model(options)
    tokens = len(model.encode(text))
    count = len(windows(tokens, options.context, options.stride))
    with progress("perplexity", count) as step:
        found = perplexity(model, text, options.context, options.stride, lambda so_far: step(f"{so_far.value:.4f}"))
    result = {
        "perplexity": found.value, "error": found.error, "scored": found.tokens, "tokens": tokens, "windows": count,
        "context": options.context, "stride": options.stride,
    }  # fmt: skip
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        console.print(
            f"perplexity {found.value:.4f} ± {found.error:.4f} over {found.tokens:,} of {tokens:,} tokens "
            f"in {count:,} windows of {options.context}",
            soft_wrap=True,
        )
