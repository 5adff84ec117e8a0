"""`optimizer.state` as PyTorch's optimisers have it, which programs read, write to and replace.

The rules of this room count the steps of a whole group in one tensor, so that a step does not update hundreds of
numbers one by one. A parameter's state shows its own count as `"step"`: a tensor that reads and writes there.
What a program puts into the state, or into a group's list of parameters, is taken over before the next step that is not
part of a jitted function.
"""

from __future__ import annotations

from collections import defaultdict
from operator import is_
from typing import TYPE_CHECKING, Any

from pyflame.core.dtype import float32, float64
from pyflame.core.errors import StateDictError
from pyflame.core.state import mode, state
from pyflame.optim.group import ParamGroup
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.tensor.overrides import disabled_torch_function


class Step(Tensor):
    """How often a parameter was updated: one element of its group's counts."""

    __torch_function__ = staticmethod(disabled_torch_function)

    def __init__(self, group: ParamGroup, at: int) -> None:
        super().__init__(tensor(0.0)._node)
        self.group, self.at = group, at

    @property
    def _node(self) -> Any:
        assert self.group.steps is not None
        return tensor(self.group.steps.numpy()[self.at], dtype=float32)._node

    @_node.setter
    def _node(self, node: Any) -> None:
        if "at" in self.__dict__:  # not while it is made
            count_from(self.group, {self.at: float(Tensor(node).item())})

    # A copy is a number of its own, which the copy of the optimiser takes over.

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Tensor(self._node).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return Tensor(self._node)


def count_from(group: ParamGroup, counts: dict[int, float]) -> None:
    """Let parameters, known by their positions, have been updated as often as this."""
    if counts and group.steps is not None:
        values = group.steps.numpy().copy()
        for at, count in counts.items():
            values[at] = count
        with mode(grad_enabled=False):
            group.steps._rebind(tensor(values, dtype=float64))


class PublicState:
    """The attribute `state`, and what follows from a program's changes of it."""

    if TYPE_CHECKING:
        param_groups: list[ParamGroup]

        @property
        def _pf_steps_itself(self) -> bool: ...
        def _pf_arrange(self, group: ParamGroup, params: list[Tensor] | None = None) -> None: ...

    shows_steps = True  # whether PyTorch's optimiser of this name keeps a "step" for each parameter
    _pf_public = False  # whether a program has asked for `state`: else nobody can have changed it
    _pf_known: tuple[Any, ...] = ()  # parameters and state as they were at the last step
    _pf_adoptions = 0

    @property
    def state(self) -> defaultdict[Tensor, dict[str, Any]]:
        """For each parameter a dict of what the rule keeps of it: `"step"`, `"exp_avg"`, ...

        >>> optimizer.state[weight]["exp_avg"].zero_()
        """
        if state.tracer is None and not self._pf_steps_itself:
            same, self._pf_public = self._pf_is_known(), True
            for group in self.param_groups:
                self._pf_show_steps(group)
            if same:
                self._pf_known = self._pf_cells()
        return self._pf_state

    @state.setter
    def state(self, value: dict[Tensor, dict[str, Any]]) -> None:
        self._pf_public, self._pf_known = True, ()
        self.__dict__["state"] = value if isinstance(value, defaultdict) else defaultdict(dict, value)

    @property
    def _pf_state(self) -> defaultdict[Tensor, dict[str, Any]]:
        return self.__dict__["state"]  # type: ignore[no-any-return]

    def _pf_show_steps(self, group: ParamGroup) -> None:
        """Give the state of each parameter its count of steps; a number that a program has put there is taken over."""
        if group.steps is None or not self.shows_steps:
            return
        given: dict[int, float] = {}
        for at, p in enumerate(group["params"][: len(group.steps)]):
            entry = self._pf_state.get(p)
            step = entry.get("step") if entry else None
            if not entry or (type(step) is Step and step.group is group and step.at == at):
                continue
            if step is not None:
                given[at] = float(step)
            entry["step"] = Step(group, at)
        count_from(group, given)

    def _pf_cells(self) -> tuple[Any, ...]:
        found: list[Any] = []
        for group in self.param_groups:
            found += group["params"]
        if self._pf_public:
            entries = map(self._pf_state.get, tuple(found))
            for entry in entries:
                found += entry.values() if entry else ()
        return tuple(found)

    def _pf_is_known(self) -> bool:
        now = self._pf_cells()
        return len(now) == len(self._pf_known) and all(map(is_, now, self._pf_known))

    def _pf_adopt(self) -> None:
        """Take over what a program has put in the place of parameters or of their state."""
        if self._pf_is_known():
            return
        self._pf_adoptions += 1  # another graph: jitted steps know tensors by their identity
        for group in self.param_groups:
            self._pf_arrange(group, [p for p in group["params"] if p.grad is not None])
            self._pf_show_steps(group)
        self._pf_known = self._pf_cells()


def check_shape(optimizer: str, name: str, value: Any, wanted: tuple[int, ...]) -> None:
    """Raise for state that a program has given and that does not fit its parameter."""
    if not isinstance(value, Tensor) or tuple(value.shape) != wanted:
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise StateDictError(f"[{optimizer}] expected a tensor of shape {wanted} as {name} in its state but got {got}")
