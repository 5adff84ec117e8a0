"""Sequences of different lengths as one tensor: padded to the longest, or packed without padding.

A packed sequence holds the elements of all sequences step by step, longest sequence first, as in PyTorch. Which row
belongs where is computed on the host from the lengths; the rows themselves are gathered by the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


# Methods that give the same rows in another dtype or place, as those of tensors do.
_CONVERSIONS = frozenset(
    ("byte", "char", "cpu", "cuda", "double", "float", "half", "int", "long", "pin_memory", "rocm", "short")
)


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None


class PackedSequence(_Packed):
    """What pack_padded_sequence gives: the rows of all sequences, and how many sequences have each step.

    >>> packed = nn.utils.rnn.pack_sequence([pf.tensor([1, 2, 3]), pf.tensor([4])])
    >>> packed.data.tolist(), packed.batch_sizes.tolist()
    ([1, 4, 2, 3], [2, 1, 1])
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same rows in another dtype or on another device."""
        return self._replace(data=self.data.to(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        if name not in _CONVERSIONS:
            raise AttributeError(f"'PackedSequence' has no attribute {name!r}")
        return lambda *args, **kwargs: self._replace(data=getattr(self.data, name)(*args, **kwargs))

    @property
    def is_cuda(self) -> bool:
        """Whether the rows are on a GPU."""
        return bool(self.data.is_cuda)

    def is_pinned(self) -> bool:
        """Whether the rows are in pinned memory."""
        return bool(self.data.is_pinned())

    @property
    def lengths(self) -> np.ndarray[Any, Any]:
        """The length of each sequence, longest first."""
        sizes = np.asarray(self.batch_sizes.numpy())
        return np.asarray((sizes[:, None] > np.arange(sizes[0])).sum(0))


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Where each element of a permutation stands."""
    return None if permutation is None else F["argsort"](permutation)


def pad_sequence(
    sequences: Tensor | Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences of (length, ...) as one tensor (longest, count, ...), or (count, longest, ...) with `batch_first`.

    >>> nn.utils.rnn.pad_sequence([pf.tensor([1, 2]), pf.tensor([3])], batch_first=True)
    tensor([[1, 2],
            [3, 0]])
    """
    listed = list(sequences)
    if not listed:
        raise ArgumentError("[pad_sequence] expected sequences but got an empty list")
    if padding_side not in ("left", "right"):
        raise ArgumentError(f"[pad_sequence] expected 'left' or 'right' as padding_side but got {padding_side!r}")
    longest = max(len(s) for s in listed)
    rest = listed[0].shape[1:]
    padded = []
    for s in listed:
        if s.shape[1:] != rest:
            raise ShapeError(f"[pad_sequence] expected sequences of (length, *{rest}) but got shape {s.shape}")
        fill = s.new_full((longest - len(s), *rest), padding_value)
        padded.append(F["cat"]([s, fill] if padding_side == "right" else [fill, s]))
    return F["stack"](padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences that pad_sequence was given.

    >>> [s.tolist() for s in nn.utils.rnn.unpad_sequence(pf.tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)]
    [[1, 2], [3]]
    """
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [rows[i, :n] for i, n in enumerate(_host_lengths("unpad_sequence", lengths).tolist())]


def _host_lengths(op: str, lengths: Any) -> np.ndarray[Any, Any]:
    found = np.asarray(lengths.numpy() if isinstance(lengths, Tensor) else lengths, np.int64)
    if found.ndim != 1 or not found.size or (found < 1).any():
        raise ArgumentError(f"[{op}] expected lengths of at least 1, one for each sequence, but got {lengths!r}")
    return found


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Leave the padding out of (time, count, ...), or (count, time, ...) with `batch_first`.

    `enforce_sorted`: the lengths must come in decreasing order; without it they are sorted.

    >>> packed = nn.utils.rnn.pack_padded_sequence(pf.tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)
    >>> packed.data.tolist()
    [1, 3, 2]
    """
    known = _host_lengths("pack_padded_sequence", lengths)
    x = input.transpose(0, 1) if batch_first else input
    if known.size != x.shape[1] or known.max() > x.shape[0]:
        raise ShapeError(
            f"[pack_padded_sequence] expected {x.shape[1]} lengths of at most {x.shape[0]} for shape {input.shape} "
            f"but got {known.tolist()}"
        )
    order = np.argsort(-known, kind="stable")
    if enforce_sorted and (np.diff(known) > 0).any():
        raise ArgumentError(
            f"[pack_padded_sequence] expected lengths in decreasing order but got {known.tolist()}; pass "
            "enforce_sorted=False to have them sorted"
        )
    ordered = known[order]
    steps, rows = np.nonzero(np.arange(ordered[0])[:, None] < ordered)  # step by step, longest first
    flat = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    data = F["index_select"](flat, 0, tensor(steps * x.shape[1] + order[rows]))
    sizes = tensor(np.bincount(steps), device="cpu")
    return PackedSequence(data, sizes, None if enforce_sorted else tensor(order))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The padded tensor and the lengths that pack_padded_sequence was given.

    >>> packed = nn.utils.rnn.pack_sequence([pf.tensor([1, 2]), pf.tensor([3])])
    >>> padded, lengths = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    >>> padded.tolist(), lengths.tolist()
    ([[1, 2], [3, 0]], [2, 1])
    """
    lengths = sequence.lengths
    longest = int(lengths[0])
    if total_length is not None:
        if total_length < longest:
            raise ArgumentError(
                f"[pad_packed_sequence] expected a total_length of at least {longest} but got {total_length}"
            )
        longest = int(total_length)
    out = padded_rows(sequence.data, lengths, longest, padding_value)
    if sequence.unsorted_indices is not None:
        back = np.asarray(sequence.unsorted_indices.numpy())
        out, lengths = F["index_select"](out, 1, tensor(back)), lengths[back]
    return out.transpose(0, 1) if batch_first else out, tensor(lengths, device="cpu")


def padded_rows(data: Tensor, lengths: np.ndarray[Any, Any], longest: int, padding_value: float) -> Tensor:
    """Packed rows (rows, ...) as (longest, count, ...), longest sequence first."""
    inside = np.arange(longest)[:, None] < lengths
    place = np.full(inside.shape, len(data), np.int64)
    place[inside] = np.arange(len(data))
    filled = F["cat"]([data, data.new_full((1, *data.shape[1:]), padding_value)])
    return F["index_select"](filled, 0, tensor(place.reshape(-1))).reshape(*inside.shape, *data.shape[1:])


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences of (length, ...) as one packed sequence.

    >>> nn.utils.rnn.pack_sequence([pf.tensor([1, 2]), pf.tensor([3])]).data.tolist()
    [1, 3, 2]
    """
    return pack_padded_sequence(pad_sequence(sequences), [len(s) for s in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> Iterable[Tensor]:
    """The sequences that pack_sequence was given."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
