"""What an optimiser says of its rule: the state of each parameter, the numbers it needs, the options it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyflame.tensor import Tensor


class Rule:
    """The answers of a rule without state. Our optimisers override them beside `rates` and `update`."""

    choices: tuple[str, ...] = ()  # which of PyTorch's choices among its implementations stand in a group's options
    takes_complex = True  # as numbers of two parts, each of which it updates alone
    saves_untouched = False  # whether state_dict has entries for parameters that were never updated

    def check(self, group: dict[str, Any]) -> None:
        """Raise for options that have no meaning."""

    def slots(self, group: dict[str, Any]) -> dict[str, Any]:
        """Name and initial value of the state of each parameter: of its shape, or a Scalar."""
        return {}

    def slots_of(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        """The slots of one parameter, where they depend on its shape; a Reduced has length 1 along one axis."""
        return self.slots(group)

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        """The numbers that `rates` and `update` need, derived from the group's options."""
        return {}

    def counts(self, group: dict[str, Any]) -> bool:
        """Whether the updates of each parameter are counted."""
        return True

    def branches(self, group: dict[str, Any]) -> tuple[Any, ...]:
        """Options that `update` branches on: another value of them is another graph."""
        return ()
