"""torch.distributed.tensor's words for how a tensor lies over processes. They are values that libraries make when they
are imported; a tensor that lies so (`DTensor`) is not there.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyflame.collectives.mesh import DeviceMesh

__all__ = ["DeviceMesh", "Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """How a tensor lies over the processes of one axis of a mesh."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it is divided, along this axis if one is named."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether every process has all of it."""
        return isinstance(self, Replicate)

    def is_partial(self) -> bool:
        """Whether every process has a part of a sum."""
        return isinstance(self, Partial)


@dataclass(frozen=True)
class Shard(Placement):
    """Divided along an axis.

    >>> from pyflame.distributed.tensor import Shard
    >>> Shard(0), Shard(0).is_shard(1)
    (Shard(dim=0), False)
    """

    dim: int


@dataclass(frozen=True)
class Replicate(Placement):
    """As a whole in every process."""


@dataclass(frozen=True)
class Partial(Placement):
    """To be summed, or reduced otherwise, over the processes."""

    reduce_op: str = "sum"
