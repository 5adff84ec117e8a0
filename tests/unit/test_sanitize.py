"""tools/sanitize.py over a program that answers as compute-sanitizer does."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent.parent / "tools" / "sanitize.py"


def run(folder: Path, answers: str, *arguments: str) -> tuple[int, str]:
    """Its exit status and its words, where compute-sanitizer is a script with these lines."""
    fake = folder / "compute-sanitizer"
    fake.write_text(f"#!/bin/sh\n{answers}\n")
    fake.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, str(TOOL), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_all_tools_clean(tmp_path: Path) -> None:
    status, words = run(
        tmp_path,
        'echo "7 passed in 1 s"\ncase "$1" in *racecheck) echo "RACECHECK SUMMARY: 0 hazards displayed";;\n'
        '*) echo "========= ERROR SUMMARY: 0 errors";; esac',
    )
    assert status == 0
    assert words.splitlines() == [
        f"{t:10} 0 errors in 7 tests" for t in ("memcheck", "racecheck", "initcheck", "synccheck")
    ]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ('echo "7 passed"; echo "========= ERROR SUMMARY: 3 errors"; exit 99', "3 errors in 7 tests"),
        ('echo "7 passed"; echo "========= RACECHECK SUMMARY: 1 hazard displayed"', "1 errors in 7 tests"),
        ('echo "1 failed, 6 passed"; echo "========= ERROR SUMMARY: 0 errors"; exit 1', "ended with status 1"),
        ('echo "2 skipped"; echo "========= ERROR SUMMARY: 0 errors"', "no test ran"),
        ('echo "Error: cannot be run"; exit 1', "gave no summary"),
        ("sleep 5", "not done after 0 s"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, answers: str, words: str) -> None:
    status, said = run(tmp_path, answers, "memcheck", "--limit", "0.3")
    assert status == 1
    assert words in said.splitlines()[0]


def test_the_program_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = importlib.util.spec_from_file_location("sanitize", TOOL)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    monkeypatch.setattr(module, "find", lambda: None)
    monkeypatch.setattr(sys, "argv", ["sanitize.py"])
    assert module.main() == 1
    assert "was not found" in capsys.readouterr().out
