"""A model cut into stages, one for each process, and batches cut into microbatches that pass through them (1F1B).

After a few forward passes, which fill the pipeline, each stage does one forward and one backward pass in turn: it never
keeps the activations of more microbatches than there are stages behind it. Sends do not wait; receives do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from pyflame.collectives.point_to_point import irecv, isend
from pyflame.collectives.work import Work
from pyflame.collectives.world import get_global_rank, get_rank, get_world_size, is_initialized
from pyflame.core.dtype import as_dtype
from pyflame.core.errors import ArgumentError
from pyflame.distributed.division import mark_divided
from pyflame.nn.module import Module
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor, zeros
from pyflame.tensor.modes import eval as evaluate

_KINDS = ("float32", "float64", "float16", "bfloat16", "int64", "int32")
_AXES = 8


class Schedule1F1B:
    """Trains one stage of a pipeline: process i of the group has stage i.

    `loss_fn(output, target)` is a mean over rows; microbatches must be equal parts. `step` adds to the parameters'
    gradients what the whole batch would; clip by the norm of all stages with `pf.distributed.clip_grad_norm_`.

    >>> schedule = pf.distributed.Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.cross_entropy)
    >>> loss = schedule.step(x, target=y)  # the first stage uses x, the last one target, and gives the loss
    """

    def __init__(
        self, stage: Module, n_microbatches: int, loss_fn: Callable[[Tensor, Tensor], Tensor], group: Any = None
    ) -> None:
        many = is_initialized()
        self.stage, self.count, self.loss_fn, self.group = stage, n_microbatches, loss_fn, group
        self.size, self.place = (get_world_size(group), get_rank(group)) if many else (1, 0)
        if n_microbatches < 1:
            raise ArgumentError(f"[Schedule1F1B] expected at least one microbatch but got {n_microbatches}")
        mark_divided(stage.parameters(), group)
        self._sent: list[tuple[Work, Tensor]] = []  # tensors live until they are taken
        self._kept: deque[tuple[Tensor | None, Tensor]] = deque()  # input and output of unfinished microbatches

    @property
    def is_first(self) -> bool:
        return self.place == 0

    @property
    def is_last(self) -> bool:
        return self.place == self.size - 1

    def step(self, input: Tensor | None = None, target: Tensor | None = None) -> Tensor | None:
        """One batch through all stages and back. The last stage gives the mean loss, the others None."""
        inputs = self._cut("input", input) if self.is_first else [None] * self.count
        targets = self._cut("target", target) if self.is_last else [None] * self.count
        filling = min(self.size - 1 - self.place, self.count)
        losses: list[Tensor] = []
        for n in range(self.count + filling):
            if n < self.count:
                self._forward(inputs[n], targets[n], losses)
            if n >= filling:
                self._backward()
        for work, _ in self._sent:
            work.wait()
        self._sent.clear()
        return sum(losses[1:], losses[0]) if losses else None

    def _cut(self, name: str, batch: Tensor | None) -> list[Any]:
        """Equal parts of a batch."""
        if batch is None or len(batch) % self.count:
            got = "none" if batch is None else f"{len(batch)} rows"
            raise ArgumentError(f"[Schedule1F1B] expected {name} in {self.count} equal parts but got {got}")
        return list(batch.chunk(self.count)) if self.count > 1 else [batch]

    def _forward(self, given: Tensor | None, target: Tensor | None, losses: list[Tensor]) -> None:
        if given is None:
            given = self._receive(self.place - 1).requires_grad_()
        out = self.stage(given)
        if self.is_last:
            assert target is not None
            out = self.loss_fn(out, target) / self.count
            losses.append(out.detach())
        else:
            self._send(out.detach(), self.place + 1)
        self._kept.append((None if self.is_first else given, out))

    def _backward(self) -> None:
        given, out = self._kept.popleft()
        out.backward(None if self.is_last else self._receive(self.place + 1))
        if given is not None:
            assert given.grad is not None
            self._send(given.grad, self.place - 1)
        evaluate([p.grad for p in self.stage.parameters() if p.grad is not None])  # activations are let go

    def _send(self, value: Tensor, place: int) -> None:
        """Shape and dtype first, so that the other side can make room."""
        rank = get_global_rank(self.group, place)
        about = [_KINDS.index(value.dtype.name), value.ndim, *value.shape]
        header = tensor(about + [0] * (2 + _AXES - len(about)))
        self._sent += [(isend(t, rank, self.group), t) for t in (header, value)]

    def _receive(self, place: int) -> Tensor:
        rank = get_global_rank(self.group, place)
        header = tensor([0] * (2 + _AXES))
        irecv(header, rank, self.group).wait()
        kind, axes, *shape = header.tolist()
        out = zeros(*shape[:axes], dtype=as_dtype(_KINDS[kind]))
        irecv(out, rank, self.group).wait()
        return out
