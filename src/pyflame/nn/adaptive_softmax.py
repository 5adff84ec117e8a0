"""AdaptiveLogSoftmaxWithLoss: a softmax over many classes, the rare ones in clusters with smaller layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.nn.containers import ModuleList, Sequential
from pyflame.nn.linear import Linear
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.tensor import Tensor


class AdaptiveOutput(NamedTuple):
    """The log-probability of each example's target, and the mean of what they lack to 0."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of classes sorted by frequency, those from each cutoff on in a cluster of their own.

    The head knows the first classes and one entry for each cluster; cluster i has a layer of in_features /
    div_value**(i + 1) features. A plan does not depend on values, so all clusters are computed for every example:
    it saves parameters but, unlike PyTorch's, no time.

    >>> layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 10])
    >>> layer(pf.randn(3, 8), pf.tensor([0, 7, 19])).output.shape, layer.log_prob(pf.randn(3, 8)).shape
    ((3,), (3, 20))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        ends = list(cutoffs)
        rising = all(a < b for a, b in pairwise([0, *ends, n_classes]))
        if not ends or not rising or any(int(c) != c for c in ends):
            raise ArgumentError(
                f"[AdaptiveLogSoftmaxWithLoss] expected rising whole cutoffs from 1 to {n_classes - 1} but got {ends}"
            )
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = [*ends, n_classes]
        self.shortlist_size, self.n_clusters = ends[0], len(ends)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            inner = int(in_features // div_value ** (i + 1))
            self.tail.append(
                Sequential(
                    Linear(in_features, inner, bias=False, device=device, dtype=dtype),
                    Linear(inner, high - low, bias=False, device=device, dtype=dtype),
                )
            )

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        for layer in self.modules():
            if isinstance(layer, Linear):
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> AdaptiveOutput:
        if target_.ndim > 1 or input_.ndim != target_.ndim + 1 or input_.shape[:-1] != target_.shape:
            raise ShapeError(
                "[AdaptiveLogSoftmaxWithLoss] expected input (N, features) with target (N), or (features) with (), but "
                f"got {input_.shape} and {target_.shape}"
            )
        x, target = (input_, target_) if target_.ndim else (input_.unsqueeze(0), target_.unsqueeze(0))
        head = F["log_softmax"](self.head(x), 1)
        # a target that is no class has no place in the head, where gather reports it
        inside = F["logical_and"](target >= 0, target < self.n_classes)
        place, output = F["where"](inside, target, self.head_size), x.new_zeros(x.shape[0])
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            here = F["logical_and"](target >= low, target < high)
            local = F["log_softmax"](self.tail[i](x), 1)
            found = F["gather"](local, 1, F["where"](here, target - low, 0).unsqueeze(1)).squeeze(1)
            output = F["where"](here, found, output)
            place = F["where"](here, self.shortlist_size + i, place)
        output = output + F["gather"](head, 1, place.unsqueeze(1)).squeeze(1)
        return AdaptiveOutput(output if target_.ndim else output.squeeze(0), (-output).mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes: (N, features) -> (N, classes)."""
        head = F["log_softmax"](self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            parts.append(F["log_softmax"](cluster(input), 1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return F["cat"](parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most likely class of each example: in the head's classes unless a cluster is more likely than each."""
        head = F["argmax"](self.head(input), 1)
        return F["where"](head < self.shortlist_size, head, F["argmax"](self.log_prob(input), 1))
