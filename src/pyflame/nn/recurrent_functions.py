"""torch.lstm, torch.gru and their kin: the recurrent layers as functions of their weights."""

from __future__ import annotations

from collections.abc import Sequence

from pyflame.core.errors import ArgumentError
from pyflame.nn.module import Module
from pyflame.nn.recurrent import GRU, LSTM, RNN, RNNBase, State, Step, Weights, _gru_step, _lstm_step, _plain_step
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS as F

_KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _run(
    kind: type[RNNBase], input: Tensor, start: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool, nonlinearity: str = "tanh",
) -> tuple[Tensor, ...]:  # fmt: skip
    """A layer around given weights, whose order is PyTorch's, and its outputs and last states."""
    name = kind.__name__.lower()
    kinds = _KINDS if has_biases else _KINDS[:2]
    count = num_layers * (2 if bidirectional else 1)
    if len(params) == count * (len(kinds) + 1) and kind is LSTM:
        kinds = (*kinds, "weight_hr")
    if len(params) != count * len(kinds):
        raise ArgumentError(f"[{name}] expected {count * len(kinds)} weights but got {len(params)}")
    layer = kind.__new__(kind)
    Module.__init__(layer)
    hidden, below = params[1].shape[-1], params[0].shape[-1]
    if "weight_hr" in kinds:
        hidden, projected = params[len(kinds) - 1].shape[-1], hidden
    else:
        projected = 0
    layer.__dict__.update(
        input_size=below, hidden_size=hidden, num_layers=num_layers, bias=has_biases, batch_first=batch_first,
        dropout=dropout, bidirectional=bidirectional, proj_size=projected, nonlinearity=nonlinearity, training=train,
    )  # fmt: skip
    layer.suffixes = [f"_l{n}{way}" for n in range(num_layers) for way in layer._ways()]
    names = [part + suffix for suffix in layer.suffixes for part in kinds]
    layer._parameters.update(zip(names, params, strict=True))  # type: ignore[arg-type]
    out, last = layer._run(input, start)
    return (out, *last)


def lstm(
    input: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """nn.LSTM over given weights: the outputs, and the last h and c.

    >>> layer, x = nn.LSTM(4, 8), pf.randn(5, 2, 4)
    >>> zero = pf.zeros(1, 2, 8)
    >>> [t.shape for t in pf.lstm(x, (zero, zero), list(layer.parameters()), True, 1, 0.0, False, False, False)]
    [(5, 2, 8), (1, 2, 8), (1, 2, 8)]
    """
    return _run(LSTM, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


def gru(
    input: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """nn.GRU over given weights: the outputs, and the last h."""
    return _run(GRU, input, [hx], params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


def rnn_tanh(
    input: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """nn.RNN over given weights: the outputs, and the last h."""
    return _run(RNN, input, [hx], params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


def rnn_relu(
    input: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """nn.RNN with nonlinearity="relu" over given weights: the outputs, and the last h."""
    return _run(RNN, input, [hx], params, has_biases, num_layers, dropout, train, bidirectional, batch_first, "relu")


def _cell(
    step: Step, input: Tensor, state: State, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None
) -> State:
    return step(F["linear"](input, w_ih, b_ih), state, Weights(w_ih, w_hh, b_ih, b_hh))


def lstm_cell(
    input: Tensor, hx: State, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> tuple[Tensor, ...]:
    """One step of an LSTM: h and c after it.

    >>> cell, zero = nn.LSTMCell(4, 8), pf.zeros(2, 8)
    >>> [t.shape for t in pf.lstm_cell(pf.randn(2, 4), (zero, zero), *cell.parameters())]
    [(2, 8), (2, 8)]
    """
    return _cell(_lstm_step, input, tuple(hx), w_ih, w_hh, b_ih, b_hh)


def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step of a GRU: h after it."""
    return _cell(_gru_step, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step of an RNN: tanh(W x + b + U h + c)."""
    return _cell(_plain_step("tanh"), input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step of an RNN with relu in place of tanh."""
    return _cell(_plain_step("relu"), input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]
