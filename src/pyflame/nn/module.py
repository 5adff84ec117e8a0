"""Module: parameters, buffers and submodules under names, and what can be done with all of them at once.

The API is PyTorch's. Values change only inside their cells: `to` and `load_state_dict` keep the Parameter objects, so
optimisers and jitted functions go on seeing them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from pyflame.core import dtype as dt
from pyflame.core.dtype import DType
from pyflame.core.errors import ArgumentError, ArgumentTypeError, DTypeError, NotSupportedError, suggest, type_name
from pyflame.core.memory_format import RANKS
from pyflame.core.state import state
from pyflame.nn.hooks import CALLS, HookMethods, call_with_hooks, registered
from pyflame.nn.parameter import Buffer, Parameter, change_each, is_lazy, settle
from pyflame.nn.printing import tree
from pyflame.nn.state_dict import StateDictMethods
from pyflame.tensor import Tensor
from pyflame.tensor.arguments import typed_init
from pyflame.tensor.creation import empty_like, full_like
from pyflame.tensor.methods import gpu_named, parsed_to
from pyflame.tensor.sparse import SparseTensor

if TYPE_CHECKING:
    from pyflame.nn.summary import Summary

M = TypeVar("M", bound="Module")
# Where a module keeps what it holds, and what may stand there.
_GROUPS = {"_parameters": "an nn.Parameter", "_modules": "a module", "_buffers": "a tensor"}


def _ours(value: Any) -> Any:
    """einops' layers for torch become layers of ours; anything else is left as it is."""
    if type(value).__module__ != "einops.layers.torch":
        return value
    from pyflame.nn.einops import from_torch

    return from_torch(value)


def hooked(module: Module) -> bool:
    """Whether somebody sees the calls of a module, so that it must be called."""
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(hooks or CALLS)


def _fresh() -> dict[str, Any]:
    """What a module has before anything is put into it."""
    hooks = ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
             "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
             "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")  # fmt: skip
    own: dict[str, Any] = {name: {} for name in (*_GROUPS, *hooks)}
    return {"training": True, "_non_persistent_buffers_set": set(), **own}


