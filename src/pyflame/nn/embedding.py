"""Tables of learned rows, looked up by index."""

from __future__ import annotations

from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.nn import functional, init
from pyflame.nn.module import Module
from pyflame.nn.parameter import Parameter, new_parameter, settle
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor
from pyflame.tensor.gradients import no_grad


class _Table(Module):
    """What Embedding and EmbeddingBag share: the table and how it starts."""

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        table: Tensor | None,
        device: object,
        dtype: object,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ArgumentError(
                f"[{type(self).__name__}] expected padding_idx to be one of {num_embeddings} rows but got {padding_idx}"
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx if padding_idx is None else padding_idx % num_embeddings
        if table is None:
            self.weight = new_parameter(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.reset_parameters()
        elif table.shape == (num_embeddings, embedding_dim):
            self.weight = Parameter(table)
        else:
            raise ShapeError(
                f"[{type(self).__name__}] expected a table of shape {(num_embeddings, embedding_dim)} but got "
                f"{table.shape}"
            )

    def reset_parameters(self) -> None:
        """Draw the table anew; the row at padding_idx is 0."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0
            settle([self.weight])

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, **settings: Any) -> Any:
        """A layer with this table, which stays as it is if `freeze`.

        >>> nn.Embedding.from_pretrained(pf.eye(3))(pf.tensor([1]))
        tensor([[0., 1., 0.]])
        """
        table = as_tensor(embeddings)
        if table.ndim != 2:
            raise ShapeError(f"[from_pretrained] expected a table (rows, columns) but got shape {table.shape}")
        layer = cls(*table.shape, **settings)
        layer.weight = Parameter(table, requires_grad=not freeze)
        return layer

    def _extras(self) -> str:
        """What differs from the defaults."""
        shown = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            shown += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            shown += f", norm_type={self.norm_type}"
        return shown + (f", scale_grad_by_freq={self.scale_grad_by_freq}" if self.scale_grad_by_freq else "")


class Embedding(_Table):
    """Rows of a table at indices: (...) -> (..., embedding_dim). The row at padding_idx is 0 and stays so.

    >>> nn.Embedding(10, 4)(pf.tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, _weight, device, dtype)
        self.weight.requires_grad_(not _freeze)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse

    def forward(self, input: Tensor) -> Tensor:
        return functional.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}{self._extras()}"


class EmbeddingBag(_Table):
    """The sum, mean or maximum of several rows: (bags, n) indices, or (n,) with the offset of each bag.

    >>> nn.EmbeddingBag(10, 4)(pf.tensor([1, 2, 3, 4]), pf.tensor([0, 2])).shape
    (2, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, _weight, device, dtype)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return functional.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}{self._extras()}"
