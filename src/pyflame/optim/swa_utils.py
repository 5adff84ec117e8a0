"""torch.optim.swa_utils: a model whose weights are an average of another's over training (SWA, EMA).

`WeightAverage` is the shorter way where no second model is needed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyflame.core.dtype import int64
from pyflame.core.errors import ArgumentError
from pyflame.core.state import state
from pyflame.nn.module import Module
from pyflame.nn.norm import _BatchNorm
from pyflame.optim.lr_scheduler.base import LRScheduler, per_group
from pyflame.optim.optimizer import Optimizer
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.modes import eval as evaluate

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
    "update_bn",
]  # fmt: skip

Average = Callable[[Tensor, Tensor, Any], Tensor]
AverageMany = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """What one parameter of an exponential average becomes: `decay` of itself and the rest of the new value.

    >>> optim.swa_utils.get_ema_avg_fn(0.75)(pf.ones(2), pf.zeros(2), 1)
    tensor([0.7500, 0.7500])
    """
    if not 0.0 <= decay <= 1.0:
        raise ArgumentError(f"[swa_utils] expected a decay in [0, 1] but got {decay}")

    @no_grad()
    def average(averaged: Tensor, current: Tensor, num_averaged: Any) -> Tensor:
        return decay * averaged + (1.0 - decay) * current

    return average


def get_swa_avg_fn() -> Average:
    """What one parameter of an average of equal weights becomes.

    >>> optim.swa_utils.get_swa_avg_fn()(pf.ones(2), pf.zeros(2), 1)
    tensor([0.5000, 0.5000])
    """

    @no_grad()
    def average(averaged: Tensor, current: Tensor, num_averaged: Tensor | int) -> Tensor:
        return averaged + (current - averaged) / (num_averaged + 1)

    return average


def _many(average: Average) -> AverageMany:
    """The function of lists that writes into the tensors of the first one."""

    @no_grad()
    def update(averaged: Sequence[Tensor], current: Sequence[Tensor], num_averaged: Any) -> None:
        for a, b in zip(averaged, current, strict=True):
            a.copy_(average(a, b, num_averaged))

    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> AverageMany:
    """`get_ema_avg_fn` for lists of parameters, in place.

    >>> average = optim.swa_utils.AveragedModel(model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.99))
    """
    return _many(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> AverageMany:
    """`get_swa_avg_fn` for lists of parameters, in place.

    >>> average = optim.swa_utils.AveragedModel(model, multi_avg_fn=optim.swa_utils.get_swa_multi_avg_fn())
    """
    return _many(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of a model that averages its parameters: of equal weights, or as `avg_fn` or `multi_avg_fn` says.

    The first `update_parameters` takes the parameters as they are. It may stand inside of a jitted step, where the
    averaging function is part of the graph from the first update on. Buffers are copied, or averaged too with
    `use_buffers`.

    >>> average = optim.swa_utils.AveragedModel(model)
    >>> average.update_parameters(model)
    >>> average(pf.ones(1, 2)).shape
    (1, 1)
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: AverageMany | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("[AveragedModel] expected avg_fn or multi_avg_fn but got both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Take a model's parameters as they are now into the average.

        >>> average = optim.swa_utils.AveragedModel(model)
        >>> average.update_parameters(model)
        """
        buffers = list(zip(self.module.buffers(), model.buffers(), strict=True))
        pairs: list[tuple[Tensor, Tensor]] = list(zip(self.module.parameters(), model.parameters(), strict=True))
        pairs += buffers if self.use_buffers else []
        held = [(a.detach(), b.detach().to(a.device)) for a, b in pairs]
        if state.tracer is not None:  # whether it is the first update is known only when the graph runs
            first = self.n_averaged == 0
            self._average(held)
            for a, b in held:
                a.copy_(FUNCTIONS["where"](first, b, a))
        elif self.n_averaged.item() > 0:
            self._average(held)
        else:
            for a, b in held:
                a.copy_(b)
        if not self.use_buffers:
            for a, b in buffers:
                a.copy_(b.to(a.device))
        self.n_averaged.add_(1)
        if state.tracer is None:
            evaluate([a for a, _ in held], self.n_averaged)

    def _average(self, held: list[tuple[Tensor, Tensor]]) -> None:
        """Bring averages nearer to the parameters that they are paired with; lists have one dtype and device."""
        if self.avg_fn is not None:
            for a, b in held:
                a.copy_(self.avg_fn(a, b, self.n_averaged.to(a.device)))
            return
        lists: dict[Any, list[tuple[Tensor, Tensor]]] = {}
        for pair in held:
            lists.setdefault((pair[0].device, pair[0].dtype), []).append(pair)
        update = self.multi_avg_fn or get_swa_multi_avg_fn()
        for (device, _), pairs in lists.items():
            update([a for a, _ in pairs], [b for _, b in pairs], self.n_averaged.to(device))


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of batch normalisation anew: their mean over one pass of the data.

    A batch is a tensor, or a list or tuple whose first element is passed to the model.

    >>> optim.swa_utils.update_bn(loader, nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    """
    momenta = {module: module.momentum for module in model.modules() if isinstance(module, _BatchNorm)}
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.reset_running_stats()
        module.momentum = None
    for batch in loader:
        given = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(given if device is None else given.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


_ANNEAL: dict[str, Callable[[float], float]] = {
    "cos": lambda t: (1.0 - math.cos(math.pi * t)) / 2.0,
    "linear": lambda t: t,
}


class SWALR(LRScheduler):
    """From the learning rate of now to a fixed one in `anneal_epochs`, then no further.

    >>> scheduler = optim.swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=5)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in _ANNEAL:
            raise ArgumentError(f"[SWALR] expected anneal_strategy 'cos' or 'linear' but got {anneal_strategy!r}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ArgumentError(f"[SWALR] expected anneal_epochs of at least 0 but got {anneal_epochs}")
        for lr, group in zip(per_group("SWALR", optimizer, swa_lr), optimizer.param_groups, strict=True):
            group["swa_lr"] = lr
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        anneal = _ANNEAL[self._anneal_strategy]
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = (anneal(max(0.0, min(1.0, s / max(1, self.anneal_epochs)))) for s in (step - 1, step))
        rates = []
        for group in self.optimizer.param_groups:
            lr, final = group["lr"], group["swa_lr"]
            start = final if before == 1 else (lr - before * final) / (1.0 - before)  # where the annealing began
            rates.append(final * now + start * (1.0 - now))
        return rates
