"""Every Python block of the documentation runs, in order, those of one page in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Not as a script: a DataLoader's workers would run that again.
_RUN = "import sys; exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'), {'__name__': 'snippets'})"
_LINK = re.compile(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)")


def program(page: Path) -> str:
    """The blocks of a page, on the lines where they stand."""
    text, lines, at = page.read_text(encoding="utf-8"), "", 0
    for match in _BLOCK.finditer(text):
        lines += "\n" * text.count("\n", at, match.start(1)) + match[1]
        at = match.end(1)
    return lines


@pytest.mark.share(4)
@pytest.mark.parametrize("page", [p for p in PAGES if program(p)], ids=lambda p: p.stem)
def test_snippets_run(page: Path, tmp_path: Path) -> None:
    file = tmp_path / page.name  # so that errors show the page's name and line
    file.write_text(program(page), encoding="utf-8")
    search = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-c", _RUN, file.name]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": search}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
