"""A stand-in for a vendor's library: compiled C whose prototypes come from the facts, not from the binding under test.

Every call is written down with its arguments as C received them; `behaviour` says what some functions do besides. So
a binding that passes 32 bits for 64, or a float for a double, or one descriptor in place of another, is seen.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyflame.runtime.cpu.compiler import find_compiler
from tests.libs.headers import FACTS

NUMBERS = {
    "int": "int",
    "int32_t": "int32_t",
    "uint32_t": "uint32_t",
    "int64_t": "int64_t",
    "uint64_t": "uint64_t",
    "size_t": "size_t",
    "float": "float",
    "double": "double",
    "bool": "_Bool",
    "rocblas_int": "int32_t",
    "rocblas_stride": "int64_t",
    "cudaDataType": "int",
    "cudaDataType_t": "int",
}
HEAD = """
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
static char text[1 << 20];
static size_t used;
static intptr_t made = 0x1000;
const char *standin_log(void) { return text; }
void standin_reset(void) { used = 0; text[0] = 0; }
static void put(const char *form, ...) {
    va_list list;
    va_start(list, form);
    used += vsnprintf(text + used, sizeof text - used, form, list);
    va_end(list);
}
/* The content of an array, for the record. */
static void ints(const char *name, const int *at, int n) {
    put("\\t%s[]=", name);
    for (int i = 0; i < n; i++) put("%d,", at[i]);
}
static void *make(void) { return (void *)(made += 0x10); }
"""


@dataclass(frozen=True)
class Call:
    """One call as C saw it."""

    name: str
    arguments: dict[str, str]

    def __getitem__(self, parameter: str) -> Any:
        """A number, or the list of an array's elements."""
        value = self.arguments[parameter]
        if "," in value:
            return [int(v) for v in value.split(",") if v]
        return float(value) if "." in value or "e" in value else int(value)


class StandIn:
    """The compiled library."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._library = ctypes.CDLL(self.path)
        self._library.standin_log.restype = ctypes.c_char_p

    def calls(self) -> list[Call]:
        """What was called since the last question."""
        lines = self._library.standin_log().decode().splitlines()
        self._library.standin_reset()
        out = []
        for line in lines:
            name, *rest = line.split("\t")
            out.append(Call(name, dict(part.split("=", 1) for part in rest)))
        return out

    def call(self, name: str) -> Call:
        """The only call of a function since the last question."""
        (found,) = [c for c in self.calls() if c.name == name]
        return found


def newest(library: str) -> dict[str, Any]:
    """The facts that prototypes are taken from."""
    prefer = {"cublaslt": "13.8", "cudnn": "9.6", "rocblas": "2025-05", "miopen": "2025-05"}[library]
    (path,) = FACTS.glob(f"{library}-*{prefer}*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def build(library: str, folder: Path, behaviour: Mapping[str, str], head: str = "") -> StandIn:
    """Compile a stand-in. `behaviour`: C statements by function, over the header's parameters and `status`."""
    fact = newest(library)
    unknown = set(behaviour) - set(fact["functions"])
    assert not unknown, f"the header has no {unknown}"
    results = dict.fromkeys(("cublasLtGetVersion", "cudnnGetVersion"), "size_t")
    body = [HEAD, head]
    for name, declared in fact["functions"].items():
        parameters, record = [], [f'put("{name}");']
        for each in declared:
            kind, called = each.split()[0], each.split()[-1]
            plain = "*" not in each and kind in NUMBERS
            enum = "*" not in each and kind in fact["enum types"]
            c = NUMBERS[kind] if plain else "int" if enum else "void *"
            parameters.append(f"{c} {called}")
            form, cast = ("%.17e", "(double)") if c in ("float", "double") else ("%lld", "(long long)")
            record.append(f'put("\\t{called}={form}", {cast}{called});')
        does = behaviour.get(name, "")
        if not does and re.search("[Cc]reate", name) and declared:
            does = f"*(void **){declared[0].split()[-1]} = make();"
        result = results.get(name, "int")
        text = " ".join(record)
        body.append(f"{result} {name}({', '.join(parameters) or 'void'}) {{ {result} status = 0; {text} {does} ")
        body.append('put("\\n"); return status; }')
    source = folder / f"{library}.c"
    source.write_text("\n".join(body))
    path = folder / f"lib{library}.so"
    compiler = find_compiler()
    assert compiler is not None, "a C compiler is needed"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-w", str(source), "-o", str(path), "-lm"], check=True)
    return StandIn(path)
