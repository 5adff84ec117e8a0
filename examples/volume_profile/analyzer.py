"""Volume by price: how much was traded at each price level of a session, and what follows from that.

The point of control (POC) is the level with the most volume. The value area is the band of levels around it that
holds a given share of the session's volume.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import pyflame as pf

# A single mistyped price stretches the table over every level up to it; better to say so than to run out of memory.
MAX_CELLS = 1 << 28


@dataclass(frozen=True)
class VolumeProfile:
    """Profiles of many sessions over one range of price levels. Prices are float64 tensors."""

    sessions: np.ndarray[Any, Any]  # ids, in order
    prices: pf.Tensor  # (levels,) the price of each level, rising
    volume: pf.Tensor  # (sessions, levels) int64 for whole volumes, else float64
    total: pf.Tensor  # (sessions,) volume of the session
    poc: pf.Tensor  # (sessions,) price of the point of control; of equal levels the lowest
    value_low: pf.Tensor  # (sessions,) lowest and highest price of the value area
    value_high: pf.Tensor
    open: pf.Tensor  # (sessions,) first and last price traded
    close: pf.Tensor
    low: pf.Tensor  # (sessions,) lowest and highest level with volume
    high: pf.Tensor
    vwap: pf.Tensor  # (sessions,) mean price, weighted by volume, at the resolution of the levels

    def __len__(self) -> int:
        return len(self.sessions)


class VolumeProfileAnalyzer:
    """Turns ticks into volume profiles, on any device, for all sessions at once.

    A tick's level is round(price / price_precision); a price in the middle goes to the even level. The value area
    starts as the POC and grows by one level at a time: of the next level above and the next below, the one with more
    volume joins, the upper one of equals, until the share `value_area` is reached. Ticks are read `chunk_size` at a
    time, which bounds the memory beside the table and changes no result.

    >>> profile = VolumeProfileAnalyzer(price_precision=0.25).analyze([10.0, 10.1, 10.5, 10.6], [5, 7, 3, 1])
    >>> profile.poc, profile.volume
    (tensor([10.], dtype=float64), tensor([[12,  0,  4]]))
    """

    def __init__(
        self,
        price_precision: float = 0.25,
        device: str | None = None,
        chunk_size: int = 3500,
        value_area: float = 0.7,
    ) -> None:
        if not (np.isfinite(price_precision) and price_precision > 0):
            raise pf.ArgumentError(f"[volume profile] expected price_precision above 0 but got {price_precision}")
        if chunk_size < 1:
            raise pf.ArgumentError(f"[volume profile] expected chunk_size of 1 or more but got {chunk_size}")
        if not 0 < value_area <= 1:
            raise pf.ArgumentError(f"[volume profile] expected value_area in (0, 1] but got {value_area}; 0.7 is usual")
        self.price_precision = float(price_precision)
        self.device = device
        self.chunk_size = int(chunk_size)
        self.value_area = float(value_area)

    def analyze(self, prices: Any, volumes: Any, sessions: Any = None) -> VolumeProfile:
        """Profiles of ticks in order of time: arrays, tensors or lists of one length.

        `sessions` numbers each tick's session with integers that never fall; without it there is one session.
        """
        prices, volumes, sessions = _checked_columns(prices, volumes, sessions)
        starts, lowest, levels = self._survey(prices, volumes, sessions)
        count = len(starts)
        if count * levels > MAX_CELLS:
            raise pf.ArgumentError(
                f"[volume profile] expected at most {MAX_CELLS:,} cells but {count:,} sessions over {levels:,} levels "
                "need more; look for a bad price, or use a larger price_precision or fewer sessions per call"
            )
        first = pf.tensor(starts, device=self.device)
        whole = _dtype(volumes) is pf.int64
        table = pf.zeros(count * levels, dtype=pf.int64 if whole else pf.float64, device=self.device)
        for begin, end in self._chunks(len(prices)):
            level = self._level(self._part(prices, begin, end, pf.float64)) - lowest
            row = pf.searchsorted(first, pf.arange(begin, end, device=self.device), right=True) - 1
            table = pf.index_add(table, 0, row * levels + level, self._part(volumes, begin, end, table.dtype))
            pf.eval(table)  # adds into the same memory, and lets go of the chunk
        ends = np.append(starts[1:], len(prices)) - 1
        axis = pf.arange(lowest, lowest + levels, device=self.device).to(pf.float64) * self.price_precision
        ids = np.asarray(sessions[starts])
        return self._profile(ids, axis, table.reshape(count, levels), prices[starts], prices[ends])

    # --- one pass over the ticks: what they hold, and whether they may ----------------------------------------------

    def _chunks(self, ticks: int) -> Iterator[tuple[int, int]]:
        for begin in range(0, ticks, self.chunk_size):
            yield begin, min(begin + self.chunk_size, ticks)

    def _part(self, column: Any, begin: int, end: int, dtype: pf.DType) -> pf.Tensor:
        return pf.as_tensor(column[begin:end], device=self.device).to(dtype)

    def _level(self, price: pf.Tensor) -> pf.Tensor:
        return pf.round(price / self.price_precision).to(pf.int64)

    def _survey(self, prices: Any, volumes: Any, sessions: Any) -> tuple[np.ndarray[Any, Any], int, int]:
        """Where each session starts, the lowest level and the number of levels."""
        starts, low, high = [np.zeros(1, np.int64)], np.inf, -np.inf
        for begin, end in self._chunks(len(prices)):
            price = self._part(prices, begin, end, pf.float64)
            volume = self._part(volumes, begin, end, pf.float64)
            before = max(begin - 1, 0)
            step = pf.as_tensor(sessions[before:end], device=self.device).to(pf.int64)
            step = step[1:] - step[:-1]
            bad = pf.stack([(~pf.isfinite(price)).any(), (~pf.isfinite(volume) | (volume < 0)).any(), (step < 0).any()])
            found = pf.cat([pf.stack([price.min(), price.max()]), bad.to(pf.float64)]).numpy()
            if found[2:].any():
                self._refuse(begin, before, price, volume, step)
            low, high = min(low, found[0]), max(high, found[1])
            starts.append(pf.nonzero(step).numpy()[:, 0] + before + 1)
        lowest, highest = (round(float(v) / self.price_precision) for v in (low, high))
        if max(-lowest, highest) > 2**53:  # neighbours there are no longer numbers of their own in float64
            raise pf.ArgumentError(
                f"[volume profile] expected prices below 2**53 levels of {self.price_precision} but got {low} to {high}"
            )
        return np.concatenate(starts), lowest, highest - lowest + 1

    def _refuse(self, begin: int, before: int, price: pf.Tensor, volume: pf.Tensor, step: pf.Tensor) -> None:
        """Name the first bad tick of a chunk."""
        prices, volumes, steps = price.numpy(), volume.numpy(), step.numpy()
        for number, value in enumerate(prices):
            if not np.isfinite(value):
                raise pf.ArgumentError(
                    f"[volume profile] expected finite prices but got {value} at tick {begin + number}; drop such ticks"
                )
        for number, value in enumerate(volumes):
            if not value >= 0 or np.isinf(value):
                raise pf.ArgumentError(
                    f"[volume profile] expected finite volumes of 0 or more but got {value} at tick {begin + number}"
                )
        at = before + 1 + int(np.argmax(steps < 0))
        raise pf.ArgumentError(
            f"[volume profile] expected session ids that never fall but got a smaller one at tick {at}; sort the ticks "
            "by time"
        )

    # --- from the table to what it says -----------------------------------------------------------------------------

    def _profile(
        self, ids: np.ndarray[Any, Any], axis: pf.Tensor, table: pf.Tensor, opened: Any, closed: Any
    ) -> VolumeProfile:
        volume = table.to(pf.float64)  # exact for whole numbers up to 2**53
        total = volume.sum(1)
        if (total == 0).any().item():
            empty = ids[total.numpy() == 0]
            raise pf.ArgumentError(
                f"[volume profile] expected volume in every session but session {empty[0]} has none; leave it out"
            )
        levels = volume.shape[1]
        at = pf.arange(levels, device=self.device)
        poc = volume.argmax(1)
        traded = volume > 0
        lowest = pf.where(traded, at, levels).amin(1)
        highest = pf.where(traded, at, -1).amax(1)
        # Other sessions' levels come last, behind this one's levels without volume.
        outside = (at < lowest.unsqueeze(1)) | (at > highest.unsqueeze(1))
        low, high = self._value_area(volume, pf.where(outside, -1.0, volume), poc.unsqueeze(1), at)
        as_price = {"dtype": pf.float64, "device": self.device}
        profile = VolumeProfile(
            sessions=ids,
            prices=axis,
            volume=table,
            total=table.sum(1),
            poc=axis[poc],
            value_low=axis[low],
            value_high=axis[high],
            open=pf.as_tensor(opened, **as_price),
            close=pf.as_tensor(closed, **as_price),
            low=axis[lowest],
            high=axis[highest],
            vwap=(volume * axis).sum(1) / total,
        )
        pf.eval([value for value in vars(profile).values() if isinstance(value, pf.Tensor)])
        return profile

    def _value_area(
        self, volume: pf.Tensor, rank: pf.Tensor, poc: pf.Tensor, at: pf.Tensor
    ) -> tuple[pf.Tensor, pf.Tensor]:
        """Lowest and highest level of the value area of each row; of two neighbours that of higher rank joins first.

        Growing level by level looks sequential but is a merge of two queues, the levels above and those below. A level
        waits for all that stand before it in its queue, so its turn depends on the smallest rank up to it: sorted by
        these running minima, the queues give the order in which levels join.
        """
        above = _running_min(pf.where(at > poc, rank, float("inf")))
        below = pf.flip(_running_min(pf.flip(pf.where(at < poc, rank, float("inf")), (1,))), (1,))
        turn = pf.where(at > poc, above, pf.where(at < poc, below, float("inf")))
        # Equals join in this order: the POC, upwards from it, then downwards.
        upper = volume.shape[1] - poc
        outwards = pf.where(at < upper, poc + at, volume.shape[1] - 1 - at)
        joined = pf.take_along_axis(outwards, pf.argsort(pf.gather(turn, 1, outwards), 1, descending=True), 1)
        covered = pf.cumsum(pf.gather(volume, 1, joined), 1)
        inside = pf.cat([pf.zeros_like(covered[:, :1]), covered[:, :-1]], 1) < self.value_area * covered[:, -1:]
        return pf.where(inside, joined, volume.shape[1]).amin(1), pf.where(inside, joined, -1).amax(1)


def _running_min(x: pf.Tensor) -> pf.Tensor:
    """The smallest element up to each one along axis 1, in log2(n) steps that each double how far one looks back."""
    reach = 1
    while reach < x.shape[1]:
        x = pf.minimum(x, pf.pad(x[:, :-reach], (reach, 0), value=float("inf")))
        reach *= 2
    return x


def _dtype(column: Any) -> pf.DType:
    """int64 for whole numbers, float64 for others."""
    return pf.float64 if pf.as_dtype(column.dtype).is_float else pf.int64


def _column(name: str, values: Any) -> Any:
    """A tensor as it is; anything else as an array of int64 or float64."""
    column = values if isinstance(values, pf.Tensor) else np.asarray(values)
    if len(column.shape) != 1:
        raise pf.ShapeError(f"[volume profile] expected {name} along one axis but got shape {tuple(column.shape)}")
    if isinstance(column, pf.Tensor):
        return column
    if column.dtype.kind not in "iufb":
        raise pf.DTypeError(f"[volume profile] expected numbers as {name} but got {column.dtype}")
    return column.astype(np.float64 if column.dtype.kind == "f" else np.int64, copy=False)


def _checked_columns(prices: Any, volumes: Any, sessions: Any) -> tuple[Any, Any, Any]:
    prices, volumes = _column("prices", prices), _column("volumes", volumes)
    ticks = len(prices)
    sessions = np.zeros(ticks, np.int64) if sessions is None else _column("sessions", sessions)
    if _dtype(sessions) is not pf.int64:
        raise pf.DTypeError(f"[volume profile] expected integers as sessions but got {sessions.dtype}")
    if len(volumes) != ticks or len(sessions) != ticks:
        raise pf.ShapeError(
            f"[volume profile] expected one volume and session per price but got {ticks} prices, {len(volumes)} "
            f"volumes and {len(sessions)} sessions"
        )
    if ticks == 0:
        raise pf.ShapeError("[volume profile] expected at least one tick but got none")
    return prices, volumes, sessions
