"""Bindings against facts read from vendors' headers: values, parameters and sizes.

A table that is wrong here would crash, or worse, where it cannot be tried: on a user's GPU.
"""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pyflame.libs.binding import WORDS, parameters
from tests.libs.headers import FACTS, HEADERS, Header, declared, facts, read_folder
from tests.libs.tables import TABLES

FILES = sorted(FACTS.glob("*-*.json"))
SCALARS = {
    "int": "i32",
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
    "size_t": "size",
    "float": "f32",
    "double": "f64",
    "bool": "bool",
    "rocblas_int": "i32",  # rocblas-types.h: int32_t, unless built with rocblas_ILP64, which no package is
    "rocblas_stride": "i64",
    "cudaDataType": "i32",  # library_types.h: two names of one enum
    "cudaDataType_t": "i32",
}


def word(parameter: str, enums: list[str]) -> str:
    """How a parameter of a header must be passed."""
    kind = parameter.split()[0]
    if "*" in parameter:
        return "ptr"
    # What is neither a number nor an enum is a handle, and handles are pointers in all four libraries.
    return SCALARS.get(kind) or ("i32" if kind in enums else "ptr")


@pytest.fixture(params=FILES, ids=lambda p: p.stem)
def known(request: pytest.FixtureRequest) -> tuple[Any, dict[str, Any]]:
    return TABLES[request.param.stem.split("-")[0]], json.loads(request.param.read_text())


def test_every_library_has_facts() -> None:
    assert {p.stem.split("-")[0] for p in FILES} == set(TABLES) == set(HEADERS)
    for path in FILES:
        assert re.search(r"PyPI|github\.com/", json.loads(path.read_text())["source"])


def test_constants(known: tuple[Any, dict[str, Any]]) -> None:
    table, fact = known
    assert table.enums == fact["enums"]


def test_parameters(known: tuple[Any, dict[str, Any]]) -> None:
    table, fact = known
    assert set(table.functions) == set(fact["functions"])
    for name, declaration in table.functions.items():
        expected = [(word(p, fact["enum types"]), p.split()[-1]) for p in fact["functions"][name]]
        assert parameters(declaration) == expected, name


def size_of(fields: list[str], sizes: dict[str, int]) -> tuple[int, int]:
    """Size and alignment of a struct of a header, by C's rules."""
    total = align = 0
    for each in fields:
        found = re.fullmatch(r"(\w+) \w+(?:\[(\d+)\])?", each)
        assert found is not None, each
        kind, count = found.groups()
        size = sizes.get(kind) or ctypes.sizeof(WORDS[SCALARS.get(kind, "i32")])
        alignment = min(size, 8)
        total = -(-total // alignment) * alignment + size * int(count or 1)
        align = max(align, alignment)
    return -(-total // align) * align, align


def test_structs(known: tuple[Any, dict[str, Any]]) -> None:
    table, fact = known
    sizes: dict[str, int] = {}
    for name, fields in fact["structs"].items():
        sizes[name] = size_of(fields, sizes)[0]
        structure = table.structs[name]
        assert ctypes.sizeof(structure) == sizes[name], name
        named = [f.split()[-1].split("[")[0] for f in fields]
        if "Conv" not in name:  # those stand for three structs that name their first field differently
            assert [f[0] for f in structure._fields_] == named
        assert len(structure._fields_) == len(fields)
    assert set(sizes) == set(table.structs)


# --- the reader itself ------------------------------------------------------------------------------------------------

TEXT = """
#define LIMIT 0x10
#define NAME_OF(x) x
typedef enum {
    FIRST,            /**< counted from 0 */
    SECOND = 4, THIRD, // and on from there
    BOTH = (SECOND | 2), SHIFTED = 1u << 3, NEGATIVE = -1,
} kind_t;
typedef struct pair { union { kind_t one; int other; }; float time[3]; size_t n; } pair_t;
MIOPEN_EXPORT int doIt(const handle_t handle,
                       const void* /* host */ data, kind_t kind, int sizes[], pair_t* out);
int version(void);
"""


def test_reader(tmp_path: Path) -> None:
    header = Header().read(TEXT)
    values = {"LIMIT": 16, "FIRST": 0, "SECOND": 4, "THIRD": 5, "BOTH": 6, "SHIFTED": 8, "NEGATIVE": -1}
    assert header.enums == values
    assert header.functions["doIt"] == ["handle_t handle", "void * data", "kind_t kind", "int * sizes", "pair_t * out"]
    assert header.functions["version"] == []
    assert header.structs["pair_t"] == ["kind_t one", "float time[3]", "size_t n"]
    assert size_of(header.structs["pair_t"], {}) == (24, 8)
    found = facts(header, ["BOTH"], ["doIt"], ["pair_t"], "here")
    assert found["enum types"] == ["kind_t"]
    with pytest.raises(KeyError):
        facts(header, ["ABSENT"], [], [], "here")
    with pytest.raises(FileNotFoundError, match=r"miopen\.h"):
        read_folder("miopen", tmp_path)


def test_declared() -> None:
    assert declared("const cublasLtMatmulAlgo_t* algo") == "cublasLtMatmulAlgo_t * algo"
    assert declared(" char **name ") == "char ** name"
