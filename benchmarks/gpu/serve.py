"""Many requests to one engine, with a model of Llama 3.1 8B's shape and random weights in bfloat16.

All arrive together, at engines whose steps take in more or fewer tokens of prompts; beside them the same rows written
as one batch, which nobody joins or leaves. Then some texts go on while a long prompt is taken in: what their readers
wait for the next token.
"""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np

import pyflame as pf
from benchmarks.gpu.harness import Bench, Line, guarded
from benchmarks.gpu.llm import model_of, prompt_of
from pyflame.llm.generate import Model

REQUESTS, READ, WRITTEN = 256, 512, 256
CHUNKS = (256, 2048, 8192)  # 256 is an engine's own
LONG, READERS = 32768, 8


def serve(bench: Bench, section: str = "serve") -> None:
    """tokens/s: of all texts; the notes have what a reader waits."""
    requests, read, written, long = (8, 64, 16, 96) if bench.small else (REQUESTS, READ, WRITTEN, LONG)
    model = model_of("bf16", bench, read + written)
    longer = Model(model.decoder, None, None, bench.device, model.dtype, 128 if bench.small else long + 32)
    failed: dict[str, str] = {}
    with guarded(failed, "pyflame"):
        _together(bench, section, model, requests, read, written)
        _beside(bench, section, longer, read, written, long)
    if failed:
        bench.add(section, Line("requests", 0, "tokens/s", {}, failed=failed))


def _together(bench: Bench, section: str, model: Model, requests: int, read: int, written: int) -> None:
    amount = requests * written
    for chunk in (32, 64) if bench.small else CHUNKS:
        with pf.llm.Engine(model, rows=requests, queue=requests, chunk=chunk) as engine:
            for _ in range(2):  # first all is compiled and captured
                prompts = [prompt_of(model, read) for _ in range(requests)]
                begun = time.perf_counter()
                asked = [engine.submit(p, max_tokens=written, ignore_eos=True) for p in prompts]
                for request in asked:
                    request.result()
                seconds = time.perf_counter() - begun
        work = f"{requests} requests, {read} read, {written} written, chunk={chunk}"
        bench.add(section, Line(work, amount, "tokens/s", {"pyflame": seconds}))
    prompts = [prompt_of(model, read) for _ in range(requests)]
    for _ in range(2):
        timings = model.generate(prompts, max_tokens=written, ignore_eos=True)[0].timings
    each = amount / (requests * timings.tokens_per_second)
    bench.add(section, Line("the same as one batch, written", amount, "tokens/s", {"pyflame": each}))


def _beside(bench: Bench, section: str, model: Model, read: int, written: int, long: int) -> None:
    """Gaps between the tokens of a few texts, alone and while a long prompt is taken in."""
    gaps: dict[bool, list[float]] = {}
    with pf.llm.Engine(model, rows=READERS + 1) as engine:
        for beside in (False, True, False, True):  # the last two count
            times: list[list[float]] = [[] for _ in range(READERS)]
            prompts = [prompt_of(model, read) for _ in range(READERS)]
            asked = [engine.submit(p, max_tokens=written, ignore_eos=True) for p in prompts]
            readers = [threading.Thread(target=_read, args=(r, t)) for r, t in zip(asked, times, strict=True)]
            for reader in readers:
                reader.start()
            while not all(times):
                time.sleep(0.001)
            other = engine.submit(prompt_of(model, long), max_tokens=1) if beside else None
            for reader in readers:
                reader.join()
            if other is not None:
                other.result()
            gaps[beside] = [b - a for one in times for a, b in itertools.pairwise(one)]
    for beside, found in gaps.items():
        middle, late = np.percentile(found, [50, 99])
        work = f"{READERS} texts beside a prompt of {long}" if beside else f"{READERS} texts alone"
        note = f"the next token after {middle * 1e3:.1f} ms, p99 {late * 1e3:.1f} ms"
        bench.add(section, Line(work, READERS, "tokens/s", {"pyflame": float(np.mean(found))}, note=note))


def _read(request: pf.llm.Request, times: list[float]) -> None:
    for _ in request:
        times.append(time.perf_counter())
