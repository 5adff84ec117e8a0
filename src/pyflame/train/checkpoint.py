"""Checkpoints: folders that are whole or not there, checked when read, and rotated.

A checkpoint is a folder `step-00000123` with one .safetensors file per object (so `model.safetensors` opens in any tool
that reads the format, without the optimiser's state) and `manifest.json`, which holds step, metrics and the SHA-256 of
every file. The folder is written under another name, synced and renamed: the rename of a folder is as atomic as that of
a file. A crash leaves either the whole checkpoint or none; the next save removes what it left behind.

One process writes to a folder at a time, which a lock sees to; any number may read. A reader opens all files of a
checkpoint before it reads any, and takes the next newest if rotation was faster.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from pyflame.core.atomic import sync
from pyflame.core.errors import ArgumentError, ArgumentTypeError, FileFormatError
from pyflame.core.files import check_regular, plain_name, read_json
from pyflame.io import load, save, write_atomic
from pyflame.train.random_state import RandomState

FORMAT = 1
_MANIFEST = "manifest.json"
_UNFINISHED = ".checkpoint-"  # being written or being removed
_RANDOM = "random"
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_NAME = re.compile(r"step-(\d{8,})(?:\.(\d+))?")

T = TypeVar("T")
Files = dict[str, BinaryIO]  # by name, open


class Stateful(Protocol):
    """What a checkpoint can hold: models, optimisers, schedulers, scalers, loaders and anything else with these two."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state_dict: Any) -> Any: ...


@dataclass(frozen=True)
class Checkpoint:
    """What the manifest of a checkpoint says."""

    path: Path
    step: int
    epoch: int
    metrics: dict[str, float]
    extra: dict[str, Any]
    created: float
    files: dict[str, dict[str, Any]] = field(repr=False)

    @property
    def names(self) -> list[str]:
        """The objects in it."""
        return [file.removesuffix(".safetensors") for file in self.files]


