"""Run the tests that need a GPU: every file in processes of its own, all at once, and one summary.

    python tools/gpu_tests.py [--seconds 220] [--logs FOLDER] [--only gemm,text] [folder] [pytest arguments]

A kernel that faults ends the GPU's context, and with it the tests of its own process only. A file is cut into parts
as far as there are cores. What takes longer than `--seconds` is ended and has failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTHING = 5  # pytest's status where arguments, or a GPU that is not there, leave no test
SHOWN = 12_000  # characters of what a failing part printed


def part(file: Path, which: str, args: list[str], log: Path, cache: str, seconds: float) -> tuple[int, str]:
    """pytest's status of a part of a file, 0 where all is well, and a line that tells it."""
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    env = {"PYFLAME_CACHE_DIR": cache, **os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "--durations=3", "-p", "no:cacheprovider"]
    began = time.perf_counter()
    with log.open("wb") as out:
        try:
            run = [*command, f"--part={which}", str(file), *args]
            done = subprocess.run(run, cwd=ROOT, env=env, stdout=out, stderr=out, timeout=seconds, check=False)
            status = done.returncode
        except subprocess.TimeoutExpired:
            status = -1
            out.write(f"\nended after {seconds:.0f} s".encode())
    last = log.read_text(errors="replace").rstrip().rsplit("\n", 1)[-1].strip("= ")
    taken = time.perf_counter() - began
    word = {0: "ok", NOTHING: "none"}.get(status, "FAILED")
    return status, f"{word:6} {taken:4.0f} s  {file.stem} {which}: {last}"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", nargs="?", default=str(ROOT / "tests" / "gpu"))
    parser.add_argument("--seconds", type=float, default=220.0, help="the most that a part may take")
    parser.add_argument("--logs", type=Path, help="where to leave all that was printed")
    parser.add_argument("--only", default="", metavar="WORDS", help="files with one of these in their names")
    options, args = parser.parse_known_args(argv)
    files = sorted(Path(options.folder).resolve().glob("test_*.py"))
    files = [file for file in files if any(word in file.stem for word in options.only.split(","))]
    if not files:
        parser.error(f"there is no such test_*.py in {options.folder}")
    parts = -(-(os.cpu_count() or 1) // len(files))
    jobs = [(file, f"{n + 1}/{parts}") for file in files for n in range(parts)]
    # what was ended may have children that still write there
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        logs = options.logs or Path(scratch)
        logs.mkdir(parents=True, exist_ok=True)
        places = [logs / f"{file.stem}.{which.replace('/', '-of-')}.log" for file, which in jobs]
        cache = str(Path(scratch) / "cache")  # what one has compiled the others need not
        with ThreadPoolExecutor(len(jobs)) as pool:
            waiting = [
                pool.submit(part, file, which, args, log, cache, options.seconds)
                for (file, which), log in zip(jobs, places, strict=True)
            ]
            done = [w.result() for w in waiting]
        for (status, line), log in zip(done, places, strict=True):
            if status not in (0, NOTHING):
                print(f"{line}\n{log.read_text(errors='replace')[-SHOWN:]}\n")
    print("\n".join(line for _, line in done))
    passed = any(" passed" in line for _, line in done)
    if not passed:
        print("no test has passed: is there a GPU?")
    return 0 if passed and all(status in (0, NOTHING) for status, _ in done) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
