"""`pyflame serve`: language models over HTTP, under OpenAI's and Ollama's interfaces, with a chat page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyflame.cli.llm_arguments import add_computing, add_kv, load_named
from pyflame.cli.ports import port
from pyflame.core.errors import ArgumentError, PyFlameError
from pyflame.core.optional import optional
from pyflame.llm import Model, load_adapter, load_adapters

_DEFAULT = "smollm2"


def options_from(argv: list[str]) -> argparse.Namespace:
    out = argparse.ArgumentParser(prog="pyflame serve", description=__doc__)
    add = out.add_argument
    help = "[NAME=]MODEL[+ADAPTER]; may be given several times (default: smollm2, fetched once)"
    add("--model", "-m", action="append", help=help)
    add(
        "--adapter", action="append", default=[], metavar="[MODEL:]NAME=FOLDER",
        help="a LoRA adapter that requests choose as MODEL:NAME; may be given several times",
    )  # fmt: skip
    add("--host", default="127.0.0.1", help="where to listen (default: this machine only)")
    add("--port", "-p", type=port, default=8000, help="(default: %(default)s; 0: any that is free)")
    add("--token-file", type=Path, help="a file with the token that callers must have; made where --host is not local")
    add("--cors", action="append", default=[], metavar="ORIGIN", help="let web pages of this origin call (* for all)")
    add("--allow-host", action="append", default=[], metavar="NAME", help="a name that this server answers to")
    add_computing(out)
    add_kv(out)
    add("--context", type=int, help="tokens of prompt and text together (default: the model's, up to 4096)")
    add("--rows", type=int, default=16, help="texts that are written at once (default: %(default)s)")
    add("--pages", type=int, help="pages of 32 tokens of the cache (default: what memory has room for)")
    add("--queue", type=int, default=256, help="texts that may wait; more get 429 (default: %(default)s)")
    add("--chunk", type=int, default=256, help="tokens of prompts that a step reads (default: %(default)s)")
    add("--burst", type=int, help="as many where many texts wait to be read (default: 2048 on a GPU)")
    add("--no-prepare", action="store_true", help="plan steps when they are first needed: starts sooner, answers later")
    add("--max-body", type=int, default=8 << 20, help="bytes of a request (default: %(default)s)")
    add("--timeout", type=float, default=600.0, help="seconds that a request may take (default: %(default)g)")
    add("--drain", type=float, default=30.0, help="seconds to finish in when asked to end (default: %(default)g)")
    add("--log-level", default="info", choices=("critical", "error", "warning", "info", "debug"))
    return out.parse_args(argv)


def run(argv: list[str]) -> int:
    args = options_from(argv)
    try:
        optional("fastapi", "serve", "serve")
        optional("uvicorn", "serve", "serve")
        from pyflame.llm.server import Limits, Settings, serve

        token = None if args.token_file is None else args.token_file.read_text().strip()
        if token == "":
            raise ArgumentError(f"[serve] expected a token but {args.token_file} is empty")
        limits = Limits(body_bytes=args.max_body, request_seconds=args.timeout, drain_seconds=args.drain)
        settings = Settings(token, tuple(args.allow_host) or None, tuple(args.cors), limits)
        models = dict(load_served(args, one) for one in args.model or [_DEFAULT])
        add_adapters(models, args.adapter)
        engine = {name: getattr(args, name) for name in ("rows", "pages", "queue", "chunk", "burst")}
        engine["prepare"] = not args.no_prepare
        serve(models, host=args.host, port=args.port, settings=settings, log_level=args.log_level, **engine)
    except (PyFlameError, OSError) as error:
        print(f"pyflame serve: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # the server has ended in order by then
        return 130
    return 0


def load_served(args: argparse.Namespace, text: str) -> tuple[str, Model]:
    """A model and its name: what was given, or what the file is called."""
    given, found, rest = text.partition("=")
    path, _, adapter = (rest if found else text).partition("+")
    model = load_named(args, path)
    if adapter:
        load_adapter(model, adapter)
    return given if found else Path(path).name.removesuffix(".gguf"), model


def add_adapters(models: Mapping[str, Model], given: Sequence[str]) -> None:
    """Give models their adapters, of which each request takes one."""
    found: dict[str, dict[str, str]] = {}
    for text in given:
        named, equals, folder = text.partition("=")
        model, colon, name = named.rpartition(":")
        if not colon and len(models) == 1:
            model = next(iter(models))
        if not (equals and name and folder) or model not in models:
            raise ArgumentError(
                f"[serve] expected --adapter [MODEL:]NAME=FOLDER with a model among {', '.join(models)} but got "
                f"{text!r}"
            )
        found.setdefault(model, {})[name] = folder
    for model, folders in found.items():
        if models[model].decoder.lora is not None:
            raise ArgumentError(
                f"[serve] expected {model} without an adapter of its own beside --adapter but it has one"
            )
        load_adapters(models[model], folders)
