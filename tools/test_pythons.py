"""Tests every Python of this machine with the base package alone, as users have it: no torch, no development tools.

    python tools/test_pythons.py [3.10 3.13 ...]

Each gets an environment of its own in build/pythons. A Python that has torch here is left out unless it is named:
`make test` runs all tests on it. Ends with an error where a test fails, or where fewer tests ran than must.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = [f"3.{minor}" for minor in range(10, 15)]
OPS = ["tests/ops/test_catalogue.py", "tests/ops/test_indexing.py", "tests/ops/test_indexing_plans.py"]
TESTS = ["tests/unit", "tests/io", "tests/data", *OPS]
# They take long, and test compilers and tools rather than what differs between Pythons.
LEFT_OUT = ["c_math", "compiler", "gemm_kernel", "gpu_benchmark", "gpu_runner", "sanitize", "wheel"]
# How many tests must pass at least: that none failed says nothing where all were skipped.
AT_LEAST = {
    "ops.test_catalogue": 100,  # a share: its samples are chosen where they are made
    "ops.test_indexing": 50,
    "ops.test_indexing_plans": 60,
    "unit.test_autograd": 30,
    "unit.test_engine": 15,
    "unit.test_exact_memory": 5,
    "unit.test_interop": 8,
    "unit.test_jit": 15,
    "unit.test_jit_state": 15,
    "unit.test_known": 20,
    "unit.test_known_calls": 100,
    "unit.test_jitted_call": 38,
    "unit.test_native": 18,
    "unit.test_ownership": 50,
    "unit.test_tensor": 13,
    "data.test_workers": 10,
}


def interpreter(version: str) -> str | None:
    """A Python of this version: pyenv's, or else one on the path that runs (a shim of pyenv may not)."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for command in (*map(str, found), shutil.which(f"python{version}")):
        if command and subprocess.run([command, "-c", ""], capture_output=True, check=False).returncode == 0:
            return command
    return None


def environment(version: str, command: str) -> Path:
    folder = ROOT / "build" / "pythons" / version
    python = folder / "bin" / "python"
    if not (folder / "bin" / "pip").exists():
        subprocess.run([command, "-m", "venv", folder], check=True)
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*install, "-e", ".", "pytest>=8.3", "hypothesis>=6.120"], cwd=ROOT, check=True)
    return python


def run(version: str, python: Path) -> list[str]:
    """Run the tests; what is wrong, in lines."""
    report = ROOT / "build" / "pythons" / f"{version}.xml"
    ignored = [f"--ignore=tests/unit/test_{name}.py" for name in LEFT_OUT]
    options = ["--without-torch", "--every", "-m", "not thorough", "-q", "-rf", "-p", "no:cacheprovider"]
    started = time.perf_counter()
    command = [python, "-m", "pytest", *options, f"--junitxml={report}", *ignored, *TESTS]
    done = subprocess.run(command, cwd=ROOT, check=False)
    cases = ElementTree.parse(report).iter("testcase")
    passed = Counter(
        case.get("classname", "").removeprefix("tests.")
        for case in cases
        if {child.tag for child in case}.isdisjoint(("error", "failure", "skipped"))
    )
    print(f"Python {version}: {passed.total()} tests passed in {time.perf_counter() - started:.0f} s", flush=True)
    wrong = [f"{name}: {passed[name]} tests passed of at least {n}" for name, n in AT_LEAST.items() if passed[name] < n]
    return wrong + ([f"pytest ended with {done.returncode}"] if done.returncode else [])


def main(asked: list[str]) -> int:
    own = f"3.{sys.version_info.minor}"
    default = [v for v in SUPPORTED if v != own or importlib.util.find_spec("torch") is None]
    found = {version: command for version in asked or default if (command := interpreter(version)) is not None}
    missing = [version for version in asked if version not in found]
    if missing:
        print(f"expected Python {', '.join(missing)} in pyenv's folder or on the path but found none")
        return 1
    wrong = {version: run(version, environment(version, command)) for version, command in found.items()}
    for version, lines in wrong.items():
        print(f"Python {version}:", "; ".join(lines) or "all is well")
    print("not on this machine:", ", ".join(v for v in default if v not in found) or "none")
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
