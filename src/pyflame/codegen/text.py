"""Lines of source text, indented by block: shared by the dialects."""

from __future__ import annotations


class Writer:
    """Collects the text of a function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = 1

    def put(self, line: str) -> None:
        self.lines.append("  " * self.indent + line)

    def open(self, line: str) -> None:
        self.put(f"{line} {{".lstrip())
        self.indent += 1

    def close(self) -> None:
        self.indent -= 1
        self.put("}")
