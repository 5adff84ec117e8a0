"""Which implementation runs a problem: measured once, checked once, remembered.

Implementations of one problem (a kernel of ours, vendor libraries) are timed when the problem is first met on a
machine, outside of any capture, and the fastest that is right is kept in a file. Before a library is chosen, its result
is compared with our own kernel's on sampled outputs: libraries have been silently wrong on GPUs they claim to
support, so a wrong one is refused for this op and dtype on this device, with a warning, for as long as its version
stays the same.

Pure logic: a candidate is a name, a version and something that `measure` and `check` know how to run.

`decide.py` asks it: `measure` times a candidate by events of the device, `check` gives `compare(got, want, dtype,
terms)` of samples of both results; `choice.name` is the implementation, `choice.text` what `pf.explain` shows.
Where measuring is off, expectations decide, and what they choose is checked all the same.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pyflame.core import knobs
from pyflame.core.cache_folder import cache_dir
from pyflame.core.errors import ArgumentError, DeviceFaultError, OutOfMemoryError
from pyflame.core.locks import lock
from pyflame.core.records import Records
from pyflame.core.state import state

T = TypeVar("T")
FORM = "PyFlame tuning 2"
MARGIN = 1.02  # a library must be this much faster than our own kernel, which needs no check and no other version
SAMPLES = 4096
# From a number to the next, as a share of it, in what is multiplied or stored; sums are in float32 at least.
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "tf32": 2.0**-10, "float16": 2.0**-10, "bfloat16": 2.0**-7}
SUMS = 2.0**-23
TOLERANCE = 4.0  # such steps


@dataclass(frozen=True)
class Candidate:
    """An implementation. `version` is empty for our own kernel, which is what the others are compared with."""

    name: str
    version: str = ""
    run: Any = None  # what `measure` and `check` call
    family: str = ""  # candidates that are refused together; empty: this one alone
    quiet: bool = False  # that it is wrong is no news: something else of the same library does without what is wrong

    @property
    def ours(self) -> bool:
        return not self.version

    @property
    def blamed(self) -> str:
        """What is refused if it is wrong."""
        return f"{self.family or self.name} {self.version}"

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}".strip()


@dataclass(frozen=True)
class Key:
    """What a measurement holds for.

    >>> str(Key("matmul", "1024x1024x1024", "bfloat16", "rows rows", "cuda sm_90 132"))
    'matmul | 1024x1024x1024 | bfloat16 | rows rows | cuda sm_90 132'
    """

    op: str
    shapes: str
    dtypes: str
    strides: str
    device: str

    def __str__(self) -> str:
        return " | ".join((self.op, self.shapes, self.dtypes, self.strides, self.device))


@dataclass(frozen=True)
class Verdict:
    """How far a result is from our own: the largest error, what is allowed, and where it was."""

    error: float
    allowed: float
    where: str = ""

    @property
    def right(self) -> bool:
        return self.error <= self.allowed  # NaN is wrong


@dataclass(frozen=True)
class Choice:
    """The winner, seconds of all that were timed, and why others were not."""

    name: str
    seconds: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    measured: bool = False  # now, in this process
    why: str = ""  # of a choice that no measurement made

    @property
    def text(self) -> str:
        """One line for `pf.explain`.

        >>> Choice("cuBLASLt", {"ours": 2e-3, "cuBLASLt": 1e-3}).text
        'cuBLASLt: measured 1 ms; ours 2 ms'
        """
        if self.why:
            parts = [f"{self.name}: {self.why}"]
        elif self.name not in self.seconds:
            parts = [f"{self.name}: the only implementation left" if self.refused else f"{self.name}: the only one"]
        else:
            parts = [f"{self.name}: measured {self.seconds[self.name] * 1e3:.4g} ms"]
            others = sorted((s, n) for n, s in self.seconds.items() if n != self.name)
            parts += [f"{n} {s * 1e3:.4g} ms" for s, n in others]
        return "; ".join(parts + [f"{n} refused: {why}" for n, why in self.refused.items()])


class Tuner:
    """Makes and remembers choices. One per machine is enough; thread safe, one measurement at a time.

    >>> tuner = Tuner(None)
    >>> key = Key("matmul", "8x8x8", "float32", "rows rows", "cpu")
    >>> library, ours = Candidate("fast", "1.0"), Candidate("ours")
    >>> seconds = {"fast": 1e-3, "ours": 2e-3}
    >>> tuner.choose([ours, library], key, lambda c, best: seconds[c.name], lambda c, o: Verdict(0.0, 1e-6)).name
    'fast'
    """

    def __init__(self, path: Path | Callable[[], Path] | None) -> None:
        self._records = Records(path, FORM)
        self._lock = lock()
        self._absent: set[tuple[str, str]] = set()  # that raised: not tried again for this problem, nor written down
        self._passing: dict[str, Choice] = {}  # choices without those: made again in another process

    def choose(
        self,
        candidates: Sequence[Candidate],
        key: Key,
        measure: Callable[[Candidate, float], float] | None,
        check: Callable[[Candidate, Candidate], Verdict],
        expect: Callable[[Candidate], float] | None = None,
        known: bool = True,
    ) -> Choice:
        """The fastest candidate that is right. Our own kernel must be among them.

        `measure(candidate, best)` gives seconds, `best` those of the fastest before it; `check(candidate, ours)` runs
        both and compares. What a library raises in either is a warning; what our own kernel raises is an error. Without
        `measure` it is the one of which the fewest seconds are expected, by `expect`, that is right. `known`: whether
        what was measured before counts.
        """
        ours = [c for c in candidates if c.ours]
        if len(ours) != 1:
            raise ArgumentError(
                f"[tuner] expected exactly one kernel of ours among the candidates for {key} but got "
                f"{[c.label for c in candidates]}; without one there is nothing to compare a library with"
            )
        with self._lock:
            name = _name(candidates, key)
            refused = {c.name: why for c in candidates if not c.ours and (why := self._blocked(c, key))}
            before = self._before(candidates, key) if known else None
            if before is not None and before.name not in refused:
                return before
            if measure is None:
                assert expect is not None, "without measurements there must be expectations"
                return self._expected(sorted(candidates, key=expect), key, check, refused)
            left = [c for c in candidates if c.name not in refused]
            seconds = self._seconds(left, key, measure, refused) if len(left) > 1 else {}
            order = sorted((c for c in left if c.name in seconds), key=lambda c: seconds[c.name] * _handicap(c))
            winner = self._first_right(order, ours[0], key, check, refused)
            refused |= {c.name: why for c in left if (why := self._wrong(c, key))}
            seconds = {name: taken for name, taken in seconds.items() if name not in refused}
            choice = Choice(winner.name, seconds, refused, measured=True)
            if any((str(key), c.label) in self._absent for c in candidates):
                self._passing[name] = replace(choice, measured=False)
            else:
                self._records.put(name, {"winner": winner.name, "seconds": seconds, "refused": refused})
            return choice

    def knows(self, candidates: Sequence[Candidate], key: Key) -> bool:
        """Whether `choose` has an answer, and would time nothing."""
        with self._lock:
            before = self._before(candidates, key)
            return before is not None and not any(c.name == before.name and self._blocked(c, key) for c in candidates)

    def _before(self, candidates: Sequence[Candidate], key: Key) -> Choice | None:
        """What was measured before, now or in another process."""
        name = _name(candidates, key)
        return _choice(self._records.get(name), candidates) or self._passing.get(name)

    def _first_right(
        self,
        order: Sequence[Candidate],
        ours: Candidate,
        key: Key,
        check: Callable[[Candidate, Candidate], Verdict],
        refused: dict[str, str],
    ) -> Candidate:
        """The fastest that is right: libraries are checked until one is, and those that are not are refused."""
        failed: dict[str, str] = {}
        for candidate in order:
            if candidate.ours:
                break
            # where one proposal of a library was wrong, or failed, its others are refused too
            why = failed.get(candidate.blamed) or self._wrong(candidate, key)
            why = why or self._refusal(candidate, ours, key, check)
            if not why:
                return candidate
            refused[candidate.name] = failed[candidate.blamed] = why
        return ours

    def _expected(
        self,
        candidates: Sequence[Candidate],
        key: Key,
        check: Callable[[Candidate, Candidate], Verdict],
        refused: dict[str, str],
    ) -> Choice:
        """The first candidate that is right; a library is checked once for each kind of problem."""
        ours = next(c for c in candidates if c.ours)
        for candidate in candidates:
            if candidate.ours:
                break
            if candidate.name in refused:
                continue
            name = f"checked | {candidate.label} | {key}"
            why = self._blocked(candidate, key)
            if not why and not self._records.get(name):
                why = self._refusal(candidate, ours, key, check)
                if not why:
                    self._records.put(name, True)
            if not why:
                return Choice(candidate.name, {}, refused, why="expected to be the fastest")
            refused[candidate.name] = why
        return Choice(ours.name, {}, refused, why="expected to be the fastest" if not refused else "")

    def clear(self) -> None:
        """Forget all choices and refusals, on disk too."""
        with self._lock:
            self._records.clear()
            self._absent.clear()
            self._passing.clear()

    def _block_name(self, candidate: Candidate, key: Key) -> str:
        return f"refused | {candidate.blamed} | {key.op} | {key.dtypes} | {key.device}"

    def _blocked(self, candidate: Candidate, key: Key) -> str:
        """Why a library is not to be tried."""
        absent = (str(key), candidate.label) in self._absent
        return "it failed before in this process" if absent else self._wrong(candidate, key)

    def _wrong(self, candidate: Candidate, key: Key) -> str:
        """What a library got wrong, now or in another process."""
        entry = None if candidate.ours else self._records.get(self._block_name(candidate, key))
        return str(entry["why"]) if isinstance(entry, dict) and "why" in entry else ""

    def _refusal(
        self, candidate: Candidate, ours: Candidate, key: Key, check: Callable[[Candidate, Candidate], Verdict]
    ) -> str:
        """Compare a library with our own kernel; why it is refused, or nothing."""
        verdict, why = self._attempt(candidate, key, lambda: check(candidate, ours))
        if verdict is None or verdict.right:
            return why
        why = f"wrong for {key.op} {key.shapes} {key.dtypes}: error {verdict.error:.3g}, allowed {verdict.allowed:.3g}"
        why += f" {verdict.where}".rstrip()
        self._records.put(self._block_name(candidate, key), {"why": why})
        if candidate.quiet:
            return why
        warnings.warn(
            f"[tuner] {candidate.blamed} gave a wrong result on {key.device} and is no longer used for {key.op} in "
            f"{key.dtypes}: {why}. Our own kernel runs in its place",
            RuntimeWarning,
            stacklevel=4,
        )
        return why

    def _seconds(
        self, left: list[Candidate], key: Key, measure: Callable[[Candidate, float], float], refused: dict[str, str]
    ) -> dict[str, float]:
        """How long each takes, but for libraries that fail; of one that does other proposals are not tried."""
        seconds: dict[str, float] = {}
        failed: dict[str, str] = {}
        for candidate in left:
            best = min(seconds.values(), default=math.inf)
            if candidate.ours:
                seconds[candidate.name] = measure(candidate, best)
                continue
            taken, why = None, failed.get(candidate.blamed, "")
            if not why:
                taken, why = self._attempt(candidate, key, partial(measure, candidate, best))
            if taken is None:
                refused[candidate.name] = failed[candidate.blamed] = why
            else:
                seconds[candidate.name] = taken
        return seconds

    def _attempt(self, candidate: Candidate, key: Key, do: Callable[[], T]) -> tuple[T | None, str]:
        """What `do` gives, or why a library could not do it."""
        try:
            return do(), ""
        except (DeviceFaultError, OutOfMemoryError):
            raise  # the device is broken or full: no choice would help
        except Exception as error:  # whatever it is: a library that cannot do its work is no reason to stop ours
            why = f"it raised {type(error).__name__}: {error}"
        self._absent.add((str(key), candidate.label))
        warnings.warn(
            f"[tuner] {candidate.label} failed for {key.op} {key.shapes} {key.dtypes}: {why}. "
            "Our own kernel runs in its place",
            RuntimeWarning,
            stacklevel=5,
        )
        return None, why


def _name(candidates: Sequence[Candidate], key: Key) -> str:
    """What a choice is remembered by."""
    return f"{key} | {', '.join(sorted(c.label for c in candidates))}"


def _handicap(candidate: Candidate) -> float:
    return 1.0 if candidate.ours else MARGIN


def _choice(entry: Any, candidates: Sequence[Candidate]) -> Choice | None:
    """An entry of the file as a choice, unless somebody has written something else into it."""
    try:
        seconds = {str(n): float(s) for n, s in entry["seconds"].items()}
        refused = {str(n): str(w) for n, w in entry["refused"].items()}
        winner = str(entry["winner"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return Choice(winner, seconds, refused) if winner in {c.name for c in candidates} else None


# --- what a key and a check are made of -------------------------------------------------------------------------------


def may_time() -> bool:
    """Whether implementations may be timed: not where results must be the same each day, nor where tuning is off."""
    return state.tune and knobs.TUNE.text() != "0" and not state.deterministic


def size_class(size: int) -> str:
    """Sizes that are timed together: exact up to 64, then to 3 bits rounded up, with the power of two that divides it.

    >>> size_class(64), size_class(1000), size_class(1024), size_class(1001)
    ('64', '1024/8', '1024/16', '1024/1')
    """
    if size <= 64:
        return str(size)
    step = 1 << (size.bit_length() - 3)
    rounded = -(-size // step) * step
    return f"{rounded}/{min(size & -size, 16)}"


def strides_class(shape: Sequence[int], strides: Sequence[int]) -> str:
    """How a tensor lies: "rows", "columns" (its last two axes swapped), "repeated" (an axis of stride 0) or "apart".

    >>> strides_class((4, 8), (8, 1)), strides_class((4, 8), (1, 4)), strides_class((4, 8), (16, 1))
    ('rows', 'columns', 'rows apart')
    """
    known = [(n, s) for n, s in zip(shape, strides, strict=True) if n > 1]
    if any(s == 0 for _, s in known):
        return "repeated"
    if not known:
        return "rows"
    word = "rows" if known[-1][1] == 1 else "columns" if len(known) > 1 and known[-2][1] == 1 else "apart"
    packed = math.prod(n for n, _ in known)
    reach = 1 + sum((n - 1) * abs(s) for n, s in known)
    return word if reach == packed or word == "apart" else f"{word} apart"


def sample_positions(size: int, count: int = SAMPLES) -> np.ndarray[Any, Any]:
    """Positions to compare: all of a small result, else the first, the last and an even spread that meets every tile.

    >>> sample_positions(5).tolist()
    [0, 1, 2, 3, 4]
    """
    if size <= count:
        return np.arange(size)
    # A step that shares no factor with powers of two, so that the samples do not all lie in one column of the tiles.
    step = size // count | 1
    spread = (np.arange(count - 2, dtype=np.int64) * step + 1) % size
    return np.unique(np.concatenate([[0, size - 1], spread]))


def compare(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], dtype: str, terms: int = 1) -> Verdict:
    """How far `got` is from `want`, for sums of `terms` products in `dtype` ("tf32" too); other dtypes must be equal.

    Errors are relative to the size of the results, not of each one: a small one may be a difference of large terms.
    Rounding adds up with the root of the number of terms.

    >>> compare(np.ones(3, np.float32), np.ones(3, np.float32), "float32").right
    True
    """
    if dtype not in EPSILON:
        wrong = np.flatnonzero(got.ravel() != want.ravel())
        return Verdict(float(wrong.size), 0.0, f"at {wrong[0]}" if wrong.size else "")
    left, right = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
    allowed = TOLERANCE * (EPSILON[dtype] + min(SUMS, EPSILON[dtype]) * math.sqrt(terms))
    same = (left == right) | (np.isnan(left) & np.isnan(right))  # infinities too
    finite = right[np.isfinite(right)]
    scale = max(float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0, 1e-30)
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(left - right) / np.maximum(np.abs(right), scale))
    error[np.isnan(error)] = np.inf
    if not error.size:
        return Verdict(0.0, allowed)
    worst = int(np.argmax(error))
    return Verdict(float(error[worst]), allowed, f"at {worst}: {left[worst]:.6g} for {right[worst]:.6g}")


_shared: list[Tuner] = []


def tuner() -> Tuner:
    """The machine's tuner; its file lies in PyFlame's cache folder."""
    if not _shared:
        _shared.append(Tuner(lambda: cache_dir() / "tuning.json"))
    return _shared[0]
