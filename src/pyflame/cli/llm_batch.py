"""`pyflame llm batch IN.jsonl OUT.jsonl`: answer a file of prompts, many at once; run again, it goes on."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from pyflame.cli.llm_arguments import add_computing, add_kv, load_model
from pyflame.cli.llm_progress import progress
from pyflame.llm.serving.engine import Engine
from pyflame.llm.serving.lines import answer_lines, done_lines, read_lines

HELP = "answer a file of prompts, many at once; a run that was interrupted goes on where it was"
NAMES_MODEL = False  # the model is an option, not the first argument
_OPTIONS = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="IN.jsonl", help="a line for each prompt: an object with a prompt or messages")
    add("target", metavar="OUT.jsonl", help="gets each line with its text, in order")
    add("--model", "-m", help="a GGUF file or a Hugging Face folder (default: SmolLM2-135M-Instruct, fetched once)")
    add_computing(parser)
    add("--context", type=int, help="tokens of prompt and text together (default: the model's, up to 4096)")
    add_kv(parser)
    add("--rows", type=int, default=16, help="texts that are written at once (default %(default)s)")
    # Options of generate: what a line says goes first.
    add("--max-tokens", "-n", type=int, help="the longest text (default: what the context has room for)")
    add("--temperature", "-t", type=float, help="0, the default, takes the likeliest token")
    add("--top-k", type=int, help="draw from so many tokens (default: all)")
    add("--top-p", type=float, help="draw from tokens of this mass (default: 1)")
    add("--min-p", type=float, help="drop tokens less likely than this share of the likeliest")
    add("--repetition-penalty", type=float, help="divide logits of tokens that were there (default: 1)")
    add("--seed", type=int, help="the same seed gives the same texts (default: 0)")


def run(options: argparse.Namespace, console: Console) -> None:
    lines = read_lines(options.source)
    done = done_lines(options.target, lines)
    given: dict[str, Any] = {name: v for name in _OPTIONS if (v := getattr(options, name)) is not None}
    wrong = tokens = 0
    if done < len(lines):
        with Engine(load_model(options), rows=options.rows) as engine, progress("batch", len(lines) - done) as step:
            for answer in answer_lines(engine, lines[done:], options.target, **given):
                wrong, tokens = wrong + ("error" in answer), tokens + answer.get("tokens", 0)
                step("")
    before = f", {done:,} were there" if done else ""
    failed = f", {wrong:,} could not be answered (see their error)" if wrong else ""
    console.print(f"{options.target}: {len(lines):,} lines{before}, {tokens:,} tokens written{failed}", soft_wrap=True)
