"""Other C compilers than the default: clang builds the same kernels, an old one those for what it knows of the CPU."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyflame.engine.devices import cpu
from tests.needs import need

SCRIPT = """
import numpy as np, pyflame as pf
rng = np.random.default_rng(0)
x, w = rng.standard_normal((33, 70)).astype(np.float32), rng.standard_normal((70, 40)).astype(np.float32)
got = pf.softmax(pf.gelu(pf.tensor(x) @ pf.tensor(w)), axis=-1).sum(axis=0).numpy()
from math import erf
g = x @ w
g = g * 0.5 * (1 + np.vectorize(erf)(g / 2**0.5))
e = np.exp(g - g.max(-1, keepdims=True))
np.testing.assert_allclose(got, (e / e.sum(-1, keepdims=True)).sum(0), rtol=1e-4, atol=1e-5)
print("clang" in pf.device_info()["compiler"])
"""


@pytest.mark.slow(16)
def test_clang_builds_the_kernels(tmp_path: Path) -> None:
    clang = need(shutil.which("clang-22") or shutil.which("clang"), "clang")
    env = {**os.environ, "PYFLAME_CC": clang, "PYFLAME_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr


def test_flags_name_what_they_ask_for() -> None:
    """Compiled code is found again by its flags, also by another CPU that shares the folder."""
    compiler = cpu().compiler
    assert compiler is not None
    assert not any("native" in flag for flag in compiler.flags)
    assert bool(cpu().target.isa) == any(flag.startswith(("-mavx", "-march=")) for flag in compiler.flags)


OLD = """
import numpy as np, pyflame as pf
x, y = (np.random.default_rng(0).integers(-128, 128, (70, 70)).astype(np.int8) for _ in range(2))
got = pf._int_mm(pf.tensor(x), pf.tensor(y)).numpy()
print(np.array_equal(got, x.astype(np.int32) @ y.astype(np.int32)), *pf.device_info()["isa"])
"""


@pytest.mark.slow
def test_an_old_compiler(tmp_path: Path) -> None:
    """Plans count on instructions that the CPU has and the compiler knows: panels have the sizes that both agree on."""
    name, feature = ("dotprod", "asimddp") if platform.machine() == "aarch64" else ("-mavx512f", "avx512f")
    if feature not in cpu().target.isa:
        pytest.skip(f"this CPU has no {feature}")
    old = tmp_path / "old-cc"
    old.write_text(f'#!/bin/sh\ncase "$*" in *{name}*) exit 1;; esac\nexec {shutil.which("cc")} "$@"\n')
    old.chmod(0o755)
    env = {**os.environ, "PYFLAME_CC": str(old), "PYFLAME_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", OLD], env=env, capture_output=True, text=True, check=False)
    right, *isa = done.stdout.split()
    assert right == "True", done.stderr
    assert set(isa) == {one for one in cpu().target.isa if not one.startswith(feature.removesuffix("f"))}
