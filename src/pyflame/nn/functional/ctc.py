"""Connectionist temporal classification: the probability of a text over all its alignments with the time steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyflame.core.dtype import int64
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, full_like, tensor

Lengths = Tensor | Sequence[int] | int
_NEVER = float("-inf")


def _log_sum(*terms: Tensor) -> Tensor:
    """log(sum(exp)), whose gradients are 0, not NaN, where no term is possible."""
    top = terms[0]
    for term in terms[1:]:
        top = F["maximum"](top, term)
    possible = top > _NEVER
    top = F["where"](possible, top, 0.0).detach()
    total = sum((F["exp"](term - top) for term in terms[1:]), F["exp"](terms[0] - top))
    return F["where"](possible, F["log"](F["where"](possible, total, 1.0)) + top, _NEVER)


def _lengths(name: str, given: Lengths, batch: int) -> Tensor:
    found = given if isinstance(given, Tensor) else tensor(np.asarray(given, np.int64))
    if found.numel() != batch or not found.dtype.is_int:
        raise ShapeError(f"[ctc_loss] expected {batch} whole numbers as {name} but got {given!r}")
    return found.reshape(batch).to(int64)


def _rows(targets: Tensor, lengths: Tensor) -> Tensor:
    """Targets that lie behind each other as rows (N, S), filled up with what comes."""
    counts = lengths.numpy()
    if targets.numel() != counts.sum():
        raise ShapeError(
            f"[ctc_loss] expected as many targets as their lengths say ({counts.sum()}) but got {targets.numel()}"
        )
    at = (counts.cumsum() - counts)[:, None] + np.arange(max(counts.max(initial=0), 0))
    return targets[tensor(np.minimum(at, max(targets.numel() - 1, 0)))]


def _shifted(alpha: Tensor, by: int) -> Tensor:
    return F["pad"](alpha, (by, 0), value=_NEVER)[:, : alpha.shape[1]]


def _losses(log_probs: Tensor, targets: Tensor, steps: Tensor, letters: Tensor, blank: int) -> Tensor:
    """-log of the probability of each text: (T, N, C), (N, S), (N), (N) -> (N)

    alpha[s] is the probability of all ways to have read s places of "blank, letter, blank, ..., letter, blank".
    """
    times, batch, _ = log_probs.shape
    places = 2 * targets.shape[1] + 1
    pairs = F["stack"]([full_like(targets, blank), targets], -1).reshape(batch, places - 1)
    text = F["pad"](pairs, (0, 1), value=blank)
    read = F["gather"](log_probs, 2, text.expand(times, batch, places))
    place = arange(places)
    # from a letter to the next without a blank between, where they differ
    skips = (text != blank) & (text != F["pad"](text, (2, 0), value=blank)[:, :places])
    first = (place == 0) | ((place == 1) & (letters > 0)[:, None])
    alpha = F["where"](first, read[0], _NEVER)
    for t in range(1, times):
        ways = [alpha, _shifted(alpha, 1), F["where"](skips, _shifted(alpha, 2), _NEVER)]
        alpha = F["where"]((steps > t)[:, None], _log_sum(*ways) + read[t], alpha)
    end = (2 * letters)[:, None]
    before = F["where"](letters > 0, F["gather"](alpha, 1, F["clamp"](end - 1, 0))[:, 0], _NEVER)
    return -_log_sum(F["gather"](alpha, 1, end)[:, 0], before)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability that steps with these log probabilities (T, N, C) or (T, C) spell the targets.

    Targets are (N, S), or all behind each other. "mean" divides by each target's length, then takes the mean. A text
    that does not fit into its steps costs infinity, or nothing with `zero_infinity`; its gradients are 0.

    >>> log_probs = pf.full((3, 2), 0.5).log()
    >>> nn.functional.ctc_loss(log_probs, pf.tensor([1]), 3, 1)    # six of eight ways to write one letter
    tensor(0.2877)
    """
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(f"[ctc_loss] expected reduction 'mean', 'sum' or 'none' but got {reduction!r}")
    if log_probs.ndim not in (2, 3) or 0 in log_probs.shape[:1]:
        raise ShapeError(f"[ctc_loss] expected log_probs (T, N, C) or (T, C), T > 0, but got shape {log_probs.shape}")
    if not 0 <= blank < log_probs.shape[-1]:
        raise ArgumentError(f"[ctc_loss] expected a blank from 0 to {log_probs.shape[-1] - 1} but got {blank!r}")
    batched = log_probs.ndim == 3
    probs = log_probs if batched else log_probs[:, None]
    batch = probs.shape[1]
    steps = _lengths("input_lengths", input_lengths, batch)
    letters = _lengths("target_lengths", target_lengths, batch)
    rows: Any = targets if targets.ndim == 2 else _rows(targets, letters)
    if rows.shape[0] != batch:
        raise ShapeError(f"[ctc_loss] expected targets ({batch}, S) but got shape {targets.shape}")
    rows = F["where"](arange(rows.shape[1]) < letters[:, None], rows.to(int64), blank)  # padding may be anything
    loss = _losses(probs, rows, steps, letters, blank)
    if zero_infinity:
        loss = F["where"](loss == float("inf"), 0.0, loss)
    if reduction == "mean":
        return (loss / F["clamp"](letters, 1)).mean()
    return loss.sum() if reduction == "sum" else loss if batched else loss[0]
