"""`pyflame demo`: train a small GPT on Python's own standard library, let it write code, and show what ran."""

from __future__ import annotations

import argparse
import codecs
import html
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

import pyflame as pf
from pyflame import nn, optim, profiling
from pyflame.core.errors import ArgumentError, FileFormatError, PyFlameError
from pyflame.core.files import read_json
from pyflame.core.sizes import human_bytes
from pyflame.core.state import state
from pyflame.data import DataLoader
from pyflame.engine.devices import get_device
from pyflame.io import write_atomic
from pyflame.train import (
    BytePairs,
    CheckpointManager,
    Corpus,
    LambdaCallback,
    LossCurve,
    TimeBudget,
    Trainer,
    Windows,
    python_sources,
    read_corpus,
)
from pyflame.train.curve import svg
from pyflame.train.progress import memory

_FOLDER = Path("pyflame-demo")
_RUN = "run.json"  # what a resumed run must know: size and tokens
_TOKENS_WRITTEN = 160


@dataclass(frozen=True)
class Size:
    """A model and how it is fed."""

    layers: int
    heads: int
    width: int
    context: int
    batch: int
    tokens: int
    lr: float


SIZES = {
    "tiny": Size(layers=2, heads=2, width=64, context=64, batch=8, tokens=512, lr=5e-3),
    "small": Size(layers=4, heads=4, width=128, context=64, batch=16, tokens=1024, lr=4e-3),
    "medium": Size(layers=6, heads=6, width=384, context=256, batch=8, tokens=4096, lr=1e-3),
}


def options_from(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pyflame demo", description=__doc__)
    parser.add_argument("--device", help="where to train, such as cpu or rocm:0 (default: the current device)")
    parser.add_argument("--minutes", type=float, default=0.75, help="time to train (default 0.75)")
    parser.add_argument("--size", choices=SIZES, help="of the model (default small, or that of the run to resume)")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), help="default bfloat16 where there are matrix units"
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")
    parser.add_argument("--out", type=Path, default=_FOLDER, help=f"folder (default {_FOLDER})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prompt", default="def ", help="what the code shall begin with (default 'def ')")
    options = parser.parse_args(argv)
    if not 0 < options.minutes < math.inf:
        parser.error(f"argument --minutes: expected a time above 0 but got {options.minutes}")
    if not options.prompt:
        parser.error("argument --prompt: expected some text but got none")
    return options


