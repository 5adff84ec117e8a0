"""A recurrent network that writes text letter by letter, learnt from Python's own help pages.

python examples/char_rnn.py --steps 300 --prompt "The "
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import pyflame as pf
from pyflame import nn, optim


def help_pages() -> str:
    """Half a megabyte of English that every Python has: what `help("keywords")` shows."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


class CharRNN(nn.Module):
    """Letters (batch, time) -> logits of the letter that follows each, and the state to go on from."""

    def __init__(self, letters: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(letters, width)
        self.rnn = nn.GRU(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, letters)

    def forward(self, x: pf.Tensor, state: pf.Tensor | None = None) -> tuple[pf.Tensor, pf.Tensor]:
        out, state = self.rnn(self.embedding(x), state)
        return self.head(out), state


def write(model: CharRNN, alphabet: str, prompt: str, count: int, temperature: float) -> Iterator[str]:
    """Letters that continue the prompt, each drawn from what the model expects."""
    step = pf.jit(lambda x, state: model(x, state))
    with pf.no_grad():
        logits, state = model(pf.tensor([[alphabet.index(c) for c in prompt]]))
        for _ in range(count):
            letter = pf.multinomial(pf.softmax(logits[0, -1] / temperature, -1), 1)
            yield alphabet[letter.item()]
            logits, state = step(letter.reshape(1, 1), state)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=32, help="letters per sequence (default 32)")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--text", type=Path, help="a text file to learn from instead of the help pages")
    parser.add_argument("--prompt", default="The ")
    parser.add_argument("--letters", type=int, default=200, help="letters to write at the end (default 200)")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--device")
    options = parser.parse_args(argv)
    if options.device:
        pf.set_device(options.device)
    pf.manual_seed(options.seed)

    text = options.text.read_text(encoding="utf-8") if options.text else help_pages()
    alphabet = "".join(sorted(set(text) | set(options.prompt)))
    data = np.array([alphabet.index(c) for c in text])
    share = np.bincount(data) / len(data)
    frequencies = -sum(p * np.log(p) for p in share if p)  # the loss of a model that knows no order

    model = CharRNN(len(alphabet), options.width, options.layers)
    optimizer = optim.Adam(model.parameters(), lr=options.lr)
    rng = np.random.default_rng(options.seed)
    print(f"{len(text):,} letters, {len(alphabet)} different")

    @pf.jit
    def step(x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
        loss = pf.cross_entropy(model(x)[0].reshape(-1, len(alphabet)), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    losses = []
    for number in range(1, options.steps + 1):
        starts = rng.integers(0, len(data) - options.length - 1, options.batch)
        windows = data[starts[:, None] + np.arange(options.length + 1)]
        losses.append(step(pf.tensor(windows[:, :-1]), pf.tensor(windows[:, 1:])))
        if number % max(1, options.steps // 10) == 0:
            print(f"step {number:5}  loss {losses[-1].item():.4f}")

    print(f"\n{options.prompt}", end="")
    for letter in write(model, alphabet, options.prompt, options.letters, options.temperature):
        print(letter, end="", flush=True)
    last = np.mean([loss.item() for loss in losses[-10:]])
    print(f"\n\nloss {losses[0].item():.4f} -> {last:.4f} (letter frequencies alone: {frequencies:.4f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
