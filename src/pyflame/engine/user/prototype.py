"""The parameters of a kernel, read from its prototype in the source: how many, pointers or numbers, and of what type.

Compilers keep the sizes of parameters at best, so dtypes are read from the text. It need not be preprocessed: comments
and directives are left out, types that are not known here (a typedef, a struct) match any tensor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from pyflame.core.dtype import (
    FLOAT8,
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from pyflame.core.errors import ArgumentError, CompileError, suggest

_BYTES = (uint8, bool_, *FLOAT8)
# C type -> what a number of it is, and the dtypes of tensors that a pointer to it may point at: unsigned integers also
# hold the bits of what C has no type for.
_TYPES: dict[str, tuple[Any, tuple[DType, ...]]] = {
    "bool": (np.bool_, (bool_,)),
    "char": (np.int8, (int8, *_BYTES)),
    "signed char": (np.int8, (int8,)),
    "unsigned char": (np.uint8, _BYTES),
    "short": (np.int16, (int16,)),
    "unsigned short": (np.uint16, (uint16, int16, float16, bfloat16)),
    "int": (np.int32, (int32,)),
    "unsigned int": (np.uint32, (uint32, int32)),
    "long": (np.int64, (int64,)),
    "unsigned long": (np.uint64, (uint64, int64)),
    "float": (np.float32, (float32,)),
    "double": (np.float64, (float64,)),
    "_Float16": (np.float16, (float16,)),
    "__bf16": (ml_dtypes.bfloat16, (bfloat16,)),
}
_SAME = {
    "int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short", "uint16_t": "unsigned short",
    "int32_t": "int", "uint32_t": "unsigned int", "int64_t": "long", "uint64_t": "unsigned long",
    "pf_i8": "signed char", "pf_u8": "unsigned char", "pf_i16": "short", "pf_u16": "unsigned short",
    "pf_i32": "int", "pf_u32": "unsigned int", "pf_i64": "long", "pf_u64": "unsigned long",
    "unsigned": "unsigned int", "signed": "int",
    "size_t": "unsigned long", "ptrdiff_t": "long", "half": "_Float16", "__half": "_Float16",
    "hip_bfloat16": "__bf16", "__hip_bfloat16": "__bf16", "__nv_bfloat16": "__bf16",
}  # fmt: skip
_WORDS = {"signed", "unsigned", "char", "short", "int", "long", "float", "double", "bool", "void"}
_IGNORED = {"restrict", "__restrict", "__restrict__", "PF_RESTRICT", "volatile", "struct", "__grid_constant__"}
_VECTOR = re.compile(r"(char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong|float|double)([1-4])$")
_NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.DOTALL | re.MULTILINE)
_KERNEL = re.compile(r"\b(?:__global__|PF_GLOBAL\b)")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*\(")
_ATTRIBUTES = re.compile(r"\b(?:__launch_bounds__|__attribute__|PF_GLOBAL|__cluster_dims__)\s*\(")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel."""

    text: str  # as it is written
    pointer: bool
    const: bool  # a pointer to what the kernel only reads
    number: np.dtype[Any] | None  # the type of a number; None: not known here
    dtypes: tuple[DType, ...]  # of tensors that it may point at; empty: any

    def __str__(self) -> str:
        if self.pointer:
            return "/".join(d.name for d in self.dtypes) + "*" if self.dtypes else "a tensor of any dtype"
        return "a number" if self.number is None else self.number.name


def find_prototype(source: str, name: str) -> tuple[Parameter, ...]:
    """The parameters of a kernel of a source.

    >>> [str(p) for p in find_prototype("__global__ void f(const float* x, int n) {}", "f")]
    ['float32*', 'int32']
    """
    kernels = list(_kernels(_blanked(source)))
    found = {tuple(_parameter(p) for p in params) for kernel, params, _ in kernels if kernel == name}
    signatures = {tuple((p.pointer, p.const, p.number, p.dtypes) for p in params) for params in found}
    if len(signatures) > 1:
        raise CompileError(
            f"[{name}] expected one kernel of this name but the source has several with other parameters; give each a "
            "name of its own"
        )
    if not found:
        names = kernel_names(source)
        has = f"has {', '.join(names)}{suggest(name, names)}" if names else "has none"
        raise ArgumentError(
            f'[{name}] expected a kernel of this name in the source, `extern "C" __global__ void {name}(...)`, but the '
            f"source {has}"
        )
    return found.pop()


