"""Whole language models beside llama.cpp: tokens per second of CPU time, with one thread, where other programs run.

`python -m benchmarks.generation LLAMA_BENCH FOLDER 135m,1b q4_0,q4_k,q8_0,float16` writes models of these sizes with
random weights to the folder, unless they are there, and lets llama.cpp's `llama-bench` and `pf.llm` write text (tg) and
read a prompt of 512 tokens (pp512) in turns. Loading is not counted: it is the difference of a long run and a short
one. The shortest of three rounds counts. `pyflame` is with 8 bits of x, as llama.cpp's, where weights are encoded.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Result, one_thread, show

one_thread()

import pyflame as pf  # noqa: E402
from pyflame.core.encoding import ENCODINGS  # noqa: E402
from pyflame.io.gguf import GGUFTensor, write_gguf  # noqa: E402
from pyflame.llm.generate import Model  # noqa: E402

SIZES = {"135m": (768, 2048, 18, 12, 4), "1b": (2048, 5632, 22, 32, 4)}  # width, ffn, layers, heads, heads of keys
VOCAB, PROMPT, ROUNDS = 32000, 512, 3
SPANS = {"135m": (16, 80), "1b": (3, 15)}  # tokens of the short and of the long run
STEPS = {"q4_0": 0.005, "q8_0": 0.0003, "q4_k": 0.0002}  # scales that keep random codes small


def _metadata(size: str) -> dict[str, Any]:
    width, ffn, layers, heads, shared = SIZES[size]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256)), *(f"t{n}" for n in range(VOCAB - 259))]
    sizes = {
        "block_count": layers, "context_length": 2048, "embedding_length": width, "feed_forward_length": ffn,
        "attention.head_count": heads, "attention.head_count_kv": shared, "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0, "rope.dimension_count": width // heads, "vocab_size": VOCAB,
    }  # fmt: skip
    words = {
        "model": "llama", "tokens": tokens, "token_type": [2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259),
        "scores": [-float(n) for n in range(VOCAB)], "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0,
    }  # fmt: skip
    named = {f"llama.{key}": value for key, value in sizes.items()} | {
        f"tokenizer.ggml.{k}": v for k, v in words.items()
    }
    return {"general.architecture": "llama", "general.name": size, "general.quantization_version": 2, **named}


def _matrix(rng: np.random.Generator, name: str, rows: int, width: int, kind: str) -> GGUFTensor:
    if kind == "float16":
        numbers = (rng.standard_normal((16, width)) * 0.02).astype(np.float16)
        return GGUFTensor(name, (rows, width), kind, np.tile(numbers, (rows // 16, 1)).view(np.uint8))
    encoding = ENCODINGS[kind]
    blocks = rng.integers(0, 256, (rows, width // encoding.block, encoding.nbytes), np.uint8)
    scales = [STEPS[kind], 7 * STEPS[kind]] if kind == "q4_k" else [STEPS[kind]]
    blocks[:, :, : 2 * len(scales)] = np.array(scales, np.float16).view(np.uint8)
    return GGUFTensor(name, (rows, width), kind, blocks.reshape(rows, -1))


def write_model(path: Path, size: str, kind: str) -> None:
    """A Llama of this size with random weights, all matrices of one kind."""
    width, ffn, layers, heads, shared = SIZES[size]
    rng, keys = np.random.default_rng(0), shared * width // heads
    shapes = {
        "attn_q": (width, width), "attn_k": (keys, width), "attn_v": (keys, width), "attn_output": (width, width),
        "ffn_gate": (ffn, width), "ffn_up": (ffn, width), "ffn_down": (width, ffn),
    }  # fmt: skip
    matrices = {"token_embd": (VOCAB, width), "output": (VOCAB, width)}
    matrices |= {f"blk.{n}.{name}": shape for n in range(layers) for name, shape in shapes.items()}
    norms = ["output_norm", *(f"blk.{n}.{name}" for n in range(layers) for name in ("attn_norm", "ffn_norm"))]
    ones = np.ones(width, np.float32).view(np.uint8)
    tensors = [_matrix(rng, f"{name}.weight", *shape, kind) for name, shape in matrices.items()]
    tensors += [GGUFTensor(f"{name}.weight", (width,), "float32", ones) for name in norms]
    write_gguf(path, _metadata(size), tensors)


def _seconds_of_child(*command: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _written(model: Model, count: int) -> float:
    begun = time.process_time()
    model.generate([1], max_tokens=count, ignore_eos=True)
    return time.process_time() - begun


def _read(model: Model) -> float:
    """Of a prompt that is new, so nothing of it is in the cache."""
    tokens = [int(t) for t in np.random.default_rng().integers(3, VOCAB, PROMPT)]
    with model.lease(1) as batch:
        begun = time.process_time()
        batch.prefill([tokens]).numpy()
        return (time.process_time() - begun) * PROMPT / (PROMPT - batch.reused)


def compare(program: str, path: Path, size: str, kind: str) -> list[Result]:
    short, long = SPANS[size]
    bench = partial(_seconds_of_child, program, "-m", str(path), "-t", "1", "--no-warmup")
    pick = [("pyflame", 8), ("pyflame 16 bits", 16)] if kind in ENCODINGS else [("pyflame", 16)]
    models = {name: pf.llm.load(path, device="cpu", activation_bits=bits) for name, bits in pick}
    theirs: list[Callable[[], float]] = [
        lambda: bench("-p", "0", "-n", str(long), "-r", "1") - bench("-p", "0", "-n", str(short), "-r", "1"),
        lambda: bench("-p", str(PROMPT), "-n", "0", "-r", "2") - bench("-p", str(PROMPT), "-n", "0", "-r", "1"),
    ]
    ours: list[Callable[[Model], float]] = [lambda model: _written(model, long) - _written(model, short), _read]
    results = []
    for test, amount, peer, own in zip(("tg", "pp512"), (long - short, PROMPT), theirs, ours, strict=True):
        for model in models.values():
            own(model)  # compiles
        found = [{"llama.cpp": peer(), **{name: own(m) for name, m in models.items()}} for _ in range(ROUNDS)]
        best = {name: min(f[name] for f in found) for name in found[0]}
        results.append(Result(f"{size} {kind} {test}", amount, "tokens/s", best, 1.0 if test == "tg" else 1.2))
    return results


def main(program: str, folder: str, sizes: str, kinds: str) -> None:
    results = []
    for size in sizes.split(","):
        for kind in kinds.split(","):
            path = Path(folder) / f"{size}-{kind}.gguf"
            if not path.exists():
                write_model(path, size, kind)
            results += compare(program, path, size, kind)
    show(results)


if __name__ == "__main__":
    main(*sys.argv[1:])
