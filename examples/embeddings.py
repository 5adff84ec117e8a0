"""Find texts by meaning: an encoder (BERT, MiniLM) makes a vector of each, and the nearest ones answer a question.

Name a model to see meaning at work: a GGUF file or a Hugging Face folder of a BERT. Without one a small random encoder
is made, which knows nothing but which words are the same.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

import numpy as np

import pyflame as pf
from pyflame.io.gguf import GGUFTensor, write_gguf

TEXTS = [
    "the cat sleeps on the warm sofa",
    "a dog runs after the ball",
    "stocks fell sharply on monday",
    "the central bank raises interest rates",
    "rain is expected in the north",
]
QUERY = "where does the cat sleep on monday"
WIDTH, FFN, LAYERS, HEADS, POSITIONS = 64, 128, 2, 4, 64


def random_encoder(folder: Path, texts: list[str]) -> Path:
    """A GGUF file of a BERT with random weights, whose vocabulary is the words of these texts."""
    words = sorted({word for text in texts for word in re.findall(r"\w+", text.lower())})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"▁{word}" for word in words)]
    metadata = {
        "general.architecture": "bert",
        "bert.block_count": LAYERS,
        "bert.context_length": POSITIONS,
        "bert.embedding_length": WIDTH,
        "bert.feed_forward_length": FFN,
        "bert.attention.head_count": HEADS,
        "bert.attention.layer_norm_epsilon": 1e-12,
        "bert.pooling_type": 1,  # the mean over all tokens
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * 4 + [1] * len(words),
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
    }
    shapes = {"token_embd.weight": (len(tokens), WIDTH), "position_embd.weight": (POSITIONS, WIDTH)}
    shapes |= {"token_types.weight": (2, WIDTH), **_norm("token_embd_norm")}
    for n in range(LAYERS):
        for name, inputs, outputs in (
            *((part, WIDTH, WIDTH) for part in ("attn_q", "attn_k", "attn_v", "attn_output")),
            ("ffn_up", WIDTH, FFN),
            ("ffn_down", FFN, WIDTH),
        ):
            shapes |= {f"blk.{n}.{name}.weight": (outputs, inputs), f"blk.{n}.{name}.bias": (outputs,)}
        shapes |= {**_norm(f"blk.{n}.attn_output_norm"), **_norm(f"blk.{n}.layer_output_norm")}
    rng = np.random.default_rng(0)
    write_gguf(folder / "random.gguf", metadata, [_tensor(rng, name, shape) for name, shape in shapes.items()])
    return folder / "random.gguf"


def _norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}


def _tensor(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> GGUFTensor:
    x = np.full(shape, float("norm.weight" in name), np.float32)
    if len(shape) == 2:
        scale = 0.02 if name.startswith(("position", "token_types")) else shape[1] ** -0.5
        x = rng.standard_normal(shape).astype(np.float32) * np.float32(scale)
    return GGUFTensor(name, shape, "float32", x.reshape(*shape[:-1], -1).view(np.uint8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a GGUF file or a Hugging Face folder of a BERT (default: a random one)")
    parser.add_argument("--texts", help="a file with a text on each line (default: five short ones)")
    parser.add_argument("--query", default=QUERY)
    parser.add_argument("--top", type=int, default=3)
    args = parser.parse_args()

    texts = Path(args.texts).read_text(encoding="utf-8").splitlines() if args.texts else TEXTS
    texts = [text for text in texts if text.strip()]
    with tempfile.TemporaryDirectory() as folder:
        model = pf.llm.load(args.model or random_encoder(Path(folder), [*texts, args.query]))
        vectors = model.embed(texts)  # (texts, width), of length 1
        scores = vectors @ model.embed(args.query)
        values, places = scores.topk(min(args.top, len(texts)))
        print(f"{model}\n\n{len(texts)} vectors of {vectors.shape[1]} numbers; nearest to {args.query!r}:")
        for value, place in zip(values.tolist(), places.tolist(), strict=True):
            print(f"{value:7.3f}  {texts[place]}")


if __name__ == "__main__":
    main()