class Module(HookMethods, StateDictMethods):
    """Base of all layers and models: assign parameters and submodules in `__init__`, write `forward`.

    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.hidden = nn.Linear(4, 8)
    ...         self.out = nn.Linear(8, 2)
    ...     def forward(self, x):
    ...         return self.out(self.hidden(x).relu())
    >>> Net()(pf.randn(3, 4)).shape
    (3, 2)
    """

    # Whether __init__ hands its arguments on to the next class, where a module has other bases, too.
    call_super_init: bool = False

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Any]  # Tensor, SparseTensor or None
    _modules: dict[str, Module | None]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls) and cls.__module__.startswith("pyflame."):  # a user's class: its own errors
            cls.__init__ = typed_init(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if (args or kwargs) and not self.call_super_init:
            raise ArgumentTypeError(
                f"[{type(self).__name__}] expected no arguments for Module.__init__ but got {(*args, *kwargs)}; set "
                "call_super_init = True to hand them on"
            )
        self.__dict__.update(_fresh())  # past __setattr__, which needs these
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**_fresh(), **state})  # a file of an older version lacks some

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. Every module defines its own."""
        raise NotImplementedError(
            f"[forward] expected {type(self).__name__} to define forward but it does not; write `def forward(self, x)`"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if hooked(self):
            return call_with_hooks(self, args, kwargs)
        return self.forward(*args, **kwargs)

    # --- attributes -------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        value = _ours(value)
        if isinstance(value, (Parameter, Module, Buffer)):
            if "_parameters" not in own:
                raise ArgumentError(
                    f"[{type(self).__name__}] expected super().__init__() before {name!r} is assigned but it was not "
                    "called yet; call it first in __init__"
                )
            kind = next(g for g, k in zip(_GROUPS, (Parameter, Module, Buffer), strict=True) if isinstance(value, k))
            for group in (own, *(own[g] for g in _GROUPS if g != kind)):
                group.pop(name, None)
            if isinstance(value, Parameter):
                self.register_parameter(name, value)
            elif isinstance(value, Buffer):
                self.register_buffer(name, value, value.persistent)
            else:  # past register_module: a wrapper's __getattr__ may ask for what is assigned here
                own["_modules"][name] = registered("module", self, name, value)
            return
        for kind, wanted in _GROUPS.items():
            if name in own.get(kind, ()):
                if value is not None and not (kind == "_buffers" and isinstance(value, (Tensor, SparseTensor))):
                    raise ArgumentTypeError(
                        f"[{type(self).__name__}] expected {wanted} or None as {name!r} but got "
                        f"{type(value).__name__}; delete the attribute first to make it something else"
                    )
                own[kind][name] = value
                return
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for group in _GROUPS:  # each parameter that a layer reads comes here
            found = own.get(group)
            if found is not None and name in found:
                return found[name]
        # Python itself asks for names with underscores: those deserve no guess
        known = () if name.startswith("_") else [*own, *dir(type(self)), *(n for g in _GROUPS for n in own.get(g, ()))]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{suggest(name, known)}")

    def __delattr__(self, name: str) -> None:
        for group in (self._parameters, self._buffers, self._modules):
            if name in group:
                del group[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def __register(self, group: dict[str, Any], kind: str, name: str, value: Any, wanted: type) -> None:
        if not isinstance(name, str) or "." in name or name == "":
            raise ArgumentError(f"[{kind}] expected a name without dots but got {name!r}")
        if value is not None and not isinstance(value, wanted):
            raise ArgumentTypeError(
                f"[{kind}] expected a {wanted.__name__} or None as {name!r} but got {type_name(value)}"
            )
        if name not in group and hasattr(self, name):
            raise ArgumentError(f"[{kind}] expected a new name but {type(self).__name__} has {name!r} already")
        what = kind.removeprefix("register_")
        group[name] = value if what == "parameter" and value is None else registered(what, self, name, value)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or a place for one that is None."""
        self.__register(self._parameters, "register_parameter", name, param, Parameter)

    def register_buffer(self, name: str, tensor: Tensor | SparseTensor | None, persistent: bool = True) -> None:
        """Add a tensor that is part of the state but not learned. It is saved if `persistent`.

        A sparse one cannot be saved; `buffers()` gives its indices and values.

        >>> bn = nn.Module(); bn.register_buffer("running_mean", pf.zeros(3))
        >>> list(bn.state_dict())
        ['running_mean']
        """
        sparse = isinstance(tensor, SparseTensor)
        if sparse and persistent:
            raise NotSupportedError(
                f"[register_buffer] expected persistent=False for the sparse tensor {name!r} but got persistent=True; "
                "register its indices and values to save them"
            )
        self.__register(self._buffers, "register_buffer", name, tensor, SparseTensor if sparse else Tensor)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a submodule."""
        self.__register(self._modules, "register_module", name, _ours(module), Module)

    add_module = register_module

    # --- what is inside ---------------------------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(name, module) of this module and all below it, each once."""
        memo = set() if memo is None else memo
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:  # not recursive: models may be nested deeper than Python's calls
            name, module = stack.pop()
            if module in memo:
                continue
            if remove_duplicate:
                memo.add(module)
            yield name, module
            inner = f"{name}." if name else ""
            stack += [(inner + n, child) for n, child in reversed(module._modules.items()) if child is not None]

    def __named(self, group: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        owners = self.named_modules(None, prefix, remove_duplicate) if recurse else iter([(prefix, self)])
        for owner, module in owners:
            for name, value in getattr(module, group).items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                path = f"{owner}.{name}" if owner else name
                if isinstance(value, SparseTensor):
                    yield from ((f"{path}.indices", value._indices()), (f"{path}.values", value._values()))
                else:
                    yield path, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(name, parameter) of this module and all below it. Tied weights come once, under their first name.

        >>> [name for name, _ in nn.Linear(2, 2).named_parameters()]
        ['weight', 'bias']
        """
        return self.__named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module and all below it, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(name, buffer) of this module and all below it."""
        return self.__named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and all below it."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the modules right below this one."""
        seen: set[Module] = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """The modules right below this one."""
        return (child for _, child in self.named_children())

    def get_submodule(self, target: str) -> Module:
        """The module under a name with dots: get_submodule("layers.0.attention")."""
        module = self
        for name in target.split(".") if target else ():
            child = module._modules.get(name)
            if child is None:
                raise AttributeError(
                    f"{type(module).__name__!r} has no submodule {name!r} on the way to {target!r}"
                    f"{suggest(name, module._modules)}"
                )
            module = child
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module under a name with dots. With `strict` there must be one already.

        >>> net = nn.Sequential(nn.Sequential(nn.ReLU()))
        >>> net.set_submodule("0.0", nn.Tanh()); net[0][0]
        Tanh()
        """
        if not target or not all(target.split(".")):
            raise ArgumentError(f"[set_submodule] expected a name with dots but got {target!r}")
        if not isinstance(module, Module):
            raise ArgumentError(f"[set_submodule] expected a module but got {type_name(module)}")
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if strict and name not in owner._modules:
            raise AttributeError(f"{type(owner).__name__!r} has no submodule {name!r}{suggest(name, owner._modules)}")
        setattr(owner, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter under a name with dots."""
        return self.__get(target, "_parameters", "parameter")  # type: ignore[no-any-return]

    def get_buffer(self, target: str) -> Tensor:
        """The buffer under a name with dots."""
        return self.__get(target, "_buffers", "buffer")  # type: ignore[no-any-return]

    def __get(self, target: str, group: str, kind: str) -> Any:
        path, _, name = target.rpartition(".")
        held = getattr(self.get_submodule(path), group)
        if held.get(name) is None:
            raise AttributeError(f"{type(self).__name__!r} has no {kind} {target!r}{suggest(name, held)}")
        return held[name]

    # --- modes ------------------------------------------------------------------------------------------------------

    @property
    def training(self) -> bool:
        """Whether layers such as dropout and batch norm act as in training. A jitted function remembers what it saw."""
        if state.tracer is not None:
            state.tracer.guard(self, "training")
        return self.__dict__["training"]  # type: ignore[no-any-return]

    @training.setter
    def training(self, mode: bool) -> None:
        self.__dict__["training"] = bool(mode)

    def train(self: M, mode: bool = True) -> M:
        """Put this module and all below it into training mode, or into evaluation mode with False."""
        if not isinstance(mode, bool):
            raise ArgumentTypeError(f"[train] expected True or False but got {mode!r}")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: M) -> M:
        """Put this module and all below it into evaluation mode."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Ask for gradients of all parameters, or for none."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make them 0."""
        for parameter in self.parameters():
            if set_to_none:  # not asked whether there is one: a jitted step that begins so serves both cases
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad._rebind(full_like(parameter.grad, 0))  # in place: a part of a buffer stays one

    # --- changes of all at once -------------------------------------------------------------------------------------

    def apply(self: M, fn: Callable[[Module], None]) -> M:
        """Call fn with every module below this one, then with this one: for initialisation."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def to(
        self: M,
        *args: Any,
        dtype: object = None,
        device: object = None,
        non_blocking: bool = False,
        memory_format: Any = None,
    ) -> M:
        """Move parameters and buffers to a device, or the floating-point ones to a dtype: to("cpu"), to(pf.bfloat16).

        `memory_format`: of those with as many axes as it is for, as convolutions' weights for pf.channels_last.

        >>> nn.Linear(2, 2).to(pf.float16).weight.dtype
        pyflame.float16
        """
        wanted, device = parsed_to(args, dtype, device)
        if wanted is not None and not wanted.has_gradient:
            raise DTypeError(
                f"[to] expected a floating-point dtype, or a complex one, for a module but got {wanted.name}"
            )

        def change(t: Tensor) -> Tensor:
            fits = memory_format is not None and RANKS.get(memory_format, t.ndim) == t.ndim
            kind = wanted if t.dtype.has_gradient else None
            return t.to(dtype=kind, device=device, memory_format=memory_format if fits else None)

        self._apply(change)
        cells = [cell for cell in (*self.parameters(), *self.buffers()) if not is_lazy(cell)]
        settle([*cells, *(cell.grad for cell in cells if cell.grad is not None)])
        return self

    def _apply(self: M, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> M:
        """Let each parameter, gradient and buffer be what `fn` makes of it: what `to` and its relatives do."""
        stack: list[Module] = [self]
        while stack:  # not recursive, but where a module below has an _apply of its own
            module = stack.pop()
            if module is not self and type(module)._apply is not Module._apply:
                module._apply(fn)
                continue
            cells = (*module.named_parameters("", False), *module.named_buffers("", False))
            change_each([cell for _, cell in cells], fn)
            stack += module.children() if recurse else ()
        return self

    def to_empty(self: M, *, device: object, recurse: bool = True) -> M:
        """Move to a device without the values: what is loaded next fills them."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def type(self: M, dst_type: DType | str) -> M:
        """Convert all floating-point parameters and buffers."""
        return self.to(dtype=dst_type)

    def float(self: M) -> M:
        """Convert floating-point parameters and buffers to float32."""
        return self.to(dtype=dt.float32)

    def double(self: M) -> M:
        """Convert floating-point parameters and buffers to float64."""
        return self.to(dtype=dt.float64)

    def half(self: M) -> M:
        """Convert floating-point parameters and buffers to float16."""
        return self.to(dtype=dt.float16)

    def bfloat16(self: M) -> M:
        """Convert floating-point parameters and buffers to bfloat16."""
        return self.to(dtype=dt.bfloat16)

    def cpu(self: M) -> M:
        """Move parameters and buffers to the host."""
        return self.to(device="cpu")

    def cuda(self: M, device: Any = None) -> M:
        """Move parameters and buffers to an NVIDIA GPU, or to an AMD GPU where there is no other."""
        return self.to(device=gpu_named("cuda", device))

    def rocm(self: M, device: Any = None) -> M:
        """Move parameters and buffers to an AMD GPU."""
        return self.to(device=gpu_named("rocm", device))

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: modules run compiled. See pf.compile."""

    def share_memory(self: M) -> M:
        """The module itself: processes do not share memory."""
        return self

    # --- saving and showing -----------------------------------------------------------------------------------------

    def summary(self, *inputs: Any, **named: Any) -> Summary:
        """A table of the layers with their parameters and bytes; with example inputs also of their output shapes.

        The model runs in evaluation mode and nothing is computed but shapes.

        >>> "Linear" in str(nn.Sequential(nn.Linear(2, 3)).summary(pf.ones(1, 2)))
        True
        """
        from pyflame.nn.summary import summarize  # here: most programs never ask for it

        return summarize(self, inputs, named)

    def extra_repr(self) -> str:
        """What stands inside the brackets of this module's repr."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        return tree(self._get_name(), lines, [(name, repr(child)) for name, child in self._modules.items()])
