"""What commands that run a model have in common: its options, those of sampling, and its loading."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from rich.console import Console

from pyflame.core.errors import ArgumentError, FileFormatError
from pyflame.llm import Model, Timings, load
from pyflame.llm.cache import KV
from pyflame.llm.prompt_cache import is_prompt, restore


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
    add_speculation(out)
    add("--prompt-cache", metavar="FILE", help="keep what was read of the prompt in this file, and begin with it")
    add("--stats", action="store_true", help="show tokens per second")
    return out


def add_speculation(parser: argparse.ArgumentParser) -> None:
    """The options of guessing tokens ahead, which asks for greedy decoding."""
    add = parser.add_argument
    add("--lookup", type=int, default=0, help="guess so many tokens from what followed the same words (greedy only)")
    add("--draft", help="a smaller model of the same vocabulary that guesses tokens ahead (greedy only)")
    add("--ahead", type=int, default=4, help="how many tokens the draft guesses (default: %(default)s)")


def speculation(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `generate` that guess tokens; loads the draft."""
    draft = None if args.draft is None else load_named(args, args.draft)
    return {"lookup": args.lookup, "draft": draft, "ahead": args.ahead}


def add_computing(parser: argparse.ArgumentParser) -> None:
    """The options of where and in what a model is computed, which `pyflame llm` has too."""
    add = parser.add_argument
    add("--device", help="where it runs: cpu, cuda, rocm, sim:gfx942 (default: the current device)")
    add("--device-map", help="spread layers over devices: auto, or blk.0-11=cuda:0,blk.12-23=cpu")
    add_tensor_parallel(parser)
    add("--dtype", help="what is computed in: float32, bfloat16, float16 (default: by device)")
    add("--quantize", help="encode plain matrices while loading: q8_0, q4_0, ...")
    help = "bits of the inputs of encoded weights that count: 8 is fastest on the CPU, 32 rounds nothing (default 16)"
    add("--activation-bits", type=int, choices=(8, 16, 32), default=16, help=help)


def add_tensor_parallel(parser: argparse.ArgumentParser) -> None:
    help = "divide each layer over devices that work at once: so many GPUs, or rocm:0,rocm:1"
    parser.add_argument("--tensor-parallel", metavar="N|DEVICES", help=help)


def add_kv(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kv", choices=list(KV), help="how keys and values are kept (default: as what is computed in)")


def sampling(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `generate`."""
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_tokens")
    seed = int.from_bytes(os.urandom(4), "little") if args.seed is None else args.seed
    return {name: getattr(args, name) for name in names} | {"seed": seed}


def load_model(args: argparse.Namespace) -> Model:
    """The model that the options name."""
    return load_named(args, args.model)


def load_named(args: argparse.Namespace, name: str | None) -> Model:
    """The model of a name, as the other options say."""
    bits, spread, shared = args.activation_bits, _device_map(args.device_map), tensor_parallel(args.tensor_parallel)
    return load(name, args.device, args.dtype, args.quantize, args.context, bits, args.kv, spread, shared)


def tensor_parallel(text: str | None) -> int | list[str] | None:
    """A number, or names of devices with commas between them."""
    if text is None:
        return None
    return int(text) if text.isdecimal() else text.split(",")


def _device_map(text: str | None) -> str | dict[str, str] | None:
    """`blk.0-11=cuda:0,blk.12=cpu` as a dict; other words as they are."""
    if text is None or "=" not in text:
        return text
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


_KEPT_SHARE = 0.75  # of a prompt that must be in its file for the file to stay; llama.cpp's


def begin_with(model: Model, path: str | None, prompt: list[int]) -> None:
    """Have the beginning of a prompt in the model's cache: from a file, or read now and saved there. A file that does
    not fit any more is written anew, with a word on why; what is no such file is left alone."""
    if path is None:
        return
    known = 0
    try:
        with model.lease(1) as batch:
            known = restore(path, model, batch, [prompt])
    except FileNotFoundError:
        pass
    except (FileFormatError, ArgumentError) as error:
        if not is_prompt(path):
            raise
        print(f"{error}; it is written anew", file=sys.stderr)
    if known < _KEPT_SHARE * len(prompt):
        model.save_prompt(path, prompt)


def show_speed(timings: Timings) -> None:
    """One line on stderr."""
    read = timings.prompt_tokens - timings.cached
    guesses = f", {timings.accepted} of {timings.guessed} guesses were right" if timings.guessed else ""
    Console(stderr=True, highlight=False).print(
        f"[dim]{read} tokens read in {timings.prompt_seconds:.2f} s ({timings.cached} were known), "
        f"{timings.tokens} written at {timings.tokens_per_second:.1f}/s{guesses}[/dim]",
        soft_wrap=True,
    )


def write(text: str) -> None:
    """Show a piece of text at once."""
    sys.stdout.write(text)
    sys.stdout.flush()
