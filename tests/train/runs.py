"""A small training run, for tests to start, kill and resume: `python -m tests.train.runs <what> <folder>`.

It has everything that a resumed run must get right: dropout, batch-norm statistics, a shuffled loader, a schedule, a
GradScaler, evaluations and early stopping.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pyflame as pf
from pyflame import nn, optim
from pyflame.data import DataLoader, TensorDataset
from pyflame.train import Accuracy, CheckpointManager, EarlyStopping, LossCurve, Trainer

ROOT = Path(__file__).parents[2]
_rng = np.random.default_rng(0)
X = _rng.standard_normal((60, 6)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)


def build(seed: int = 0, dropout: float = 0.2) -> tuple[nn.Module, optim.Optimizer]:
    """The model and its optimiser."""
    pf.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 2)
    )  # fmt: skip
    return model, optim.AdamW(model.parameters(), lr=1e-2)


def loader(batch_size: int = 8, shuffle: bool = True, workers: int = 0) -> DataLoader:
    return DataLoader(TensorDataset(X, Y), batch_size=batch_size, shuffle=shuffle, seed=3, num_workers=workers)


def trainer(**options: Any) -> Trainer:
    """A short run without any output; `options` go to the Trainer."""
    model, optimizer = build(options.pop("seed", 0))
    options = {"train_data": loader(), "max_steps": 12, "progress": False, "log_every": 4, **options}
    return Trainer(model, optimizer, nn.CrossEntropyLoss(), **options)


def full(folder: Path, workers: int = 0, **options: Any) -> Trainer:
    """A run that uses everything. It writes a checkpoint at every step, to be killed while it does."""
    model, optimizer = build()
    options = {"max_steps": 60, "checkpoint_every": 1, "progress": False, **options}
    return Trainer(
        model, optimizer, nn.CrossEntropyLoss(), train_data=loader(workers=workers),
        eval_data=loader(30, shuffle=False),
        scheduler=optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60), scaler=optim.GradScaler(growth_interval=7),
        clip_norm=1.0, metrics=[Accuracy()], eval_every=7, log_every=5, checkpoint=folder / "checkpoints",
        log=folder / "log.jsonl", callbacks=[EarlyStopping(patience=100), LossCurve(folder / "loss.html")],
        **options,
    )  # fmt: skip


def digests(folder: Path) -> dict[str, str]:
    """The checksums of all that the newest checkpoint holds."""
    found = CheckpointManager(folder / "checkpoints").latest()
    assert found is not None
    return {name: about["sha256"] for name, about in found.files.items()}


def save_for_ever(folder: Path) -> None:
    """Write checkpoints as fast as possible, until somebody kills the process."""
    model, optimizer = build()
    manager = CheckpointManager(folder / "checkpoints", keep=2)
    found = manager.restore(model=model, optimizer=optimizer)
    step = 0 if found is None else found.step
    while True:
        step += 1
        manager.save(step, model=model, optimizer=optimizer, extra={"step": step})


def _main(what: str, folder: Path) -> None:
    programs: dict[str, Callable[[Path], Any]] = {
        "fit": lambda folder: print(full(folder).fit().reason),
        "fit with workers": lambda folder: print(full(folder, workers=2).fit().reason),
        "save": save_for_ever,
    }
    programs[what](folder)


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
