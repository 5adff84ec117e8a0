"""Models of torch and of ours, prepared for a device: the same class and parameters, run by PyFlame's engine.

torch's nn and ours have the same names, so one text serves both: `library_of` gives `torch` or `pyflame`. torch is not
imported here: whoever has a model of torch's has imported it.
"""

from __future__ import annotations

import copy
import itertools
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import pyflame as pf
from pyflame import nn
from pyflame.core.config import PRECISIONS, RunSettings
from pyflame.core.errors import ArgumentTypeError, DeviceError, type_name


def library_of(model: Any, op: str) -> ModuleType:
    """The library whose module a model is: `torch` or `pyflame`.

    >>> library_of(nn.ReLU(), "prepare_model").__name__
    'pyflame'
    """
    if isinstance(model, nn.Module):
        return pf
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return torch
    raise ArgumentTypeError(f"[{op}] expected a module of torch.nn or pyflame.nn but got {type_name(model)}")


def sharing(model: Any) -> Any:
    """Another module with the same parameters, buffers and children, and without the model's own hooks."""
    made = object.__new__(type(model))
    own = {k: type(v)() if k.startswith(("_forward_", "_backward_")) else v for k, v in vars(model).items()}
    vars(made).update(own)
    return made


def mapped(value: Any, fn: Callable[[Any], Any]) -> Any:
    """Tuples, lists and dicts with `fn` applied to the tensors in them."""
    if isinstance(value, (tuple, list)):
        items = [mapped(v, fn) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {k: mapped(v, fn) for k, v in value.items()}
    return fn(value) if hasattr(value, "is_floating_point") else value


@dataclass
class _Prepared:
    """What a prepared model holds. `graphs`: reports of what Dynamo gave of a torch model, None for ours."""

    model: Any
    plain: Any
    run: Callable[..., Any]
    settings: RunSettings
    graphs: list[Any] | None
    warned: bool = False

    def check(self) -> None:
        """Say so, once, where nothing of a torch model came here: eager torch ran it."""
        if self.graphs == [] and not self.warned:
            self.warned = True
            warnings.warn(
                f"[prepare_model] Dynamo made no graph of {type(self.model).__name__}: eager torch ran it, on the CPU; "
                "pyflame.bridge.torch.explain(model, x) tells why",
                RuntimeWarning,
                stacklevel=5,
            )


def graphs_of(model: Any) -> list[Any]:
    """Reports of the graphs that a prepared torch model was compiled to so far: what runs here, and what in torch."""
    return list(vars(model)["_prepared"].graphs or ())


def prepare(model: Any, settings: RunSettings) -> Any:
    """A model over the parameters of this one that runs on a device. Of ours, they are moved there; torch's stay where
    they are, and are copied there when the model runs."""
    model = origin(model)
    library = library_of(model, "prepare_model")
    if library is pf:
        model.to(device=settings.device)
    else:
        _check_on_host(model)
    made, plain = sharing(model), sharing(model)
    for name in [k for k in vars(model) if k.startswith(("_forward_", "_backward_"))]:
        vars(made)[name] = vars(model)[name]
    graphs: list[Any] | None = None if library is pf else []
    run = pf.jit(plain) if graphs is None else _compiled(library, plain, settings, graphs)
    vars(made)["_prepared"] = _Prepared(model, plain, run, settings, graphs)
    kind: Any = type(model)
    made.__class__ = _prepared_class(kind)
    return made


def origin(model: Any) -> Any:
    """The model that a prepared one was made of; any other model itself."""
    found = vars(model).get("_prepared") if hasattr(model, "__dict__") else None
    return found.model if found else model


def _check_on_host(model: Any) -> None:
    places = {str(p.device) for p in (*model.parameters(), *model.buffers()) if p.device.type not in ("cpu", "meta")}
    if places:
        raise DeviceError(
            f"[prepare_model] expected a torch model on the CPU but got parameters on {', '.join(sorted(places))}: its "
            "tensors stay torch's, and are copied to the GPU when it runs; call model.cpu() first"
        )


_numbers = itertools.count()


def _compiled(torch: ModuleType, plain: Any, settings: RunSettings, graphs: list[Any]) -> Callable[..., Any]:
    """A torch module compiled by our backend for Dynamo. `graphs` gets a report of each graph as they come.

    Dynamo counts what it compiles by code object, and runs a module in eager torch after eight: each gets its own."""
    from pyflame.bridge.torch.backend import compile_graph
    from pyflame.bridge.torch.options import parse_options
    from pyflame.bridge.torch.report import report_of

    names = ("libraries", "matrix_cores", "fuse", "tune")
    chosen = {name: getattr(settings, name) for name in names if getattr(settings, name) is not None}
    options = parse_options({**chosen, "device": settings.device})

    def backend(graph: Any, inputs: Any) -> Any:
        return compile_graph(graph, inputs, options, lambda kind, program: graphs.append(report_of(kind, program)))

    def run(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    code = run.__code__.replace(co_name=f"prepared_{next(_numbers)}")
    own = FunctionType(code, run.__globals__, code.co_name, run.__defaults__, run.__closure__)
    compiled: Callable[..., Any] = torch.compile(own, backend=backend)
    return compiled


@cache
def _prepared_class(kind: type) -> type:
    """The subclass of a module's class whose forward runs compiled."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        held: _Prepared = self._prepared
        settings, held.plain.training = held.settings, self.training
        wanted = settings.dtype and getattr(library_of(self, "forward"), PRECISIONS[settings.dtype])
        if wanted:
            args, kwargs = mapped((args, kwargs), lambda t: t.to(wanted) if t.is_floating_point() else t)
        with _modes(self, settings):
            out = held.run(*args, **kwargs)
        held.check()
        return mapped(out, lambda t: t.float() if t.dtype == wanted else t) if wanted else out

    def reduce(self: Any, protocol: Any) -> tuple[Any, ...]:
        return prepare, (self._prepared.model, self._prepared.settings)

    text = f"{kind.__doc__ or kind.__name__}\n\nPrepared: PyFlame's engine runs it."
    return type(kind.__name__, (kind,), {"forward": forward, "__reduce_ex__": reduce, "__doc__": text})


def _modes(model: Any, settings: RunSettings) -> Any:
    """What holds while a prepared model runs."""
    library = library_of(model, "forward")
    if library is pf:
        return settings.modes()
    if not settings.autocast:  # the rest are options of its graphs
        return nullcontext()
    return library.autocast("cpu", dtype=getattr(library, PRECISIONS[settings.autocast]))


def cast(model: Any, precision: str | None) -> Any:
    """A model with its weights turned into a precision, in place; None: as they are."""
    return model.to(getattr(library_of(model, "prepare_model"), PRECISIONS[precision])) if precision else model


def copied(model: Any) -> Any:
    """A deep copy, to be changed."""
    return copy.deepcopy(origin(model))


def nbytes(model: Any) -> int:
    """The bytes of a model's parameters and buffers."""
    return sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))


def finished(result: Any) -> Any:
    """A model's result, computed: ours are lazy."""
    tensors: list[Any] = []
    mapped(result, tensors.append)
    pf.eval(*[t for t in tensors if isinstance(t, pf.Tensor)])
    return result


def on_host(result: Any) -> list[Any]:
    """The floating-point tensors of a result as arrays of float32."""
    tensors: list[Any] = []
    mapped(result, tensors.append)
    return [t.detach().float().cpu().numpy() for t in tensors if t.is_floating_point()]


__all__ = [
    "cast",
    "copied",
    "finished",
    "graphs_of",
    "library_of",
    "mapped",
    "nbytes",
    "on_host",
    "origin",
    "prepare",
    "sharing",
]
