"""What every compiler needs: where the kernels' headers are, and how to show the source it refused."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def include_dir() -> Path:
    return Path(str(resources.files("pyflame") / "kernels" / "include"))


def explain_failure(stderr: str, source: str, context: int = 3) -> str:
    """The compiler's first words and the numbered source around the line they name."""
    lines = source.splitlines()
    shown = stderr.strip()[:2000]
    for word in stderr.replace(":", " ").split():
        if word.isdecimal() and 1 <= int(word) <= len(lines):
            at = int(word)
            rows = range(max(1, at - context), min(len(lines), at + context) + 1)
            return shown + "\n" + "\n".join(f"{'>' if n == at else ' '}{n:5d} | {lines[n - 1]}" for n in rows)
    return shown
