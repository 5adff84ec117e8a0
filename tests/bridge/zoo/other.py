"""Networks for sequences, graphs and samples: recurrent, on graphs, autoencoders, a denoiser, a recommender."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F


class Recurrent(nn.Module):
    """Layers of LSTM or GRU over a sequence, both ways, and a linear layer over all its steps."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layers = kind(6, 8, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x)[0])


class CellLoop(nn.Module):
    """A GRU cell and an LSTM cell, stepped by a loop in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRUCell(6, 8)
        self.lstm = nn.LSTMCell(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = hidden = cell = x.new_zeros(x.shape[0], 8)
        out = []
        for step in x.unbind(1):
            h = self.gru(step, h)
            hidden, cell = self.lstm(h, (hidden, cell))
            out.append(self.head(hidden))
        return torch.stack(out, 1)


class GCN(nn.Module):
    """Graph convolutions: each node gets the sum of its neighbours, by index_add, divided by the roots of degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((5, 8), (8, 3)))

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        count = x.new_zeros(x.shape[0]).index_add(0, target, x.new_ones(target.shape[0]))
        scale = (count + 1).rsqrt()
        weight = (scale[source] * scale[target])[:, None]
        for at, layer in enumerate(self.layers):
            h = layer(x)
            h = (h * scale[:, None] ** 2).index_add(0, target, h[source] * weight)
            x = F.relu(h) if at == 0 else h
        return x


class GAT(nn.Module):
    """Graph attention: a softmax over the edges that enter each node, by scatter_reduce and scatter_add."""

    def __init__(self, width: int = 4, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(5, heads * width, bias=False)
        self.from_source, self.from_target = (nn.Parameter(torch.randn(heads, width)) for _ in range(2))
        self.head = nn.Linear(heads * width, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        nodes = x.shape[0]
        h = self.project(x).view(nodes, self.heads, -1)
        score = (h * self.from_source).sum(-1)[source] + (h * self.from_target).sum(-1)[target]
        score = F.leaky_relu(score, 0.2)
        at = target[:, None].expand(-1, self.heads)
        largest = score.new_full((nodes, self.heads), -1e4).scatter_reduce(0, at, score.detach(), "amax")
        share = torch.exp(score - largest[target])
        total = share.new_zeros(nodes, self.heads).scatter_add(0, at, share)
        message = h[source] * (share / total[target])[..., None]
        seen = torch.zeros_like(message[:nodes]).index_add(0, target, message)
        return self.head(F.elu(seen.flatten(1).to(x.dtype)))


class Autoencoder(nn.Module):
    """Convolutions down, transposed convolutions up."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ELU(), nn.Conv2d(4, 8, 3, 2, 1), nn.Tanh())
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1),
            nn.ELU(),
            nn.ConvTranspose2d(4, 1, 4, 2, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(x))


class VAE(nn.Module):
    """A variational autoencoder's loss. The noise is an argument, so that two runs can be compared."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 16), nn.Softplus(), nn.Linear(16, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.Hardswish(), nn.Linear(16, 12))

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, logvar = self.encoder(x).chunk(2, -1)
        out = self.decoder(mean + noise * torch.exp(0.5 * logvar))
        divergence = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(-1).mean()
        return F.mse_loss(out, x) + divergence, out


class DenoiserBlock(nn.Module):
    """Convolutions with group norm; the time is added between them, as in diffusion models."""

    def __init__(self, inside: int, outside: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(2, inside), nn.SiLU(), nn.Conv2d(inside, outside, 3, padding=1))
        self.time = nn.Linear(time, outside)
        self.second = nn.Sequential(nn.GroupNorm(2, outside), nn.SiLU(), nn.Conv2d(outside, outside, 3, padding=1))
        self.skip = nn.Conv2d(inside, outside, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return self.skip(x) + self.second(self.first(x) + self.time(time)[:, :, None, None])


class Denoiser(nn.Module):
    """The noise of a noisy image: sinusoids of the time, blocks down and up, attention where the image is smallest."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.down = DenoiserBlock(width, 2 * width, 16)
        self.attention = nn.MultiheadAttention(2 * width, 2, batch_first=True)
        self.up = DenoiserBlock(3 * width, width, 16)
        self.last = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        steps = torch.exp(-math.log(100.0) * torch.arange(4, device=x.device, dtype=x.dtype) / 4)
        angles = t[:, None].to(x.dtype) * steps
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        wide = self.first(x)
        low = self.down(F.avg_pool2d(wide, 2), time)
        seen = low.flatten(2).mT
        low = low + self.attention(seen, seen, seen, need_weights=False)[0].mT.reshape(low.shape)
        high = F.interpolate(low, scale_factor=2.0, mode="nearest")
        return self.last(self.up(torch.cat([wide, high], 1), time))


class Recommender(nn.Module):
    """DLRM: numbers through an MLP, categories through tables, products of all pairs, an MLP."""

    def __init__(self, tables: int = 3, width: int = 4) -> None:
        super().__init__()
        self.numbers = nn.Sequential(nn.Linear(6, width), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(20, width, mode="sum") for _ in range(tables))
        count = tables + 1
        self.pairs: torch.Tensor
        self.register_buffer("pairs", torch.tril_indices(count, count, -1))
        self.top = nn.Sequential(nn.Linear(width + count * (count - 1) // 2, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        dense = self.numbers(x)
        rows = [dense, *(table(bag) for table, bag in zip(self.tables, categories.unbind(1), strict=True))]
        stacked = torch.stack([r.to(dense.dtype) for r in rows], 1)
        products = torch.bmm(stacked, stacked.mT)[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([dense, products], 1)))


class Translator(nn.Module):
    """`nn.Transformer`: encoder and decoder layers of torch itself, with a causal mask and padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.body = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        hidden = self.body(self.embed(source), self.embed(target), tgt_mask=mask, tgt_is_causal=True)
        return self.head(hidden)
