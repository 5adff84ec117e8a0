"""Facts out of vendors' C headers: values of enumerators, parameter types of functions, fields of structs.

The facts beside this file were read with it, so anyone can read them again from headers of another version:

    python -m tests.libs.headers cublaslt /usr/local/cuda/include "CUDA 13.0"

It understands what those headers are made of (plain enums, structs and prototypes), not C in general.
"""

from __future__ import annotations

import ast
import json
import operator
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FACTS = Path(__file__).with_name("facts")
HEADERS = {
    "cublaslt": ["cublasLt.h", "cublas_api.h", "library_types.h"],
    "cudnn": ["cudnn_graph.h", "cudnn_ops.h", "cudnn_cnn.h"],
    "rocblas": ["rocblas-types.h", "rocblas-auxiliary.h", "rocblas-functions.h"],
    "miopen": ["miopen.h"],
}
# Words of a declaration that change nothing about how it is called.
NOISE = re.compile(
    r"\b(CUBLASWINAPI|CUDNNWINAPI|CUDNN_DEPRECATED(_ENUM)?|ROCBLAS_EXPORT|MIOPEN_EXPORT|MIOPEN_DEPRECATED"
    r"|ROCBLAS_DEPRECATED_MSG|extern|inline|static|CUDNN_DEPRECATED)\b"
)
OPERATORS: dict[type[ast.AST], Any] = {
    ast.BitOr: operator.or_,
    ast.LShift: operator.lshift,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


@dataclass
class Header:
    """What was read from a few files."""

    enums: dict[str, int] = field(default_factory=dict)
    enum_types: set[str] = field(default_factory=set)
    functions: dict[str, list[str]] = field(default_factory=dict)
    structs: dict[str, list[str]] = field(default_factory=dict)

    def read(self, text: str) -> Header:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
        self._defines(text)
        text = re.sub(r"^[ \t]*#(\\\n|[^\n])*", "", text, flags=re.M)
        text = NOISE.sub(" ", text)
        text = re.sub(r"__attribute__\s*\(\(.*?\)\)", " ", text)
        for body, name in re.findall(r"\benum\b[^{;()]*\{([^}]*)\}\s*(\w*)", text):
            self._enum(body)
            self.enum_types.add(name)
        for body, name in re.findall(r"\bstruct\b\s*\w*\s*\{((?:[^{}]|\bunion\b\s*\{[^{}]*\})*)\}\s*(\w+)", text):
            # A union's members lie in one place; those in these headers are of one size, so the first stands for all.
            body = re.sub(r"\bunion\b\s*\{([^;}]*;)[^}]*\}\s*\w*\s*;", r"\1", body)
            self.structs[name] = [" ".join(f.split()) for f in body.split(";") if f.strip()]
        for name, arguments in re.findall(r"\b(\w+)\s*\(([^(){};]*)\)\s*;", text):
            self.functions.setdefault(
                name, [declared(a) for a in arguments.split(",") if a.strip() not in ("", "void")]
            )
        return self

    def _defines(self, text: str) -> None:
        for name, value in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\(?-?\w+\)?)[ \t]*$", text, flags=re.M):
            number = self._value(value)
            if number is not None:
                self.enums.setdefault(name, number)

    def _enum(self, body: str) -> None:
        following = 0
        for entry in body.split(","):
            name, _, value = entry.partition("=")
            if not name.strip():
                continue
            number = self._value(value) if value.strip() else following
            if number is not None:
                self.enums[name.split()[0]] = number
                following = number + 1

    def _value(self, text: str) -> int | None:
        def number(node: ast.AST) -> int:
            if isinstance(node, ast.Constant):
                return int(node.value)
            if isinstance(node, ast.Name):
                return self.enums[node.id]
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
                return -number(node.operand)
            if isinstance(node, ast.BinOp):
                return int(OPERATORS[type(node.op)](number(node.left), number(node.right)))
            raise KeyError(type(node))

        try:
            return number(
                ast.parse(re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text.strip()), mode="eval").body
            )
        except (SyntaxError, KeyError, ValueError, TypeError):
            return None  # an expression of types or functions: nothing that a binding writes down


def declared(argument: str) -> str:
    """A parameter as "type name", without `const`; pointers and arrays as "type * name"."""
    words = re.sub(r"\b(const|struct|enum)\b", " ", argument)
    stars = words.count("*") + words.count("[")
    *base, name = re.sub(r"\[[^]]*\]|\*", " ", words).split()
    return " ".join([*base, "*" * stars, name] if stars else [*base, name])


def read_folder(library: str, folder: Path) -> Header:
    """All headers of a library that lie in a folder, at any depth."""
    header = Header()
    for name in HEADERS[library]:
        found = sorted(folder.rglob(name))
        if not found:
            raise FileNotFoundError(f"{name} is not in {folder}")
        header.read(found[0].read_text(errors="replace"))
    return header


def facts(header: Header, enums: list[str], functions: list[str], structs: list[str], source: str) -> dict[str, Any]:
    """The facts a table needs. A KeyError tells what the header does not have."""
    used = {p.split()[0] for f in functions for p in header.functions[f]}
    return {
        "source": source,
        "enums": {name: header.enums[name] for name in sorted(enums)},
        "enum types": sorted(header.enum_types & used),
        "functions": {name: header.functions[name] for name in sorted(functions)},
        "structs": {name: header.structs[name] for name in sorted(structs)},
    }


def write(library: str, folder: Path, source: str) -> Path:
    """Write the facts about one version of a library."""
    from tests.libs.tables import TABLES

    table = TABLES[library]
    found = facts(read_folder(library, folder), list(table.enums), list(table.functions), list(table.structs), source)
    path = FACTS / f"{library}-{re.sub(r'[^0-9A-Za-z.]+', '-', source.split(',')[0]).strip('-').lower()}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")
    return path


if __name__ == "__main__":
    print(write(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
