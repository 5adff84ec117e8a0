"""DistributedDataParallel: each process has the whole model and its own part of the batch; gradients are averaged.

`backward()` gives the graph of all gradients. When it ends they are computed as one plan, packed into buckets and
averaged; `.grad` then is the same on all processes. Within `pf.jit` each bucket is an op: it is sent as soon as its
gradients are there, while the rest of the backward pass is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyflame.collectives.flat import MEGABYTES, average_all, broadcast_all, buckets_of, fill_missing
from pyflame.collectives.objects import all_gather_object
from pyflame.collectives.world import get_world_size, is_one_of_many
from pyflame.core.errors import ArgumentError, GradientError, NotSupportedError, TraceError
from pyflame.core.state import state
from pyflame.nn.module import Module
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import register_hook


class _Wrapper(Module):
    """A module around another one. Names in its state dict begin with "module.", as in PyTorch."""

    module: Module

    def __init__(self, module: Module, device_ids: Any) -> None:
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise NotSupportedError(
                f"[{type(self).__name__}] expected at most one device but got {list(device_ids)}; PyFlame does not "
                "split batches across devices yet: start one process for each"
            )
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        return self.module(*args, **kwargs)


class DataParallel(_Wrapper):
    """A model on one device: it runs the module.

    >>> nn.DataParallel(nn.Linear(2, 3))(pf.ones(4, 2)).shape
    (4, 3)
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__(module, device_ids)


class DistributedDataParallel(_Wrapper):
    """A model that all processes of a group train together, each on its own part of the batch.

    Parameters and buffers become those of the first process; models that differ in names, shapes or dtypes are refused.
    Each `backward()` averages the gradients over the processes, in buckets of `bucket_cap_mb`; within `no_sync()` they
    only add up, and the next one outside averages the sum. Before each forward pass the first process's buffers are
    sent to all, unless `broadcast_buffers` is False. With one process nothing of this happens.

    >>> model = nn.parallel.DistributedDataParallel(nn.Linear(2, 3))
    >>> model.module.weight.shape, next(iter(model.state_dict()))
    ((3, 2), 'module.weight')
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(module, device_ids)
        if options:
            raise NotSupportedError(
                f"[DistributedDataParallel] expected no option {next(iter(options))!r}, which PyFlame does not have"
            )
        self.process_group = process_group
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters or static_graph
        self.require_backward_grad_sync = True
        self._many = is_one_of_many(process_group)
        if not self._many:
            return
        # In the order of the backward pass, so that the first bucket is complete first.
        self._trained = [(n, p) for n, p in module.named_parameters() if p.requires_grad][::-1]
        if not self._trained:
            raise ArgumentError("[DistributedDataParallel] expected a model with parameters to train but it has none")
        self._hooked: dict[int, Any] = {}
        self._buckets = buckets_of([p for _, p in self._trained], MEGABYTES if bucket_cap_mb is None else bucket_cap_mb)
        check_same("DistributedDataParallel", module, process_group)
        broadcast_all([*module.parameters(), *module.buffers()], process_group)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        if self._many and self.require_backward_grad_sync and state.grad_enabled:
            if state.tracer is not None and self.find_unused_parameters:
                raise TraceError(
                    "[DistributedDataParallel] expected find_unused_parameters=False in a jitted function, where which "
                    "gradients there are is known before it runs; make the step with "
                    "pf.distributed.data_parallel_step(model, loss_fn, optimizer)"
                )
            self.sync_buffers()
            self._watch()
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of forward passes within the `with` block are not averaged, but add up in `.grad`.

        >>> model = nn.parallel.DistributedDataParallel(nn.Linear(2, 3))
        >>> with model.no_sync():
        ...     model(pf.ones(1, 2)).sum().backward()
        """
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def sync_buffers(self) -> None:
        """Give all processes the first one's buffers, if `broadcast_buffers` says so."""
        if self._many and self.broadcast_buffers and self.training:
            broadcast_all(list(self.module.buffers()), self.process_group)

    def sync_gradients(self) -> None:
        """Average `.grad` over all processes. `backward()` does so by itself, but for `no_sync()`."""
        if not self._many:
            return
        missing = [name for name, p in self._trained if p.grad is None]
        if self.find_unused_parameters:
            fill_missing([p for _, p in self._trained], self.process_group)
        elif missing:
            raise GradientError(
                f"[DistributedDataParallel] expected a gradient of every parameter but {missing[0]!r} has none; pass "
                "find_unused_parameters=True if the loss does not depend on it"
            )
        live = [p.grad for _, p in self._trained if p.grad is not None]
        same = len(live) == len(self._trained)
        average_all(live, self._buckets if same else buckets_of(live), self.process_group)

    def _watch(self) -> None:
        """Have each backward pass that reaches a parameter end with an average."""
        for _, p in self._trained:
            if self._hooked.get(id(p)) is not p._tape:
                register_hook(p, self._reached)
                self._hooked[id(p)] = p._tape

    def _reached(self, gradient: Tensor) -> None:
        if self.require_backward_grad_sync and self.sync_gradients not in state.after_backward:
            state.after_backward.append(self.sync_gradients)


def check_same(op: str, module: Module, group: Any) -> None:
    """Raise on every process, with the first name that differs, unless all have the same model."""
    named = [*module.named_parameters(), *module.named_buffers()]
    mine = {name: f"{tuple(t.shape)} {t.dtype.name}" for name, t in named}
    found: list[Any] = [None] * get_world_size(group)
    all_gather_object(found, mine, group)
    for rank, other in enumerate(found):
        for name in [*found[0], *other]:
            if found[0].get(name) != other.get(name):
                raise ArgumentError(
                    f"[{op}] expected the same model on all processes but {name!r} is "
                    f"{found[0].get(name, 'missing')} on rank 0 and {other.get(name, 'missing')} on rank {rank}"
                )
