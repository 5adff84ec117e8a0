"""torch.nn.modules by its path. PyTorch keeps each family of layers in a file of its own, as `nn.modules.conv`; here
all of those names give the layers of `pyflame.nn`, and the base classes and helpers that programs import from them.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import re
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.nn import functional

_FILES = (
    "activation", "adaptive", "batchnorm", "channelshuffle", "container", "conv", "distance", "dropout", "flatten",
    "fold", "instancenorm", "lazy", "linear", "loss", "module", "normalization", "padding", "pixelshuffle", "pooling",
    "rnn", "sparse", "transformer", "upsampling", "utils",
)  # fmt: skip
# The classes of each file, by their names; those of "activation" are what is left of ours.
_CLASSES = {
    "adaptive": "^AdaptiveLog",
    "activation": "",
    "batchnorm": "BatchNorm",
    "channelshuffle": "^ChannelShuffle",
    "container": "^(Sequential|Module(List|Dict)|Parameter(List|Dict))$",
    "conv": "Conv",
    "distance": "^(PairwiseDistance|CosineSimilarity)$",
    "dropout": "Dropout",
    "flatten": "[fF]latten$",
    "fold": "^(Fold|Unfold)$",
    "instancenorm": "InstanceNorm",
    "linear": "^(Bilinear|Identity|LazyLinear|Linear)$",
    "loss": "(?<!With)Loss(2d)?$|WithDistanceLoss$",
    "module": "^Module$",
    "normalization": "^(LocalResponse|Layer|Group|RMS)Norm$|^CrossMapLRN2d$",
    "padding": r"Pad\dd$",
    "pixelshuffle": "^Pixel",
    "pooling": r"[Pp]ool\dd$",
    "rnn": "^(RNN|LSTM|GRU)",
    "sparse": "^Embedding",
    "transformer": "^Transformer",
    "upsampling": "^Upsampl",
}  # fmt: skip
_ACTIVATIONS = ("pyflame.nn.activation", "pyflame.nn.attention.multihead")
# PyTorch's name of a base class -> where it is here, and what it is called
_BASES = {
    "_BatchNorm": ("norm", "_BatchNorm"),
    "_InstanceNorm": ("norm", "_InstanceNorm"),
    "_NormBase": ("norm", "_Running"),
    "NonDynamicallyQuantizableLinear": ("linear", "NonDynamicallyQuantizableLinear"),
    "_AdaptiveAvgPoolNd": ("pooling", "_Adaptive"),
    "_AdaptiveMaxPoolNd": ("pooling", "_AdaptiveMax"),
    "_AvgPoolNd": ("pooling", "_AvgPool"),
    "_DropoutNd": ("dropout", "_Dropout"),
    "_MaxPoolNd": ("pooling", "_MaxPool"),
    "_ConvNd": ("conv", "_ConvBase"),
    "_ConvTransposeNd": ("conv", "_ConvTranspose"),
    "_Loss": ("loss", "_Loss"),
    "_WeightedLoss": ("loss", "_WeightedLoss"),
    "RNNCellBase": ("recurrent", "RNNCellBase"),
    "LazyModuleMixin": ("lazy", "LazyModuleMixin"),
    "_IncompatibleKeys": ("state_dict", "IncompatibleKeys"),
}


def _ntuple(count: int) -> Callable[[Any], tuple[Any, ...]]:
    def repeated(value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, Iterable) else tuple(itertools.repeat(value, count))

    return repeated


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take a prefix, as DistributedDataParallel's "module.", from the names of a state dict, in place.

    >>> state = {"module.weight": 1, "bias": 2}
    >>> nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module."); state
    {'bias': 2, 'weight': 1}
    """
    for key in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[key.removeprefix(prefix)] = state_dict.pop(key)
    about = getattr(state_dict, "_metadata", {})
    for key in [key for key in about if key and (key == prefix.replace(".", "") or key.startswith(prefix))]:
        about[key[len(prefix) :]] = about.pop(key)


def _get_activation_fn(activation: str) -> Callable[..., Any]:
    """The function that a Transformer layer's `activation` names."""
    if activation not in ("relu", "gelu"):
        raise ArgumentError(f"[Transformer] expected activation 'relu' or 'gelu' but got {activation!r}")
    return getattr(functional, activation)  # type: ignore[no-any-return]


def _get_clones(module: Any, N: int) -> Any:
    """A list of copies of a module."""
    from pyflame.nn.containers import ModuleList

    return ModuleList([copy.deepcopy(module) for _ in range(N)])


def _addindent(s_: str, numSpaces: int) -> str:
    """A text whose lines but the first are moved to the right."""
    return s_.replace("\n", "\n" + " " * numSpaces)


def _reverse_repeat_tuple(t: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Each number of a tuple n times, the last first: padding for F.pad."""
    return tuple(x for x in reversed(t) for _ in range(n))


_HELPERS: dict[str, Any] = {
    "_addindent": _addindent,
    "_get_clones": _get_clones,
    "_reverse_repeat_tuple": _reverse_repeat_tuple,
    "_get_activation_fn": _get_activation_fn,
    "_ntuple": _ntuple,
    "consume_prefix_in_state_dict_if_present": consume_prefix_in_state_dict_if_present,
} | {name: _ntuple(count) for count, name in enumerate(("_single", "_pair", "_triple", "_quadruple"), 1)}


def __getattr__(name: str) -> Any:
    if name in _HELPERS:
        return _HELPERS[name]
    room, name = ("global_hooks", name) if name.startswith("register_module_") else _BASES.get(name, ("", name))
    return getattr(importlib.import_module(f"pyflame.nn.{room}".rstrip(".")), name)


__path__: list[str] = []  # a package, as far as `from pyflame.nn.modules.conv import Conv2d` is concerned
for _name in _FILES:
    _file = ModuleType(f"{__name__}.{_name}", f"torch.nn.modules.{_name} by its path.")
    _file.__getattr__ = __getattr__  # type: ignore[method-assign]
    sys.modules[_file.__name__] = globals()[_name] = _file


def fill(layers: dict[str, Any]) -> None:
    """Put the classes into the files: programs list those of `nn.modules.activation` to find one by its name."""
    known = {name: value for name, value in layers.items() if isinstance(value, type) and not name.startswith("_")}
    for file, pattern in _CLASSES.items():
        found = {name: known[name] for name in known if pattern and re.search(pattern, name)}
        if not pattern:
            found = {name: value for name, value in known.items() if value.__module__ in _ACTIVATIONS}
        vars(globals()[file]).update(found, __all__=sorted(found))
