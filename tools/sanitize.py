"""Runs the tests of the hand-written kernels under NVIDIA's compute-sanitizer, on a machine with an NVIDIA GPU.

python tools/sanitize.py                                all four tools over small cases
python tools/sanitize.py racecheck --all                one tool, large cases too
python tools/sanitize.py --tests tests/gpu/test_x.py    other tests

memcheck finds accesses out of bounds, racecheck races in shared memory, initcheck reads of what nothing has written,
synccheck barriers that not all threads reach. One line per tool; exits with 1 where any has found something, where a
test failed, or where nothing ran.
"""

from __future__ import annotations

import argparse
import glob
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
TESTS = tuple(f"tests/gpu/test_{name}_on_nvidia.py" for name in ("kernels", "gemm", "attention"))
FOUND = 99  # exit status for "the tool has found something", which no test runner uses
# Instrumented code is slower by a factor of 10 to 100: one dtype, and no shapes of hundreds of thousands of elements.
QUICK = "awkward or bad_index or along or float32 and not (4194304 or 1048576 or 1000003 or 400009 or 100003 or 50257)"
TIMINGS = "speed or pace"
_SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")


def find() -> str | None:
    """The program: on the path, or where CUDA's packages put it."""
    places = sorted(glob.glob("/usr/local/cuda*/bin/compute-sanitizer"), reverse=True)
    return shutil.which("compute-sanitizer") or next(iter(places), None)


def command(program: str, tool: str, tests: list[str], keep: str) -> list[str]:
    pytest = [sys.executable, "-m", "pytest", *tests, "-q", "-p", "no:cacheprovider", "-k", keep]
    options = [f"--error-exitcode={FOUND}", "--target-processes=all", "--print-limit=20"]
    return [program, f"--tool={tool}", *options, *pytest]


def verdict(status: int, output: str) -> tuple[int, str]:
    """Whether something is wrong (1) or not (0), and it in words."""
    found = [int(a or b) for a, b in _SUMMARY.findall(output)]
    passed = re.search(r"(\d+) passed", output)
    if not found:
        return 1, f"gave no summary (exit status {status})"
    words = f"{sum(found)} errors in {passed[1] if passed else 0} tests"
    if sum(found) or status == FOUND:
        return 1, words
    if status:
        return 1, f"{words}; the tests themselves ended with status {status}"
    return (0, words) if passed else (1, "no test ran: is there a GPU?")


def check(program: str, tool: str, tests: list[str], keep: str, limit: float) -> int:
    try:
        done = subprocess.run(
            command(program, tool, tests, keep), cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        print(f"{tool:10} not done after {limit:.0f} s", flush=True)
        return 1
    output = done.stdout + done.stderr
    wrong, words = verdict(done.returncode, output)
    print(f"{tool:10} {words}", flush=True)
    if wrong:
        print("\n".join(output.splitlines()[-60:]), flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="The hand-written kernels under compute-sanitizer.")
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"of {', '.join(TOOLS)}; all without one")
    parser.add_argument("--all", action="store_true", help="large cases and all dtypes too: many minutes")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), metavar="FILE", help="instead of the usual tests")
    parser.add_argument("--keep", metavar="EXPRESSION", help="pytest's -k, instead of the usual choice")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="for one tool; else 150, with --all an hour")
    options = parser.parse_args()
    if unknown := [t for t in options.tools if t not in TOOLS]:
        parser.error(f"unknown tool {unknown[0]!r}; there are {', '.join(TOOLS)}")
    program = find()
    if program is None:
        print("compute-sanitizer was not found; it is part of the CUDA toolkit (package cuda-sanitizer)")
        return 1
    keep = options.keep or (f"not ({TIMINGS})" if options.all else f"({QUICK}) and not ({TIMINGS} or large)")
    limit = options.limit or (3600.0 if options.all else 150.0)
    return max([check(program, t, options.tests, keep, limit) for t in options.tools or TOOLS])


if __name__ == "__main__":
    sys.exit(main())
