"""`pyflame llm bench MODEL`: tokens per second of reading and of writing, in llama-bench's columns."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections import Counter
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pyflame.cli.llm_arguments import add_computing, add_kv, add_speculation, load_model, speculation
from pyflame.cli.llm_progress import progress
from pyflame.core.errors import ArgumentError
from pyflame.core.knobs import THREADS
from pyflame.core.sizes import human_bytes
from pyflame.llm.bench import Speed, bench, context_for, runs, write_first_token
from pyflame.llm.default import resolve
from pyflame.llm.files import Checkpoint, open_checkpoint
from pyflame.llm.generate import Model
from pyflame.profiling.limits import measure_limit
from pyflame.tensor.torch_names import get_num_threads

HELP = "tokens per second of reading a prompt and of writing, as llama-bench measures them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-p", "--prompt", type=int, default=512, help="tokens of the prompt (default %(default)s; 0: no such test)")
    add("-n", "--tokens", type=int, default=128, help="tokens to write (default %(default)s; 0: no such test)")
    add("-r", "--repeats", type=int, default=5, help="timed runs of each test (default %(default)s)")
    add("-t", "--threads", type=int, help="threads of the CPU (default: one per core)")
    add_kv(parser)
    add_speculation(parser)
    add_computing(parser)
    add("--json", action="store_true", help="print objects under llama-bench's names instead of a table")


def run(options: argparse.Namespace, console: Console) -> None:
    if options.threads is not None:
        _set_threads(options.threads)
    checkpoint = open_checkpoint(resolve(options.model))
    options.context = context_for(options.prompt, options.tokens)
    begun = time.perf_counter()
    model = load_model(options)
    loaded = time.perf_counter()
    write_first_token(model)
    times = {"load_s": loaded - begun, "load_to_first_token_s": time.perf_counter() - begun}
    guesses = speculation(options)
    with progress("bench", runs(options.prompt, options.tokens, options.repeats)) as step:
        counts = options.prompt, options.tokens, options.repeats
        found = bench(model, *counts, lambda: step(""), **guesses)
    rows = [_row(checkpoint, model, speed, options) | times for speed in found]
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        console.print(_table(rows))
        console.print(
            f"load to first token: {times['load_to_first_token_s']:.2f} s, of which {times['load_s']:.2f} s are loading"
        )


def _set_threads(count: int) -> None:
    """The CPU reads the setting when it is first used."""
    if count >= 1:
        os.environ[THREADS.name] = str(count)
    if get_num_threads() != count:
        raise ArgumentError(f"[bench] expected at least 1 thread, and a CPU that is not in use yet, but got {count}")


def _row(checkpoint: Checkpoint, model: Model, speed: Speed, options: argparse.Namespace) -> dict[str, Any]:
    """A test's result under llama-bench's names, and how fast weights were read."""
    stored = [checkpoint.stored(name) for name in checkpoint.names()]
    sizes: Counter[str] = Counter()
    for one in stored:
        sizes[one.encoding] += one.bytes.nbytes
    encoding = options.quantize or sizes.most_common(1)[0][0]
    rate, places = speed.bytes_per_second, model.decoder.places
    at_once = places.parallel or [model.device]  # devices that read their parts at the same time
    limit = sum(map(measure_limit, at_once)) if speed.read else 0.0
    return {
        "model_filename": str(checkpoint.path),
        "model_type": f"{checkpoint.metadata.get('general.name') or checkpoint.architecture} {encoding}",
        "model_size": checkpoint.nbytes,
        "model_n_params": sum(math.prod(one.shape) for one in stored),
        "backends": str(places) if places.split else str(model.device),
        "n_threads": get_num_threads(),
        "type_kv": options.kv or model.kv.name,
        "test": speed.test,
        "speculation": _guesses(options) if speed.test.startswith("tg") else None,
        "avg_ts": speed.mean,
        "stddev_ts": speed.deviation,
        "samples_ts": list(speed.samples),
        "weight_bytes_per_token": speed.read,
        "gb_per_s": None if rate is None else rate / 1e9,
        "copy_limit_gb_per_s": limit / 1e9 if limit else None,
        "share_of_copy_limit": rate / limit if rate is not None and limit else None,
    }


def _guesses(options: argparse.Namespace) -> str | None:
    if options.draft is not None:
        return f"draft {options.ahead}"
    return f"lookup {options.lookup}" if options.lookup else None


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=box.MARKDOWN, header_style="bold")
    table.add_column("model")
    heads = ("size", "params", "backend", "threads", "kv", "test", "t/s", "weights GB/s", "of copy limit")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        read = ("", "")
        if row["gb_per_s"] is not None:
            share = row["share_of_copy_limit"]
            read = (f"{row['gb_per_s']:.2f}", "" if share is None else f"{share:.0%}")
        table.add_row(
            row["model_type"],
            human_bytes(row["model_size"]),
            f"{row['model_n_params'] / 1e6:,.2f} M",
            row["backends"],
            str(row["n_threads"]),
            row["type_kv"],
            " ".join(filter(None, (row["test"], row["speculation"]))),
            f"{row['avg_ts']:.2f} ± {row['stddev_ts']:.2f}",
            *read,
        )
    return table
