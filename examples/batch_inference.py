"""Answer many prompts: JSON lines in, JSON lines out, in the same order.

A line is an object with a "prompt", or with the "messages" of a chat; what else it has is kept. `pyflame llm batch` is
the command that also goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import pyflame as pf

PROMPTS = [{"prompt": text} for text in ("The sky is", "Two and two make", "Once upon a time", "Paris is")]


def read_lines(path: str | None) -> list[dict[str, Any]]:
    """The objects of a file; - is standard input."""
    if path is None:
        return [dict(one) for one in PROMPTS]
    text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            one = json.loads(line)
        except ValueError as error:
            raise SystemExit(f"line {number}: expected JSON but got {error}") from None
        if not isinstance(one, dict) or ("prompt" in one) == ("messages" in one):
            raise SystemExit(f"line {number}: expected an object with either a prompt or messages")
        found.append(one)
    return found


def answered(model: Any, lines: list[dict[str, Any]], batch: int, options: dict[str, Any]) -> int:
    """Put a text beside every prompt; gives how many tokens were written."""
    asked = [{key: one[key] for key in ("prompt", "messages") if key in one} for one in lines]
    made = pf.llm.batch(asked, model, rows=batch, **options)
    for one, text in zip(lines, made, strict=True):
        one |= {"text": text.text, "finish_reason": text.finish_reason, "tokens": len(text.tokens)}
    return sum(len(text.tokens) for text in made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a GGUF file or a Hugging Face folder (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--input", help="a file of JSON lines, - for standard input (default: four prompts)")
    parser.add_argument("--output", help="a file for the answers (default: standard output)")
    parser.add_argument("--batch", type=int, default=8, help="prompts at once (default %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--context", type=int, default=1024)
    args = parser.parse_args()

    lines = read_lines(args.input)
    model = pf.llm.load(args.model, context=args.context)
    begun = time.perf_counter()
    options = {"max_tokens": args.max_tokens, "temperature": args.temperature, "seed": args.seed}
    written = answered(model, lines, args.batch, options)
    seconds = time.perf_counter() - begun
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lines)
    if args.output is None:
        sys.stdout.write(text)
    else:
        pf.io.write_atomic(args.output, text)
    print(f"{len(lines)} texts, {written} tokens, {written / seconds:.1f} per second", file=sys.stderr)


if __name__ == "__main__":
    main()
