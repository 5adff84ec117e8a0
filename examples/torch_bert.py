"""BERT of Hugging Face's transformers on PyFlame: one line of torch.compile, compared with eager torch and timed.

python examples/torch_bert.py                  a BERT of the usual size (12 layers, width 768) with random weights
python examples/torch_bert.py --layers 2 --width 128

Needs torch and transformers. Nothing is fetched.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

import pyflame.bridge.torch as bridge


def step(model: torch.nn.Module, forward: Callable[..., Any], batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Forward and backward pass; gradients are the parameters'."""
    model.zero_grad()
    out = forward(**batch)
    torch.nn.functional.cross_entropy(out.logits, batch["input_ids"][:, 0] % 2).backward()
    return out.logits.detach()


def seconds(run: Callable[[], Any], times: int) -> float:
    """The shortest of several runs."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--times", type=int, default=3, help="runs of which the shortest is told")
    parser.add_argument("--bf16", action="store_true", help="under autocast")
    options = parser.parse_args(argv)
    torch.manual_seed(0)
    bridge.register()
    config = BertConfig(
        hidden_size=options.width, num_hidden_layers=options.layers, num_attention_heads=options.width // 64,
        intermediate_size=4 * options.width, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    eager = BertForSequenceClassification(config)
    model = copy.deepcopy(eager)
    compiled = torch.compile(model, backend="pyflame")
    mask = torch.ones(options.batch, options.length, dtype=torch.long)
    mask[-1, options.length // 2 :] = 0  # the last text is shorter
    batch = {"input_ids": torch.randint(config.vocab_size, mask.shape), "attention_mask": mask}
    print(f"BERT of {sum(p.numel() for p in eager.parameters()):,} numbers, {options.batch} texts of {options.length}")

    with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
        got, want = step(model, compiled, batch), step(eager, eager, batch)
        pairs = [(p.grad, q.grad) for p, q in zip(model.parameters(), eager.parameters(), strict=True)]
        largest = max(float(q.abs().max()) for _, q in pairs)
        apart = max(float((p - q).abs().max()) for p, q in pairs) / largest
        print(f"results differ by up to {float((got - want).abs().max()):.1e}, gradients by {apart:.1e} of the largest")
        theirs = seconds(lambda: step(eager, eager, batch), options.times)
        ours = seconds(lambda: step(model, compiled, batch), options.times)
    print(f"forward and backward: eager torch {theirs * 1e3:.0f} ms, PyFlame {ours * 1e3:.0f} ms")
    bridge.explain(model, **batch)  # what ran where
    return 0


if __name__ == "__main__":
    sys.exit(main())
