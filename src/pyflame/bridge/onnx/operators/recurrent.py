"""RNN, GRU and LSTM: the op of the catalogue where the node is plain, else step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyflame.bridge.onnx.table import Call, operator
from pyflame.core.dtype import int64
from pyflame.ir import OPS
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, zeros
from pyflame.tensor.dispatch import call as call_op

Activation = Callable[[Tensor], Tensor]

_ACTIVATIONS: dict[str, Callable[[float | None, float | None], Activation]] = {
    "relu": lambda a, b: F["relu"],
    "tanh": lambda a, b: F["tanh"],
    "sigmoid": lambda a, b: F["sigmoid"],
    "softsign": lambda a, b: F["softsign"],
    "softplus": lambda a, b: F["softplus"],
    "affine": lambda a, b: lambda x: x * (1.0 if a is None else a) + (0.0 if b is None else b),
    "leakyrelu": lambda a, b: lambda x: F["leaky_relu"](x, 0.01 if a is None else a),
    "thresholdedrelu": lambda a, b: lambda x: F["where"](x > (1.0 if a is None else a), x, 0.0),
    "scaledtanh": lambda a, b: lambda x: F["tanh"](x * (1.0 if b is None else b)) * (1.0 if a is None else a),
    "hardsigmoid": lambda a, b: lambda x: (x * (0.2 if a is None else a) + (0.5 if b is None else b)).clamp(0.0, 1.0),
    "elu": lambda a, b: lambda x: F["elu"](x, 1.0 if a is None else a),
}
# ONNX's order of gates -> ours; its default activations
_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
_DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


@dataclass
class Layer:
    """One direction: x (T, B, I) with its weights. `inside` (T, B, 1) is false where a sequence has ended."""

    call: Call
    x: Tensor
    w: Tensor
    r: Tensor
    wb: Tensor | None
    rb: Tensor | None
    h: Tensor
    c: Tensor
    peephole: Tensor | None
    inside: Tensor | None
    backwards: bool
    activations: list[Activation]
    plain: bool

    def run(self) -> tuple[Tensor, Tensor, Tensor]:
        """All outputs, the last h and the last c."""
        return self._whole() if self.plain else self._stepwise()

    def _whole(self) -> tuple[Tensor, Tensor, Tensor]:
        op = self.call.op
        kind = {"LSTM": "lstm", "GRU": "gru"}.get(op, self.call.get("activations", ["tanh"])[0].lower())
        w, r, wb, rb = (None if t is None else _ordered(t, op) for t in (self.w, self.r, self.wb, self.rb))
        projected = F["linear"](self.x, w, wb)
        more: dict[str, Any] = {"c0": self.c} if op == "LSTM" else {}
        more |= {"bias": rb} if rb is not None else {}
        more |= {"inside": self.inside} if self.inside is not None else {}
        found = call_op(OPS["recurrent"].fn, (projected, self.h, r, kind, self.backwards), more)
        return (found[0], found[1], found[2]) if op == "LSTM" else (found[0], found[1], self.c)

    def _stepwise(self) -> tuple[Tensor, Tensor, Tensor]:
        step = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[self.call.op]
        h, c = self.h, self.c
        projected = F["linear"](self.x, self.w, self.wb)
        steps = range(self.x.shape[0])
        outputs: list[Tensor] = []
        for t in reversed(steps) if self.backwards else steps:
            new_h, new_c = step(projected[t], h, c)
            if self.inside is not None:
                here = self.inside[t]
                new_h, new_c = F["where"](here, new_h, h), F["where"](here, new_c, c)
            h, c = new_h, new_c
            outputs.append(h)
        return F["stack"](outputs[::-1] if self.backwards else outputs, 0), h, c

    def _clipped(self, x: Tensor) -> Tensor:
        limit = self.call.get("clip")
        return x if limit is None else x.clamp(-limit, limit)

    def _rnn(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        return self.activations[0](self._clipped(x + F["linear"](h, self.r, self.rb))), c

    def _gru(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        f, g = self.activations[:2]
        xz, xr, xn = F["chunk"](x, 3, -1)
        size = h.shape[-1]
        hz, hr = F["chunk"](F["linear"](h, self.r[: 2 * size], None if self.rb is None else self.rb[: 2 * size]), 2, -1)
        z, r = f(self._clipped(xz + hz)), f(self._clipped(xr + hr))
        rn, bias = self.r[2 * size :], None if self.rb is None else self.rb[2 * size :]
        if self.call.get("linear_before_reset", 0):
            hidden = r * F["linear"](h, rn, bias)
        else:
            hidden = F["linear"](r * h, rn, bias)
        n = g(self._clipped(xn + hidden))
        return (1 - z) * n + z * h, c

    def _lstm(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        f, g, last = self.activations[:3]
        i, o, forget, new = F["chunk"](x + F["linear"](h, self.r, self.rb), 4, -1)
        pi, po, pf = (None,) * 3 if self.peephole is None else F["chunk"](self.peephole, 3, -1)
        i = f(self._clipped(i if pi is None else i + pi * c))
        forget = (
            1 - i if self.call.get("input_forget", 0) else f(self._clipped(forget if pf is None else forget + pf * c))
        )
        c = forget * c + i * g(self._clipped(new))
        return f(self._clipped(o if po is None else o + po * c)) * last(c), c


def _ordered(part: Tensor, op: str) -> Tensor:
    """Rows of gates in the catalogue's order."""
    order = _GATES[op]
    pieces = F["chunk"](part, len(order), 0)
    return F["cat"]([pieces[at] for at in order], 0) if len(order) > 1 else part


