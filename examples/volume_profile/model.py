"""A small network over profile features: linear, SiLU and LayerNorm for each hidden size, then one number."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyflame as pf
from pyflame import nn
from pyflame.data import DataLoader, TensorDataset
from pyflame.optim import AdamW
from pyflame.train import Trainer


class ProfileModel(nn.Module):
    """(batch, input_size) -> (batch,), or (batch, output_size) for more outputs than one."""

    def __init__(self, input_size: int, hidden_sizes: Sequence[int] = (128, 64), output_size: int = 1) -> None:
        super().__init__()
        sizes = [input_size, *hidden_sizes]
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])
        self.layer_norms = nn.ModuleList([nn.LayerNorm(size) for size in hidden_sizes])
        self.activation = nn.SiLU()
        self.head = nn.Linear(sizes[-1], output_size)
        # Inputs are standardised with numbers of the training set, which belong to the model like its weights.
        self.register_buffer("mean", pf.zeros(input_size))
        self.register_buffer("scale", pf.ones(input_size))

    def forward(self, x: pf.Tensor) -> pf.Tensor:
        x = (x - self.mean) / self.scale
        for layer, norm in zip(self.layers, self.layer_norms, strict=True):
            x = norm(self.activation(layer(x)))
        return self.head(x).squeeze(-1)


def train(
    x: pf.Tensor, y: pf.Tensor, *, epochs: int = 25, seed: int = 0, autocast: object = None, progress: bool = False
) -> ProfileModel:
    """A model fitted to features x (sessions, features) and targets y (sessions,)."""
    pf.manual_seed(seed)
    model = ProfileModel(x.shape[1])
    model.mean.copy_(x.mean(0))
    model.scale.copy_(x.std(0) + 1e-6)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, seed=seed)
    optimizer = AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    Trainer(
        model, optimizer, nn.MSELoss(), train_data=loader, max_epochs=epochs, autocast=autocast, progress=progress
    ).fit()
    return model.eval()
