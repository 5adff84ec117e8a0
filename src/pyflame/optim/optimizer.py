"""Optimizer: parameter groups, state, and one graph that updates all parameters.

An optimiser of this room is a rule for one parameter (`update`), the state it keeps (`slots`) and the numbers it needs
(`scalars`, `rates`). Everything that changes from step to step lives in tensor cells that exist from construction, so
a step works the same inside of a jitted function and outside of it.
"""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, bool_, float32, float64
from pyflame.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotSupportedError,
    StateDictError,
    TraceError,
    suggest,
    type_name,
)
from pyflame.core.state import mode, state
from pyflame.optim.group import ParamGroup
from pyflame.optim.hooks import (
    HookMethods,
    hooked_step,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from pyflame.optim.public_state import PublicState, check_shape, count_from
from pyflame.optim.rule import Rule
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor, full_like, tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.gradients import enable_grad
from pyflame.tensor.modes import eval as evaluate
from pyflame.transform import jit

Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
Slots = dict[str, Tensor]
# names that optimisers written for PyTorch import from this file, with those of hooks
__all__ = [
    "Optimizer", "Params", "ParamsT", "Slots", "params_t", "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook", "required",
]  # fmt: skip
ParamsT = params_t = _params_t = Params
_NO_RULE = Rule()
required: Any = object()  # the default of an option that every group must give


@cache
def _has_rule(cls: type) -> bool:
    """Whether a class has `update` for the base's step, which a step of its own may call."""
    return any("update" in vars(c) and "step" not in vars(c) for c in cls.__mro__ if c is not Optimizer)


class Optimizer(Rule, HookMethods, PublicState):
    """Base of all optimisers. `params`: tensors, (name, tensor) pairs, or dicts of `params` and their own options.

    >>> optimizer = optim.AdamW([{"params": weights, "weight_decay": 0.1}, {"params": biases}], lr=1e-3)
    >>> loss.backward()
    >>> optimizer.step()
    >>> optimizer.zero_grad()
    """

    def __init__(self, params: Params, defaults: dict[str, Any], **chosen: Any) -> None:
        _check_chosen(self._pf_name, chosen, defaults)
        if isinstance(params, (Tensor, dict)):
            raise ArgumentTypeError(
                f"[{self._pf_name}] expected a list of tensors or of dicts but got a {type(params).__name__}; wrap it "
                "in [...]"
            )
        self._pf_make_hooks()
        made = {name: chosen.get(name, _CHOICES[name]) for name in self._pf_rule.choices}
        self.defaults = {**defaults, **made} if made else defaults
        self.param_groups: list[ParamGroup] = []
        self.__dict__["state"] = defaultdict(dict)
        self.structure: tuple[Any, ...] = ()  # what the graph of a step depends on, beside shapes
        self._pf_jitted = jit(self._pf_apply)  # of a step outside of a jitted function: one plan, state in place
        # whether step() was ever called; schedules look at it, and cannot know it of a subclass with a step of its own
        self.stepped = self._pf_steps_itself
        groups: list[Any] = list(params)
        if not groups:
            raise ArgumentError(f"[{self._pf_name}] expected parameters but got an empty list; pass model.parameters()")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)
        self._pf_known = self._pf_cells()

    @property
    def _pf_name(self) -> str:
        return type(self).__name__

    @property
    def _pf_rule(self) -> Rule:
        """What says which state and numbers there are. One that only has a step() says nothing: its names are free."""
        kind: Any = type(self)  # mypy: a class of objects with a hash of their own would not be hashable
        return self if _has_rule(kind) else _NO_RULE

    def rates(self, group: ParamGroup, steps: Tensor) -> dict[str, Tensor]:
        """Numbers that depend on how often a parameter was updated, in double precision: one for each parameter."""
        return {}

    def update(self, group: ParamGroup, w: Tensor, g: Tensor, s: Slots, h: Slots) -> tuple[Tensor, Slots]:
        """A parameter and its state after one step. `g`: its gradient; `s`: its state; `h`: scalars and rates."""
        raise NotImplementedError(f"[{self._pf_name}] expected update() or step() to be defined")

    # --- groups -----------------------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimise more parameters: a dict of `params` and options that differ from the defaults.

        >>> optimizer.add_param_group({"params": head.parameters(), "lr": 1e-2})
        """
        if state.tracer is not None:
            raise TraceError("[add_param_group] expected to be called outside of a jitted function but one is traced")
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise ArgumentTypeError("[add_param_group] expected a dict with the key 'params'")
        for key in param_group:  # others than an optimiser's own stay, for whoever reads them
            if key not in self.defaults and (near := suggest(key, self.defaults, 0.85)):
                warnings.warn(f"[{self._pf_name}] got an option {key!r} that it does not know{near}", stacklevel=2)
        for key, value in self.defaults.items():
            if value is required and key not in param_group:
                raise ArgumentError(f"[{self._pf_name}] expected {key!r} in each group of parameters but one has none")
        names, params = self._pf_named(param_group["params"])
        group = ParamGroup(
            {**self.defaults, **param_group, "params": params, **({"param_names": names} if names else {})},
            self._pf_rule.scalars,
            self._pf_arrange,
            self._pf_numbers,
        )
        if self.param_groups and ("param_names" in group) != ("param_names" in self.param_groups[0]):
            raise ArgumentError("[add_param_group] expected names for the parameters of all groups or of none")
        self._pf_check_params(params)
        self._pf_rule.check(group)
        self.param_groups.append(group)
        self._pf_arrange(group)

    def _pf_named(self, given: Any) -> tuple[list[str], list[Tensor]]:
        if isinstance(given, (set, frozenset)):
            raise ArgumentTypeError(f"[{self._pf_name}] expected parameters in order but got a set; use a list")
        params = [given] if isinstance(given, Tensor) else list(given)
        names = [p[0] for p in params if isinstance(p, tuple)]
        if names and len(names) != len(params):
            raise ArgumentError(f"[{self._pf_name}] expected names for all parameters of a group or for none")
        return names, [p[1] if isinstance(p, tuple) else p for p in params]

    def _pf_check_params(self, params: list[Any]) -> None:
        if not params:
            raise ArgumentError(f"[{self._pf_name}] expected parameters in a group but got an empty list")
        seen = {id(p) for group in self.param_groups for p in group["params"]}
        for p in params:
            if not isinstance(p, Tensor):
                raise ArgumentTypeError(f"[{self._pf_name}] expected tensors as parameters but got {type_name(p)}")
            if not p.is_leaf:
                raise ArgumentError(
                    f"[{self._pf_name}] expected leaf tensors but got one of shape {p.shape} that was computed; use "
                    ".detach()"
                )
            if not (p.dtype.is_float or (p.dtype.is_complex and self._pf_rule.takes_complex)):
                raise ArgumentError(f"[{self._pf_name}] expected floating-point parameters but got {p.dtype.name}")
            if id(p) in seen:
                raise ArgumentError(
                    f"[{self._pf_name}] expected each parameter once but one of shape {p.shape} comes twice"
                )
            seen.add(id(p))

    def _pf_arrange(self, group: ParamGroup, params: list[Tensor] | None = None) -> None:
        """Make the state that the options of a group ask for, and note what they mean for the graph.

        `params`: those that need it, if not all of the group do; what a program has given for their state is checked.
        """
        if self._pf_rule is _NO_RULE:
            return
        made: list[Tensor] = []
        fresh: list[Tensor] = []
        for p in group["params"] if params is None else params:
            entry, slots = self._pf_state[p], self._pf_rule.slots_of(group, p)
            if slots and not any(name in entry for name in slots):
                fresh.append(p)
            for name, value in slots.items():
                if name not in entry:
                    made.append(_initial(p, value))
                    entry[name] = made[-1]
                if params is not None:
                    check_shape(self._pf_name, name, entry[name], _shape(p, value))
        if self._pf_rule.counts(group):
            count, known = len(group["params"]), 0 if group.steps is None else len(group.steps)
            if group.steps is None or count != known:  # parameters were added to the group's list, or taken away
                before = [] if group.steps is None else group.steps.tolist()
                group.steps = tensor(np.array([*before, *[0.0] * count][:count]))
            if fresh and known:  # its state was taken away: it starts again
                again = {id(p) for p in fresh}
                count_from(group, {at: 0.0 for at, p in enumerate(group["params"]) if id(p) in again})
        if made:
            evaluate(made)
        self.structure = tuple(
            [
                (len(g["params"]), tuple(self._pf_rule.slots(g)), *self._pf_rule.branches(g), self._pf_adoptions)
                for g in self.param_groups
            ]
        )

    # --- stepping ---------------------------------------------------------------------------------------------------

    @hooked_step
    def step(self, closure: Callable[[], Any] | None = None, *, skip: Tensor | None = None) -> Any:
        """Update all parameters that have a gradient. `closure` computes the loss first; step returns what it returns.

        Where `skip`, a bool tensor of one element, is true nothing changes: the way to drop a bad step in a jitted one.

        >>> optimizer.step(skip=~pf.isfinite(loss))
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self.stepped = True
        if state.tracer is None:
            self._pf_adopt()
        for group, (count, *_) in zip(self.param_groups, self.structure, strict=False):
            if not isinstance(group, ParamGroup):
                continue
            if len(group["params"]) != count:
                self._pf_arrange(group)
            if state.tracer is None:
                group.follow()
        if skip is not None:
            skip = skip.reshape(()).to(bool_)
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        if state.tracer is not None or state.eager:
            self._pf_apply(skip, *gradients)
        elif present := [g for g in gradients if g is not None]:
            evaluate(present, skip)
            # arguments, which may lie elsewhere at each step: as state of the update they would have to stay
            self._pf_jitted(skip, *[g if g is None or not g.requires_grad else g.detach() for g in gradients])
        return loss

    def _pf_apply(self, skip: Tensor | None, *gradients: Tensor | None) -> None:
        """`gradients`: of all parameters, group by group."""
        if state.tracer is not None:
            state.tracer.guard(self, "structure")
        left = iter(gradients)
        with mode(grad_enabled=False, autocast=None):
            for group in self.param_groups:
                self._pf_step_group(group, list(islice(left, len(group["params"]))), skip)

    def _pf_step_group(self, group: ParamGroup, gradients: list[Tensor | None], skip: Tensor | None) -> None:
        """Rebind the cells of a group to what they are after this step."""
        params = group["params"]
        live = {i: g for i, g in enumerate(gradients) if g is not None}
        if not live:
            return

        def put(cell: Tensor, value: Tensor) -> None:
            value = value.to(cell.dtype)
            cell._rebind(value if skip is None else FUNCTIONS["where"](skip, cell, value))

        rates: dict[str, Tensor] = {}
        if group.steps is not None:
            passed = np.zeros(len(params))
            passed[[*live]] = 1
            steps = group.steps + (1.0 if len(live) == len(params) else tensor(passed, dtype=float64))
            rates = self.rates(group, steps)
            put(group.steps, steps)
        names = self._pf_rule.scalars(group)
        shared: dict[DType, Slots] = {}
        for i, gradient in live.items():
            p = params[i]
            kind = p.dtype.real.compute  # 16-bit parameters and their state are rounded once, when they are stored
            if kind not in shared:
                shared[kind] = {name: group.scalar(name, kind) for name in names}
            h = {**shared[kind], **{name: rate[i].to(kind) for name, rate in rates.items()}}
            slots = {name: self._pf_state[p][name] for name in self._pf_rule.slots_of(group, p)}
            wide = {name: _as_real(cell).to(kind) for name, cell in slots.items()}
            value, after = self.update(group, _as_real(p).to(kind), _as_real(gradient).to(kind), wide, h)
            put(p, _as(p, value))
            for name, cell in slots.items():
                put(cell, _as(cell, after[name]))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or make them zero."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:  # not asked whether there is one: a jitted step that begins so serves both cases
                    p.grad = None
                elif p.grad is not None:
                    p.grad._rebind(full_like(p.grad, 0))

    # --- saving and loading -----------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """What copy.deepcopy and pickle take: parameters, groups as plain dicts, and all state; hooks stay behind."""
        left = ("_pf_jitted", "_pf_known")
        kept = {k: v for k, v in self.__dict__.items() if k not in left and not k.startswith("_optimizer_")}
        return {**kept, "param_groups": [(dict(group), group.steps) for group in self.param_groups]}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        self._pf_make_hooks()
        self._pf_jitted = jit(self._pf_apply)
        self.param_groups = []
        for values, steps in saved["param_groups"]:
            group = ParamGroup(values, self._pf_rule.scalars, self._pf_arrange, self._pf_numbers)
            group.steps = steps
            self.param_groups.append(group)

    def state_dict(self) -> dict[str, Any]:
        """All state and options as a snapshot in PyTorch's layout: parameters are known by their position.

        >>> optimizer.state_dict()["param_groups"][0]["lr"]
        0.001
        """
        for hook in self._pf_hooks_of("state_dict_pre"):
            hook(self)
        packed: dict[int, dict[str, Any]] = {}
        groups: list[dict[str, Any]] = []
        start = 0
        for group in self.param_groups:
            params = group["params"]
            steps = None if group.steps is None else group.steps.numpy()
            for i, p in enumerate(params):
                entry = self._pf_packed(group, p, None if steps is None else float(steps[i]))
                if entry:
                    packed[start + i] = entry
            numbers = list(range(start, start + len(params)))
            groups.append({**{k: v for k, v in group.items() if k != "params"}, "params": numbers})
            start += len(params)
        return self._pf_replaced("state_dict_post", {"state": packed, "param_groups": groups})  # type: ignore[no-any-return]

    @property
    def _pf_numbers(self) -> Container[str]:
        """The options that this rule reads as plain numbers."""
        return () if self._pf_steps_itself else self.defaults

    @property
    def _pf_steps_itself(self) -> bool:
        """Whether a subclass has a step() of its own, as optimisers written for PyTorch have: its state is its own."""
        return type(self).step is not Optimizer.step

    def _pf_packed(self, group: ParamGroup, p: Tensor, step: float | None) -> dict[str, Any]:
        """What is saved of one parameter. One that was never updated has no state in PyTorch either."""
        if self._pf_steps_itself:
            return {k: v.detach() if isinstance(v, Tensor) else v for k, v in self._pf_state.get(p, {}).items()}
        if step == 0 and not self._pf_rule.saves_untouched:
            return {}
        count = {} if step is None else {"step": tensor(step, dtype=float32)}
        return {**count, **{name: self._pf_state[p][name]._snapshot() for name in self._pf_rule.slots_of(group, p)}}

    def _pf_unpacked_step(self, entry: dict[str, Any]) -> float:
        """How often a parameter was updated, from what was saved of it."""
        return float(entry.get("step", 0.0))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from saved state: of this optimiser, or of PyTorch's with the same parameters.

        >>> optimizer.load_state_dict(saved["optimizer"])
        """
        state_dict = self._pf_replaced("load_state_dict_pre", state_dict.copy())
        saved = {int(k): v for k, v in state_dict["state"].items()}  # JSON makes strings of numbers
        new_groups = [{k: v for k, v in g.items() if k != "params"} for g in state_dict["param_groups"]]
        have = [len(g["params"]) for g in self.param_groups]
        got = [len(g["params"]) for g in state_dict["param_groups"]]
        if have != got:
            raise StateDictError(
                f"[load_state_dict] expected groups of {have} parameters but got {got}; build the optimiser over the "
                "same parameters"
            )
        numbers = iter(number for g in state_dict["param_groups"] for number in g["params"])
        entries = [[saved.get(int(next(numbers)), {}) for _ in g["params"]] for g in self.param_groups]
        for group, new, states in zip(self.param_groups, new_groups, entries, strict=True):
            for p, entry in zip(group["params"], states, strict=True):
                self._pf_check_entry(p, entry, self._pf_rule.slots_of({**group, **new}, p))
        changed: list[Tensor] = []
        for group, new, states in zip(self.param_groups, new_groups, entries, strict=True):
            group.update(new)
            for p, entry in zip(group["params"], states, strict=True):
                if self._pf_steps_itself:
                    self._pf_state[p] = {name: _kept(value, p) for name, value in entry.items()}
                    continue
                for name, value in self._pf_rule.slots_of(group, p).items():
                    cell, kept = self._pf_state[p][name], entry.get(name)
                    cell._rebind(full_like(cell, value).clone() if kept is None else _copied(kept, cell))
                    changed.append(cell)
            if group.steps is not None:
                group.steps._rebind(tensor([self._pf_unpacked_step(entry) for entry in states], dtype=float64))
        evaluate(changed)
        for hook in self._pf_hooks_of("load_state_dict_post"):
            hook(self)

    def _pf_check_entry(self, p: Tensor, entry: dict[str, Any], names: dict[str, float]) -> None:
        """Raise for saved state that does not belong to this parameter."""
        for name, value in entry.items():
            if name == "step" or value is None or self._pf_steps_itself:
                continue
            if name not in names:
                raise StateDictError(
                    f"[load_state_dict] expected state named {', '.join(names) or 'nothing'} for {self._pf_name} but "
                    f"got {name!r}; was it saved by another optimiser?"
                )
            wanted = _shape(p, names[name])
            if tuple(np.shape(value)) != wanted:
                raise StateDictError(
                    f"[load_state_dict] expected {name} of shape {wanted} but got {tuple(np.shape(value))}; build the "
                    "optimiser over the same parameters in the same order"
                )

    def __repr__(self) -> str:
        lines = [f"{self._pf_name} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key not in ("params", "param_names")]
        return "\n".join([*lines, ")"])


class Scalar(float):
    """The initial value of state that is one number for a parameter, whatever its shape."""


class Reduced(float):
    """The initial value of state that has a parameter's shape, but length 1 along one axis."""

    axis: int

    def __new__(cls, value: float, axis: int) -> Reduced:
        made = super().__new__(cls, value)
        made.axis = axis
        return made