@operator("RNN", "GRU", "LSTM")
def recurrent(
    call: Call, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None,
    h0: Tensor | None = None, c0: Tensor | None = None, peephole: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    batch_first = bool(call.get("layout", 0))
    x = x.transpose(0, 1) if batch_first else x
    h0, c0 = (s if s is None or not batch_first else s.transpose(0, 1) for s in (h0, c0))
    steps, batch, _ = x.shape
    size, count = r.shape[-1], w.shape[0]
    inside = None
    if lengths is not None:
        inside = (arange(steps).reshape(steps, 1) < lengths.to(int64).reshape(1, batch)).unsqueeze(2)
    results = []
    for n in range(count):
        backwards = call.get("direction", "forward") == "reverse" or n == 1
        wb, rb = (None, None) if b is None else F["chunk"](b[n], 2, 0)
        start = zeros(batch, size, dtype=x.dtype)
        layer = Layer(
            call, x, w[n], r[n], wb, rb, start if h0 is None else h0[n], start if c0 is None else c0[n],
            None if peephole is None else peephole[n], inside, backwards, _activations(call, n, count),
            _is_plain(call, peephole),
        )  # fmt: skip
        results.append(layer.run())
    outputs = F["stack"]([y if inside is None else F["where"](inside, y, 0.0) for y, _, _ in results], 1)
    h, c = F["stack"]([h for _, h, _ in results], 0), F["stack"]([c for _, _, c in results], 0)
    if batch_first:
        outputs, h, c = outputs.permute(2, 0, 1, 3), h.transpose(0, 1), c.transpose(0, 1)
    return (outputs, h, c) if call.op == "LSTM" else (outputs, h)


def _activations(call: Call, direction: int, count: int) -> list[Activation]:
    names = call.get("activations", _DEFAULTS[call.op] * count)
    alphas, betas = list(call.get("activation_alpha", [])), list(call.get("activation_beta", []))
    made = []
    for name in names:
        known = _ACTIVATIONS.get(name.lower())
        if known is None:
            raise call.refuse(f"has the activation {name}")
        takes = name.lower() in ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
        two = name.lower() in ("affine", "scaledtanh", "hardsigmoid")
        made.append(known(alphas.pop(0) if takes and alphas else None, betas.pop(0) if two and betas else None))
    each = len(made) // count
    return made[direction * each : (direction + 1) * each]


def _is_plain(call: Call, peephole: Tensor | None) -> bool:
    """Whether the catalogue's op computes the same."""
    each = _DEFAULTS[call.op]
    names = [n.lower() for n in call.get("activations", each)]
    usual = [n.lower() for n in each]
    known = all(names[at : at + len(each)] == usual for at in range(0, len(names), len(each)))
    if call.op == "RNN":
        known = len(set(names)) == 1 and names[0] in ("tanh", "relu")
    before_reset = call.op != "GRU" or bool(call.get("linear_before_reset", 0))
    return known and before_reset and peephole is None and call.get("clip") is None and not call.get("input_forget", 0)
