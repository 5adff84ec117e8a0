"""The wheel holds the package and nothing else, and all of it runs from there, far from the checkout."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pyflame.runtime.cpu.compiler import cpu_flags
from pyflame.runtime.cpu.prebuilt import level_of

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
PACKAGED = {".py", ".pyi", ".typed", ".c", ".h", ".hip", ".def", ".css", ".html", ".js", ".npz"}
STEP = """
import pyflame as pf
from pyflame import nn, optim

model = nn.Linear(8, 1)
optimizer = optim.AdamW(model.parameters(), lr=0.1)
x = pf.randn(32, 8)


@pf.jit
def step(x, y):
    loss = pf.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


losses = [step(x, x.sum(1, keepdim=True)).item() for _ in range(20)]
assert losses[-1] < losses[0], losses
print(pf.__file__)
"""


def ran(*command: object, cwd: Path) -> str:
    """What a program prints that knows nothing of the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make wheel` builds it, with the kernels of this machine's level alone, from a copy of the checkout."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("src", "tools"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source)
    prebuild = source / "tools" / "prebuild.py", source / "build" / "prebuilt", level_of(cpu_flags())
    ran("env", f"PYTHONPATH={source / 'src'}", sys.executable, *prebuild, cwd=source)
    ran(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source, cwd=folder)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel in it. Its dependencies are those of the environment that runs
    the tests, put on the path without its .pth files: an editable install is not seen."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--no-deps"]
    ran(*install, wheel, cwd=folder)
    site = ran(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    source = ROOT / "src"
    wanted = {
        str(f.relative_to(source)) for f in source.rglob("*") if f.suffix in PACKAGED and "__pycache__" not in f.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    (library,) = {name for name in names if name.endswith(".so")}
    assert library.startswith(f"pyflame/kernels/prebuilt/{level_of(cpu_flags())}-")
    assert platform.machine() in wheel.name and "none-any" not in wheel.name
    names.remove(library)
    assert names == wanted
    assert {Path(name).suffix for name in names} == PACKAGED


def test_a_jitted_training_step_runs_from_it(python: Path, tmp_path: Path) -> None:
    assert ran(python, "-c", STEP, cwd=tmp_path).startswith(str(python.parents[1]))


def test_hand_written_kernels_come_with_it(python: Path, tmp_path: Path) -> None:
    counted = f"{STEP}stats = pf.compile_stats()\nprint(stats.disk_hits, stats.compiles)"
    new = "env", f"PYFLAME_CACHE_DIR={tmp_path / 'cache'}", python, "-c", counted
    hits, compiles = map(int, ran(*new, cwd=tmp_path).split()[-2:])
    assert hits >= 2 and compiles > 0  # the runner and a product; the rest is generated
    assert int(ran(*new, cwd=tmp_path).split()[-1]) == 0  # nothing in a second process


def test_the_demo_runs_from_it(python: Path, tmp_path: Path) -> None:
    command = python.with_name("pyflame"), "demo", "--size", "tiny", "--minutes", "0.05", "--device", "cpu"
    (steps,) = re.findall(r"after ([\d,]+) steps", ran(*command, cwd=tmp_path))
    assert int(steps.replace(",", "")) > 0
    assert (tmp_path / "pyflame-demo" / "report.html").exists()


def test_the_simulator_runs_from_it(python: Path, tmp_path: Path) -> None:
    source = tmp_path / "twice.hip"
    source.write_text('extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }\n')
    ran(
        python.with_name("pyflame"), "sim", "trace", source, "--grid", 1, "--block", 64, "--arg", "float[64]=arange",
        "--save", "x=twice.npy", cwd=tmp_path,
    )  # fmt: skip
    np.testing.assert_array_equal(np.load(tmp_path / "twice.npy"), 2.0 * np.arange(64))


def test_tests_pass_against_it(python: Path, tmp_path: Path) -> None:
    sample = [ROOT / "tests" / name for name in ("unit/test_engine.py", "unit/test_jit_state.py", "nn/test_module.py")]
    shown = ran(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *sample, cwd=tmp_path)
    assert re.search(r"\d+ passed", shown) and "skipped" not in shown
