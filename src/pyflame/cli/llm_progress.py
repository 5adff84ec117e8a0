"""How far a command of `pyflame llm` is: a bar in a terminal, a line for each tenth elsewhere. Both on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """Call what it gives once for each of `total` steps, with a word on how it goes."""
    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, TextColumn("{task.fields[word]}"), console=console, transient=True) as bar:
            task = bar.add_task(what, total=total, word="")
            yield lambda word: bar.update(task, advance=1, word=word)
        return
    done = 0

    def tell(word: str) -> None:
        nonlocal done
        done += 1
        if done * 10 // total > (done - 1) * 10 // total:
            console.print(f"{what}: {done} of {total} {word}".rstrip(), markup=False, soft_wrap=True)

    yield tell
