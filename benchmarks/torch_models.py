"""The models of the training benchmark in torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


def sequential(kind: str) -> Any:
    """The MLP or the CNN."""
    from torch import nn

    if kind == "mlp":
        layers = [nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)]
    else:
        layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1)]
        layers += [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4096, 10)]
    return nn.Sequential(*layers)


def gpt(vocab: int, context: int, layers: int, heads: int, width: int) -> Any:
    """The layout of pyflame.nn.GPT."""
    import torch
    from torch import nn
    from torch.nn import functional as f

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, time, _ = x.shape
            parts = self.c_attn(self.ln_1(x)).chunk(3, -1)
            q, k, v = (t.reshape(batch, time, heads, -1).transpose(1, 2) for t in parts)
            a = f.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.c_proj(a.transpose(1, 2).reshape(batch, time, width))
            return x + self.c_out(f.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.ln_f = nn.LayerNorm(width)
            torch.nn.init.normal_(self.wte.weight, 0, 0.02)

        def forward(self, tokens: Any) -> Any:
            x = self.wte(tokens) + self.wpe.weight
            for block in self.blocks:
                x = block(x)
            return f.linear(self.ln_f(x), self.wte.weight)

    return GPT()


def step(model: Any, x: Any, y: Any, low: bool = False) -> Callable[[], Any]:
    """A training step with Adam: forward, backward, update; on the device of `x`, where the model must be too."""
    import torch

    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    cast = (lambda: torch.autocast(x.device.type, torch.bfloat16)) if low else contextlib.nullcontext

    def run() -> Any:
        optimizer.zero_grad()
        with cast():
            out = model(x)
            loss = torch.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return run
