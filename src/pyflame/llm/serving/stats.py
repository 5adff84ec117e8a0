"""What an engine has done so far, in counts and histograms."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

# Seconds: bounds of the buckets, as Prometheus' "le"; what is longer is counted behind the last.
TTFT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
INTER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


@dataclass(frozen=True)
class Histogram:
    """`counts[i]` values were at most `bounds[i]` and above the bound before; the last count is of those beyond all."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """Each bound with how many values were at most so large, up to infinity: Prometheus' buckets."""
        found, total = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found


@dataclass(frozen=True)
class EngineStats:
    """Texts that wait and run, pages of the cache, and counts since the engine was made.

    `ttft`: seconds from submit to a text's first token; `inter_token`: between two tokens of one text. `fault` says
    what last failed on the device; `restarts` how often the engine made its memory there anew; an engine that is not
    `healthy` could not, or was closed.
    """

    queued: int
    running: int
    pages: int
    free_pages: int  # that hold nothing, or what no text uses
    cached_pages: int  # of the free ones, those with beginnings of prompts that were read
    prompt_tokens: int
    cached_tokens: int
    tokens: int
    finished: int
    failed: int
    cancelled: int
    preempted: int
    restarts: int
    healthy: bool
    fault: str | None
    ttft: Histogram
    inter_token: Histogram


@dataclass
class Times:
    """A histogram that grows."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def histogram(self) -> Histogram:
        return Histogram(self.bounds, tuple(self.counts), self.sum)


@dataclass
class Counts:
    """What an engine counts as it goes."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    preempted: int = 0
    restarts: int = 0
    fault: str | None = None
    ttft: Times = field(default_factory=lambda: Times(TTFT))
    inter_token: Times = field(default_factory=lambda: Times(INTER_TOKEN))
    seconds: float = 0.0  # that a text takes from submit to its end, the latest counting most

    def took(self, seconds: float) -> None:
        self.seconds = seconds if not self.seconds else 0.8 * self.seconds + 0.2 * seconds
