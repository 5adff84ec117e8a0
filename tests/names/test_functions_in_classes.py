"""Where functions stand in classes: those that torch has in C are no methods there, those in Python are."""

import copy
import functools
import importlib
import inspect
import pickle
import types
from typing import Any

import pytest

import pyflame as pf
from pyflame import nn
from tests.needs import needs_torch

ROOMS = ("", "nn.functional", "linalg", "fft", "special")


def binds(function: Any) -> bool:
    """Whether it is a method of an object in whose class it stands."""
    return inspect.getattr_static(type(function), "__get__", None) is not None and (
        function.__get__(object(), object) is not function
    )


@needs_torch
@pytest.mark.parametrize("room", ROOMS)
def test_functions_are_methods_where_those_of_torch_are(room: str) -> None:
    theirs = importlib.import_module(f"torch.{room}".rstrip("."))
    ours = importlib.import_module(f"pyflame.{room}".rstrip("."))
    builtins = {n for r in ROOMS for n, f in members(f"torch.{r}".rstrip(".")) if not binds(f)}
    wrong = []
    for name, function in members(theirs.__name__):
        own = getattr(ours, name, None)
        if not inspect.isroutine(own) or inspect.isbuiltin(own):  # Python's own
            continue
        # one object here is often two of torch's, as torch.relu and F.relu
        if binds(own) != (binds(function) and name not in builtins):
            wrong.append(name)
    assert not wrong


def members(module: str) -> list[tuple[str, Any]]:
    room = importlib.import_module(module)
    found = [(n, getattr(room, n)) for n in sorted(dir(room)) if not n.startswith("_")]
    return [(n, f) for n, f in found if inspect.isroutine(f)]


F = nn.functional
PLACES = {"relu": pf, "zeros": pf, "where": pf, "add": pf, "relu_": pf, "inv": pf.linalg, "rfft": pf.fft, "stft": pf,
          "erfcx": pf.special, "gelu": F, "mse_loss": F, "relu6": F, "sigmoid": F, "positive": pf}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_functions_are_found_again_copied_and_described(name: str) -> None:
    function = getattr(PLACES[name], name)
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.copy(function) is function
    assert copy.deepcopy({"f": function})["f"] == function
    assert function.__doc__
    assert function.__name__.endswith(name)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    assert wrapped.__name__ == function.__name__
    shown = inspect.signature(function)
    assert shown == inspect.signature(wrapped)
    assert shown.parameters
    assert not {"room", "_room"} & set(shown.parameters)


def test_a_class_of_any_kind_holds_functions() -> None:
    class Plain:
        act = pf.tanh
        make = pf.zeros

        def run(self, x: Any) -> Any:
            return self.act(x) + self.make(2)

    class Net(nn.Module):
        act = pf.relu
        solve = pf.linalg.inv

        def forward(self, x: Any) -> Any:
            return self.solve(self.act(x))

    assert Plain().run(pf.zeros(2)).tolist() == [0, 0]
    assert Net()(pf.eye(2) * 2).tolist() == [[0.5, 0], [0, 0.5]]
    assert Plain.act is pf.tanh
    assert Plain().act is pf.tanh


def test_functions_that_classes_use_are_asked_as_themselves() -> None:
    seen = []

    class Asked:
        act = pf.relu

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return 1

    for call in (Asked.act, pf.relu, pf.zeros_like, pf.linalg.inv):
        assert call(Asked()) == 1
    assert seen == [pf.relu, pf.relu, pf.zeros_like, pf.linalg.inv]
    assert isinstance(pf.Tensor.relu, types.FunctionType)
