"""State dicts: the values of a module by name, in PyTorch's names and shapes.

`StateDictMethods` is the part of Module that saves and loads. Each module saves what it holds itself
(`_save_to_state_dict`) and takes it back (`_load_from_state_dict`): layers override those, as in PyTorch.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.errors import ArgumentTypeError, StateDictError, type_name
from pyflame.nn.hooks import Hooks, RemovableHandle, add_hook
from pyflame.nn.parameter import is_lazy, replace, settle
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.tensor.gradients import no_grad


class IncompatibleKeys(NamedTuple):
    """Names that the module has and the dict has not, and the other way round."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def read(name: str, value: Any) -> Tensor:
    """A value of a state dict as a tensor: ours, NumPy's, or one of a library that shares memory (torch)."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (np.ndarray, np.generic, int, float, bool, list, tuple)):
        return tensor(value)
    if hasattr(value, "__dlpack__"):
        # torch hands out neither what has a tape nor what lies on a GPU
        value = value.detach() if hasattr(value, "detach") else value
        return tensor(value.cpu() if hasattr(value, "cpu") else value)
    if hasattr(value, "__array__"):
        return tensor(np.asarray(value))
    raise ArgumentTypeError(f"[load_state_dict] expected a tensor or an array as {name!r} but got {type_name(value)}")


EXTRA_STATE = "_extra_state"


class StateDictMethods:
    """The part of Module that has to do with state dicts."""

    _version: int = 1  # of what the class saves; `local_metadata["version"]` tells a loader which one a file has
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: Hooks
    _state_dict_pre_hooks: Hooks
    _load_state_dict_pre_hooks: Hooks
    _load_state_dict_post_hooks: Hooks

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> OrderedDict[str, Any]:
        """The values of all parameters and persistent buffers by name, as PyTorch names them.

        They share the module's memory, without its tape: training on changes them, and what is written to them is
        written to the module; `.clone()` keeps a value. With keep_vars, the cells themselves. `destination`: a dict
        that gets them.

        >>> list(nn.Linear(2, 2).state_dict())
        ['weight', 'bias']
        """
        given: Any = (*args, *(destination, prefix, keep_vars)[len(args) :])
        destination, prefix, keep_vars = given
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        return _nested(_saving(self, destination, prefix, keep_vars))  # type: ignore[no-any-return]

    def __saved(self) -> dict[str, Any]:
        """Name -> cell of what this module itself saves."""
        kept = {n: b for n, b in self._buffers.items() if n not in self._non_persistent_buffers_set}
        return {name: cell for name, cell in (*self._parameters.items(), *kept.items()) if cell is not None}

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Write what this module itself holds into a dict."""
        for name, cell in self.__saved().items():
            destination[prefix + name] = cell if keep_vars or is_lazy(cell) else cell.detach()
        if type(self).get_extra_state is not StateDictMethods.get_extra_state:
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def get_extra_state(self) -> Any:
        """What a module saves beside its tensors: define it together with set_extra_state."""
        raise NotImplementedError(
            f"[get_extra_state] expected {type(self).__name__} to define it, as it defines set_extra_state"
        )

    def set_extra_state(self, state: Any) -> None:
        """Take back what get_extra_state gave.

        >>> class Counter(nn.Module):
        ...     seen = 0
        ...     def get_extra_state(self): return {"seen": self.seen}
        ...     def set_extra_state(self, state): self.seen = state["seen"]
        >>> one, two = Counter(), Counter()
        >>> one.seen = 3
        >>> two.load_state_dict(one.state_dict()), two.seen
        (<All keys matched successfully>, 3)
        """
        raise NotImplementedError(
            f"[set_extra_state] expected {type(self).__name__} to define it, as it defines get_extra_state"
        )

    # --- hooks ------------------------------------------------------------------------------------------------------

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before state_dict collects."""
        return add_hook(self._state_dict_pre_hooks, hook)  # type: ignore[no-any-return]

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after state_dict; it changes the dict in place.

        >>> layer = nn.Linear(2, 2)
        >>> handle = layer.register_state_dict_post_hook(lambda module, found, prefix, about: found.popitem() and None)
        >>> list(layer.state_dict())
        ['weight']
        """
        return add_hook(self._state_dict_hooks, (hook, True))  # type: ignore[no-any-return]

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """As register_state_dict_post_hook, but what the hook returns takes the place of the dict."""
        return add_hook(self._state_dict_hooks, (hook, False))  # type: ignore[no-any-return]

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`
        before this module takes its values; it may change what it is given."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        """As register_load_state_dict_pre_hook; the hook gets no module unless `with_module`."""
        return add_hook(self._load_state_dict_pre_hooks, (hook, with_module))  # type: ignore[no-any-return]

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after load_state_dict; it may change the lists of names in place."""
        return add_hook(self._load_state_dict_post_hooks, hook)  # type: ignore[no-any-return]

    # --- loading ----------------------------------------------------------------------------------------------------

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Take values by name: tensors, NumPy arrays or torch tensors. Nothing is loaded if any of them does not fit.

        Without `strict` the names may differ, not the shapes. Values are converted to the module's dtypes and devices;
        with `assign` the module takes over theirs.

        >>> layer = nn.Linear(2, 2)
        >>> layer.load_state_dict({"weight": pf.eye(2), "bias": pf.zeros(2)})
        <All keys matched successfully>
        """
        if not isinstance(state_dict, Mapping):
            raise ArgumentTypeError(
                f"[load_state_dict] expected a dict of names and tensors but got {type_name(state_dict)}"
            )
        loading = _Loading(getattr(state_dict, "_metadata", {}), assign)
        cells = [*self.parameters(), *self.buffers()]  # type: ignore[attr-defined]
        before = [(cell, type(cell), None if is_lazy(cell) else cell._snapshot()) for cell in cells]
        try:
            _nested(loading.load(self, dict(state_dict), ""))
            loading.check(type(self).__name__, strict)
        except BaseException:
            for cell, kind, value in before:
                _restore(cell, kind, value)
            raise
        before.clear()  # the old values' memory is free before the new ones are computed
        settle(cell for cell in cells if not is_lazy(cell))
        return IncompatibleKeys(loading.missing, loading.unexpected)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take what this module itself holds from a dict, and tell what is missing, unexpected and wrong."""
        told = (state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        for hook, with_module in tuple(self._load_state_dict_pre_hooks.values()):
            hook(*((self,) if with_module else ()), *told)
        own = self.__saved()
        for name, cell in own.items():
            if prefix + name in state_dict:
                value = read(prefix + name, state_dict[prefix + name])
                error = _take(prefix + name, cell, value, local_metadata.get("assign_to_params_buffers", False))
                error_msgs += [error] if error else []
            elif strict:
                missing_keys.append(prefix + name)
        extra = prefix + EXTRA_STATE
        takes_extra = type(self).set_extra_state is not StateDictMethods.set_extra_state
        if takes_extra and extra in state_dict:
            self.set_extra_state(state_dict[extra])
        elif takes_extra and strict:
            missing_keys.append(extra)
        known = {*own, *([EXTRA_STATE] if takes_extra else [])}
        for key in state_dict if strict else ():
            first, dot, _ = key[len(prefix) :].partition(".")
            if key.startswith(prefix) and first not in (self._modules if dot else known):
                unexpected_keys.append(key)


# Work on a module that yields the same work on those below it, in order: models may be nested deeper than calls may.
_Nested = Generator["_Nested", None, Any]


def _nested(work: _Nested) -> Any:
    """Do the work and all that it yields; gives what it returns."""
    stack = [work]
    while True:
        try:
            stack.append(next(stack[-1]))
        except StopIteration as done:
            stack.pop()
            if not stack:
                return done.value


def _saving(module: Any, destination: Any, prefix: str, keep_vars: bool) -> _Nested:
    """Let a module save what is its own, then those below it; gives the dict."""
    about = {"version": module._version}
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = about
    for hook in tuple(module._state_dict_pre_hooks.values()):
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is None:
            continue
        if getattr(child.state_dict, "__func__", None) is StateDictMethods.state_dict:
            yield _saving(child, destination, f"{prefix}{name}.", keep_vars)
        else:  # one of its own
            child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for hook, public in tuple(module._state_dict_hooks.values()):
        changed = hook(module, destination, prefix, about)
        if changed is not None and public:
            raise ArgumentTypeError(
                f"[state_dict] expected None from a post hook but got {type(changed).__name__}; let it change the "
                "dict it is given"
            )
        destination = destination if changed is None else changed
    return destination


class _Loading:
    """One load_state_dict: what was found missing, unexpected and wrong so far."""

    def __init__(self, metadata: Any, assign: bool) -> None:
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.errors: list[str] = []
        self._metadata = metadata or {}
        self._assign = assign

    def load(self, module: Any, values: dict[str, Any], prefix: str) -> _Nested:
        """Let a module take what is its own, then those below it."""
        about = dict(self._metadata.get(prefix[:-1], {}))
        if self._assign:
            about["assign_to_params_buffers"] = True
        module._load_from_state_dict(values, prefix, about, True, self.missing, self.unexpected, self.errors)
        for name, child in module._modules.items():
            if child is not None:
                inner = f"{prefix}{name}."
                yield self.load(child, {key: v for key, v in values.items() if key.startswith(inner)}, inner)
        for hook in tuple(module._load_state_dict_post_hooks.values()):
            if hook(module, IncompatibleKeys(self.missing, self.unexpected)) is not None:
                raise ArgumentTypeError(
                    "[load_state_dict] expected None from a post hook but got a value; let it change the lists it gets"
                )

    def check(self, name: str, strict: bool) -> None:
        """Raise if something is wrong."""
        problems = list(self.errors)
        way_out = "leave out the names of other sizes" if problems else "pass strict=False to load the names that fit"
        if strict and self.unexpected:
            problems.insert(0, f"unexpected key(s): {', '.join(map(repr, self.unexpected))}")
        if strict and self.missing:
            problems.insert(0, f"missing key(s): {', '.join(map(repr, self.missing))}")
        if problems:
            listed = "\n  ".join(problems)
            raise StateDictError(
                f"[load_state_dict] expected a state dict of {name} but got one that does not fit:\n"
                f"  {listed}\nnothing was loaded; {way_out}"
            )


def _take(name: str, cell: Any, value: Tensor, assign: bool) -> str:
    """Put a value into a cell; gives what is wrong, if it does not fit."""
    if is_lazy(value):
        return "" if is_lazy(cell) else f"uninitialised value for {name}, whose shape is {cell.shape}"
    if is_lazy(cell):
        cell.materialize(value.shape)
    if cell.ndim == 0 and value.shape == (1,):  # files of PyTorch 0.3
        value = value[0]
    if value.shape != cell.shape:
        return f"size mismatch for {name}: the dict has shape {value.shape}, the module {cell.shape}"
    if cell.is_meta and not value.is_meta and not assign:
        warnings.warn(
            f"[load_state_dict] {name} is of the meta device and stays without values; pass assign=True to take those "
            "of the dict",
            stacklevel=2,
        )
    if assign:
        replace(cell, value)
    else:
        with no_grad():
            cell.copy_(value)
    return ""


def _restore(cell: Any, kind: type, value: Tensor | None) -> None:
    """Give a cell back what it held before a load that failed."""
    cell.__class__ = kind
    if value is None:
        return
    if (cell.shape, cell.dtype, cell.device) != (value.shape, value.dtype, value.device):
        cell.data = value  # `assign` has replaced its memory
        return
    with no_grad():
        cell.copy_(value)
