"""The MLP of a block: down(activation(gate(x)) * up(x)), or down(activation(up(x)))."""

from __future__ import annotations

from collections.abc import Callable

from pyflame.llm.config import ModelConfig
from pyflame.llm.layers import Part, Weights
from pyflame.nn.module import Module
from pyflame.tensor import Tensor

PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": lambda x: x.silu(),
    "gelu": lambda x: x.gelu(),
    "gelu_tanh": lambda x: x.gelu("tanh"),
    "relu": lambda x: x.relu(),
}


def gated(activation: str, gate: Tensor, up: Tensor) -> Tensor:
    """activation(gate) * up; gpt-oss clamps both and adds 1 to up."""
    if activation == "clamped_swiglu":
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        return gate * (gate * 1.702).sigmoid() * (up + 1.0)
    return PLAIN[activation](gate) * up


class MLP(Part):
    """`suffix` "_shexp" makes the one that all tokens share beside experts."""

    def __init__(
        self, block: Module, config: ModelConfig, layer: int, weights: Weights, ffn: int, suffix: str = ""
    ) -> None:
        super().__init__(block, weights, layer)
        self.kind, self.activation = config.mlp, config.activation
        self.names = [name + suffix for name in ("ffn_gate", "ffn_up", "ffn_down")]
        gate, up, down = self.names
        if config.mlp == "gated":
            self.linear(gate, config.width, ffn, gate in config.biases)
        self.linear(up, config.width, 2 * ffn if config.mlp == "fused" else ffn, up in config.biases)
        self.linear(down, ffn, config.width, down in config.biases)

    def __call__(self, x: Tensor) -> Tensor:
        gate, up, down = self.names
        y: Tensor = self.layers[up](x)
        if self.kind == "plain":
            y = PLAIN[self.activation](y)
        elif self.kind == "fused":
            y = gated(self.activation, *y.chunk(2, -1))
        else:
            y = gated(self.activation, self.layers[gate](x), y)
        y = self.layers[down](y)
        return y
