"""The MLP of a block: down(activation(gate(x)) * up(x)), or down(activation(up(x)))."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from pyflame.core.state import state
from pyflame.llm.config import ModelConfig
from pyflame.llm.joined import Joined
from pyflame.llm.layers import Part, Weights
from pyflame.nn.module import Module
from pyflame.tensor import Tensor

FEW = 64  # tokens up to which a product with both takes as long as reading them
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
        self.joined: Joined | None = None

    def join(self) -> None:
        """Let gate and up be rows of one matrix on a GPU: few tokens then wait for memory once, not twice."""
        if self.kind == "gated" and (self.joined is None or self.joined.stale()):
            self.joined = Joined.of([self.layers[name] for name in self.names[:2]])

    def __call__(self, x: Tensor, cached: bool = False) -> Tensor:
        """`cached`: while texts are written, `join` was called for the weights of now."""
        gate, up, down = self.names
        if self.kind == "plain":
            y = PLAIN[self.activation](self.layers[up](x))
        elif self.kind == "fused":
            y = gated(self.activation, *self.layers[up](x).chunk(2, -1))
        else:
            whole = self._whole(x) if cached else None
            both = (self.layers[gate](x), self.layers[up](x)) if whole is None else whole.chunk(2, -1)
            y = gated(self.activation, *both)
        return self.layers[down](y)  # type: ignore[no-any-return]

    def _whole(self, x: Tensor) -> Tensor | None:
        if state.tracer is not None:
            state.tracer.guard(self, "joined")  # others, another plan
        return None if self.joined is None or prod(x.shape[:-1]) > FEW else self.joined.products(x)
