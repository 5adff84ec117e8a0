"""Small measured facts kept between processes: one JSON file, versioned, replaced whole, ignored when damaged.

What is in such a file saves time and is never needed, so nothing about it may stop a program: a file that is damaged,
of another format or cannot be written costs a warning. Several processes may share it; each adds what it learnt to what
it finds there, and when two write at once one of them loses its last entries, which are then measured again.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyflame.core.atomic import write_atomic
from pyflame.core.files import read_json
from pyflame.core.locks import rlock


class Records:
    """Entries by name, in memory and, with a path, in a file.

    >>> records = Records(None, "tuning 1")
    >>> records.put("matmul", {"winner": "ours"}); records.get("matmul")
    {'winner': 'ours'}
    """

    def __init__(self, path: Path | Callable[[], Path] | None, form: str) -> None:
        self._path = path
        self.form = form
        self._entries: dict[str, Any] = {}
        self._read = path is None
        self._failed = False
        self._lock = rlock()

    @property
    def path(self) -> Path | None:
        """Where the file is; found out when first asked for."""
        if callable(self._path):
            self._path = self._path()
        return self._path

    def get(self, name: str) -> Any:
        """An entry, or None."""
        with self._lock:
            self._load()
            return self._entries.get(name)

    def put(self, name: str, entry: Any) -> None:
        """Add an entry and write the file."""
        with self._lock:
            self._load()
            self._entries[name] = entry
            self._write()

    def clear(self) -> None:
        """Forget everything, on disk too."""
        with self._lock:
            self._entries.clear()
            self._read = True
            if self.path is not None:
                self._write(merge=False)

    def __len__(self) -> int:
        with self._lock:
            self._load()
            return len(self._entries)

    def _load(self) -> None:
        if not self._read:
            self._read = True
            self._entries = self._on_disk() | self._entries

    def _on_disk(self) -> dict[str, Any]:
        path = self.path
        try:
            content = read_json(path) if path is not None and path.exists() else None
        except (OSError, ValueError) as error:
            return self._ignore(f"cannot be read ({error})")
        if content is None:
            return {}
        if not isinstance(content, dict) or not isinstance(content.get("entries"), dict):
            return self._ignore("is damaged")
        if content.get("form") != self.form:
            return {}  # of another version of PyFlame: its entries mean something else
        entries: dict[str, Any] = content["entries"]
        return entries

    def _ignore(self, why: str) -> dict[str, Any]:
        warnings.warn(f"[{self.form}] {self.path} {why}: it is ignored and will be written anew", stacklevel=4)
        return {}

    def _write(self, merge: bool = True) -> None:
        path = self.path
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if merge:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # said when it was read
                    self._entries = self._on_disk() | self._entries
            write_atomic(path, json.dumps({"form": self.form, "entries": self._entries}, indent=1) + "\n")
        except OSError as error:
            if not self._failed:
                self._failed = True
                warnings.warn(
                    f"[{self.form}] {path} cannot be written ({error}): what it holds is kept in memory", stacklevel=3
                )
