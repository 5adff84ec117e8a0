"""DeviceMesh: processes in a grid, with a group along each of its axes: data parallel along one, tensor parallel along
another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyflame.collectives.groups import new_subgroups_by_enumeration
from pyflame.collectives.world import get_rank, get_world_size, init_process_group, is_initialized
from pyflame.core.errors import ArgumentError, suggest
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor


class DeviceMesh:
    """Ranks in a grid. All processes of the world must make it together.

    >>> pf.distributed.init_process_group()
    >>> mesh = pf.distributed.DeviceMesh("cpu", [[0]], mesh_dim_names=("data", "model"))
    >>> mesh.size(), mesh["model"].mesh_dim_names, mesh.get_coordinate()
    (1, ('model',), [0, 0])
    >>> pf.distributed.destroy_process_group()
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        _groups: list[Any] | None = None,
    ) -> None:
        self.device_type = device_type
        self._ranks = np.asarray(mesh.tolist() if isinstance(mesh, Tensor) else mesh, dtype=np.int64)
        names = tuple(mesh_dim_names) if mesh_dim_names is not None else None
        if names is not None and (len(names) != self._ranks.ndim or len(set(names)) != len(names)):
            raise ArgumentError(
                f"[DeviceMesh] expected a name of its own for each of {self._ranks.ndim} axes but got {names}"
            )
        if len(np.unique(self._ranks)) != self._ranks.size:
            raise ArgumentError(f"[DeviceMesh] expected each rank once but got {self._ranks.tolist()}")
        self.mesh_dim_names = names
        self._groups = [self._along(axis) for axis in range(self.ndim)] if _groups is None else _groups

    def _along(self, axis: int) -> Any:
        """This process's group along an axis. Every process makes all groups, in one order."""
        rows = np.moveaxis(self._ranks, axis, -1).reshape(-1, self._ranks.shape[axis])
        return new_subgroups_by_enumeration(rows.tolist())[0]

    @property
    def mesh(self) -> Tensor:
        """The ranks."""
        return tensor(self._ranks)

    @property
    def ndim(self) -> int:
        return int(self._ranks.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._ranks.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """How many processes there are, or along an axis."""
        return int(self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim])

    def get_rank(self) -> int:
        """The number of this process in the world."""
        return get_rank()

    def get_coordinate(self) -> list[int] | None:
        """Where this process is in the grid; None where it is no part."""
        found = np.argwhere(self._ranks == get_rank())
        return found[0].tolist() if len(found) else None

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The number of this process along an axis, which need not be named where there is one."""
        at = self.get_coordinate()
        if at is None:
            raise ArgumentError(f"[get_local_rank] expected this process ({get_rank()}) in {self._ranks.tolist()}")
        return at[self._axis("get_local_rank", mesh_dim)]

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The group of this process along an axis, which need not be named where there is one."""
        return self._groups[self._axis("get_group", mesh_dim)]

    def get_all_groups(self) -> list[Any]:
        """The groups of this process along all axes."""
        return list(self._groups)

    def _axis(self, op: str, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim != 1:
                raise ArgumentError(f"[{op}] expected an axis of {self.ndim} but got none; pass its name or number")
            return 0
        if isinstance(mesh_dim, str):
            names = self.mesh_dim_names or ()
            if mesh_dim not in names:
                raise ArgumentError(
                    f"[{op}] expected an axis among {names} but got {mesh_dim!r}{suggest(mesh_dim, names)}"
                )
            return names.index(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise ArgumentError(f"[{op}] expected an axis of {self.ndim} but got {mesh_dim}")
        return mesh_dim % self.ndim

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of the grid that this process is in along some axes, by their names in order."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        axes = [self._axis("DeviceMesh", name) for name in wanted]
        if axes != sorted(set(axes)):
            raise ArgumentError(f"[DeviceMesh] expected axes in the order of {self.mesh_dim_names} but got {wanted}")
        at = self.get_coordinate() or [0] * self.ndim
        part = self._ranks[tuple(slice(None) if axis in axes else at[axis] for axis in range(self.ndim))]
        groups = [self._groups[axis] for axis in axes]
        return DeviceMesh(self.device_type, part, mesh_dim_names=wanted, _groups=groups)

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else f", mesh_dim_names={self.mesh_dim_names}"
        return f"DeviceMesh({self.device_type!r}, {self._ranks.tolist()}{names})"


def init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None
) -> DeviceMesh:
    """A grid of all processes, in the order of their ranks. Makes the process group if there is none.

    >>> pf.distributed.init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "model"))
    DeviceMesh('cpu', [[0]], mesh_dim_names=('data', 'model'))
    >>> pf.distributed.destroy_process_group()
    """
    if not is_initialized():
        init_process_group()
    size = get_world_size()
    if int(np.prod(mesh_shape)) != size:
        raise ArgumentError(f"[init_device_mesh] expected a shape for {size} processes but got {tuple(mesh_shape)}")
    return DeviceMesh(device_type, np.arange(size).reshape(tuple(mesh_shape)), mesh_dim_names=mesh_dim_names)
