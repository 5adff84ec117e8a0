"""The bindings' tables by library, as the comparison with facts wants them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from pyflame.libs.cuda import cublaslt, cudnn_table
from pyflame.libs.rocm import miopen_table, rocblas


@dataclass(frozen=True)
class Table:
    """What a binding claims about a library."""

    enums: dict[str, int]
    functions: dict[str, str]
    structs: dict[str, type[ctypes.Structure]]


def table_of(module: Any) -> Table:
    enums = {k: v for k, v in vars(module.C).items() if not k.startswith("__")}
    plain = {name: declared for name, (_, declared) in getattr(module, "PLAIN", {}).items()}
    return Table(enums, {**module.FUNCTIONS, **plain}, module.STRUCTS)


TABLES = {
    "cublaslt": table_of(cublaslt),
    "cudnn": table_of(cudnn_table),
    "rocblas": table_of(rocblas),
    "miopen": table_of(miopen_table),
}
