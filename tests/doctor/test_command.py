"""`pyflame doctor` as people run it: words, JSON, exit status, mends, and where nothing else imports."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pyflame.cli import main
from pyflame.cli.early import is_pyflame
from pyflame.doctor import report
from pyflame.doctor.chain import CHECKS
from pyflame.doctor.check import Check, Findings, Status, examine, fine
from pyflame.doctor.machine import Machine, Ran, this_machine
from tests.doctor.modes import no_groups
from tests.doctor.trees import Tree, with_amd

SOURCE = Path(__file__).resolve().parent.parent.parent / "src"


def recorded(tmp_path: Path) -> Tree:
    tree = with_amd(tmp_path)
    tree.write("/proc/self/environ", "HOME=/home/ada\0PATH=/usr/bin\0")
    tree.write("/proc/self/status", "Uid:\t99 99 99 99\nGid:\t12345 12345 12345 12345\nGroups:\t\n")
    return tree


def test_the_first_broken_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path)
    assert main(["doctor", "--root", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "The first broken link is amd-permission: /dev/kfd belongs to group" in said
    assert "What mends it: sudo usermod -aG render,video" in said
    assert "not looked at: amd-permission is broken" in said


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path)
    assert main(["doctor", "--root", str(tmp_path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["fine"] is False and found["first_broken"] == "amd-permission"
    assert [c["check"] for c in found["checks"]] == [check.name for check in CHECKS]
    modes = {f["mode"] for c in found["checks"] for f in c["findings"]}
    assert "not-in-group" in modes


def test_an_empty_tree_is_a_machine_without_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--root", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "no AMD GPU found" in said and "no NVIDIA GPU found" in said and "No link is broken" in said


def test_wrong_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args, words in (
        (["--root", str(tmp_path / "none")], "expected a folder"),
        (["--root", str(tmp_path), "--fix"], "not allowed with --root"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["doctor", *args])
        assert words in capsys.readouterr().err


def test_a_check_that_raises_is_told(tmp_path: Path) -> None:
    def look(machine: Machine) -> Findings:
        yield fine("so far")
        raise PermissionError("no")

    def behind(machine: Machine) -> Findings:
        yield fine("looked")

    checks = [Check("one", "cpu", "", look), Check("two", "cpu", "", behind, needs=("one",))]
    one, two = examine(Machine(tmp_path), checks)
    assert one.status is Status.UNKNOWN and one.findings[0].text == "could not look: PermissionError: no"
    assert two.status is Status.FINE


def test_what_a_file_says_does_nothing_to_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = recorded(tmp_path)
    tree.write("/sys/module/amdgpu/version", "\x1b[2J6.1\n")
    assert main(["doctor", "--root", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "?[2J6.1" in said and "\x1b" not in said


def test_plain_text_without_rich(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    tree = with_amd(tmp_path)
    no_groups(tree)
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    report.print_results(examine(tree.machine(), CHECKS), out)
    out.flush()
    said = raw.getvalue().decode("ascii")
    assert " X  amd-permission" in said and "-> sudo usermod" in said and " ok cpu-compiler" in said


@pytest.mark.parametrize(("answer", "agreed"), [("y\n", True), ("n\n", False), ("", False)])
def test_fix_asks_first(
    answer: str, agreed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("PYFLAME_CACHE_DIR", str(folder))
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    checks = [check for check in CHECKS if check.name in ("platform", "cache")]
    monkeypatch.setattr("pyflame.cli.doctor.CHECKS", checks)
    assert main(["doctor", "--fix"]) == 0
    assert "take the right" in capsys.readouterr().err
    assert folder.stat().st_mode & 0o777 == (0o755 if agreed else 0o777)


def test_fixing_rights(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.folder("/home/ada/.cache/pyflame", 0o777)
    cache = [check for check in CHECKS if check.name == "cache"]
    (result,) = examine(tree.machine(), cache)
    fix = next(f.fix for f in result.findings if f.mode == "others-write")
    assert fix is not None
    fix.act()
    assert tree.path("/home/ada/.cache/pyflame").stat().st_mode & 0o022 == 0


@pytest.mark.parametrize("start", [["-m", "pyflame"], ["script"]])
def test_it_runs_where_nothing_else_imports(start: list[str], tmp_path: Path) -> None:
    for name in ("numpy", "rich", "platformdirs", "ml_dtypes"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('cannot open shared object file')\n")
    script = tmp_path / "pyflame"
    script.write_text("import sys\nfrom pyflame.cli import main\nsys.exit(main())\n")
    command = [str(script)] if start == ["script"] else start
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{SOURCE}", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, *command, "doctor"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "The first broken link is python: numpy does not import: ImportError: cannot open" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_report_that_cannot_be_written(options: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyflame", "doctor", "--root", str(tmp_path), *options]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("pyflame doctor: the report cannot be written: ")


def test_other_programs_are_left_alone() -> None:
    assert not is_pyflame(["/usr/bin/other", "doctor"], ["python", "/usr/bin/other", "doctor"])
    assert not is_pyflame(["-c", "doctor"], ["python", "-c", "import pyflame", "doctor"])
    assert is_pyflame(["-m", "doctor", "--json"], ["python", "-X", "dev", "-mpyflame", "doctor", "--json"])


def test_this_machine() -> None:
    """Whatever this machine is like, every check says something; nothing is computed on a GPU here."""
    machine = replace(this_machine(), run=lambda command, seconds: Ran(1, ""))
    results = examine(machine, CHECKS)
    assert not [r.findings for r in results if r.status is Status.UNKNOWN]
    assert {r.check.name: r for r in results}["python"].status is Status.FINE
