"""`pyflame llm COMMAND MODEL`: what a model's files hold (info), what memory it takes (estimate), and more commands."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from pyflame.cli import llm_batch, llm_bench, llm_convert, llm_load_test, llm_perplexity, llm_quantize
from pyflame.cli.llm_arguments import add_tensor_parallel, tensor_parallel
from pyflame.core.errors import NotSupportedError, PyFlameError
from pyflame.core.sizes import human_bytes
from pyflame.llm.cache import KV
from pyflame.llm.default import resolve
from pyflame.llm.estimate import Estimate, config_of, estimate
from pyflame.llm.files import Checkpoint, open_checkpoint

# Commands that have a file of their own.
_FILES: dict[str, Any] = {
    "batch": llm_batch,
    "bench": llm_bench,
    "perplexity": llm_perplexity,
    "quantize": llm_quantize,
    "convert": llm_convert,
    "load-test": llm_load_test,
}
_FILE_WIDTH = 160  # columns where there is no terminal


def options_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pyflame llm", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info = commands.add_parser("info", help="what a model's files hold: sizes, encodings, tokenizer, chat template")
    info.add_argument("--tensors", action="store_true", help="list every tensor")
    fits = commands.add_parser("estimate", help="the memory that a model takes, and the devices it fits on")
    fits.add_argument("--context", type=int, help="tokens of a sequence (default: as many as the model can)")
    fits.add_argument("--batch", type=int, default=1, help="sequences at once (default 1)")
    fits.add_argument("--kv", choices=KV, default="fp16", help="how keys and values are kept (default fp16)")
    fits.add_argument("--dtype", help="what weights that are not encoded are turned into (default: as they are)")
    fits.add_argument("--device", help="the device to look at (default: all of this machine)")
    add_tensor_parallel(fits)
    for command in (info, fits):
        command.add_argument("--json", action="store_true", help="print an object instead of tables")
    own = {name: commands.add_parser(name, help=file.HELP, description=file.HELP) for name, file in _FILES.items()}
    for command in (info, fits, *(own[name] for name, file in _FILES.items() if getattr(file, "NAMES_MODEL", True))):
        command.add_argument(
            "model", metavar="MODEL", help="a .gguf file, a Hugging Face folder or repository, or smollm2"
        )
    for name, command in own.items():
        _FILES[name].add_arguments(command)
    return parser.parse_args(argv)


def run(argv: list[str]) -> int:
    options = options_from(argv)
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, highlight=False)
    try:
        if options.command in _FILES:
            _FILES[options.command].run(options, console)
            return 0
        checkpoint = open_checkpoint(resolve(options.model))
        if options.command == "info":
            about = describe(checkpoint, options.tensors)
            _show(options, console, about, about["path"], _info_tables(about))
        else:
            shared = tensor_parallel(options.tensor_parallel)
            asked = (options.context, options.batch, options.kv, options.dtype, options.device, shared)
            found = estimate(checkpoint, *asked)
            title = f"{found.model}: {found.batch} x {found.context} tokens, keys and values in {found.kv}"
            title += f", over {found.tensor_parallel} devices" if found.tensor_parallel > 1 else ""
            _show(options, console, found.to_json(), title, _estimate_tables(found))
    except (PyFlameError, OSError) as error:
        print(f"pyflame llm: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        going_on = "; the same command goes on where it was" if options.command == "batch" else ""
        print(f"pyflame llm: interrupted{going_on}", file=sys.stderr)
        return 130
    return 0


def _show(
    options: argparse.Namespace, console: Console, found: dict[str, Any], title: str, tables: list[Table]
) -> None:
    if options.json:
        print(json.dumps(found, indent=1))
        return
    console.print(title, markup=False)
    for table in tables:
        console.print(table)
        console.print()


def describe(checkpoint: Checkpoint, tensors: bool = False) -> dict[str, Any]:
    """What a checkpoint holds, as JSON's types."""
    stored = {name: checkpoint.stored(name) for name in checkpoint.names()}
    elements = sum(math.prod(one.shape) for one in stored.values())
    found: dict[str, Any] = {
        "path": str(checkpoint.path),
        "kind": checkpoint.kind,
        "architecture": checkpoint.architecture,
        "name": checkpoint.metadata.get("general.name") or checkpoint.metadata.get("_name_or_path") or None,
        "parameters": elements,
        "bytes": checkpoint.nbytes,
        "bits_per_weight": round(8 * checkpoint.nbytes / elements, 3) if elements else None,
        "config": _config(checkpoint),
        "encodings": _encodings(stored.values()),
        "tokenizer": _tokenizer(checkpoint),
        "chat_template": checkpoint.chat_template is not None,
    }
    if tensors:
        found["tensors"] = {
            name: {"shape": list(one.shape), "encoding": one.encoding, "bytes": one.bytes.nbytes}
            for name, one in stored.items()
        }
    return found


