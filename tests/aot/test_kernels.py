"""Typical kernels and all hand-written ones, built for the targets of the design: no spill, no scratch memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pyflame.cli import kernels, main
from pyflame.cli.kernel_programs import PROGRAMS
from pyflame.cli.kernels import Built, build
from pyflame.kernels import specs

# Each takes a minute or more.
CI_TARGETS = ("gfx942", "gfx1100", "gfx90a", "gfx1201")
# Programs of generated kernels alone: built for one target here, and for all by tests/null/test_gpu_text.py.
GENERATED = (
    "chain", "chain_bfloat16", "transpose", "softmax", "softmax_long_rows", "layer_norm", "rms_norm", "cross_entropy",
    "reductions", "embedding", "dropout", "adamw",
)  # fmt: skip


@pytest.mark.slow(16)
@pytest.mark.parametrize("target", CI_TARGETS)
def test_no_spills(target: str) -> None:
    """Hand-written kernels and fused ones; and every hand-written kernel for AMD GPUs has a program that uses it."""
    programs = [name for name in PROGRAMS if target == "gfx942" or name not in GENERATED]
    found = list(build([target], programs))
    dirty = [f"{k.program}: {k.resources}" for k in found if k.resources is not None and not k.resources.clean]
    assert dirty == []
    used = {(op, k.implementation) for k in found for op in k.ops}
    assert [key for key, spec in specs().items() if "hip" in spec.languages and key not in used] == []
    lacking = {k.missing for k in found if k.missing}
    without = {op for op, _ in specs()} - {op for (op, _), spec in specs().items() if "hip" in spec.languages}
    assert all(any(f"[{op}]" in text for op in without) for text in lacking), "a kernel is there but was not used"


@pytest.mark.slow
def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "--target", "gfx942,gfx1100", "--only", "chain"]) == 0
    out = capsys.readouterr().out
    assert out.count("waves/SIMD") == 2
    assert out.index("gfx942") < out.index("gfx1100")
    assert "generated: silu mul" in out
    assert out.count("Estimates, not measurements") == 2 and "MI300X" in out and "RX 7900 XTX" in out
    assert out.count("us, memory") == 4  # two chains on two targets, 16 or 24 MiB each


def test_targets_without_published_peaks_have_no_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "--target", "gfx1030", "--only", "chain_bfloat16"]) == 0
    assert "stimate" not in capsys.readouterr().out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "--target", "gfx90a", "--only", "softmax", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {r["program"] for r in rows} == {"softmax", "softmax_long_rows"}
    assert all(r["target"] == "gfx90a" and r["resources"]["vgprs"] > 0 for r in rows)
    assert any("16" in r["resources"]["global_loads"] for r in rows)
    long = next(r["estimate"] for r in rows if r["program"] == "softmax_long_rows" and r["estimate"])
    assert long["bound"] == "memory" and long["seconds"] >= 2 * 16 * 100_003 * 4 / 1638e9


@pytest.mark.parametrize(("change", "code"), [({}, 0), ({"vgpr_spills": 1}, 1), ({"scratch_bytes": 16}, 1)])
def test_exit_code(
    change: dict[str, int], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (clean,) = build(["gfx942"], ["chain"])
    assert clean.resources is not None

    def made(targets: object, programs: object) -> Iterator[Built]:
        assert clean.resources is not None
        yield replace(clean, resources=replace(clean.resources, **change))
        yield Built("gfx942", "other", missing="[other] expected a kernel")

    monkeypatch.setattr(kernels, "build", made)
    assert main(["kernels", "--target", "gfx942"]) == code
    said = capsys.readouterr()
    assert "none yet" in said.out
    assert ("chain on gfx942 spills" in said.err) == bool(code)


@pytest.mark.parametrize("argv", [["--target", "gfx000"], ["--target", ""], ["--only", "nothing like it"]])
def test_bad_options(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["kernels", *argv])
    assert "expected" in capsys.readouterr().err