def kernel_names(source: str) -> list[str]:
    """The kernels of a source.

    >>> kernel_names("__global__ void f(int n) {} __global__ void g() {}")
    ['f', 'g']
    """
    return list(dict.fromkeys(name for name, _, _ in _kernels(_blanked(source))))


def with_plain_name(source: str, name: str) -> str:
    """The source with `extern "C"` before a kernel that lacks it: C++ would put the types into its name.

    >>> with_plain_name("int a; __global__ void f(int n) {}", "f")
    'int a; extern "C" __global__ void f(int n) {}'
    """
    text = _blanked(source)
    for kernel, _, start in reversed(list(_kernels(text))):
        if kernel == name and not re.match(r'extern\s*"C"|static\b|PF_GLOBAL\b', text[start:]):
            source = f'{source[:start]}extern "C" {source[start:]}'
    return source


def _blanked(source: str) -> str:
    """The source with blanks for comments, directives and strings; what is left stands where it stood."""
    return _NOISE.sub(lambda m: m[0] if m[0] == '"C"' else re.sub(r"[^\n]", " ", m[0]), source)


def _kernels(text: str) -> Iterator[tuple[str, list[str], int]]:
    """(name, texts of the parameters, where it begins) of each kernel that a source declares or defines."""
    for start in _KERNEL.finditer(text):
        at = start.start()
        while (attribute := _ATTRIBUTES.search(text, at)) and not set(text[at : attribute.start()]) & set(";{}("):
            at = _closing(text, attribute.end())
        match = _NAME.search(text, at)
        if match is None:
            continue
        begin = 1 + max(text.rfind(c, 0, start.start()) for c in ";{}")
        begin += len(text[begin:]) - len(text[begin:].lstrip())
        if text.startswith("template", begin):
            raise CompileError(
                f"[{match[1]}] expected a kernel that is no template; write one with its types spelled out, which may "
                "call a template"
            )
        params = _split(text[match.end() : _closing(text, match.end()) - 1])
        yield match[1], [] if params == ["void"] else params, begin


def _closing(text: str, at: int) -> int:
    """The place behind the parenthesis that closes one opened just before `at`."""
    depth = 1
    while depth and at < len(text):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at


def _split(text: str) -> list[str]:
    """Parameters, at the commas outside of any brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "(<[{") - (c in ")>]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [" ".join(p.split()) for p in parts if p.strip()]


def _parameter(text: str) -> Parameter:
    declared = re.sub(r"\[[^\]]*\]", "*", text.partition("=")[0])
    pointee, star, _ = declared.partition("*")
    words = [w for w in re.findall(r"[A-Za-z_][\w:]*(?:<[^>]*>)?", pointee) if w not in _IGNORED]
    const = "const" in words
    words = [w for w in words if w != "const"]
    if len(words) > 1 and words[-1] not in _WORDS and (not star or "[" in text):
        words.pop()  # the parameter's name; that of a pointer stands behind the star
    number, dtypes = _TYPES.get(_canonical(words), (None, ()))
    if star:
        return Parameter(text, True, const, None, () if declared.count("*") > 1 else dtypes)
    if words and _VECTOR.match(words[0]):
        number = None
    return Parameter(text, False, True, None if number is None else np.dtype(number), ())


def _canonical(words: Sequence[str]) -> str:
    """One name for all spellings of a C type."""
    if len(words) == 1:
        vector = _VECTOR.match(words[0])
        if vector:
            plain = vector[1].replace("longlong", "long")
            return f"unsigned {plain[1:]}" if plain.startswith("u") else plain
        return _SAME.get(words[0], words[0])
    kinds = [w for w in words if w not in ("signed", "int")] or ["int"]
    if "char" in kinds and "unsigned" not in kinds:
        return "signed char"
    if kinds == ["unsigned"]:
        kinds = ["unsigned", "int"]
    return " ".join(dict.fromkeys(sorted(kinds, key=lambda w: w != "unsigned")))
