"""Writes type stubs of what the op catalogue makes at run time: functions of `pyflame` and methods of Tensor.

python tools/make_stubs.py           writes src/pyflame/__init__.pyi and src/pyflame/tensor/catalogue.pyi
python tools/make_stubs.py --check   exits with 1 where they are not current
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from generated import update

SOURCE = Path(__file__).resolve().parent.parent / "src" / "pyflame"
sys.path.insert(0, str(SOURCE.parent))

import pyflame  # noqa: E402
from pyflame.ir import OPS  # noqa: E402
from pyflame.ops.names import ALIASES  # noqa: E402
from pyflame.tensor import Tensor  # noqa: E402
from pyflame.tensor.dispatch import COMPARISONS, FUNCTIONS, OPERATORS  # noqa: E402
from pyflame.tensor.torch_methods import FUNCTIONS as TORCH_FUNCTIONS  # noqa: E402

HEADER = '# ruff: noqa: E501, RUF022, RUF100\n"""Written by tools/make_stubs.py. Do not edit."""\n\n'
IMPORTS = """import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

"""
ALIAS = "TensorLike: TypeAlias = Tensor | np.ndarray[Any, Any] | builtins.float"
# Python's types that PyFlame has functions, dtypes or methods of the same name for.
_BUILTINS = {"bool", "float", "int", "str", "object", "tuple", "list", "dict", "type"}
_KNOWN = {
    *_BUILTINS,
    "Any",
    "Callable",
    "DType",
    "Generator",
    "Iterator",
    "Literal",
    "None",
    "Sequence",
    "Tensor",
    "TensorLike",
}
_RENAMED = {"Shape": "tuple[int, ...]", "builtins.float": "float", "HookHandle": "Any"}


def annotation(text: Any, result: bool) -> str:
    """An annotation over Nodes as one over Tensors; Any where it has names that a stub does not know."""
    if text is inspect.Parameter.empty or not isinstance(text, str):
        return "Tensor" if result else "Any"
    for old, new in _RENAMED.items():
        text = re.sub(rf"\b{re.escape(old)}\b", new, text)
    text = re.sub(r"\bNode\b", "Tensor" if result else "TensorLike", text)
    words = re.findall(r"[A-Za-z_][\w.]*", re.sub(r"'[^']*'|\"[^\"]*\"", "", text))
    if not set(words) <= _KNOWN:
        return "Any"
    return re.sub(rf"(?<![\w.'\"])({'|'.join(_BUILTINS)})\b(?!['\"])", r"builtins.\1", text)


def default(value: Any) -> str:
    return repr(value) if value is None or type(value) in (bool, int, float, str) else "..."


def signature(fn: Callable[..., Any], method: bool, op: bool) -> str:
    """`(x: TensorLike, axis: int = 0) -> Tensor`."""
    parts: list[str] = []
    starred = False
    described = inspect.signature(fn)
    for number, p in enumerate(described.parameters.values()):
        if method and number == 0:
            parts.append("self")
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        starred = starred or p.kind is p.VAR_POSITIONAL
        prefix = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        value = "" if p.default is p.empty else f" = {default(p.default)}"
        parts.append(f"{prefix}{p.name}: {annotation(p.annotation, False)}{value}")
    # A primitive's function is annotated Any: it returns sources and attributes, which become a Node.
    returned = described.return_annotation
    result = "Tensor" if op and returned == "Any" else annotation(returned, True)
    return f"({', '.join(parts)}) -> {result}"


def docstring(text: str | None) -> str:
    text = (text or "").replace("\\", "\\\\")
    if "\n" not in text:
        return f'\n    """{text}"""\n' if text else " ..."
    return '\n    """' + text.replace("\n", "\n    ") + '\n    """\n'


OP_FUNCTIONS = {inspect.unwrap(fn) for fn in FUNCTIONS.values()}


def same_as(name: str) -> str:
    """What is said of another name of an op or of its in-place form; nothing for the first name."""
    stem = name.removesuffix("_")
    return f"Same as `{ALIASES[stem]}{name[len(stem) :]}`." if stem in ALIASES else ""


def facade() -> str:
    """src/pyflame/__init__.pyi."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    lines: list[str] = []
    imported: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom):
            names = [a.asname or a.name for a in statement.names]
            public = [n for n in names if not n.startswith("_")]
            imported.update(public)
            if public:
                lines.append(f"from {statement.module} import {', '.join(f'{n} as {n}' for n in public)}")
    for name, (room, member) in pyflame._LATER.items():
        module = f"pyflame.{room}" if member else f"pyflame.{room}".rpartition(".")[0]
        lines.append(f"from {module} import {name} as {name}")
        imported.add(name)
    lines += ["", ALIAS, "", "__version__: str"]
    lines += [
        f"{name}: DType" for name in ("double", "half", "long", "short", "cfloat", "cdouble", "bool", "float", "int")
    ]
    lines += ["", f"__all__ = {sorted(pyflame.__all__)!r}", ""]
    for name in sorted(FUNCTIONS):
        if name not in imported:
            fn = OPS[ALIASES.get(name, name)].fn
            lines.append(f"def {name}{signature(fn, False, True)}:{docstring(same_as(name) or inspect.getdoc(fn))}")
    for name in sorted(TORCH_FUNCTIONS.keys() - FUNCTIONS.keys()):
        fn = TORCH_FUNCTIONS[name]
        op = inspect.unwrap(fn) in OP_FUNCTIONS
        lines.append(f"def {name}{signature(fn, False, op)}:{docstring(inspect.getdoc(fn))}")
    return HEADER + IMPORTS + "\n".join(lines) + "\n"