class Demo:
    """One run of the demonstration, in the folder `options.out`."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.options = options
        self.console = console
        self.folder: Path = options.out
        self.checkpoints = self.folder / "checkpoints"
        self.speeds: list[float] = []
        self.curve = LossCurve(self.folder / "loss.html")

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def run(self) -> None:
        name, tokenizer = self.start_or_resume()
        size = SIZES[name]
        self.say(f"PyFlame {pf.__version__} on {pf.device_info()['name']} ({pf.get_device()})\n")
        self.say("1. Read the source of Python's standard library")
        started = time.perf_counter()
        corpus = read_corpus(python_sources(), size.tokens, tokenizer=tokenizer)
        kinds, count = len(corpus.tokenizer), len(corpus.train) + len(corpus.held_out)
        self.say(
            f"   {corpus.files} files, {corpus.nbytes / 1e6:.1f} MB, {count:,} tokens of {kinds:,} kinds, "
            f"{corpus.bytes_per_token:.1f} bytes each, in {time.perf_counter() - started:.1f} s\n"
        )
        trainer = self.make_trainer(size, corpus)
        if tokenizer is None:
            self.begin_anew(name, corpus.tokenizer)
        self.say(
            f"2. Train a GPT of {_parameters(trainer):,} parameters, {size.layers} layers of {size.width}, for "
            f"{self.options.minutes:g} minutes (Ctrl-C ends it with a checkpoint)"
        )
        trainer.fit(resume=self.options.resume)
        loss = trainer.evaluate()["loss"]
        self.say("\n3. Let it write\n")
        written = self.write(trainer, corpus.tokenizer)
        self.say("\n4. What ran")
        self.report(trainer, corpus, loss, written)

    # --- the folder -------------------------------------------------------------------------------------------------

    def start_or_resume(self) -> tuple[str, BytePairs | None]:
        """The name of the size, and the tokens of the run that is resumed."""
        about, wanted = self.folder / _RUN, self.options.size
        if self.options.resume:
            if not about.exists():
                raise ArgumentError(f"[demo] expected a run to resume but {self.folder} holds none; leave out --resume")
            size, tokenizer = _run_of(about)
            if wanted not in (None, size):
                raise ArgumentError(f"[demo] expected --size {size}, as in {self.folder}, but got {wanted}")
            return size, tokenizer
        if self.folder.exists() and any(self.folder.iterdir()) and not about.exists():
            raise ArgumentError(
                f"[demo] expected a folder that is empty or of the demo but {self.folder} holds other files; choose "
                "another with --out"
            )
        return wanted or "small", None

    def begin_anew(self, name: str, tokenizer: BytePairs) -> None:
        """Make the folder ready; the checkpoints of an earlier demo in it go."""
        self.folder.mkdir(parents=True, exist_ok=True)
        manager = CheckpointManager(self.checkpoints)
        if manager.all():
            manager.discard_after(-1)
        (self.folder / "log.jsonl").unlink(missing_ok=True)
        write_atomic(self.folder / _RUN, json.dumps({"size": name, "merges": tokenizer.merges}))

    # --- training and writing ---------------------------------------------------------------------------------------

    def make_trainer(self, size: Size, corpus: Corpus) -> Trainer:
        seed = self.options.seed
        pf.manual_seed(seed)
        model = nn.GPT(nn.GPTConfig(len(corpus.tokenizer), size.context, size.layers, size.heads, size.width))
        held_out = corpus.held_out[: 128 * size.context + 1]
        fast = get_device(state.device).target.matrix_core
        dtype = self.options.dtype or ("bfloat16" if fast else "float32")
        return Trainer(
            model,
            optim.AdamW(model.parameters(), lr=size.lr, betas=(0.9, 0.98), weight_decay=0.05),
            lambda logits, targets: pf.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)),
            train_data=DataLoader(
                Windows(corpus.train, size.context), size.batch, shuffle=True, drop_last=True, seed=seed
            ),
            eval_data=DataLoader(Windows(held_out, size.context), size.batch),
            max_epochs=1_000_000,  # the time ends it
            eval_every=200,
            clip_norm=1.0,
            autocast=dtype if dtype == "bfloat16" else None,
            callbacks=[
                TimeBudget(60.0 * self.options.minutes, size.lr),
                self.curve,
                LambdaCallback(on_log=lambda trainer, record: self.speeds.append(record["tokens_per_second"])),
            ],
            checkpoint=self.checkpoints,
            checkpoint_every=500,
            keep=2,
            log=self.folder / "log.jsonl",
            log_every=50,
            progress=self.console,
            unit="tokens",
            count=lambda batch: batch[0].numel(),
        )

    def write(self, trainer: Trainer, tokenizer: BytePairs) -> str:
        """Print what the model makes of the prompt, as it comes."""
        prompt: str = self.options.prompt
        print(prompt, end="", flush=True)
        whole = codecs.getincrementaldecoder("utf-8")("replace")  # a token may end within a character
        text = prompt
        tokens = trainer.model.eval().generate(
            tokenizer.encode(prompt), _TOKENS_WRITTEN, temperature=0.6, top_k=40, seed=self.options.seed
        )
        for token in tokens:
            piece = whole.decode(tokenizer.decode([token]))
            text += piece
            print(piece, end="", flush=True)
        print()
        return text

    # --- what it was ------------------------------------------------------------------------------------------------

    def report(self, trainer: Trainer, corpus: Corpus, loss: float, written: str) -> None:
        trainer.model.train()
        batch = next(iter(trainer.train_data))
        # Other programs only ever add time: the fastest of some runs is the plan's own.
        step = min((pf.explain(trainer.steps.step, batch) for _ in range(5)), key=profiling.seconds)
        bits = loss / math.log(2) / corpus.bytes_per_token
        facts = {
            "device": f"{pf.device_info()['name']} ({pf.get_device()})",
            "model": f"GPT, {_parameters(trainer):,} parameters, after {trainer.step:,} steps",
            "held-out loss": f"{loss:.3f} per token, {bits:.2f} bits per byte",
            "speed": f"{median(self.speeds):,.0f} tokens/s" if self.speeds else "no step was logged",
            **profiling.what_ran(step, pf.compile_stats()),
            "peak memory": human_bytes(memory().get("peak_bytes", 0)),
        }
        table = Table(show_header=False, box=None)
        for label, words in facts.items():
            table.add_row(f"  {label}", words)
        self.console.print(table, highlight=False)
        page = self.folder / "report.html"
        sections = [("Loss", svg(self.curve.series)), ("What it wrote", f"<pre>{html.escape(written)}</pre>")]
        write_atomic(page, profiling.page("PyFlame demo: a GPT on Python's source", facts, step, sections))
        self.say(
            f"\n  report      {page.resolve()}\n  checkpoint  {CheckpointManager(self.checkpoints).all()[-1].resolve()}"
        )
        self.say(
            "  go on       python -m pyflame demo --resume"
            + (f" --out {self.folder}" if self.folder != _FOLDER else "")
        )


def _run_of(about: Path) -> tuple[str, BytePairs]:
    """Size and tokens of the run that a file tells of."""
    try:
        known = read_json(about)
        if known["size"] not in SIZES:
            raise ValueError(f"no size {known['size']!r}")
        return known["size"], BytePairs(known["merges"])
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"[demo] expected what a run left but {about} is damaged ({error}); begin anew") from None


def _parameters(trainer: Trainer) -> int:
    return sum(p.numel() for p in trainer.model.parameters())


def run(argv: list[str]) -> int:
    options = options_from(argv)
    try:
        if options.device:
            pf.set_device(options.device)
        Demo(options, Console()).run()
    except PyFlameError as error:
        print(f"pyflame demo: {error}", file=sys.stderr)
        return 1
    return 0
