"""Prototypes read from sources, and where a compiler says that a source is wrong."""

from __future__ import annotations

import pytest

from pyflame.core.errors import ArgumentError, CompileError
from pyflame.engine.user.prototype import find_prototype, with_plain_name
from pyflame.runtime.sources import explain_failure

SOURCE = """
#define MACRO __global__ void none(int x) \\
  __global__ void none_either(int)
// __global__ void commented(int x)
/* __global__ void too(int x) */
extern "C" {
__global__ void __launch_bounds__(256, 2) block(const float* __restrict__ a, float const *b, float *c, int n) { f(); }
}
__device__ const char* text = "__global__ void quoted(int x)";
template <class T> __device__ T helper(T x) { return x; }
__launch_bounds__(64) __global__ void before(unsigned x, unsigned long long y, long int z, const uint8_t *p, size_t q);
static __global__ void __attribute__((amdgpu_flat_work_group_size(1, 64))) nothing(void) {}
PF_GLOBAL(64) ours(int64_t *PF_RESTRICT x, const pf_u16 *h, int64_t n) {}
__global__ void strange(T* t, foo<int, float> s, float4* v, float w[], float4 by, float **p, const bool b, unsigned) {}
"""
BYTES = "uint8/bool_/float8_e4m3fn/float8_e4m3fnuz/float8_e5m2*"


@pytest.mark.parametrize(
    ("name", "types", "const"),
    [
        ("block", ["float32*", "float32*", "float32*", "int32"], "yyny"),
        ("before", ["uint32", "uint64", "int64", BYTES, "uint64"], "yyyyy"),
        ("nothing", [], ""),
        ("ours", ["int64*", "uint16/int16/float16/bfloat16*", "int64"], "nyy"),
        (
            "strange",
            ["a tensor of any dtype", "a number", "float32*", "float32*", "a number", "a tensor of any dtype", "bool",
             "uint32"],
            "nynnynyy",
        ),
    ],
)  # fmt: skip
def test_prototypes(name: str, types: list[str], const: str) -> None:
    found = find_prototype(SOURCE, name)
    assert [str(p) for p in found] == types
    assert "".join("ny"[p.const] for p in found) == const


@pytest.mark.parametrize("name", ["none", "none_either", "commented", "too", "quoted", "helper"])
def test_what_is_no_kernel(name: str) -> None:
    with pytest.raises(ArgumentError, match=r"the source has block, before, nothing, ours, strange"):
        find_prototype(SOURCE, name)


def test_several_of_one_name() -> None:
    same = "__global__ void f(int* x);\n__global__ void f(int *y) {}"
    assert len(find_prototype(same, "f")) == 1
    with pytest.raises(CompileError, match="several with other parameters"):
        find_prototype(same + "\n__global__ void f(const int *y) {}", "f")
    with pytest.raises(CompileError, match="no template"):
        find_prototype("template <class T>\n__global__ void f(T* x) {}", "f")


def test_plain_names() -> None:
    assert with_plain_name('extern "C" __global__ void f() {}', "f") == 'extern "C" __global__ void f() {}'
    assert with_plain_name(SOURCE, "nothing") == SOURCE == with_plain_name(SOURCE, "ours")
    longer = with_plain_name(SOURCE, "before")
    assert 'extern "C" __launch_bounds__(64) __global__ void before(' in longer
    assert longer.count("\n") == SOURCE.count("\n") and len(longer) == len(SOURCE) + len('extern "C" ')
    assert find_prototype(longer, "before") == find_prototype(SOURCE, "before")


TEXT = '#include "pf_gpu.h"\n#include "more.h"\n#line 1 "kernel.hip"\nfirst\nsecond\nthird\nfourth'


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("/tmp/x1/kernel.hip:3:7: error: use of undeclared identifier", ">    3 | third"),  # clang, hiprtc
        ('kernel.hip(2): error: identifier "x" is undefined', ">    2 | second"),  # NVRTC
        ("/tmp/x1/kernels.hip:2:10: fatal error: 'more.h' file not found", '>    2 | #include "more.h"'),
        ("kernels.c: In function 'f':\nkernels.c:1:3: error: unknown type name 'x'", '>    1 | #include "pf_gpu.h"'),
        ("/a/pf_math.h:99:3: error: no\nkernel.hip:4:1: note: in instantiation of", ">    4 | fourth"),
        (
            "In file included from /tmp/kernels.hip:1:\n                 from kernel.hip:2:\n"
            "/a/pf_math.h:99:3: error: no\nkernel.hip:1:1: note: here",
            ">    1 | first",
        ),
        ("kernel.hip:2:1: warning: odd\nkernel.hip:3:1: error: wrong", ">    3 | third"),
    ],
)
def test_where_a_source_is_wrong(said: str, line: str) -> None:
    shown = explain_failure(said, TEXT)
    assert shown.startswith(said) and [row for row in shown.splitlines() if row.startswith(">")] == [line]


@pytest.mark.parametrize("said", ["out of memory, 3 errors", "pf_math.h:2:1: error: no", "kernel.hip:99:1: error: no"])
def test_nothing_is_shown_of_a_fault_elsewhere(said: str) -> None:
    assert explain_failure(said, TEXT) == said
