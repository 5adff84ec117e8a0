"""The models of `tests/bridge/zoo` compiled by the bridge, against eager torch in float64: results, gradients, buffers.

python -m tests.bridge.proof                        every model in every precision, as the table of docs/pytorch.md
python -m tests.bridge.proof resnet "gpt.*"         those whose names match
python -m tests.bridge.proof --device sim:gfx1100 mlp gcn
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import math
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from pyflame.bridge.torch.backend import compile_graph
from pyflame.bridge.torch.options import parse_options
from pyflame.bridge.torch.report import GraphReport, report_of
from tests.bridge.zoo import MODELS, Sample

PRECISIONS = ("float32", "bfloat16", "autocast")
TIMES = 3.0  # how much further than eager torch a result may be from float64
Named = dict[str, torch.Tensor]


@dataclass
class Outcome:
    """What ran where, how often Dynamo compiled, and our largest error in parts of eager torch's."""

    graphs: list[GraphReport] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    compiled: int = 0  # times that Dynamo gave us a graph
    worst: float = 0.0
    where: str = ""  # the result that is furthest off

    @property
    def here(self) -> int:
        return sum(g.here for g in self.graphs)

    @property
    def fallbacks(self) -> dict[str, str]:
        return {op: why for g in self.graphs for op, why, _ in g.fallbacks}


def listening(model: Any, outcome: Outcome, options: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """A model as `torch.compile(model, backend="pyflame", options=options)` compiles it, with its graphs noted."""

    def backend(graph: Any, given: Any) -> Any:
        outcome.compiled += 1
        return compile_graph(
            graph, given, parse_options(options), lambda *told: outcome.graphs.append(report_of(*told))
        )

    return torch.compile(model, backend=backend, **more)


def _loss(outputs: list[torch.Tensor]) -> torch.Tensor:
    """Every result weighed by another number, so that none is the mean of what a norm made zero."""
    return torch.stack(
        [(o.double() * torch.arange(o.numel()).reshape(o.shape).double().cos()).sum() / o.numel() for o in outputs]
    ).sum()


def run(model: nn.Module, forward: Any, inputs: Named, autocast: bool = False) -> Named:
    """Results, gradients of parameters and of inputs that ask for them, and buffers, by name."""
    given = {k: v.detach().requires_grad_(v.requires_grad) for k, v in inputs.items()}
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = forward(**given)
    outputs = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
    leaves = {**dict(model.named_parameters()), **{k: v for k, v in given.items() if v.requires_grad}}
    leaves = {k: v for k, v in leaves.items() if v.requires_grad}
    grads = torch.autograd.grad(_loss(outputs), list(leaves.values()), allow_unused=True)
    found = {f"result {n}": o.detach() for n, o in enumerate(outputs)}
    found |= {f"gradient of {k}": g for k, g in zip(leaves, grads, strict=True) if g is not None}
    return found | {f"buffer {k}": b.clone() for k, b in model.named_buffers() if b.is_floating_point()}


def _norm(value: torch.Tensor) -> float:
    return float(value.double().norm())


def judge(got: Named, eager: Named, exact: Named) -> tuple[float, str]:
    """Our largest error in parts of eager torch's, and where it is.

    Eager torch's error is that of the same result, or its average over all results of the kind if that is more (one
    rounding that turns a ReLU on or off changes a small gradient more than others), and at least a hundredth of the
    error of all of them (gradients that are zero but for rounding).
    """
    assert got.keys() == eager.keys() == exact.keys()
    worst, where = 0.0, ""
    for kind in ("result", "gradient", "buffer"):
        names = [n for n in exact if n.startswith(kind)]
        size = sum(_norm(exact[n]) ** 2 for n in names) ** 0.5
        error = sum(_norm(eager[n].double() - exact[n]) ** 2 for n in names) ** 0.5
        for name in names:
            assert got[name].dtype is eager[name].dtype and got[name].shape == eager[name].shape, name
            ours, theirs = (_norm(r[name].double() - exact[name]) for r in (got, eager))
            unit = max(theirs, error * _norm(exact[name]) / (size or 1.0), error / 100)
            ratio = math.inf if math.isnan(ours) else ours and ours / (unit or 1e-300)
            if ratio > worst:
                worst = ratio
                where = f"{name}: {ours:.1e} here, {theirs:.1e} in eager torch, of {_norm(exact[name]):.1e}"
    return worst, where


@contextlib.contextmanager
def traced_rnn() -> Iterator[None]:
    """Dynamo traces recurrent layers; without oneDNN, whose layer AOTAutograd cannot save with any backend."""
    with torch._dynamo.config.patch(allow_rnn=True), torch.backends.mkldnn.flags(enabled=False):
        yield


def _arguments(sample: Sample, narrow: bool) -> tuple[Named, Named]:
    """Arguments in the precision of the run, and the same in float64."""
    near = sample.inputs()
    for name, value in near.items():
        if value.is_floating_point():
            near[name] = (value.bfloat16() if narrow else value).requires_grad_(sample.learns_inputs)
    return near, {k: v.double() if v.is_floating_point() else v for k, v in near.items()}


def prove(sample: Sample, precision: str, options: Mapping[str, Any] | None = None, steps: int = 3) -> Outcome:
    """Run a model in eager torch, in float64 and compiled, for several batches, and compare."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    narrow = precision == "bfloat16"
    eager = sample.make()
    eager = eager.bfloat16() if narrow else eager
    model, exact = copy.deepcopy(eager), copy.deepcopy(eager).double()
    outcome = Outcome()
    forward = listening(model, outcome, options, dynamic=False)
    batches: list[list[Named]] = []
    rnn = any(isinstance(m, nn.RNNBase) for m in eager.modules())
    with traced_rnn() if rnn else contextlib.nullcontext():
        for _ in range(steps):
            near, wide = _arguments(sample, narrow)
            autocast = precision == "autocast"
            results = [run(model, forward, near, autocast), run(eager, eager, near, autocast), run(exact, exact, wide)]
            batches.append(results)
    joined = [{k: torch.stack([batch[at][k] for batch in batches]) for k in batches[0][at]} for at in range(3)]
    outcome.worst, outcome.where = judge(*joined)
    outcome.breaks = [why.splitlines()[0] for why in torch._dynamo.utils.counters["graph_break"]]
    return outcome


def _row(name: str, precisions: Sequence[str], options: Mapping[str, Any] | None) -> str:
    """A line of the table; what is wrong or ran in torch is told on stderr."""
    found = {precision: prove(MODELS[name], precision, options) for precision in precisions}
    for precision, outcome in found.items():
        if outcome.fallbacks or not outcome.worst <= TIMES:
            print(f"{name}, {precision}: {outcome.where}; torch runs {outcome.fallbacks}", file=sys.stderr)
    first = found[precisions[0]]
    in_torch = sum(g.in_torch for g in first.graphs)
    cells = [name, str(first.here), str(in_torch), str(first.compiled), *(f"{o.worst:.1f}" for o in found.values())]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[".*"])
    parser.add_argument("--precision", choices=PRECISIONS, action="append")
    parser.add_argument("--device")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    precisions = asked.precision or PRECISIONS
    print(f"| model | ops here | in torch | graphs | {' | '.join(precisions)} |")
    print("|---" * (4 + len(precisions)) + "|")
    for name in MODELS:
        if any(re.fullmatch(p, name) for p in asked.names):
            print(_row(name, precisions, {"device": asked.device} if asked.device else None), flush=True)


if __name__ == "__main__":
    main()
