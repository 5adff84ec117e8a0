"""ZeroRedundancyOptimizer: each process keeps the optimiser's state of some parameters, updates those, and sends them
to the others (ZeRO stage 1). At stage 2 it also is the only one to get their averaged gradients.

Parameters are divided as wholes, so a rule that looks at a whole parameter works as on one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from pyflame.collectives.flat import average_at, broadcast_all, fill_missing
from pyflame.collectives.objects import all_gather_object
from pyflame.collectives.ops import ReduceOp, all_reduce
from pyflame.collectives.world import get_process_group_ranks, get_rank, get_world_size, is_one_of_many
from pyflame.core.errors import ArgumentError
from pyflame.optim.optimizer import Optimizer, Params
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.tensor.gradients import enable_grad


def shares_of(sizes: Sequence[int], count: int) -> list[int]:
    """Who has what: the largest go first, each to the one that has least so far.

    >>> shares_of([5, 4, 3, 2], 2)
    [0, 1, 1, 0]
    """
    loads, owners = [0] * count, [0] * len(sizes)
    for position in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        owner = loads.index(min(loads))
        owners[position] = owner
        loads[owner] += sizes[position]
    return owners


_sharding: WeakValueDictionary[int, ZeroRedundancyOptimizer] = WeakValueDictionary()  # of stage 2, the oldest first
_numbers = count()


def sharding_gradients(parameters: Iterable[Tensor]) -> list[ZeroRedundancyOptimizer]:
    """The optimisers of stage 2 that have some of these parameters, in the same order on all processes."""
    wanted = {id(p) for p in parameters}
    return [o for _, o in sorted(_sharding.items()) if any(id(p) in wanted for p in o.params)]


class ZeroRedundancyOptimizer(Optimizer):
    """An optimiser whose state is divided among processes: `optimizer_class` with its options.

    All processes begin with the first one's parameters. Stage 1 takes gradients that are averaged already
    (DistributedDataParallel does so). Stage 2 averages them in `step()`, each at the process that needs it, and forgets
    the others: call backward on the plain model, or within `no_sync()`. `pf.distributed.clip_grad_norm_` does that
    before `step()`; no backward pass may come between the two. All processes must call `step()`, `state_dict()` and
    `load_state_dict()`; the state dict is that of one process, and any number of them can load it.

    >>> optimizer = pf.distributed.ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, lr=1e-3)
    >>> model(x).sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        params: Params,
        optimizer_class: Callable[..., Optimizer],
        process_group: Any = None,
        *,
        stage: int = 1,
        **defaults: Any,
    ) -> None:
        if stage not in (1, 2):
            raise ArgumentError(
                f"[ZeroRedundancyOptimizer] expected stage 1 or 2 but got {stage}; for stage 3 wrap the model in "
                "pf.distributed.FullyShardedDataParallel and use a plain optimiser"
            )
        self.optim = optimizer_class(params, **defaults)
        self.stage, self.group = stage, process_group
        self.defaults, self.param_groups, self.state = self.optim.defaults, self.optim.param_groups, self.optim.state
        self.stepped = True
        self.params: list[Tensor] = [p for group in self.param_groups for p in group["params"]]
        self._many = is_one_of_many(process_group)
        self.owners = shares_of([p.numel() for p in self.params], get_world_size(process_group) if self._many else 1)
        self._drop_others()
        if self._many:
            broadcast_all(self.params, process_group)
        if self._many and stage == 2:
            _sharding[next(_numbers)] = self

    @property
    def _place(self) -> int:
        return get_rank(self.group) if self._many else 0

    def _drop_others(self) -> None:
        for p, owner in zip(self.params, self.owners, strict=True):
            if owner != self._place:
                self.state.pop(p, None)

    def _owned(self) -> list[list[Tensor]]:
        """The parameters of each process of the group."""
        count = get_world_size(self.group)
        return [[p for p, o in zip(self.params, self.owners, strict=True) if o == place] for place in range(count)]

    def step(self, closure: Callable[[], Any] | None = None, *, skip: Tensor | None = None) -> Any:
        """Update all parameters: each process its own, which the others then get."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        if not self._many:
            self.optim.step(skip=skip)
            return loss
        if self.stage == 2:
            self.average_gradients()
        others = [(p, p.grad) for p, o in zip(self.params, self.owners, strict=True) if o != self._place]
        for p, _ in others:
            p.grad = None
        self.optim.step(skip=skip)
        if self.stage == 1:
            for p, gradient in others:
                p.grad = gradient
        for rank, owned in zip(get_process_group_ranks(self.group), self._owned(), strict=True):
            broadcast_all(owned, self.group, rank)
        return loss

    def average_gradients(self) -> None:
        """Leave each gradient's mean at its owner, and forget the others. Every process must call this.

        Where no process has others' gradients, that was done already: a backward pass gives all processes some.
        """
        others = [p for p, o in zip(self.params, self.owners, strict=True) if o != self._place]
        waiting = tensor([p.grad is not None for p in others]).any().to("int32")
        all_reduce(waiting, ReduceOp.MAX, self.group)
        if not waiting.item():
            return
        fill_missing(self.params, self.group)
        average_at([[p.grad for p in owned if p.grad is not None] for owned in self._owned()], self.group)
        for p in others:
            p.grad = None

    def state_dict(self) -> dict[str, Any]:
        """The state of all processes, in the layout of one: every process must call this."""
        mine = self.optim.state_dict()
        if not self._many:
            return mine
        found: list[Any] = [None] * get_world_size(self.group)
        all_gather_object(found, mine["state"], self.group)
        whole = {key: value for part in found for key, value in part.items()}
        return {"state": dict(sorted(whole.items())), "param_groups": mine["param_groups"]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the state of one process, or of any number of them."""
        for group in self.param_groups:
            self.optim._pf_arrange(group)  # room for all, until those of others are dropped again
        self.optim.load_state_dict(state_dict)
        self._drop_others()
        for group in self.param_groups:
            self._forget_steps(group)

    def _forget_steps(self, group: Any) -> None:
        """Others' parameters count as never updated here, so that their state is not asked for."""
        if group.steps is not None:
            mine = {id(p) for p, o in zip(self.params, self.owners, strict=True) if o == self._place}
            kept = [float(id(p) in mine) for p in group["params"]]
            group.steps._rebind(group.steps * group.steps.new_tensor(kept))
