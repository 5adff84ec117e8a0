"""What commands that run a model have in common: its options, those of sampling, and its loading."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from rich.console import Console

from pyflame.llm import Model, Timings, load
from pyflame.llm.cache import KV


def parser(command: str, doc: str) -> argparse.ArgumentParser:
    """A parser with the options of both commands."""
    out = argparse.ArgumentParser(prog=f"pyflame {command}", description=doc)
    add = out.add_argument
    add("--model", "-m", help="a GGUF file or a Hugging Face folder (default: SmolLM2-135M-Instruct, fetched once)")
    add_computing(out)
    add("--context", type=int, help="tokens of prompt and text together (default: the model's, up to 4096)")
    add_kv(out)
    add("--max-tokens", "-n", type=int, help="the longest answer (default: what the context has room for)")
    add("--temperature", "-t", type=float, default=0.2, help="0 takes the likeliest token (default: %(default)s)")
    add("--top-k", type=int, default=0, help="draw from so many tokens (default: all)")
    add("--top-p", type=float, default=0.9, help="draw from tokens of this mass (default: %(default)s)")
    add("--min-p", type=float, default=0.0, help="drop tokens less likely than this share of the likeliest")
    add("--repetition-penalty", type=float, default=1.0, help="divide logits of tokens that were there (default: 1)")
    add("--seed", type=int, help="the same seed gives the same text (default: drawn)")
    add("--stats", action="store_true", help="show tokens per second")
    return out


def add_computing(parser: argparse.ArgumentParser) -> None:
    """The options of where and in what a model is computed, which `pyflame llm` has too."""
    add = parser.add_argument
    add("--device", help="where it runs: cpu, cuda, rocm, sim:gfx942 (default: the current device)")
    add("--dtype", help="what is computed in: float32, bfloat16, float16 (default: by device)")
    add("--quantize", help="encode plain matrices while loading: q8_0, q4_0, ...")
    help = "multiply with encoded weights in float32: slower, without rounding (always where no model is named)"
    add("--exact", action="store_true", help=help)


def add_kv(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kv", choices=list(KV), help="how keys and values are kept (default: as what is computed in)")


def sampling(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `generate`."""
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_tokens")
    seed = int.from_bytes(os.urandom(4), "little") if args.seed is None else args.seed
    return {name: getattr(args, name) for name in names} | {"seed": seed}


def load_model(args: argparse.Namespace) -> Model:
    """The model that the options name; a line on a terminal says that it is being loaded."""
    console = Console(stderr=True)
    with console.status(f"loading {args.model or 'SmolLM2-135M-Instruct'}"):
        model = load(args.model, args.device, args.dtype, args.quantize, args.context, args.exact or None, args.kv)
    return model


def show_speed(timings: Timings) -> None:
    """One line on stderr."""
    read = timings.prompt_tokens - timings.cached
    Console(stderr=True, highlight=False).print(
        f"[dim]{read} tokens read in {timings.prompt_seconds:.2f} s ({timings.cached} were known), "
        f"{timings.tokens} written at {timings.tokens_per_second:.1f}/s[/dim]"
    )


def write(text: str) -> None:
    """Show a piece of text at once."""
    sys.stdout.write(text)
    sys.stdout.flush()