def _config(checkpoint: Checkpoint) -> dict[str, Any]:
    try:
        config = config_of(checkpoint)
    except PyFlameError as error:
        return {"unknown": str(error)}
    names = ("layers", "width", "heads", "kv_heads", "head_size", "ffn", "vocab", "context")
    return {name: getattr(config, name) for name in names}


def _tokenizer(checkpoint: Checkpoint) -> dict[str, Any]:
    try:
        made = checkpoint.tokenizer()
    except (NotSupportedError, FileNotFoundError) as error:
        return {"unknown": str(error)}
    return {
        "tokens": made.vocab_size,
        "bos": None if made.bos is None else made.token(made.bos),
        "eos": [made.token(end) for end in sorted(made.eos)],
    }


def _encodings(stored: Any) -> dict[str, dict[str, int]]:
    tensors, elements, nbytes = Counter[str](), Counter[str](), Counter[str]()
    for one in stored:
        tensors[one.encoding] += 1
        elements[one.encoding] += math.prod(one.shape)
        nbytes[one.encoding] += one.bytes.nbytes
    return {
        name: {"tensors": tensors[name], "elements": elements[name], "bytes": nbytes[name]}
        for name, _ in nbytes.most_common()
    }


def _table(*heads: str) -> Table:
    table = Table(box=None, header_style="bold", show_header=any(heads))
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number and any(heads) else "left")
    return table


def _info_tables(about: dict[str, Any]) -> list[Table]:
    facts = _table("", "")
    for key in ("kind", "architecture", "name"):
        facts.add_row(key, str(about[key] or "-"))
    facts.add_row("parameters", f"{about['parameters']:,}")
    facts.add_row("weights", f"{human_bytes(about['bytes'])}, {about['bits_per_weight']} bits per weight")
    for group in ("config", "tokenizer"):
        for key, value in about[group].items():
            facts.add_row(
                group if key == "unknown" else key, " ".join(value) if isinstance(value, list) else str(value)
            )
    facts.add_row("chat template", "yes" if about["chat_template"] else "no")
    kinds = _table("encoding", "tensors", "elements", "bytes")
    for name, one in about["encodings"].items():
        kinds.add_row(name, str(one["tensors"]), f"{one['elements']:,}", human_bytes(one["bytes"]))
    tables = [facts, kinds]
    if "tensors" in about:
        rows = _table("tensor", "shape", "encoding", "bytes")
        for name, one in about["tensors"].items():
            rows.add_row(name, " x ".join(map(str, one["shape"])), one["encoding"], f"{one['bytes']:,}")
        tables.append(rows)
    return tables


def _estimate_tables(found: Estimate) -> list[Table]:
    parts = _table("memory", "bytes")
    for name in ("weights", "cache", "workspace", "total"):
        parts.add_row(f"{name} (estimated)" if name == "workspace" else name, human_bytes(getattr(found, name)))
    fits = _table("device", "free", "of", "weights", "cache", "workspace", "fits", "longest context")
    for one in found.devices:
        longest = f"{one.longest_context:,}" if one.longest_context else "none: the weights are too large"
        sizes = map(human_bytes, (one.free, one.total, one.weights, one.cache, one.workspace))
        fits.add_row(one.device, *sizes, "yes" if one.fits else "no", longest)
    return [parts, fits]