def _shape(p: Tensor, value: float) -> tuple[int, ...]:
    """The shape of state with this initial value."""
    if isinstance(value, Scalar):
        return ()
    if not isinstance(value, Reduced):
        return p.shape
    axis = value.axis % p.ndim
    return (*p.shape[:axis], 1, *p.shape[axis + 1 :])


def _initial(p: Tensor, value: float) -> Tensor:
    """New state of a parameter."""
    if isinstance(value, (Scalar, Reduced)):
        dtype = p.dtype.real.compute if isinstance(value, Scalar) else p.dtype
        return p.detach().new_full(_shape(p, value), value, dtype=dtype).clone()
    return full_like(p, complex(value, value) if p.dtype.is_complex else value).clone()


def _as_real(t: Tensor) -> Tensor:
    """A complex tensor's parts, beside each other on a last axis: a rule takes them for numbers of their own."""
    return FUNCTIONS["view_as_real"](t) if t.dtype.is_complex else t


def _as(cell: Tensor, value: Tensor) -> Tensor:
    """What a rule made of a tensor's parts, as the tensor has it."""
    return FUNCTIONS["view_as_complex"](value) if cell.dtype.is_complex else value


# PyTorch's choices among its implementations of a step; there is one here, and it runs inside of jit and on GPUs.
_CHOICES = {"foreach": None, "fused": None, "capturable": False, "differentiable": False}


def _check_chosen(op: str, chosen: dict[str, Any], defaults: dict[str, Any]) -> None:
    for name, value in chosen.items():
        if name not in _CHOICES:
            raise ArgumentTypeError(
                f"[{op}] expected options among {', '.join(defaults)} but got {name!r}{suggest(name, defaults)}"
            )
        if name == "differentiable" and value:
            raise NotSupportedError(
                f"[{op}] expected differentiable=False but got True; write the update as ops on tensors, and use "
                "pf.autograd.grad with create_graph=True"
            )


def _kept(value: Any, p: Tensor) -> Any:
    """A saved value of a subclass's own state: a tensor of its own, where it is one."""
    if not isinstance(value, (Tensor, np.ndarray)) and not hasattr(value, "__dlpack__"):
        return copy.deepcopy(value)
    wide = as_tensor(value).detach()
    meta = p._node.meta
    return wide.to(device=meta.device if meta.committed else None).clone()


def _copied(value: Any, cell: Tensor) -> Tensor:
    """A saved value with memory of its own, in the dtype and on the device of a cell."""
    meta = cell._node.meta
    return as_tensor(value)._snapshot().to(dtype=cell.dtype, device=meta.device if meta.committed else None).clone()
