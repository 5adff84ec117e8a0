"""Small model files for tests: a GGUF of two layers with a vocabulary of each kind, and a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import tokenizers

from pyflame.io.gguf import GGUFTensor, write_gguf

WIDTH, FFN, LAYERS, HEADS, KV_HEADS, HEAD, CONTEXT = 32, 64, 2, 4, 2, 8, 128
BYTES = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "1 2", "12 3", "Ġ Ġ"]


def byte_level() -> dict[str, Any]:
    """A byte-level BPE vocabulary, in GGUF's keys."""
    words = [merge.replace(" ", "") for merge in MERGES]
    tokens = [*CONTROL, *BYTES, *words]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL)),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def sentencepiece() -> dict[str, Any]:
    """A SentencePiece BPE vocabulary, with bytes for what it lacks."""
    pieces = ["▁", "h", "e", "l", "o", "w", "r", "d", "he", "ll", "hell", "hello", "▁hello", "or", "wor", "ld", "world",
              "▁world", "▁▁"]  # fmt: skip
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256)), *pieces]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(pieces),
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(n) for n in range(len(pieces))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def wordpiece() -> dict[str, Any]:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁hello", "▁wor", "ld", "▁,", "▁a"]
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3, 3] + [1] * (len(tokens) - 4),
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
    }


def unigram() -> dict[str, Any]:
    tokens = ["<pad>", "</s>", "<unk>", "▁hello", "▁world", "▁", *"helowrd"]
    return {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 2] + [1] * (len(tokens) - 3),
        "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -2.0, -2.5, -3.0] + [-5.0] * 7,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 2,
    }


def settings(vocabulary: dict[str, Any]) -> dict[str, Any]:
    return {
        "general.architecture": "llama",
        "general.name": "small",
        "general.quantization_version": 2,
        "llama.block_count": LAYERS,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": FFN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": HEAD,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
        **vocabulary,
    }


def tensors(vocab: int) -> list[GGUFTensor]:
    """Weights in q8_0 (blocks of 32 in 34 bytes) and norms in float32."""
    rng = np.random.default_rng(0)
    rows = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (KV_HEADS * HEAD, WIDTH),
        "attn_v": (KV_HEADS * HEAD, WIDTH),
        "attn_output": (WIDTH, WIDTH),
    }
    rows |= {"ffn_gate": (FFN, WIDTH), "ffn_up": (FFN, WIDTH), "ffn_down": (WIDTH, FFN)}
    found = [_encoded(rng, "token_embd.weight", (vocab, WIDTH)), _plain("output_norm.weight")]
    for layer in range(LAYERS):
        found += [_plain(f"blk.{layer}.{name}.weight") for name in ("attn_norm", "ffn_norm")]
        found += [_encoded(rng, f"blk.{layer}.{name}.weight", shape) for name, shape in rows.items()]
    return found


def _encoded(rng: np.random.Generator, name: str, shape: tuple[int, int]) -> GGUFTensor:
    blocks = rng.integers(0, 256, (shape[0], shape[1] // 32, 34), np.uint8)
    blocks[:, :, :2] = np.array([0.01], np.float16).view(np.uint8)
    return GGUFTensor(name, shape, "q8_0", blocks.reshape(shape[0], -1))


def _plain(name: str) -> GGUFTensor:
    return GGUFTensor(name, (WIDTH,), "float32", np.ones(WIDTH, np.float32).view(np.uint8))


def gguf(path: Path, vocabulary: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A whole GGUF model; `changes` replace metadata, None removes it."""
    metadata = {**settings(byte_level() if vocabulary is None else vocabulary), **changes}
    kept = {key: value for key, value in metadata.items() if value is not None}
    write_gguf(path, kept, tensors(len(kept["tokenizer.ggml.tokens"])))
    return path


def split(path: Path, count: int = 3) -> list[Path]:
    """The same model in parts."""
    metadata = settings(byte_level())
    every = tensors(len(metadata["tokenizer.ggml.tokens"]))
    paths = []
    for number in range(count):
        about = {"split.no": number, "split.count": count, "split.tensors.count": len(every)}
        whole = metadata if number == 0 else {"general.architecture": "llama"}
        paths.append(path / f"small-{number + 1:05}-of-{count:05}.gguf")
        write_gguf(paths[-1], {**whole, **about}, every[number::count])
    return paths


def tokenizer_json() -> str:
    vocab = {token: n for n, token in enumerate(byte_level()["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in MERGES]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Digits(True), tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(CONTROL)
    return str(made.to_str())


def folder(path: Path, shards: int = 1) -> Path:
    """A Hugging Face folder of a llama with random weights."""
    path.mkdir(exist_ok=True)
    config = {
        "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": FFN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5, "vocab_size": len(byte_level()["tokenizer.ggml.tokens"]), "eos_token_id": 0,
        "tie_word_embeddings": True, "rope_theta": 10000.0, "hidden_act": "silu",
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2], "bos_token_id": 1}))
    (path / "tokenizer.json").write_text(tokenizer_json())
    named = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "chat_template": "{{ messages }}"}
    (path / "tokenizer_config.json").write_text(json.dumps(named))
    weights = _hf_weights(config["vocab_size"])
    if shards == 1:
        safetensors.numpy.save_file(weights, path / "model.safetensors")
        return path
    index = {}
    for n in range(shards):
        file = f"model-{n + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(weights.items())[n::shards])
        safetensors.numpy.save_file(part, path / file)
        index |= dict.fromkeys(part, file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return path


def _hf_weights(vocab: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, WIDTH), "model.norm.weight": (WIDTH,)}
    for n in range(LAYERS):
        at = f"model.layers.{n}."
        shapes |= {at + "input_layernorm.weight": (WIDTH,), at + "post_attention_layernorm.weight": (WIDTH,)}
        shapes |= {at + f"self_attn.{k}_proj.weight": (KV_HEADS * HEAD if k in "kv" else WIDTH, WIDTH) for k in "qkvo"}
        shapes |= {at + f"mlp.{k}_proj.weight": (FFN, WIDTH) for k in ("gate", "up")}
        shapes[at + "mlp.down_proj.weight"] = (WIDTH, FFN)
    return {name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}