def class_body() -> set[str]:
    """Names that tensor.py defines in the class itself."""
    tree = ast.parse((SOURCE / "tensor" / "tensor.py").read_text())
    (body,) = (c.body for c in tree.body if isinstance(c, ast.ClassDef) and c.name == "Tensor")
    return {s.name for s in body if isinstance(s, ast.FunctionDef)}


def methods() -> Iterator[str]:
    own = class_body()
    binary = {f"__{p}{s}__" for s in (*OPERATORS, "div") for p in ("", "r", "i")} | {f"__{c}__" for c in COMPARISONS}
    for name in sorted(vars(Tensor)):
        value = vars(Tensor)[name]
        if name in own or name == "__hash__" or not (isinstance(value, property) or callable(value)):
            continue
        if name in binary:
            # Python's rules for comparisons, which return bool and have no mirrored form, do not hold here.
            ignore = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
            other = "Any" if name[2:-2] in COMPARISONS else "TensorLike"
            yield f"    def {name}(self, other: {other}) -> Tensor: ...{ignore}"
        elif isinstance(value, property):
            yield f"    @property\n    def {name}(self) -> Tensor: ..."
            if value.fset is not None:
                yield f"    @{name}.setter\n    def {name}(self, value: Tensor) -> None: ..."
        else:
            op = inspect.unwrap(value) in OP_FUNCTIONS or (name.endswith("_") and name[:-1] in FUNCTIONS)
            described = signature(value, True, op)
            if name.endswith("_") and not name.startswith("__"):
                described = described.rsplit(" -> ", 1)[0] + " -> Tensor"
            summary = same_as(name) or (inspect.getdoc(value) or "").partition("\n\n")[0]
            yield f"    def {name}{described}:" + (f'\n        """{summary}"""\n' if summary else " ...")


def catalogue() -> str:
    """src/pyflame/tensor/catalogue.pyi."""
    lines = ["from pyflame.core.dtype import DType", "from pyflame.core.generator import Generator"]
    lines += ["from pyflame.tensor.tensor import Tensor", "", ALIAS, "", "class Catalogue:", "    __slots__ = ()"]
    return HEADER + IMPORTS + "\n".join([*lines, *methods()]) + "\n"


STUBS = {SOURCE / "__init__.pyi": facade, SOURCE / "tensor" / "catalogue.pyi": catalogue}


def formatted(path: Path, text: str) -> str:
    """As `make lint` wants it."""
    ruff = [sys.executable, "-m", "ruff"]
    name = ["--stdin-filename", str(path), "-"]
    for command in (["check", "--quiet", "--fix-only", "--select", "I,F401"], ["format", "--quiet"]):
        done = subprocess.run([*ruff, *command, *name], input=text, capture_output=True, text=True, check=True)
        text = done.stdout
    return text


def main(check: bool) -> int:
    """Write the stubs, or say which are old."""
    return update({path: formatted(path, write()) for path, write in STUBS.items()}, check, "tools/make_stubs.py")


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
