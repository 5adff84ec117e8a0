"""Writes the references that follow from the code: docs/ops.md from the op catalogue, docs/knobs.md from the knobs, and
the tables of docs/pytorch-users.md, docs/encodings.md, docs/gpu.md, docs/environment.md, docs/doctor.md
and docs/onnx.md.

python tools/make_docs.py           writes them
python tools/make_docs.py --check   exits with 1 where they are not current
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import differences
import numpy as np
from generated import update

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import pyflame as pf  # noqa: E402
from pyflame import ops  # noqa: E402
from pyflame.bridge.onnx.module import OPERATORS  # noqa: E402
from pyflame.core import knobs  # noqa: E402
from pyflame.core.encoding import ENCODINGS  # noqa: E402
from pyflame.core.errors import PyFlameError  # noqa: E402
from pyflame.doctor.chain import CHAINS, CHECKS  # noqa: E402
from pyflame.doctor.environment import GROUPS  # noqa: E402
from pyflame.ir import OPS, OpDef  # noqa: E402
from pyflame.ops.names import ALIASES  # noqa: E402
from pyflame.runtime.rocm.troubles import TROUBLES  # noqa: E402
from pyflame.tensor.dispatch import FUNCTIONS  # noqa: E402

HEADER = "<!-- Written by tools/make_docs.py. Do not edit. -->\n"
INTRODUCTION = """# Op reference

Every op of the catalogue (`src/pyflame/ops`), as a function of `pf`. Most are methods of Tensor too, and take PyTorch's
names of arguments beside their own (`dim` for `axis`, `keepdim` for `keepdims`, `input` for `x`, `other` for `y`).

Below each op:

- **same as**: its other names.
- **dtypes**: what it makes of float16, int32 and bool tensors; `-` where it raises. float32, float64 and bfloat16 fare
  like float16, all integers like int32, unless its text says otherwise.
- **gradient**: whether gradients flow through it.
- **autocast**: within `pf.autocast`, `low` runs in the 16-bit dtype, `high` in float32; others follow their inputs, or
  the ops they are made of.
"""


def signature(name: str, fn: Callable[..., Any]) -> str:
    """`softmax(x, axis=-1)`: names and defaults; the types are in `__init__.pyi`."""
    parts, starred = [], False
    for p in inspect.signature(fn).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        starred = starred or p.kind is p.VAR_POSITIONAL
        prefix = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        parts.append(prefix + p.name if p.default is p.empty else f"{p.name}={p.default!r}")
    return f"{name}({', '.join(parts)})"


def text_and_example(op: OpDef) -> tuple[str, str]:
    """The docstring, split at its example."""
    text, mark, example = (inspect.getdoc(op.fn) or "").partition(">>> ")
    return text.strip(), (mark + example).strip()


def prose(text: str) -> str:
    """Text as Markdown: stars and bars mean themselves, except within `code`."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*|])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


# --- dtypes -----------------------------------------------------------------------------------------------------------


def _tensors(value: Any, kinds: str, dtype: Any) -> Any:
    """A sample's arguments as tensors, arrays of these kinds in another dtype."""
    if isinstance(value, np.ndarray):
        return pf.tensor(value.astype(np.float32).astype(dtype) if value.dtype.kind in kinds else value)
    if isinstance(value, (list, tuple)):
        return type(value)(_tensors(v, kinds, dtype) for v in value)
    return value


