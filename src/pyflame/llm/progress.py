"""How far bytes are: a bar in a terminal, a line for each step elsewhere; on stderr, since stdout may be what a model
writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

Show = Callable[[str, int, int], None]  # what is done, bytes so far, bytes in all


@contextmanager
def progress(name: str) -> Iterator[Show]:
    """Call what it gives as often as there is something new."""
    console = Console(stderr=True)
    if not console.is_terminal:
        seen: set[str] = set()

        def tell(step: str, done: int, total: int) -> None:
            if step not in seen:
                seen.add(step)
                console.print(f"{name}: {step} ({total / 1e6:.0f} MB)", highlight=False, markup=False, soft_wrap=True)

        yield tell
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks = {}

        def draw(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(f"{name}: {step}", total=total)
            bar.update(tasks[step], completed=min(done, total))

        yield draw
