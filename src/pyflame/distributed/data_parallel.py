"""A jitted training step of many processes: forward and backward pass, the average of the gradients, and the update.

It is one jitted function, but for models that may leave parameters out: which of them another process has used is known
only when it has, so there gradients and update are two, with the average between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyflame.nn.parallel import DistributedDataParallel
from pyflame.optim.optimizer import Optimizer
from pyflame.tensor import Tensor
from pyflame.tensor.clip import clip_grad_norm_
from pyflame.transform import jit


class DataParallelStep:
    """Call it with a batch: it trains, and gives the loss of this process. data_parallel_step makes it."""

    def __init__(
        self,
        model: DistributedDataParallel,
        loss_fn: Callable[..., Tensor],
        optimizer: Optimizer,
        max_norm: float | None,
    ) -> None:
        self.model, self.loss_fn, self.optimizer, self.max_norm = model, loss_fn, optimizer, max_norm
        self._gradients, self._update, self._whole = jit(self._add_gradients), jit(self._apply), jit(self._train)

    def __call__(self, *batch: Any) -> Tensor:
        if not self.model.find_unused_parameters:
            return self._whole(*batch)  # type: ignore[no-any-return]
        self.model.sync_buffers()
        loss = self._gradients(*batch)
        self.model.sync_gradients()
        self._update()
        return loss  # type: ignore[no-any-return]

    def accumulate(self, *batch: Any) -> Tensor:
        """Add this batch's gradients to those of the next call, without an update and without communication."""
        return self._gradients(*batch)  # type: ignore[no-any-return]

    def _train(self, *batch: Any) -> Tensor:
        loss = self.loss_fn(self.model, *batch)
        loss.backward()
        self._apply()
        return loss.detach()

    def _add_gradients(self, *batch: Any) -> Tensor:
        with self.model.no_sync():
            loss = self.loss_fn(self.model, *batch)
            loss.backward()
        return loss.detach()

    def _apply(self) -> None:
        if self.max_norm is not None:
            clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()


def data_parallel_step(
    model: DistributedDataParallel,
    loss_fn: Callable[..., Tensor],
    optimizer: Optimizer,
    *,
    max_norm: float | None = None,
) -> DataParallelStep:
    """A jitted training step in which gradients are averaged over all processes. `loss_fn(model, *batch)`.

    With `max_norm` gradients are clipped by their norm after they were averaged, as one process would clip those of
    the whole batch.

    >>> model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
    >>> loss = lambda model, x, y: ((model(x) - y) ** 2).mean()
    >>> step = pf.distributed.data_parallel_step(model, loss, optim.SGD(model.parameters(), lr=0.1), max_norm=1.0)
    >>> step(pf.ones(4, 2), pf.zeros(4, 1)).shape
    ()
    """
    return DataParallelStep(model, loss_fn, optimizer, max_norm)