def _has_floats(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_floats, value))
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _result(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(dict.fromkeys(_result(v) for v in value))
    return value.dtype.name.rstrip("_") if isinstance(value, pf.Tensor) else type(value).__name__


def dtypes(op: OpDef) -> str:
    """What the op makes of three dtypes, seen by building (not running) its first sample."""
    samples = op.samples() if op.samples is not None else []
    if not samples:
        return ""
    sample = samples[0]
    kinds = "f" if _has_floats(sample.args) else "iub"
    found = []
    for dtype in (np.float16, np.int32, np.bool_):
        with np.errstate(invalid="ignore"):  # NaN as an integer
            args = _tensors(sample.args, kinds, dtype)
            kwargs = {k: _tensors(v, kinds, dtype) for k, v in sample.kwargs.items()}
        try:
            found.append(f"{np.dtype(dtype).name} → {_result(FUNCTIONS[op.name](*args, **kwargs))}")
        except PyFlameError:
            found.append(f"{np.dtype(dtype).name} → -")
    return ", ".join(found)


# --- pages ------------------------------------------------------------------------------------------------------------


def described(op: OpDef) -> Iterator[str]:
    text, example = text_and_example(op)
    others = [f"`{name}`" for name, same in ALIASES.items() if same == op.name]
    facts = [f"same as: {', '.join(others)}"] if others else []
    facts += [f"dtypes: {found}"] if (found := dtypes(op)) else []
    facts.append(f"gradient: {'yes' if op.differentiable else 'no'}")
    if op.autocast is not None:
        facts.append(f"autocast: {op.autocast}")
    yield f"### `{signature(op.name, op.fn)}`\n"
    yield f"{prose(text)}\n"
    yield f"{'; '.join(facts)}\n"
    if example:
        yield f"```pycon\n{example}\n```\n"


def op_reference() -> str:
    families = {name: importlib.import_module(f"pyflame.ops.{name}") for name in ops.__all__}
    public = {
        name: [OPS[n] for n in FUNCTIONS if n not in ALIASES and OPS[n].fn.__module__ == module.__name__]
        for name, module in families.items()
    }
    lines = [HEADER, INTRODUCTION, "| family | ops |", "|---|---|"]
    for name, family in public.items():
        if family:
            listed = " ".join(
                f"[{op.name}](#{_anchor(signature(op.name, op.fn))})" for op in sorted(family, key=lambda o: o.name)
            )
            lines.append(f"| [{name}](#{name}) | {listed} |")
    for name, family in public.items():
        if family:
            lines += ["", f"## {name}\n", (families[name].__doc__ or "").strip().partition("\n\n")[0] + "\n"]
            for op in sorted(family, key=lambda o: o.name):
                lines += described(op)
    lines += [
        "",
        "## Other names\n",
        "The same functions, under the names that NumPy or PyTorch has beside the first.\n",
    ]
    lines += ["| name | same as |", "|---|---|"]
    lines += [f"| `{name}` | [{same}](#{_anchor(signature(same, OPS[same].fn))}) |" for name, same in ALIASES.items()]
    lines += [
        "",
        "## Other functions of `pf`\n",
        "Not in the catalogue: they make tensors, choose devices, transform.\n",
    ]
    lines += ["| function | what it does |", "|---|---|", *others()]
    return "\n".join(lines).rstrip() + "\n"


def others() -> Iterator[str]:
    """Functions of the facade that are no ops, with their first sentences."""
    for name in sorted({*pf.__all__, "compile", "eval"}):  # the two that `*` leaves to Python
        value = getattr(pf, name)
        if name in FUNCTIONS or not (inspect.isfunction(value) or inspect.ismethod(value)):
            continue
        sentence = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
        yield f"| `{signature(name, value)}` | {prose(sentence)} |"


def _anchor(heading: str) -> str:
    """The address that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def knob_table() -> str:
    lines = [HEADER, "# Knobs\n"]
    lines += [
        "Environment variables that PyFlame reads, each when it is first needed. `pyflame env` tells of a name "
        "that is none of them; [those of GPUs](environment.md) have a page of their own.\n"
    ]
    lines += ["| variable | default | meaning |", "|---|---|---|"]
    lines += [f"| `{k.name}` | {f'`{k.default}`' if k.default else ''} | {k.doc} |" for k in knobs.ALL]
    return "\n".join(lines) + "\n"


GUIDE = ROOT / "docs" / "pytorch-users.md"
ENCODED = ROOT / "docs" / "encodings.md"
GPUS = ROOT / "docs" / "gpu.md"
VARIABLES = ROOT / "docs" / "environment.md"
DOCTOR = ROOT / "docs" / "doctor.md"
ONNX = ROOT / "docs" / "onnx.md"
MARK = "<!-- Written by tools/make_docs.py from {}: {}. -->"


def between_marks(page: Path, source: str, text: str) -> str:
    """A page that is written by hand but for what is between two marks."""
    before, start, rest = page.read_text().partition(MARK.format(source, "begin"))
    _, end, after = rest.partition(MARK.format(source, "end"))
    return f"{before}{start}\n{text}\n{end}{after}"


def guide() -> str:
    return between_marks(GUIDE, "tools/differences.py", differences.tables())


def encoding_table() -> str:
    lines = ["| name | elements | bytes | bits per element | GGUF's number |", "|---|---|---|---|---|"]
    for e in sorted(ENCODINGS.values(), key=lambda e: (e.ggml is None, e.ggml or 0)):
        bits, number = f"{8 * e.nbytes / e.block:.4g}", "" if e.ggml is None else e.ggml
        lines.append(f"| `{e.name}` | {e.block} | {e.nbytes} | {bits} | {number} |")
    return between_marks(ENCODED, "core/encodings", "\n".join(lines))


def troubles() -> str:
    lines = ["| in | what happens | GPUs | HIP | what PyFlame does | reported |", "|---|---|---|---|---|---|"]
    for t in TROUBLES:
        since, before = (".".join(map(str, v)) if v else "" for v in (t.since, t.before))
        versions = ", ".join([f"from {since} on"] * bool(since) + [f"before {before}"] * bool(before)) or "all"
        name = t.source.removeprefix("https://github.com/").replace("/issues/", "#").replace("/pull/", "#")
        cells = (t.part, t.symptom, ", ".join(t.targets) or "all", versions, t.answer, f"[{name}]({t.source})")
        lines.append(f"| {' | '.join(cells)} |")
    return between_marks(GPUS, "runtime/rocm/troubles.py", "\n".join(lines))


def _name(url: str) -> str:
    """`pytorch#123` of an issue, else the last words of an address."""
    found = re.fullmatch(r"https://github\.com/[^/]+/([^/]+)/(?:issues|pull)/(\d+)", url)
    return f"{found[1]}#{found[2]}" if found else url.partition("#")[0].rstrip("/").rpartition("/")[2]


def environment() -> str:
    lines = []
    for title, group in GROUPS.items():
        if title == "PyFlame":
            continue  # docs/knobs.md
        lines += [f"### {title}\n", "| variable | read by | meaning | values | verdicts | source |", "|---" * 6 + "|"]
        for v in group:
            words = " ".join(
                f"**{r.verdict.value}**{f' ({r.machines})' if r.machines else ''}: {prose(r.why)}." for r in v.rules
            )
            values = prose(v.values) + (f"; default `{v.default}`" if v.default else "")
            addresses = dict.fromkeys(url for url in (v.source, *(r.source for r in v.rules)) if url)
            sources = ", ".join(f"[{_name(url)}]({url})" for url in addresses)
            lines.append(f"| `{v.name}` | {v.reader} | {prose(v.meaning)} | {values} | {words} | {sources} |")
        lines.append("")
    return between_marks(VARIABLES, "doctor/environment/table", "\n".join(lines).rstrip())


def check_list() -> str:
    """Every check of `pyflame doctor`, with all that it may find."""
    lines: list[str] = []
    for chain, title in CHAINS.items():
        lines += [f"### {title}", "", "| check | looks at | may find |", "|---|---|---|"]
        for check in (check for check in CHECKS if check.chain == chain):
            found = "<br>".join(f"**{mode}**: {prose(text)}" for mode, text in check.modes.items())
            lines.append(f"| `{check.name}` | {prose(check.looks)} | {found or 'only tells what there is'} |")
        lines.append("")
    return between_marks(DOCTOR, "doctor/checks", "\n".join(lines).rstrip())


def onnx_operators() -> str:
    """The operators of the ONNX bridge, by family."""
    families: dict[str, list[str]] = {}
    for name, operator in sorted(OPERATORS.items()):
        families.setdefault(operator.fn.__module__.rpartition(".")[2], []).append(name)
    lines = ["| family | operators |", "|---|---|"]
    lines += [f"| {family} | {', '.join(names)} |" for family, names in sorted(families.items())]
    return between_marks(ONNX, "bridge/onnx/operators", "\n".join(lines))


PAGES = {
    ROOT / "docs" / "ops.md": op_reference,
    ROOT / "docs" / "knobs.md": knob_table,
    GUIDE: guide,
    ENCODED: encoding_table,
    GPUS: troubles,
    VARIABLES: environment,
    DOCTOR: check_list,
    ONNX: onnx_operators,
}


def main(check: bool) -> int:
    """Write the pages, or say which are old."""
    return update({path: write() for path, write in PAGES.items()}, check, "tools/make_docs.py")


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
