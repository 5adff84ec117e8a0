"""Text written and prompts read by a model of Llama 3.1 8B's shape with random weights, by the path that users take.

A step that writes reads every weight and the keys and values of each row once: its lines give these bytes per second.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import pyflame as pf
from benchmarks.gpu.harness import Bench, Line, guarded
from benchmarks.gpu.training import show_profile
from pyflame.core.encoding import encoding
from pyflame.llm.bench import read_bytes
from pyflame.llm.config import ModelConfig, Rope
from pyflame.llm.decoder import Decoder
from pyflame.llm.generate import Model
from pyflame.llm.layers import Weight, Weights
from pyflame.llm.sampler import Features
from pyflame.tensor.encoded import EncodedTensor

SHAPE = ModelConfig(
    "llama", layers=32, width=4096, heads=32, kv_heads=8, head_size=128, ffn=14336, vocab=128256, context=131072,
    rope=Rope(128, 500000.0),
)  # fmt: skip
KINDS = ("bf16", "q8_0", "q4_0", "q4_k")
CONTEXT, WRITTEN, PROMPT = 512, 64, 4096
RUNS = 3


class _Random(Weights):
    """Weights of any name and shape; matrices of blocks are encoded."""

    def __init__(self, kind: str, device: str) -> None:
        super().__init__((), self._never, pf.bfloat16)
        self.kind, self.device = kind, device

    def _never(self, name: str) -> Weight:
        raise KeyError(name)

    def take(self, name: str, *shape: int) -> Weight:
        if name.endswith("norm.weight"):
            return pf.ones(*shape, device=self.device)
        if self.kind == "bf16" or len(shape) < 2 or name.startswith("token_embd"):
            return (pf.randn(*shape, device=self.device, dtype=pf.bfloat16) * 0.02).contiguous()
        few = np.random.default_rng(0).normal(scale=0.02, size=(16, shape[-1])).astype(np.float32)
        rows = np.tile(encoding(self.kind).encode(few), (-(-shape[0] // 16), 1))[: shape[0]]
        return EncodedTensor(pf.tensor(rows, device=self.device), self.kind)


def model_of(kind: str, bench: Bench, context: int = PROMPT + 1) -> Model:
    """A model whose matrices are of this encoding."""
    small = {"layers": 2, "width": 256, "heads": 4, "kv_heads": 2, "head_size": 64, "ffn": 512, "vocab": 512}
    changes = {"windows": (), **small, "rope": Rope(64)} if bench.small else {}
    with pf.no_grad():
        decoder = Decoder(replace(SHAPE, **changes), _Random(kind, bench.device), bench.device)
        pf.eval(*decoder.parameters(), *decoder.buffers())
    return Model(decoder, None, None, bench.device, pf.bfloat16, 128 if bench.small else context)


def llm(bench: Bench, section: str = "llm") -> None:
    """GB/s: of weights, keys and values; TFLOP/s: of products with weights."""
    sizes = (32, 8, 64) if bench.small else (CONTEXT, WRITTEN, PROMPT)
    for kind in KINDS:
        failed: dict[str, str] = {}
        with guarded(failed, "pyflame"):
            _measure(bench, section, kind, sizes)
        if failed:
            bench.add(section, Line(kind, 0, "GB/s", {}, failed=failed))
        gc.collect()
        pf.empty_cache(bench.device)


def _measure(bench: Bench, section: str, kind: str, sizes: tuple[int, int, int]) -> None:
    model = model_of(kind, bench)
    for rows in (1, 16):
        _writing(bench, section, kind, model, rows, sizes)
    _reading(bench, section, kind, model, sizes[2])
    if bench.profile:
        _profiled(bench, model, sizes[0])


def prompt_of(model: Model, count: int) -> list[int]:
    """So many tokens by chance."""
    return [random.randrange(model.config.vocab) for _ in range(count)]


def _measured(run: Callable[[], float]) -> tuple[dict[str, float], dict[str, str]]:
    seconds: list[float] = []
    failed: dict[str, str] = {}
    with guarded(failed, "pyflame"):
        seconds = [run() for _ in range(RUNS + 2)][2:]  # first all is compiled and captured
    return ({} if failed else {"pyflame": statistics.median(seconds)}), failed


def _writing(bench: Bench, section: str, kind: str, model: Model, rows: int, sizes: tuple[int, int, int]) -> None:
    context, written, _ = sizes
    config = model.config

    def run() -> float:
        prompts = [prompt_of(model, context) for _ in range(rows)]
        timings = model.generate(prompts, max_tokens=written + 1, ignore_eos=True)[0].timings
        return 1.0 / float(timings.tokens_per_second)

    seconds, failed = _measured(run)
    line = 2 * config.layers * config.kv_heads * config.head_size * model.kv.itemsize
    nbytes = read_bytes(model.decoder) + rows * (context + written // 2) * line
    note = f"{rows / seconds['pyflame']:.0f} tokens/s" if seconds else ""
    goals = {1: {"copy": 0.85 if kind == "bf16" else 0.6}}.get(rows, {})
    work = f"{kind}, {rows} rows write, context {context}"
    bench.add(section, Line(work, nbytes, "GB/s", seconds, failed=failed, goals=goals, note=note))


def _reading(bench: Bench, section: str, kind: str, model: Model, count: int) -> None:
    config = model.config
    each = 2 * config.heads * config.head_size + 2 * config.kv_heads * config.head_size + 3 * config.ffn
    flops = 2.0 * count * config.layers * config.width * each

    def run() -> float:
        with model.lease(1) as batch:
            pf.synchronize(bench.device)
            begun = time.perf_counter()
            batch.prefill([prompt_of(model, count)])
            pf.synchronize(bench.device)
            return time.perf_counter() - begun

    seconds, failed = _measured(run)
    note = f"{count / seconds['pyflame']:.0f} tokens/s" if seconds else ""
    bench.add(section, Line(f"{kind}, a prompt of {count}", flops, "TFLOP/s", seconds, failed=failed, note=note))


def _profiled(bench: Bench, model: Model, context: int) -> None:
    with model.lease(1) as batch:
        show_profile(bench, lambda: batch.prefill([prompt_of(model, context)]))
        show_profile(bench, lambda: batch.next(Features()).tokens)
