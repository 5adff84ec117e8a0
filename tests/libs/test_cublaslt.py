"""cuBLASLt's binding against a stand-in: what is described, searched and started. A GPU is another matter
(`tests/gpu/test_libs_on_nvidia.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyflame.core.errors import ArgumentError
from pyflame.libs import lt as lt_module
from pyflame.libs.binding import LibraryError
from pyflame.libs.cuda.cublaslt import CublasLt
from pyflame.libs.gemm import GemmSpec
from tests.libs.standin import Call, StandIn, build

A, B, D, BIAS, AREA = 0x7F0000001000, 0x7F0000002000, 0x7F0000003000, 0x7F0000004000, 0x7F0000005000
VALUE = """put("\\tvalue=%lld", sizeInBytes == 8 ? (long long)*(int64_t *)buf : (long long)*(int32_t *)buf);"""
# cublasLtMatmulHeuristicResult_t is 64 + 8 + 4 + 4 + 16 bytes; the third of three algorithms has failed.
HEURISTIC = """
struct { uint64_t algo[8]; size_t workspace; int state; float waves; int reserved[4]; } *r = heuristicResultsArray;
int found = requestedAlgoCount < 3 ? requestedAlgoCount : 3;
for (int i = 0; i < found; i++) { r[i].algo[7] = 100 + i; r[i].workspace = 4096 * i; r[i].state = i == 2 ? 15 : 0; }
*(int *)returnAlgoCount = found;
status = preferred_status;
"""
BEHAVIOUR = {
    "cublasLtGetVersion": "status = 130802;",
    "cublasLtMatmulDescSetAttribute": VALUE,
    "cublasLtMatrixLayoutSetAttribute": VALUE,
    "cublasLtMatmulPreferenceSetAttribute": VALUE,
    "cublasLtMatmulAlgoGetHeuristic": HEURISTIC,
    "cublasLtMatmul": """put("\\tchosen=%lld", (long long)((uint64_t *)algo)[7]);
        put("\\talpha_f=%.9e", (double)*(float *)alpha); put("\\talpha_d=%.9e", *(double *)alpha);
        put("\\talpha_i=%d", *(int *)alpha); put("\\tbeta_f=%.9e", (double)*(float *)beta);""",
}


def standin_with(folder: Path, status: int = 0) -> StandIn:
    return build("cublaslt", folder, BEHAVIOUR, f"static int preferred_status = {status};")


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    return standin_with(tmp_path_factory.mktemp("cublaslt"))


@pytest.fixture
def lt(standin: StandIn) -> Iterator[CublasLt]:
    made = CublasLt(standin.path)
    standin.calls()
    yield made
    standin.calls()
    made.close()
    names = [c.name for c in standin.calls()]
    assert names[-1] == "cublasLtDestroy"
    assert 3 * names.count("cublasLtMatmulDescDestroy") == names.count("cublasLtMatrixLayoutDestroy")


def attributes(calls: list[Call], what: str) -> dict[int, int]:
    return {c["attr"]: c["value"] for c in calls if c.name == f"cublasLt{what}SetAttribute"}


def test_version(lt: CublasLt) -> None:
    assert lt.version == "13.8.2"


def test_rows(lt: CublasLt, standin: StandIn) -> None:
    """C = A B by rows is C^T = B^T A^T by columns: B comes first, and nothing is transposed."""
    spec = GemmSpec(5, 7, 3, "bfloat16", bias=True, activation="gelu", alpha=0.5)
    lt.matmul(spec, A, B, D, BIAS, 0x40, AREA, 1 << 25)
    calls = standin.calls()
    layouts = [(c["type"], c["rows"], c["cols"], c["ld"]) for c in calls if c.name == "cublasLtMatrixLayoutCreate"]
    assert layouts == [(14, 7, 3, 7), (14, 3, 5, 3), (14, 7, 5, 7)]
    assert [(c["computeType"], c["scaleType"]) for c in calls if c.name == "cublasLtMatmulDescCreate"] == [(68, 0)]
    assert attributes(calls, "MatmulDesc") == {3: 0, 4: 0, 7: 36, 8: BIAS}
    assert attributes(calls, "MatmulPreference") == {1: 1 << 25, 5: 256, 6: 256, 7: 256, 8: 256}
    (run,) = [c for c in calls if c.name == "cublasLtMatmul"]
    assert (run["A"], run["B"], run["C"], run["D"], run["stream"]) == (B, A, D, D, 0x40)
    assert (run["workspace"], run["workspaceSizeInBytes"], run["chosen"]) == (AREA, 1 << 25, 100)
    assert (run["alpha_f"], run["beta_f"]) == (0.5, 0.0)
    assert run["Cdesc"] == run["Ddesc"] != run["Adesc"] != run["Bdesc"]
    # Again: only the address of the bias is new.
    lt.matmul(spec, A, B, D, BIAS + 256, 0x40, AREA, 1 << 25)
    calls = standin.calls()
    assert [c.name for c in calls] == ["cublasLtMatmulDescSetAttribute", "cublasLtMatmul"]
    assert calls[0]["value"] == BIAS + 256


@pytest.mark.parametrize(("a", "b"), [((3, 1, 0), (1, 3, 0)), ((1, 5, 0), (7, 1, 0)), ((1, 5, 0), (1, 3, 0))])
def test_transposed(lt: CublasLt, standin: StandIn, a: tuple[int, int, int], b: tuple[int, int, int]) -> None:
    lt.matmul(GemmSpec(5, 7, 3, a=a, b=b), A, B, D)
    calls = standin.calls()
    flags = attributes(calls, "MatmulDesc")
    assert (flags[3], flags[4]) == (int(b[0] == 1), int(a[0] == 1))
    layouts = [(c["rows"], c["cols"], c["ld"]) for c in calls if c.name == "cublasLtMatrixLayoutCreate"]
    assert layouts[0] == ((3, 7, 3) if b[0] == 1 else (7, 3, 7))
    assert layouts[1] == ((5, 3, 5) if a[0] == 1 else (3, 5, 3))


def test_batches(lt: CublasLt, standin: StandIn) -> None:
    lt.matmul(GemmSpec(4, 4, 4, batch=6, a=(4, 1, 1 << 40), b=(4, 1, 0)), A, B, D)
    found = [(c["attr"], c["value"]) for c in standin.calls() if c.name == "cublasLtMatrixLayoutSetAttribute"]
    assert found == [(5, 6), (6, 0), (5, 6), (6, 1 << 40), (5, 6), (6, 16)]


@pytest.mark.parametrize(
    ("spec", "compute", "scale"),
    [
        (GemmSpec(4, 4, 4), 68, 0),
        (GemmSpec(4, 4, 4, tf32=True), 77, 0),
        (GemmSpec(4, 4, 4, "float16", tf32=True), 68, 0),
        (GemmSpec(4, 4, 4, "float64"), 70, 1),
        (GemmSpec(4, 4, 4, "int8"), 72, 10),
    ],
    ids=lambda v: v.text if isinstance(v, GemmSpec) else "",
)
def test_precision(lt: CublasLt, standin: StandIn, spec: GemmSpec, compute: int, scale: int) -> None:
    lt.matmul(spec, A, B, D)
    calls = standin.calls()
    (made,) = [c for c in calls if c.name == "cublasLtMatmulDescCreate"]
    assert (made["computeType"], made["scaleType"]) == (compute, scale)
    (run,) = [c for c in calls if c.name == "cublasLtMatmul"]
    assert run["alpha_d" if scale == 1 else "alpha_i" if scale == 10 else "alpha_f"] == 1


def test_alignment_is_part_of_the_search(lt: CublasLt, standin: StandIn) -> None:
    spec = GemmSpec(4, 4, 4, bias=True)
    lt.matmul(spec, A + 16, B + 4, D + 8, BIAS + 2)
    calls = standin.calls()
    assert attributes(calls, "MatmulPreference") == {1: 0, 5: 4, 6: 16, 7: 8, 8: 8}  # B is the library's A
    biases = [c["value"] for c in calls if c.name == "cublasLtMatmulDescSetAttribute" and c["attr"] == 8]
    assert biases == [2, BIAS + 2]
    lt.matmul(spec, A, B, D, BIAS)
    assert any(c.name == "cublasLtMatmulAlgoGetHeuristic" for c in standin.calls())


def test_ranks(lt: CublasLt, standin: StandIn) -> None:
    spec = GemmSpec(4, 4, 4)
    assert lt.count(spec, 1 << 20, wanted=8) == 2  # the third has failed
    lt.matmul(spec, A, B, D, workspace=AREA, workspace_bytes=1 << 20, rank=1)
    assert next(c for c in standin.calls() if c.name == "cublasLtMatmul")["chosen"] == 101
    with pytest.raises(LibraryError, match="algorithm number 2"):
        lt.matmul(spec, A, B, D, rank=2)


def test_refusals(lt: CublasLt, standin: StandIn, tmp_path: Path) -> None:
    far = GemmSpec(4, 4, 4, a=(8, 2, 0))
    assert not lt.supports(far)
    with pytest.raises(LibraryError, match="by rows or by columns"):
        lt.matmul(far, A, B, D)
    with pytest.raises(ArgumentError, match="address of the bias"):
        lt.matmul(GemmSpec(4, 4, 4, bias=True), A, B, D)
    refusing = CublasLt(standin_with(tmp_path, 15).path)
    assert not refusing.supports(GemmSpec(4, 4, 4))
    with pytest.raises(LibraryError, match="algorithm number 0"):
        refusing.matmul(GemmSpec(4, 4, 4), A, B, D)
    with pytest.raises(LibraryError, match="expected to find one of"):
        CublasLt(str(tmp_path / "absent.so"))


def test_broken_library(tmp_path: Path) -> None:
    broken = CublasLt(standin_with(tmp_path, 14).path)
    with pytest.raises(LibraryError, match="CUBLAS_STATUS_INTERNAL_ERROR"):
        broken.supports(GemmSpec(4, 4, 4))


def test_descriptions_are_bounded(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lt_module, "PLANS", 3)
    lt = CublasLt(standin.path)
    for n in range(1, 8):
        lt.matmul(GemmSpec(4, n, 4), A, B, D)
    names = [c.name for c in standin.calls()]
    assert names.count("cublasLtMatmulDescCreate") - names.count("cublasLtMatmulDescDestroy") == 3
    lt.close()
    standin.calls()