class CheckpointManager:
    """Writes, rotates and reads the checkpoints in a folder.

    `keep` newest checkpoints stay (None: all), and with `keep_best="loss"` the one with the best value of that metric,
    the smallest or, with `mode="max"`, the largest. PyFlame's random state is always part of a checkpoint, that of
    NumPy and Python with `host_random`.

    >>> manager = CheckpointManager("run", keep=3)
    >>> manager.save(100, model=model, optimizer=optimizer, metrics={"loss": 0.5})
    >>> manager.restore(model=model, optimizer=optimizer).step
    100
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: int | None = 3,
        *,
        keep_best: str | None = None,
        mode: str = "min",
        host_random: bool = False,
    ) -> None:
        if keep is not None and (not isinstance(keep, int) or keep < 1):
            raise ArgumentError(f"[CheckpointManager] expected keep of at least 1, or None for all, but got {keep!r}")
        if mode not in ("min", "max"):
            raise ArgumentError(f"[CheckpointManager] expected mode 'min' or 'max' but got {mode!r}")
        self.directory = Path(directory)
        self.keep = keep
        self.keep_best = keep_best
        self.mode = mode
        self.random = RandomState(host=host_random)

    # --- writing ----------------------------------------------------------------------------------------------------

    def save(
        self,
        step: int,
        *,
        epoch: int = 0,
        metrics: Mapping[str, float] | None = None,
        extra: Mapping[str, Any] | None = None,
        **objects: Stateful,
    ) -> Path:
        """Write a checkpoint of these objects, then remove those that are no longer to be kept. Gives its folder.

        `extra` is anything JSON can hold. If writing fails, all earlier checkpoints are as they were.
        """
        _check_objects("save", objects)
        _check_description(step, extra)
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._lock():
            self._sweep()
            self._check_order(step)
            temporary = self.directory / f"{_UNFINISHED}{secrets.token_hex(8)}"
            temporary.mkdir()
            try:
                content = {
                    "format": FORMAT,
                    "step": step,
                    "epoch": epoch,
                    "metrics": {name: _json_number(value) for name, value in (metrics or {}).items()},
                    "extra": dict(extra or {}),
                    "created": time.time(),
                    "files": self._write_objects(temporary, {**objects, _RANDOM: self.random}),
                }
                text = {"sha256": _digest_of(content), "content": content}
                write_atomic(temporary / _MANIFEST, json.dumps(text, indent=1, allow_nan=False))
                target = self._free_path(step)
                os.rename(temporary, target)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            sync(self.directory)
            self._rotate()
        return target

    @staticmethod
    def _write_objects(folder: Path, objects: Mapping[str, Stateful]) -> dict[str, dict[str, Any]]:
        files = {}
        for name, value in objects.items():
            path = folder / f"{name}.safetensors"
            save(value.state_dict(), path)
            files[path.name] = {"bytes": path.stat().st_size, "sha256": _digest_of_file(path)}
        return files

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Held while anything is written or removed. The system lets go of it when the process dies."""
        with (self.directory / ".lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                warnings.warn(
                    f"[checkpoint] the file system of {self.directory} has no locks ({error}): see to it that only one "
                    "process writes there",
                    RuntimeWarning,
                    stacklevel=4,
                )
            yield

    def _sweep(self) -> None:
        """Remove what crashes left behind: whoever holds the lock is the only one with unfinished folders."""
        for path in self.directory.glob(f"{_UNFINISHED}*"):
            _discard(path)

    def _check_order(self, step: int) -> None:
        """Refuse a step before one that is there: rotation would remove the new one, and resume take the other."""
        for path in reversed(self.all()):
            if _order(path)[0] <= step:
                return
            try:
                self.read(path)
            except FileFormatError:
                self._remove(path)  # damaged: training went on from an earlier one
                continue
            raise ArgumentError(
                f"[save] expected a step after {path.name}, the newest in {self.directory}, but got {step}; restore "
                "that one, call discard_after(step), or use another folder"
            )

    def _free_path(self, step: int) -> Path:
        """A folder that stands in nobody's way: one that is there cannot be replaced in one move."""
        again = [1 + _order(path)[1] for path in self.all() if _order(path)[0] == step]
        return self.directory / (f"step-{step:08}.{max(again)}" if again else f"step-{step:08}")

    def _rotate(self) -> None:
        newest: dict[int, Path] = {}  # of those of one step only the last counts
        for path in self.all():
            newest[_order(path)[0]] = path
        kept = set(list(newest.values())[-self.keep :] if self.keep is not None else newest.values())
        best = self.best()
        if best is not None:
            kept.add(best.path)
        for path in self.all():
            if path not in kept:
                with _spare(path):
                    self._remove(path)

    def _remove(self, path: Path) -> None:
        # Renamed first: a checkpoint that is half removed would look damaged.
        trash = self.directory / f"{_UNFINISHED}{secrets.token_hex(8)}"
        os.rename(path, trash)
        _discard(trash)

    def discard_after(self, step: int) -> None:
        """Remove all checkpoints after a step, to train on from there in another way."""
        with self._lock():
            for path in self.all():
                if _order(path)[0] > step:
                    self._remove(path)

    # --- reading ----------------------------------------------------------------------------------------------------

    def all(self) -> list[Path]:
        """The folders of all checkpoints, damaged ones too, the oldest first."""
        if not self.directory.is_dir():
            return []
        return sorted((p for p in self.directory.iterdir() if _NAME.fullmatch(p.name)), key=_order)

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, or None if there is none at all.

        Damaged ones are named in a warning and passed over; if nothing else is there, that is an error.
        """
        return self._newest(lambda found, files: found)

    def _newest(self, use: Callable[[Checkpoint, Files], T]) -> T | None:
        """What `use` makes of the newest whole checkpoint, while its files are open."""
        damaged: list[str] = []
        for path in reversed(self.all()):
            try:
                with _opened(path) as (found, files):
                    for reason in damaged:
                        warnings.warn(f"{reason}. Using {path.name} instead", RuntimeWarning, stacklevel=4)
                    return use(found, files)
            except FileFormatError as error:
                if not path.exists():  # rotated away since they were listed: there is a newer one
                    return self._newest(use)
                damaged.append(str(error))
        if damaged:
            raise FileFormatError(
                f"[restore] expected a whole checkpoint in {self.directory} but all are damaged:\n  "
                + "\n  ".join(damaged)
            )
        return None

    def best(self) -> Checkpoint | None:
        """The checkpoint with the best value of the metric `keep_best`, or None. `restore` checks its files."""
        if self.keep_best is None:
            return None
        found: Checkpoint | None = None
        sign = 1.0 if self.mode == "min" else -1.0
        for path in self.all():
            try:
                checkpoint = _read_manifest(path)
            except FileFormatError:
                if not path.exists():  # rotated away since they were listed
                    return self.best()
                continue  # named when somebody wants to restore it
            value = checkpoint.metrics.get(self.keep_best, math.nan)
            if not math.isnan(value) and (found is None or sign * value <= sign * found.metrics[self.keep_best]):
                found = checkpoint
        return found

    def read(self, path: str | os.PathLike[str]) -> Checkpoint:
        """The manifest of a checkpoint whose files are all whole; else an error that names the file and the reason."""
        with _opened(Path(path)) as (checkpoint, _):
            return checkpoint

    def restore(
        self, source: Checkpoint | str | os.PathLike[str] | None = None, *, random: bool = True, **objects: Stateful
    ) -> Checkpoint | None:
        """Load the newest whole checkpoint, or `source`, into these objects; None if there is no checkpoint.

        Objects of the checkpoint that are not asked for are left out. With `random` the random state continues too.
        Everything is read and checked before the first object changes.
        """
        _check_objects("restore", objects)
        wanted: dict[str, Stateful] = {**objects, **({_RANDOM: self.random} if random else {})}

        def states(found: Checkpoint, files: Files) -> tuple[Checkpoint, dict[str, Any]]:
            absent = [name for name in wanted if name not in found.names]
            if absent:
                raise ArgumentError(
                    f"[restore] expected objects among {', '.join(found.names)} in {found.path} but got "
                    f"{', '.join(absent)}; leave them out"
                )
            # In memory of their own: the folder may be rotated away while they are used.
            return found, {name: _load(found.path, f"{name}.safetensors", files) for name in wanted}

        if source is None:
            read = self._newest(states)
        else:
            with _opened(Path(source.path if isinstance(source, Checkpoint) else source)) as (found, files):
                read = states(found, files)
        if read is None:
            return None
        for name, value in wanted.items():
            value.load_state_dict(read[1][name])
        return read[0]


def _check_objects(op: str, objects: Mapping[str, Any]) -> None:
    for name, value in objects.items():
        plain_name(op, name)
        if name == _RANDOM:
            raise ArgumentError(f"[{op}] expected another name than {name!r}: the random state is saved by itself")
        if not hasattr(value, "state_dict") or not hasattr(value, "load_state_dict"):
            raise ArgumentTypeError(
                f"[{op}] expected objects with state_dict and load_state_dict but {name!r} is of type "
                f"{type(value).__name__}; plain values go into extra={{...}}"
            )


def _check_description(step: object, extra: Mapping[str, Any] | None) -> None:
    try:
        json.dumps(dict(extra or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"[save] expected extra that JSON can hold but got {extra!r}: {error}") from None
    if not isinstance(step, int) or step < 0:
        raise ArgumentError(f"[save] expected a step that is a whole number from 0 on but got {step!r}")


def _order(path: Path) -> tuple[int, int]:
    """(step, how often it was saved again)."""
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1]), int(match[2] or 0)


def _json_number(value: float) -> float | str:
    """JSON knows no nan and no inf; float() reads both back."""
    number = float(value)
    return number if math.isfinite(number) else repr(number)


def _damaged(file: Path, reason: str) -> FileFormatError:
    return FileFormatError(f"[checkpoint] expected a whole checkpoint but {file} is damaged: {reason}")


def _digest_of(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return _digest_of_open(file)


def _digest_of_open(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _load(folder: Path, name: str, files: Files) -> Any:
    """The state in an open file, which may have lost its name by now. Its checksum has been compared."""
    try:
        return load(f"/proc/self/fd/{files[name].fileno()}", memory_map=False, verify=False)
    except FileFormatError as error:
        raise _damaged(folder / name, str(error)) from None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Checkpoint, Files]]:
    """A checkpoint whose files are open and whole, also if it is removed meanwhile; else an error that names the file.

    All are opened before the first is read, so that rotation has to come within a moment to get in between.
    """
    with contextlib.ExitStack() as stack:
        checkpoint = _read_manifest(path)
        files: Files = {}
        for name, about in checkpoint.files.items():
            try:
                size = check_regular(path / name).st_size
                files[name] = stack.enter_context((path / name).open("rb"))
            except OSError as error:
                missing = isinstance(error, FileNotFoundError)
                raise _damaged(path / name, "it is missing" if missing else str(error)) from None
            if size != about["bytes"]:
                raise _damaged(path / name, f"it has {size:,} bytes instead of {about['bytes']:,}")
        for name, file in files.items():
            if _digest_of_open(file) != checkpoint.files[name]["sha256"]:
                raise _damaged(path / name, "its content does not have the checksum in the manifest")
        yield checkpoint, files


@contextlib.contextmanager
def _spare(path: Path) -> Iterator[None]:
    """Around a removal: one that fails must not look like a checkpoint that was not written."""
    try:
        yield
    except OSError as error:
        warnings.warn(f"[checkpoint] {path} cannot be removed ({error})", RuntimeWarning, stacklevel=5)


def _discard(folder: Path) -> None:
    with _spare(folder):
        shutil.rmtree(folder)


def _read_manifest(path: Path) -> Checkpoint:
    file = path / _MANIFEST
    try:
        text = read_json(file)
        content = text["content"]
        if text["sha256"] != _digest_of(content):
            raise _damaged(file, "its content does not have its checksum")
        if content["format"] != FORMAT:
            raise FileFormatError(
                f"[checkpoint] expected format {FORMAT} but {file} has format {content['format']}; a newer PyFlame "
                "reads it"
            )
        return _checkpoint(path, content)
    except (FileNotFoundError, NotADirectoryError):
        raise _damaged(file, "it is missing") from None
    except FileFormatError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(file, f"it cannot be read ({type(error).__name__}: {error})") from None


def _checkpoint(path: Path, content: Mapping[str, Any]) -> Checkpoint:
    metrics = {name: float(value) for name, value in content["metrics"].items()}
    files = {
        plain_name("checkpoint", name): {"bytes": int(about["bytes"]), "sha256": str(about["sha256"])}
        for name, about in content["files"].items()
    }
    return Checkpoint(
        path, int(content["step"]), int(content["epoch"]), metrics, dict(content["extra"]), content["created"], files
    )
