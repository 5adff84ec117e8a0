"""Pruning in PyTorch's names: `module.weight` becomes `weight_orig * weight_mask`, made anew before each forward.

`weight_orig` is the parameter that is trained and saved, `weight_mask` a buffer of zeros and ones. Pruning a pruned
tensor takes more of what is left; `remove` makes it permanent.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pyflame.core.errors import ArgumentError, ArgumentTypeError, IndexError, ShapeError
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.nn.utils.vectors import parameters_to_vector
from pyflame.tensor import Tensor
from pyflame.tensor.creation import ones_like, zeros_like
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.random import rand, rand_like

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer",
    "RandomStructured", "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned",
    "l1_unstructured", "ln_structured", "random_structured", "random_unstructured", "remove",
]  # fmt: skip

M = TypeVar("M", bound=Module)


class BasePruningMethod(ABC):
    """Base of the ways to prune. A subclass defines `compute_mask` and PRUNING_TYPE: unstructured (single elements),
    structured (slices along `dim`) or global (it decides itself).

    >>> class Odd(nn.utils.prune.BasePruningMethod):
    ...     PRUNING_TYPE = "unstructured"
    ...     def compute_mask(self, t, default_mask):
    ...         return default_mask * (t > 0)
    >>> Odd().prune(pf.tensor([1.0, -1.0]))
    tensor([1., -0.])
    """

    _tensor_name: str | None = None
    PRUNING_TYPE: str
    dim: int

    def __call__(self, module: Module, inputs: Any) -> None:
        """Make the tensor anew: what a module does before each forward."""
        setattr(module, self._name(), self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros where to prune, from scores; what `default_mask` has pruned stays so."""

    def _name(self) -> str:
        if self._tensor_name is None:
            raise ArgumentError(f"[prune] expected {type(self).__name__} to be applied to a module first")
        return self._tensor_name

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned tensor of a module."""
        name = self._name()
        original: Tensor = getattr(module, f"{name}_orig")
        return getattr(module, f"{name}_mask").to(original.dtype) * original  # type: ignore[no-any-return]

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prune a parameter, by its size or by scores of the same shape."""
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        before = _hook_of(module, name)
        tensor: Tensor = getattr(module, name)
        _check_scores(importance_scores, tensor, name)
        if before is None:
            mask = ones_like(tensor).detach()
        else:
            container = before[1] if isinstance(before[1], PruningContainer) else PruningContainer(before[1])
            container.add_pruning_method(method)
            method = container
            mask = getattr(module, f"{name}_mask").detach().clone()
        with no_grad():
            mask = method.compute_mask(tensor if importance_scores is None else importance_scores, mask)
        if before is None:
            module.register_parameter(f"{name}_orig", module._parameters.pop(name))
        else:
            del module._forward_pre_hooks[before[0]]
        module.register_buffer(f"{name}_mask", mask)
        method(module, ())
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A tensor with what this method prunes set to zero."""
        _check_scores(importance_scores, t, "t")
        mask = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(t if importance_scores is None else importance_scores, mask)

    def remove(self, module: Module) -> None:
        """Make the pruned tensor a plain parameter."""
        name = self._name()
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(f"{name}_orig")
        del module._buffers[f"{name}_mask"]
        with no_grad():
            original.copy_(weight)  # type: ignore[union-attr]
        setattr(module, name, original)


def _check_scores(scores: Tensor | None, tensor: Tensor, name: str) -> None:
    if scores is not None and scores.shape != tensor.shape:
        raise ShapeError(
            f"[prune] expected importance_scores of shape {tensor.shape}, as {name}, but got {scores.shape}"
        )


def _hook_of(module: Module, name: str) -> tuple[int, BasePruningMethod] | None:
    """The number and the method with which a tensor is pruned."""
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return number, hook
    return None


class PruningContainer(BasePruningMethod):
    """Several methods, one after the other, each on what the ones before have left.

    >>> layer = nn.utils.prune.l1_unstructured(nn.utils.prune.identity(nn.Linear(2, 2), "weight"), "weight", 1)
    >>> [len(hook) for hook in layer._forward_pre_hooks.values()]
    [2]
    """

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in args:
            if self._tensor_name is None and isinstance(method, BasePruningMethod):
                self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Append a method for the same tensor."""
        if not isinstance(method, BasePruningMethod):
            raise ArgumentTypeError(f"[prune] expected a BasePruningMethod but got {type(method).__name__}")
        if self._tensor_name != method._tensor_name:
            raise ArgumentError(
                f"[prune] expected a method for {self._tensor_name!r} but got one for {method._tensor_name!r}"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        method = self._pruning_methods[-1]
        left = self._left(method, t, default_mask)
        mask = default_mask.to(t.dtype).clone()
        mask[left] = method.compute_mask(t[left], default_mask[left]).to(mask.dtype)
        return mask

    def _left(self, method: BasePruningMethod, t: Tensor, mask: Tensor) -> Any:
        """An index of what a method may still prune."""
        if method.PRUNING_TYPE == "unstructured":
            return mask == 1
        if method.PRUNING_TYPE == "global":
            return ...
        if method.PRUNING_TYPE != "structured":
            raise ArgumentError(
                f"[prune] expected a PRUNING_TYPE of unstructured, structured or global but got {method.PRUNING_TYPE!r}"
            )
        axis = _axis(t, method.dim)
        kept = mask.sum(tuple(a for a in range(t.ndim) if a != axis)) != 0
        return (*(slice(None),) * axis, kept)


def _axis(t: Tensor, dim: int) -> int:
    if not -t.ndim <= dim < t.ndim:
        raise IndexError(f"[prune] expected dim within {t.ndim} axes but got {dim}")
    return dim % t.ndim


def _check_amount(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise ArgumentTypeError(f"[prune] expected a number as amount but got {type(amount).__name__}")
    if float(amount) < 0 or (not isinstance(amount, numbers.Integral) and float(amount) > 1.0):
        raise ArgumentError(f"[prune] expected an amount in [0, 1], or a count of at least 0, but got {amount}")


def _count(amount: float, size: int) -> int:
    """How many of `size` to prune."""
    count = int(amount) if isinstance(amount, numbers.Integral) else round(amount * size)
    if count > size:
        raise ArgumentError(f"[prune] expected an amount of at most the {size} that there are but got {amount}")
    return count


class Identity(BasePruningMethod):
    """Prunes nothing: makes `_orig` and `_mask` only."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _Unstructured(BasePruningMethod):
    """Single elements: those with the least scores."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _check_amount(amount)
        self.amount = amount

    def scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.numel())
        if not count:
            return default_mask.clone()
        least = F["topk"](self.scores(t).reshape(-1), count, largest=False)[1]
        mask = default_mask.reshape(-1).clone()
        mask[least] = 0
        return mask.reshape(t.shape)


class RandomUnstructured(_Unstructured):
    """Single elements by chance: a fraction or a count of them."""

    def scores(self, t: Tensor) -> Tensor:
        return rand_like(t)


class L1Unstructured(_Unstructured):
    """The elements next to zero: a fraction or a count of them."""

    def scores(self, t: Tensor) -> Tensor:
        return t.abs()


class _Structured(BasePruningMethod):
    """Slices along an axis: those with the least scores."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount = amount
        self.dim = dim

    def scores(self, t: Tensor, axis: int) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise ArgumentError(f"[prune] expected a tensor of at least 2 axes to prune slices but got shape {t.shape}")
        axis = _axis(t, self.dim)
        size = t.shape[axis]
        count = _count(self.amount, size)
        if not count:
            return default_mask
        kept = F["topk"](self.scores(t, axis), size - count)[1]
        mask = zeros_like(t)
        mask[(*(slice(None),) * axis, kept)] = 1
        return mask * default_mask.to(mask.dtype)


class RandomStructured(_Structured):
    """Slices along an axis by chance."""

    def scores(self, t: Tensor, axis: int) -> Tensor:
        return rand(t.shape[axis], device=t.device)


class LnStructured(_Structured):
    """The slices along an axis with the least n-norm."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def scores(self, t: Tensor, axis: int) -> Tensor:
        return F["norm"](t, p=self.n, dim=tuple(a for a in range(t.ndim) if a != axis))


class CustomFromMask(BasePruningMethod):
    """What a mask says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise ShapeError(f"[prune] expected a mask of shape {default_mask.shape} but got {self.mask.shape}")
        return default_mask * self.mask.to(default_mask.dtype)


# --- functions --------------------------------------------------------------------------------------------------------


def identity(module: M, name: str) -> M:
    """Give a tensor a mask that prunes nothing.

    >>> sorted(nn.utils.prune.identity(nn.Linear(2, 3), "weight").state_dict())
    ['bias', 'weight_mask', 'weight_orig']
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: M, name: str, amount: float) -> M:
    """Prune elements by chance: a fraction (float) or a count (int) of them.

    >>> float((nn.utils.prune.random_unstructured(nn.Linear(2, 4), "weight", 0.5).weight == 0).sum())
    4.0
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: M, name: str, amount: float, importance_scores: Tensor | None = None) -> M:
    """Prune the elements next to zero, or with the least scores: a fraction (float) or a count (int) of them.

    >>> float((nn.utils.prune.l1_unstructured(nn.Linear(2, 4), "weight", 3).weight == 0).sum())
    3.0
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: M, name: str, amount: float, dim: int) -> M:
    """Prune slices along an axis by chance.

    >>> float((nn.utils.prune.random_structured(nn.Linear(3, 4), "weight", 1, dim=0).weight == 0).sum())
    3.0
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: M, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None) -> M:
    """Prune the slices along an axis with the least n-norm.

    >>> float((nn.utils.prune.ln_structured(nn.Linear(3, 4), "weight", 0.5, n=2, dim=0).weight == 0).sum())
    6.0
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: M, name: str, mask: Tensor) -> M:
    """Prune where a mask is zero.

    >>> layer = nn.utils.prune.custom_from_mask(nn.Linear(2, 2), "bias", pf.tensor([0, 1]))
    >>> float(layer.bias[0])
    0.0
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune elements of several tensors as if they were one.

    >>> a, b = nn.Linear(2, 2), nn.Linear(2, 3)
    >>> both = [(a, "weight"), (b, "weight")]
    >>> nn.utils.prune.global_unstructured(both, nn.utils.prune.L1Unstructured, amount=0.5)
    >>> sum(float((m.weight == 0).sum()) for m, _ in both)
    5.0
    """
    pairs = list(parameters)
    scores = importance_scores or {}
    if not isinstance(scores, dict):
        raise ArgumentTypeError(f"[prune] expected a dict as importance_scores but got {type(scores).__name__}")
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise ArgumentTypeError(f"[prune] expected an unstructured method but got one that is {method.PRUNING_TYPE}")
    tensors = [getattr(module, name) for module, name in pairs]
    masks = [getattr(m, f"{n}_mask", None) for m, n in pairs]
    with no_grad():
        score = parameters_to_vector([scores.get(pair, t) for pair, t in zip(pairs, tensors, strict=True)])
        before = [ones_like(t) if mask is None else mask for mask, t in zip(masks, tensors, strict=True)]
        mask = PruningContainer(method).compute_mask(score, parameters_to_vector(before))
    start = 0
    for (module, name), t in zip(pairs, tensors, strict=True):
        custom_from_mask(module, name, mask[start : start + t.numel()].reshape(t.shape))
        start += t.numel()


def remove(module: M, name: str) -> M:
    """Make a pruned tensor a plain parameter, with zeros where it was pruned.

    >>> layer = nn.utils.prune.l1_unstructured(nn.Linear(2, 3), "weight", 2)
    >>> sorted(nn.utils.prune.remove(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    found = _hook_of(module, name)
    if found is None:
        raise ArgumentError(f"[prune] expected a pruned tensor of {type(module).__name__} but got {name!r}")
    found[1].remove(module)
    del module._forward_pre_hooks[found[0]]
    return module


def is_pruned(module: Module) -> bool:
    """Whether a module, or one within it, has a pruned tensor.

    >>> nn.utils.prune.is_pruned(nn.Linear(2, 3))
    False
    """
    hooks = (hook for m in module.modules() for hook in m._forward_pre_hooks.values())
    return any(isinstance(hook, BasePruningMethod) for hook in hooks)
