"""Files that are written from the code: brought up to date, or found to be old."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def update(texts: Mapping[Path, str], check: bool, command: str) -> int:
    """Write the texts, or say which of the files are old; gives the exit status."""
    old = 0
    for path, text in texts.items():
        if path.exists() and path.read_text() == text:
            continue
        if check:
            print(f"{path} is not current: run python {command}")
            old = 1
        else:
            path.write_text(text)
    return old
