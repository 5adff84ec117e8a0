"""A program as a Python script that needs nothing of this package: what to hand to whoever mends the fault."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.programs.pool import KNOBS
from tests.programs.program import Input, Program, resized
from tests.programs.text import body

_HEAD = f"""import os

import numpy as np
import torch

import pyflame as pf

os.environ |= {KNOBS}
"""


_RANDOM = """

def dropout(x, p, seed):  # torch gets the same mask
    if isinstance(x, pf.Tensor):
        return pf.dropout(x, p, generator=pf.Generator(seed))
    return x * torch.tensor(pf.dropout(pf.ones(*x.shape), p, generator=pf.Generator(seed)).numpy())


def noise(x, seed):
    made = pf.rand(*x.shape, generator=pf.Generator(seed))
    return made if isinstance(x, pf.Tensor) else torch.tensor(made.numpy())"""


def _array(given: Input) -> str:
    """The text that makes an input's numbers."""
    rng = f"np.random.default_rng({given.seed % 1000})"
    if given.kind.startswith("index:"):
        return f"{rng}.integers(0, {max(1, int(given.kind[6:]))}, {given.shape})"
    if given.kind == "bool":
        return f"{rng}.random({given.shape}) < 0.6"
    if given.kind == "int":
        return f"{rng}.integers(0, 6, {given.shape}).astype('{given.dtype}')"
    text = f"{rng}.standard_normal({given.shape})"
    return {"positive": f"abs({text}) + 0.5", "unit": f"(np.tanh({text}) + 1) * 0.45 + 0.05"}.get(given.kind, text)


def _layout(given: Input, name: str) -> str:
    """The PyFlame tensor of an array, laid out as the input is."""
    made = f"pf.tensor({name})"
    kind = given.layout.rstrip("!")
    if kind == "transposed" and len(given.shape) > 1:
        order = tuple(reversed(range(len(given.shape))))
        made = f"pf.tensor({name}.transpose({order}).copy()).permute({order})"
    elif kind == "strided" and given.shape:
        shape = ", ".join(map(str, (*given.shape[:-1], 2 * given.shape[-1])))
        made = f"pf.tensor(np.stack([{name}, {name}], -1).reshape({shape}))[..., ::2]"
    elif kind == "offset" and given.shape:
        made = (
            f"pf.tensor(np.concatenate([{name}, {name}[::-1], {name}]))[{given.shape[0]}:{2 * given.shape[0]}].flip(0)"
        )
    elif kind == "flipped" and given.shape:
        made = f"pf.tensor({name}[..., ::-1].copy()).flip(-1)"
    elif kind == "pending" and given.dtype != "bool_":
        made = f"(pf.tensor({name}) * 1)"
    return made + (f".to(pf.{given.dtype})" if given.dtype in ("float16", "bfloat16", "float32") else "")


def _tensors(program: Program, lib: str) -> list[str]:
    lines = []
    for n, given in enumerate(program.inputs):
        made = _layout(given, f"a{n}") if lib == "pf" else f"torch.tensor(a{n})"
        lines.append(
            f"x{n} = {made}"
            + (".detach()" if lib == "pf" and given.grad else "")
            + (".requires_grad_()" if given.grad else "")
        )
        if lib == "pf" and given.layout.endswith("!"):
            lines.append(f"pf.eval(x{n})")
    return lines


def script(program: Program) -> str:
    """A script that prints what PyFlame gives and what torch gives."""
    if program.mode == "again":
        first = replace(program, mode="lazy")
        return script(first) + "\n# again, with another shape\n" + script(resized(first, *program.resize))
    lines = [_HEAD]
    lines += [f"a{n} = {_array(i)}" for n, i in enumerate(program.inputs)]
    text = body(program).replace("own(", "own(L, ")
    if "held.append" in text:
        lines.append("held = []")
    if "look(" in text:
        lines += ["", "", "def look(x):", "    if isinstance(x, pf.Tensor):", "        pf.eval(x)"]
    if "own(" in text:
        lines += [
            "",
            "",
            "def own(L, x):  # each write makes a new value",
            "    return x if L is pf and x._link is None and not (x.requires_grad and x.is_leaf) else x.clone()",
        ]
    if "checkpoint(" in text:
        lines += ["", "", "def checkpoint(fn, *args):"]
        lines += ["    return pf.checkpoint(fn, *args) if isinstance(args[0], pf.Tensor) else fn(*args)"]
    if "dropout(" in text or "noise(" in text:
        lines += [_RANDOM]
    lines += ["", "", text]
    lines += [f"# mode: {program.mode}, gradients of order {program.order} through {program.through}"]
    lines += ["for L in (pf, torch):"]
    lines += ["    " + line for line in _run(program)]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)) + "\n"


def _run(program: Program) -> list[str]:
    cells = [n for n, _ in program.state] or (
        [n for n, i in enumerate(program.inputs) if i.grad] if program.mode == "train" else []
    )
    args = [f"x{n}" for n in range(len(program.inputs)) if n not in cells]
    lines = ["if L is pf:", *["    " + line for line in _tensors(program, "pf")]]
    lines += ["else:", *["    " + line for line in _tensors(program, "torch")]]
    lines += ["", f"def call({', '.join(args)}):"]
    lines += [f"    out = body(L, {', '.join(f'x{n}' for n in range(len(program.inputs)))})"]
    lines += ["    " + line for line in _after(program)]
    jitted = program.mode in ("jit", "state") or (program.mode == "train" and program.through == "jit")
    lines += ["", "fn = pf.jit(call) if L is pf else call"] if jitted else ["", "fn = call"]
    context = {"eager": "pf.eager()", "autocast": "pf.autocast(pf.bfloat16)"}.get(program.mode)
    lines += [f"for _ in range({program.calls}):" if program.calls > 1 else "if True:"]
    if context:
        lines += [f"    with {context}:"]
    deep = "        " if context else "    "
    lines += [
        f"{deep}for result in fn({', '.join(args)}):",
        f"{deep}    print(L.__name__, None if result is None else result.detach().numpy())",
    ]
    lines += [f"    print('state', x{n}.detach().numpy())" for n in cells]
    return lines


def _after(program: Program) -> list[str]:
    """What a call does with its outputs: gradients, state, a step of SGD."""
    count = len(program.outputs)
    smooth = "[o for o in out if 'float' in str(o.dtype) and o.requires_grad]"
    wrt = [f"x{n}" for n, i in enumerate(program.inputs) if i.grad]
    lines = [f"out, new = out[:{count}], out[{count}:]"] if program.state else []
    loss = f"sum((o * L.arange(o.numel()).reshape(o.shape).to(o.dtype)).sum() for o in {smooth})"
    if program.mode == "train":
        lines += [f"loss = {loss}", "loss.backward()", f"for p in [{', '.join(wrt)}]:", "    with L.no_grad():"]
        lines += ["        p.sub_(p.grad * 0.02)", "    p.grad = None"]
    elif program.order and wrt:
        lines += [
            f"found = L.autograd.grad({loss}, [{', '.join(wrt)}], allow_unused=True, create_graph={program.order == 2})"
        ]
        lines += ["out = [*out, *found]"]
        if program.order == 2:
            again = "sum((g * L.arange(g.numel()).reshape(g.shape).to(g.dtype)).sum() for g in found if g is not None)"
            lines += [f"out += L.autograd.grad({again}, [{', '.join(wrt)}], allow_unused=True)"]
    for k, (cell, _) in enumerate(program.state):
        lines += [f"if x{cell} is not new[{k}]:", f"    x{cell}.copy_(new[{k}].detach())"]
    return [*lines, "return out"]
