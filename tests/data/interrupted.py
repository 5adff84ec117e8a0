"""A program with busy workers, for tests that kill or interrupt it: prints the pids of its workers, then consumes."""

from __future__ import annotations

import time
from typing import Any

from pyflame.data import DataLoader
from tests.data.datasets import Rows


class Slow(Rows):
    def __getitem__(self, i: int) -> Any:
        if i >= 4:
            time.sleep(60)
        return super().__getitem__(i)


def main() -> None:
    loader = DataLoader(Slow(40, 100_000), 2, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    for _ in range(loader.num_workers):
        next(batches)  # one of each worker: all have started, and leave Ctrl-C to their parent
    workers = batches.gi_frame.f_locals["batches"].gi_frame.f_locals["pool"]._workers
    print(*[w.process.pid for w in workers], flush=True)
    for _ in batches:
        pass


if __name__ == "__main__":
    main()
