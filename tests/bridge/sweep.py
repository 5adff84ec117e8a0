"""PyTorch's own samples of its ops (op_db) through `torch.compile(backend="pyflame")`, forward and gradient.

python -m tests.bridge.sweep                 every op that our catalogue has: samples that ran here, fell back, differ
python -m tests.bridge.sweep "conv.*" sum    those whose names match
"""

from __future__ import annotations

import collections
import operator
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from pyflame.bridge.torch.backend import compile_graph
from pyflame.bridge.torch.options import Options
from pyflame.bridge.torch.split import evaluated, fallen
from tests.op_db import described, flat, function_of, known, op_db, rewritten, total
from tests.op_db import ours as catalogue
from tests.op_db_known import RANDOM

MOST = 3  # samples of an op: each costs a compilation

# Results that are not unique, or not the same from run to run in eager torch either; as_strided reads memory beyond its
# argument, which the copies that are made here do not have.
LOOSE = frozenset(
    (
        "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "svd_lowrank",
        "pca_lowrank", "to_sparse", "as_strided", "as_strided_copy", "as_strided_scatter",
    )
)  # fmt: skip


def ours(op: Any) -> bool:
    """Whether our catalogue has the op; samples of random ops have nothing to compare."""
    found = catalogue(op.name) if _sets_seed(op) else function_of(op)
    return callable(found) and op.name not in RANDOM and op.name not in LOOSE and torch.float32 in op.dtypes


def _sets_seed(op: Any) -> bool:
    """Whether the table calls the op through a function that sets the seed first, which Dynamo does not compile."""
    return rewritten(op.op) and "wrapper_set_seed" in op.op.__code__.co_names


def _function(op: Any) -> Any:
    """The op itself; item, which is a method alone, stays as the table calls it."""
    return operator.attrgetter(op.name)(torch) if _sets_seed(op) and op.name != "item" else op.op


def _gradients(outputs: list[Any], leaves: list[Any]) -> list[Any]:
    chosen = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad and o.numel()]
    return list(torch.autograd.grad(total(torch, chosen), leaves, allow_unused=True)) if chosen and leaves else []


class Outcome:
    """What became of one sample."""

    def __init__(self) -> None:
        self.fallen: dict[str, str] = {}  # node that ran in torch -> why
        self.ran = 0  # nodes that ran here
        self.breaks: list[str] = []  # why Dynamo left a part to eager torch
        self.wrong = ""

    @property
    def kind(self) -> str:
        if self.wrong:
            return "differs"
        if self.fallen or self.breaks:
            return "fell back"
        return "here" if self.ran else "nothing to run"  # an op that returns its argument, or a view of it


def _compiled(function: Any, outcome: Outcome) -> Any:
    def heard(kind: str, program: Any) -> None:
        outcome.fallen.update({str(n.target): why for n, why in fallen(program.why).items()})
        outcome.ran += sum(not why for why in program.why.values()) + len(evaluated(program.why))

    def backend(graph: Any, inputs: Any) -> Any:
        try:
            return compile_graph(graph, inputs, Options(), heard)
        except Exception as error:  # Dynamo leaves the graph to eager torch then, and does not count it
            outcome.breaks.append(f"AOTAutograd: {type(error).__name__}")
            raise

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return torch.compile(function, backend=backend, dynamic=False)


def check(op: Any, sample: Any) -> Outcome:
    """Run one sample in eager torch and compiled, with gradients."""
    outcome = Outcome()
    arguments = (sample.input, *sample.args)
    runs = []
    called = _function(op)
    for function in (_compiled(lambda *a, **k: called(*a, **k), outcome), called):
        args, kwargs = tree_map_only(torch.Tensor, _own, (arguments, sample.kwargs))  # some are written to
        leaves = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
        out = function(*args, **kwargs)
        compared = flat(sample.output_process_fn_grad(out))  # what is unique of the results
        runs.append(compared + _gradients(compared, leaves))
    outcome.breaks += [f"Dynamo: {why.splitlines()[0]}" for why in torch._dynamo.utils.counters["graph_break"]]
    pairs = zip(*runs, strict=True)
    for g, w in pairs:
        if isinstance(w, torch.Tensor):
            try:
                torch.testing.assert_close(g, w, rtol=2e-4, atol=2e-5 * _largest(w), equal_nan=True, check_stride=False)
            except AssertionError as error:
                what = str(error).replace("\n", " ")[:200]
                if not known("differs", op.name, f"{described(sample)}: gradient: {what}"):
                    outcome.wrong = what
    return outcome


def _own(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _comparable(sample: Any) -> bool:
    """Of dense tensors, and without numbers that are drawn."""
    return not sample.kwargs.get("dropout_p") and all(
        t.layout is torch.strided
        for t in tree_leaves((sample.input, sample.args, sample.kwargs))
        if isinstance(t, torch.Tensor)
    )


def _largest(tensor: torch.Tensor) -> float:
    finite = tensor.detach()[torch.isfinite(tensor.detach())] if tensor.numel() else tensor
    return max(1.0, float(finite.abs().max())) if finite.numel() and tensor.dtype.is_floating_point else 1.0


def outcomes(op: Any, most: int = MOST) -> Iterator[tuple[Any, Outcome]]:
    """(sample, outcome) for samples of float32 that eager torch runs."""
    found = [s for s in op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd) if _comparable(s)]
    for sample in found[:: max(1, len(found) // most)][:most]:
        yield sample, check(op, sample)


def main(patterns: list[str]) -> None:
    warnings.simplefilter("ignore")
    counts: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    for op in op_db():
        if not ours(op) or (patterns and not any(re.fullmatch(p, op.name) for p in patterns)):
            continue
        try:
            for _, outcome in outcomes(op):
                counts[outcome.kind] += 1
                reasons.update(f"{node}: {why}" for node, why in outcome.fallen.items())
                reasons.update(outcome.breaks)
                if outcome.kind != "here":
                    what = outcome.wrong or outcome.fallen or outcome.breaks
                    print(f"{outcome.kind:9} {op.name}: {what}", flush=True)
        except Exception as error:
            counts["raises"] += 1
            print(f"raises    {op.name}: {type(error).__name__} {str(error)[:300]}", flush=True)
    print(dict(counts))
    for reason, count in reasons.most_common():
        print(f"{count:5} {reason[:200]}")


if __name__ == "__main__":
    main(sys.argv[1:])
