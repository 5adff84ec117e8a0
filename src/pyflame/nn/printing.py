"""The repr of modules, in PyTorch's layout."""

from __future__ import annotations


def tree(name: str, lines: list[str], children: list[tuple[str, str]]) -> str:
    """Name(...) on one line where one is enough, else with a line per child, indented."""
    below = [f"({key}): {text}".replace("\n", "\n  ") for key, text in children]
    if not below and len(lines) <= 1:
        return f"{name}({''.join(lines)})"
    return f"{name}(\n  " + "\n  ".join([*lines, *below]) + "\n)"


def grouped(texts: list[str]) -> list[tuple[str, str]]:
    """Equal neighbours as one: ("0-5", "6 x Layer()")."""
    runs: list[list[int]] = []
    for i, text in enumerate(texts):
        if runs and texts[runs[-1][0]] == text:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return [(str(a), texts[a]) if a == b else (f"{a}-{b}", f"{b - a + 1} x {texts[a]}") for a, b in runs]
