"""Takes the times of contenders that share a GPU, and prints them.

A round of one contender is: enqueue many calls, wait once. All wait in the same place, so what the host does meanwhile
counts for everyone alike. Contenders take turns in rounds; the median round counts. One that raises, or whose result
differs, is reported as failed and has no time; the others go on.
"""

from __future__ import annotations

import gc
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import pyflame as pf
from benchmarks.peers import have
from benchmarks.timing import Result

Call = Callable[[], Any]
Group = Callable[[], Mapping[str, Call]]  # makes contenders that share their operands
SAMPLE = 4096  # elements of a result that are compared


@dataclass
class Line(Result):
    """A result with what failed and what is wanted: `goals` has our ratio to a contender, or to "copy"."""

    failed: dict[str, str] = field(default_factory=dict)
    goals: dict[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def who(self) -> str:
        """The fastest of ours: with or without `pf.jit`."""
        names = [n for n in self.seconds if n.startswith("pyflame")]
        return min(names, key=lambda n: self.seconds[n], default="")

    def against(self, name: str, limit: float) -> float | None:
        """How many times the speed of `name` we reach. `limit`: bytes per second of a copy."""
        if not self.who or (name != "copy" and name not in self.seconds):
            return None
        ours = self.seconds[self.who]
        if name != "copy":
            return self.seconds[name] / ours
        return self.amount / ours / limit if self.unit == "GB/s" and limit else None

    def verdict(self, limit: float) -> str:
        """As in "copy 0.91 of 0.90"."""
        found = {name: self.against(name, limit) for name in self.goals}
        return ", ".join(
            f"{name} {'not measured' if (x := found[name]) is None else f'{x:.2f}'} of {goal:.2f}"
            + ("" if x is None or x >= goal else " SHORT")
            for name, goal in self.goals.items()
        )


@dataclass
class Bench:
    """What all sections share. `seconds`: of one round of one contender, unless `iterations` says how many calls."""

    device: str
    small: bool = False
    rounds: int = 5
    seconds: float = 0.04
    iterations: int | None = None
    warmup: int = 5  # our graphs are captured at the third call, and torch.compile's first calls compile
    profile: bool = False
    jax_gpt: bool = False
    skip: frozenset[str] = frozenset()  # contenders that take no part
    limit: float = 0.0  # bytes per second, read and written, of the best copy
    lines: dict[str, list[Line]] = field(default_factory=dict)

    @property
    def gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def torch_device(self) -> str:
        """torch calls AMD's GPUs cuda too."""
        if not self.gpu:
            return "cpu"
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError(f"this torch ({torch.__version__}) finds no GPU")
        return f"cuda:{self.device.partition(':')[2] or 0}"

    def need_jax(self) -> None:
        """Raise where jax would not run on the GPU."""
        import jax

        if self.gpu and jax.devices()[0].platform == "cpu":
            raise RuntimeError(f"this jax ({jax.__version__}) finds no GPU")

    def takes(self, name: str) -> bool:
        """Whether a peer is installed and wanted."""
        package = name.partition(".")[0]
        return not self.skip & {name, package} and have(package)

    def set_precision(self, precision: str) -> None:
        """How float32 products are made by functions traced from here on, in every framework alike.

        "high": operands may be rounded to TF32. "highest": they are not.
        """
        pf.set_float32_matmul_precision(precision)
        if self.takes("torch") or self.takes("torch.compile"):
            import torch

            torch.set_float32_matmul_precision(precision)
            torch.backends.cudnn.allow_tf32 = precision == "high"
        if self.takes("jax.jit"):
            import jax

            jax.config.update("jax_default_matmul_precision", "tensorfloat32" if precision == "high" else "highest")

    def wait(self, name: str, result: Any) -> None:
        """Until what a contender has enqueued is done."""
        if name.startswith("jax"):
            import jax

            jax.block_until_ready(result)
        elif name.startswith(("torch", "cuBLASLt")):
            if self.gpu:
                import torch

                torch.cuda.synchronize()
        else:
            pf.synchronize(self.device)

    def measure(
        self, groups: Mapping[str, Group], tolerance: float = math.inf
    ) -> tuple[dict[str, float], dict[str, str]]:
        """Median seconds per call, and the errors of those that failed; then everything they held is free again.

        `tolerance`: how far results may be from the first peer's, relative to its largest element; without it they
        must be finite.
        """
        calls: dict[str, Call] = {}
        failed: dict[str, str] = {}
        for name, make in groups.items():
            with guarded(failed, name):
                calls |= make()
        repeats, samples = {}, {}
        for name, call in calls.items():
            with guarded(failed, name):
                repeats[name], samples[name] = self._warm(name, call)
        failed |= compare(samples, tolerance)
        times: dict[str, list[float]] = {name: [] for name in repeats if name not in failed}
        for _ in range(self.rounds):
            for name in [n for n in times if n not in failed]:
                with guarded(failed, name):
                    times[name].append(self._round(name, calls[name], repeats[name]) / repeats[name])
        del calls
        self.free()
        return {name: statistics.median(t) for name, t in times.items() if name not in failed}, failed

    def _warm(self, name: str, call: Call) -> tuple[int, np.ndarray[Any, Any]]:
        for _ in range(self.warmup):
            result = call()
        self.wait(name, result)
        sample = sampled(result)
        del result
        once = self._round(name, call, 3) / 3
        fewest = 5 if self.gpu else 1  # so that one call's way to the GPU and one wait are shared
        return self.iterations or max(fewest, min(1000, int(self.seconds / max(once, 1e-7)))), sample

    def _round(self, name: str, call: Call, repeats: int) -> float:
        self.wait(name, call())
        started = time.perf_counter()
        for _ in range(repeats):
            result = call()
        self.wait(name, result)
        return time.perf_counter() - started

    def free(self) -> None:
        """Give back what the contenders of the last work held: the next ones need the GPU's memory."""
        gc.collect()
        if dynamo := sys.modules.get("torch._dynamo"):
            dynamo.reset()  # it compiles a function a few times only, and all work goes through one function
        if (torch := sys.modules.get("torch")) and self.gpu and torch.cuda.is_available():
            torch.cuda.empty_cache()
        if jax := sys.modules.get("jax"):
            jax.clear_caches()
        pf.empty_cache(self.device)

    def add(self, section: str, line: Line) -> None:
        self.lines.setdefault(section, []).append(line)
        for name, why in line.failed.items():
            print(f"FAILED {line.work}, {name}: {why}", file=sys.stderr, flush=True)

    def show(self, section: str) -> None:
        """A table of a section's lines: rates, our share of the copy limit, our ratio to each peer, what is wanted."""
        lines = self.lines.get(section, [])
        names = list(dict.fromkeys(n for x in lines for n in (*x.seconds, *x.failed)))
        peers = [n for n in names if not n.startswith("pyflame")]
        wide = max((len(x.work) + len(x.unit) + 3 for x in lines), default=0)
        copies = any(x.against("copy", self.limit) for x in lines)
        heads = [*names, *(["of copy"] if copies else []), *(f"x {p}" for p in peers)]
        print(f"\n{section:{wide}}" + "".join(f"  {h:>{max(len(h), 8)}}" for h in heads))
        for x in lines:
            cells = [f"{x.rate(n):.4g}" if n in x.seconds else "failed" if n in x.failed else "-" for n in names]
            against = [*(["copy"] if copies else []), *peers]
            cells += ["-" if (r := x.against(n, self.limit)) is None else f"{r:.2f}" for n in against]
            row = "".join(f"  {c:>{max(len(h), 8)}}" for c, h in zip(cells, heads, strict=True))
            rest = [f"wanted: {x.verdict(self.limit)}"] * bool(x.goals) + [x.note] * bool(x.note)
            print(f"{x.work + f' [{x.unit}]':{wide}}{row}  {'; '.join(rest)}".rstrip(), flush=True)

    def as_json(self) -> dict[str, Any]:
        return {
            "copy_bytes_per_second": self.limit,
            "results": {
                section: [
                    asdict(x)
                    | {
                        "rates": {n: x.rate(n) for n in x.seconds},
                        "ours": x.who,
                        "ratios": {n: x.against(n, self.limit) for n in ("copy", *x.seconds) if n != x.who},
                    }
                    for x in lines
                ]
                for section, lines in self.lines.items()
            },
        }


@contextmanager
def guarded(failed: dict[str, str], name: str) -> Iterator[None]:
    """Note an error instead of raising it: a contender that cannot run must not end the others' run."""
    try:
        yield
    except Exception as error:  # whatever it is, it is reported as this contender's result
        text = str(error).strip() or "no message"
        failed[name] = f"{type(error).__name__}: {text.splitlines()[0][:300]}"


def sampled(result: Any) -> np.ndarray[Any, Any]:
    """The last elements of a contender's first result, on the host."""
    first = result[0] if isinstance(result, tuple | list) else result
    if first is None or isinstance(first, float):
        return np.zeros(0) if first is None else np.array([first])
    if isinstance(first, np.ndarray):
        return first.reshape(-1)[-SAMPLE:].astype(np.float64)
    if isinstance(first, pf.Tensor):
        return first.detach().reshape(-1)[-SAMPLE:].to(pf.float32).numpy().astype(np.float64)
    if type(first).__module__.startswith("torch"):
        return first.detach().reshape(-1)[-SAMPLE:].double().cpu().numpy()
    return np.asarray(first.reshape(-1)[-SAMPLE:]).astype(np.float64)


def compare(samples: Mapping[str, np.ndarray[Any, Any]], tolerance: float) -> dict[str, str]:
    """Those whose results are not finite, or too far from the first peer's."""
    failed = {n: "the result is not finite" for n, s in samples.items() if not np.isfinite(s).all()}
    reference = next((n for n in samples if not n.startswith("pyflame") and n not in failed), None)
    if reference is None or tolerance == math.inf:
        return failed
    want = samples[reference]
    for name, got in samples.items():
        if name in failed or name == reference:
            continue
        if got.shape != want.shape:
            failed[name] = f"the result has another size than that of {reference}"
            continue
        far = float(np.abs(got - want).max(initial=0.0)) / max(float(np.abs(want).max(initial=0.0)), 1e-30)
        if far > tolerance:
            failed[name] = f"the result differs from that of {reference} by {far:.2g} of its largest element"
    return failed
