"""What is known to go wrong with which HIP and which GPU, where it was reported, and what PyFlame does about it."""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, int]  # of HIP: what follows counts builds


@dataclass(frozen=True)
class Trouble:
    """A fault of a vendor's software. `targets` empty: all; `since` and `before` bound HIP's versions."""

    symptom: str
    source: str
    answer: str  # what PyFlame does
    targets: tuple[str, ...] = ()
    since: Version | None = None
    before: Version | None = None
    launches: int = 0  # of a graph: from so many on
    off: bool = False  # whether graphs are not used; else they are compared more often

    def concerns(self, version: Version, target: str) -> bool:
        """Whether this HIP on this GPU has it.

        >>> [t.source for t in GRAPHS if t.concerns((7, 2), "gfx942")]
        ['https://github.com/ROCm/clr/issues/279']
        """
        if (self.since is not None and version < self.since) or (self.before is not None and version >= self.before):
            return False
        return not self.targets or target in self.targets


_ONE_BY_ONE = "jitted functions are launched kernel by kernel; PYFLAME_GRAPHS=checked replays them all the same"
GRAPHS = (
    Trouble(
        "replays of captured graphs give wrong results in about one process of five",
        "https://github.com/ROCm/clr/issues/279",
        _ONE_BY_ONE, ("gfx942",), (7, 2), (7, 3), off=True,
    ),
    Trouble(
        "graphs of some 200 kernels and more read stale pointers",
        "https://github.com/ROCm/hip/issues/3887",
        _ONE_BY_ONE, ("gfx1200", "gfx1201"), launches=190, off=True,
    ),
    Trouble(
        "a graph reads stale values from memory that was written just before its replay",
        "https://github.com/ROCm/hip/issues/3902",
        _ONE_BY_ONE, ("gfx950",), (7, 2), (7, 3), off=True,
    ),
    Trouble(
        "work that is captured from several streams is not always ordered",
        "https://github.com/kokkos/kokkos/issues/8359",
        "graphs are compared with single launches every 256 replays", since=(6, 4), before=(7, 2),
    ),
)  # fmt: skip
