"""Llama as plain NumPy in float64, written apart from the decoder; the `gguf` package decodes the weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.io.gguf import GGUFFile


class NumpyLlama:
    """Logits of every position of one text. Weights are decoded when they are used."""

    def __init__(self, file: GGUFFile) -> None:
        self.tensors, meta = file.tensors, file.metadata
        self.layers = meta["llama.block_count"]
        self.heads = meta["llama.attention.head_count"]
        self.kv_heads = meta["llama.attention.head_count_kv"]
        self.eps = meta["llama.attention.layer_norm_rms_epsilon"]
        self.base = meta["llama.rope.freq_base"]

    def weight(self, name: str) -> np.ndarray:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        t = self.tensors[name]
        kinds: dict[str, Any] = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
        kind = GGMLQuantizationType[kinds.get(t.encoding, t.encoding.upper())]
        return dequantize(np.asarray(t.bytes), kind).reshape(t.shape).astype(np.float64)

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + self.eps) * self.weight(f"{name}.weight")

    def turn(self, x: np.ndarray) -> np.ndarray:
        """Neighbouring elements of each head turn by their position."""
        time, _, size = x.shape
        angle = np.arange(time)[:, None] * self.base ** (-np.arange(0, size, 2) / size)
        turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None]
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape)

    def attention(self, x: np.ndarray, block: str) -> np.ndarray:
        time = len(x)
        q, k, v = (x @ self.weight(f"{block}attn_{n}.weight").T for n in "qkv")
        q, k = self.turn(q.reshape(time, self.heads, -1)), self.turn(k.reshape(time, self.kv_heads, -1))
        k, v = (np.repeat(y.reshape(time, self.kv_heads, -1), self.heads // self.kv_heads, 1) for y in (k, v))
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(q.shape[-1])
        scores[:, np.triu(np.ones((time, time), bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("hts,shd->thd", weights, v).reshape(time, -1) @ self.weight(f"{block}attn_output.weight").T

    def logits(self, tokens: list[int]) -> np.ndarray:
        table = self.weight("token_embd.weight")
        x = table[tokens]
        for n in range(self.layers):
            block = f"blk.{n}."
            x = x + self.attention(self.norm(x, f"{block}attn_norm"), block)
            y = self.norm(x, f"{block}ffn_norm")
            gate, up = (y @ self.weight(f"{block}ffn_{kind}.weight").T for kind in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.weight(f"{block}ffn_down.weight").T
        return (
            self.norm(x, "output_norm") @ (self.weight("output.weight") if "output.weight" in self.tensors else table).T
        )
