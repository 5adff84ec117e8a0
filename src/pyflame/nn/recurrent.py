"""Recurrent layers: RNN, GRU, LSTM and their cells, with PyTorch's names, gate order and layouts.

A layer multiplies its whole input sequence by the input weights at once; what remains per step is the small product
with the hidden state. All steps are one op of the catalogue (`ops/recurrent.py`), unrolled when a plan is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError, ArgumentTypeError, ShapeError, type_name
from pyflame.ir.opdef import OPS
from pyflame.nn.init import uniform_
from pyflame.nn.module import Module
from pyflame.nn.parameter import Parameter, new_parameter
from pyflame.nn.utils.rnn import PackedSequence, pack_padded_sequence, padded_rows
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.tensor.dispatch import FUNCTIONS as F
from pyflame.tensor.dispatch import call

State = tuple[Tensor, ...]  # (h,) or (h, c)
# One step: the projected input, the state before it and the weights -> the state after it.
Step = Callable[[Tensor, State, "Weights"], State]


class Weights:
    """The weights of one layer in one direction."""

    def __init__(
        self, ih: Tensor, hh: Tensor, bias_ih: Tensor | None, bias_hh: Tensor | None, hr: Tensor | None = None
    ):
        self.ih, self.hh, self.bias_ih, self.bias_hh, self.hr = ih, hh, bias_ih, bias_hh, hr


def _plain_step(nonlinearity: str) -> Step:
    activate = F[nonlinearity]

    def step(x: Tensor, state: State, weights: Weights) -> State:
        return (activate(x + F["linear"](state[0], weights.hh, weights.bias_hh)),)

    return step


def _gru_step(x: Tensor, state: State, weights: Weights) -> State:
    # n = tanh(x_n + r * (W h + b)): the reset gate acts on the hidden product
    (h,) = state
    hidden = F["linear"](h, weights.hh, weights.bias_hh)
    (reset, update, new), (h_reset, h_update, h_new) = x.chunk(3, -1), hidden.chunk(3, -1)
    z = (update + h_update).sigmoid()
    n = (new + (reset + h_reset).sigmoid() * h_new).tanh()
    return (n + z * (h - n),)


def _lstm_step(x: Tensor, state: State, weights: Weights) -> State:
    h, c = state
    enter, forget, cell, out = (x + F["linear"](h, weights.hh, weights.bias_hh)).chunk(4, -1)
    c = forget.sigmoid() * c + enter.sigmoid() * cell.tanh()
    h = out.sigmoid() * c.tanh()
    return (h if weights.hr is None else F["linear"](h, weights.hr), c)


def _whole(
    kind: str, x: Tensor, state: State, weights: Weights, backwards: bool, inside: Tensor | None
) -> tuple[Tensor, State]:
    """All outputs (time, batch, features) and the last state. `inside`: (time, batch, 1), false in padding."""
    bias, own = weights.bias_ih, None
    if kind == "gru":  # the reset gate acts on the product with h and its bias
        own = weights.bias_hh
    elif bias is not None and weights.bias_hh is not None:
        bias = bias + weights.bias_hh
    cells = state[1] if len(state) == 2 else None
    projected = F["linear"](x, weights.ih, bias)
    args = (projected, state[0], weights.hh, kind, backwards, cells, own, weights.hr, inside)
    outputs, *last = call(OPS["recurrent"].fn, args, {})
    return outputs, tuple(last)


def _nonlinearity(op: str, name: str) -> str:
    if name not in ("tanh", "relu"):
        raise ArgumentError(f"[{op}] expected 'tanh' or 'relu' as nonlinearity but got {name!r}")
    return name


def _reset(module: Module, hidden_size: int) -> None:
    """Uniform numbers in ±1/sqrt(hidden_size), for all weights."""
    bound = hidden_size**-0.5 if hidden_size > 0 else 0.0
    for parameter in module.parameters():
        uniform_(parameter, -bound, bound)


class RNNBase(Module):
    """Layers over a sequence. Subclasses give the number of gates, of state tensors, and the kind."""

    gates: int
    states = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if min(input_size, hidden_size, num_layers) < 1:
            raise ArgumentError(
                f"[{name}] expected input_size, hidden_size and num_layers of at least 1 but got {input_size}, "
                f"{hidden_size}, {num_layers}"
            )
        if not 0.0 <= dropout <= 1.0:
            raise ArgumentError(f"[{name}] expected a dropout probability in [0, 1] but got {dropout!r}")
        if not 0 <= proj_size < hidden_size:
            raise ArgumentError(f"[{name}] expected 0 <= proj_size < hidden_size ({hidden_size}) but got {proj_size}")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self.suffixes = [f"_l{n}{way}" for n in range(num_layers) for way in self._ways()]
        out = proj_size or hidden_size
        for number, suffix in enumerate(self.suffixes):
            below = input_size if number < len(self._ways()) else out * len(self._ways())
            shapes: dict[str, tuple[int, ...]] = {
                "weight_ih": (self.gates * hidden_size, below),
                "weight_hh": (self.gates * hidden_size, out),
            }
            if bias:
                shapes |= {"bias_ih": (self.gates * hidden_size,), "bias_hh": (self.gates * hidden_size,)}
            if proj_size:
                shapes["weight_hr"] = (proj_size, hidden_size)
            for kind, shape in shapes.items():
                self.register_parameter(kind + suffix, new_parameter(*shape, device=device, dtype=dtype))
        self.reset_parameters()

    def _ways(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def reset_parameters(self) -> None:
        """Uniform numbers in ±1/sqrt(hidden_size)."""
        _reset(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """PyTorch lays the weights out for cuDNN here; they need no layout of their own, so there is nothing to do."""

    def _kind(self) -> str:
        raise NotImplementedError(f"[{type(self).__name__}] expected a subclass that says which recurrence it is")

    @property
    def mode(self) -> str:
        """PyTorch's name of the recurrence: LSTM, GRU, RNN_TANH or RNN_RELU."""
        kind = self._kind().upper()
        return kind if kind in ("LSTM", "GRU") else f"RNN_{kind.removeprefix('RNN_')}"

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of each layer, both ways one after the other."""
        kept = [vars(self._weights(suffix)).values() for suffix in self.suffixes]
        return [[w for w in weights if w is not None] for weights in kept]

    def _weights(self, suffix: str) -> Weights:
        named = self._parameters
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return Weights(*[named.get(kind + suffix) for kind in kinds])  # type: ignore[arg-type]

    def _run(self, input: Any, start: Sequence[Tensor] | None) -> tuple[Any, list[Tensor]]:
        """The output sequence, and for each state tensor its values after the last step."""
        if isinstance(input, PackedSequence):
            return self._run_packed(input, start)
        name = type(self).__name__
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"[{name}] expected an input (time, batch, {self.input_size}) or (time, {self.input_size}) but got "
                f"shape {input.shape}"
            )
        batched = input.ndim == 3
        x = input.unsqueeze(1) if not batched else input.transpose(0, 1) if self.batch_first else input
        if x.shape[0] == 0:
            raise ShapeError(f"[{name}] expected a sequence of at least one step but got shape {input.shape}")
        x, after = self._layers(x, self._start(x, start, batched), None)
        if not batched:
            return x.squeeze(1), [h.squeeze(1) for h in after]
        return x.transpose(0, 1) if self.batch_first else x, after

    def _run_packed(self, packed: PackedSequence, start: Sequence[Tensor] | None) -> tuple[Any, list[Tensor]]:
        """As `_run` over padded rows, where padding changes no state and is left out again."""
        lengths = packed.lengths
        longest = int(lengths[0])
        x = padded_rows(packed.data, lengths, longest, 0.0)
        order, back = packed.sorted_indices, packed.unsorted_indices
        if start is not None and order is not None:
            start = [h.index_select(1, order) for h in start]
        inside = tensor((np.arange(longest)[:, None] < lengths)[:, :, None])
        out, after = self._layers(x, self._start(x, start, True), inside)
        if back is not None:
            after = [h.index_select(1, back) for h in after]
        return packed._replace(data=pack_padded_sequence(out, lengths).data), after

    def _layers(self, x: Tensor, states: list[State], inside: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """All layers over (time, batch, features)."""
        kind, ways = self._kind(), self._ways()
        ends: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = x.dropout(self.dropout)
            outputs = []
            for way in ways:
                weights = self._weights(f"_l{layer}{way}")
                out, end = _whole(kind, x, states[len(ends)], weights, way == "_reverse", inside)
                outputs.append(out)
                ends.append(end)
            x = outputs[0] if len(outputs) == 1 else F["cat"](outputs, -1)
        return x, [F["stack"]([end[i] for end in ends]) for i in range(self.states)]

    def _start(self, x: Tensor, start: Sequence[Tensor] | None, batched: bool) -> list[State]:
        """The state of each layer and direction before the first step."""
        count, batch = len(self.suffixes), x.shape[1]
        shapes = [(count, batch, self.proj_size or self.hidden_size), (count, batch, self.hidden_size)][: self.states]
        if start is None:
            return [tuple(x.new_zeros(shape[1:]) for shape in shapes)] * count
        for given, shape in zip(start, shapes, strict=True):
            wanted = shape if batched else (shape[0], shape[2])
            if not isinstance(given, Tensor):
                raise ArgumentTypeError(
                    f"[{type(self).__name__}] expected a tensor as state but got {type_name(given)}"
                )
            if given.shape != wanted:
                raise ShapeError(
                    f"[{type(self).__name__}] expected a state of shape {wanted} but got {given.shape}; it is "
                    "(layers * directions, batch, features), whatever batch_first says"
                )
        whole = [given if batched else given.unsqueeze(1) for given in start]
        return [tuple(h[i] for h in whole) for i in range(count)]

    def extra_repr(self) -> str:
        shown = [f"{self.input_size}, {self.hidden_size}"]
        for name, usual in (("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False),
                            ("dropout", 0.0), ("bidirectional", False)):  # fmt: skip
            if getattr(self, name) != usual:
                shown.append(f"{name}={getattr(self, name)}")
        return ", ".join(shown)


class RNN(RNNBase):
    """h = tanh(W x + b + U h + c) at each step, or relu.

    The input is (time, batch, features), (batch, time, features) with `batch_first`, or (time, features).
    Gives the outputs of the last layer at all steps, and the last hidden state (layers * directions, batch, hidden).

    >>> outputs, h = nn.RNN(4, 8)(pf.randn(5, 2, 4))
    >>> outputs.shape, h.shape
    ((5, 2, 8), (1, 2, 8))
    """

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: object = None,
        dtype: object = None,
    ) -> None:
        _nonlinearity("RNN", nonlinearity)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )
        self.nonlinearity = nonlinearity

    def _kind(self) -> str:
        return _nonlinearity("RNN", self.nonlinearity)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """(outputs, last hidden state), outputs packed as the input is; `hx` is the state to start from, or 0."""
        out, (h,) = self._run(input, None if hx is None else [hx])
        return out, h


class GRU(RNNBase):
    """Gated recurrent units. Inputs and outputs are those of RNN.

    >>> outputs, h = nn.GRU(4, 8, num_layers=2, bidirectional=True)(pf.randn(5, 2, 4))
    >>> outputs.shape, h.shape
    ((5, 2, 16), (4, 2, 8))
    """

    gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )

    def _kind(self) -> str:
        return "gru"

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """(outputs, last hidden state), outputs packed as the input is; `hx` is the state to start from, or 0."""
        out, (h,) = self._run(input, None if hx is None else [hx])
        return out, h


class LSTM(RNNBase):
    """Long short-term memory. As RNN, with the state a pair: hidden values h and cells c.

    With `proj_size` h is projected to that size after each step; c keeps hidden_size.

    >>> outputs, (h, c) = nn.LSTM(4, 8, proj_size=3)(pf.randn(5, 2, 4))
    >>> outputs.shape, h.shape, c.shape
    ((5, 2, 3), (1, 2, 3), (1, 2, 8))
    """

    gates = 4
    states = 2

    def _kind(self) -> str:
        return "lstm"

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        """(outputs, (h, c)) with the last states, outputs packed as the input is; `hx` is the pair to start from."""
        if hx is not None and not (isinstance(hx, (tuple, list)) and len(hx) == 2):
            raise ArgumentError(f"[LSTM] expected a pair (h, c) as state but got {type(hx).__name__}")
        out, (h, c) = self._run(input, hx)
        return out, (h, c)


# --- one step at a time -----------------------------------------------------------------------------------------------


class RNNCellBase(Module):
    """One step over (batch, features) or (features,)."""

    gates: int
    states = 1
    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: object = None, dtype: object = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        wide = self.gates * hidden_size
        for name, shape in (("weight_ih", (wide, input_size)), ("weight_hh", (wide, hidden_size))):
            self.register_parameter(name, new_parameter(*shape, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, new_parameter(wide, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform numbers in ±1/sqrt(hidden_size)."""
        _reset(self, self.hidden_size)

    def _run(self, step: Step, input: Tensor, start: Any) -> State:
        name = type(self).__name__
        if input.ndim not in (1, 2) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"[{name}] expected an input (batch, {self.input_size}) or ({self.input_size},) but got {input.shape}"
            )
        wanted = (*input.shape[:-1], self.hidden_size)
        state: State = (input.new_zeros(wanted),) * self.states if start is None else tuple(start)
        if any(s.shape != wanted for s in state) or len(state) != self.states:
            raise ShapeError(
                f"[{name}] expected {self.states} state tensor(s) of shape {wanted} but got {[s.shape for s in state]}"
            )
        weights = Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return step(F["linear"](input, self.weight_ih, self.bias_ih), state, weights)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """One step of RNN: (batch, features) or (features,) and a hidden state -> the next hidden state.

    >>> nn.RNNCell(4, 8)(pf.randn(2, 4)).shape
    (2, 8)
    """

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: object = None,
        dtype: object = None,
    ) -> None:
        _nonlinearity("RNNCell", nonlinearity)
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next hidden state."""
        return self._run(
            _plain_step(_nonlinearity("RNNCell", self.nonlinearity)), input, None if hx is None else (hx,)
        )[0]


class GRUCell(RNNCellBase):
    """One step of GRU: (batch, features) or (features,) and a hidden state -> the next hidden state.

    >>> nn.GRUCell(4, 8)(pf.randn(2, 4)).shape
    (2, 8)
    """

    gates = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next hidden state."""
        return self._run(_gru_step, input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of LSTM: (batch, features) or (features,) and a pair (h, c) -> the next pair.

    >>> h, c = nn.LSTMCell(4, 8)(pf.randn(2, 4))
    >>> h.shape, c.shape
    ((2, 8), (2, 8))
    """

    gates = 4
    states = 2

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The next (h, c)."""
        h, c = self._run(_lstm_step, input, hx)
        return h, c
