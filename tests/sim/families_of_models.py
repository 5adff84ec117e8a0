"""Kernels of attention and of encoded weights, generated text, and shapes that reach their branches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import pyflame as pf
from pyflame.core.encoding import ENCODINGS, encoding
from pyflame.tensor import Tensor
from tests.gpu import attention_cases, expert_cases, gemm_cases
from tests.null import test_gpu_kernels as kernels
from tests.null import texts
from tests.ops import test_attention_paged
from tests.sim import coverage
from tests.sim.families import Case, Family, chosen, numbers, on_device


def askew_attention(dtype: pf.DType = pf.float32) -> list[Tensor]:
    q, k, v = (on_device(gemm_cases.numbers((1, 2, 9, 8), dtype, seed)) for seed in range(3))
    return [pf.scaled_dot_product_attention(q, k, v, is_causal=True)]


def askew_decoding() -> list[Tensor]:
    q, k = (on_device(gemm_cases.numbers((1, 1, n, 8), pf.bfloat16, n)) for n in (1, 40))
    return [pf.scaled_dot_product_attention(q, k, k)]


PAGES = ("one query", "int8", "half pages", "sinks", "cap", "long", "odd", "odd int8", "odd float8")


def pages(name: str) -> list[Tensor]:
    tensors, named = test_attention_paged.numbers(test_attention_paged.CASES[name])
    return [pf.paged_attention(*tensors, **named)]


ATTENTION = Family(
    ("attention.hip",),
    {
        **chosen(
            attention_cases.CASES, "causal", "odd, turned", "hidden", "added, grouped", "wide", "widest", "long",
            "window", "behind a window", "capped", "lengths", "packed, window",
        ),
        "misaligned": Case(askew_attention),
    },
    {
        "pf_attend": {
            "RESULT": {64, 128, 256}, "MASK": {0, 1, 2},
            "WAY": {"PF_MIX", "PF_TOTALS", "PF_SLOPES", "PF_WEIGHTS"}, "CAP": {0, 1},
            "SPANS": {0, 1, 2},
        },
    },
)  # fmt: skip

TILED_ATTENTION = Family(
    ("attention_mma.hip",),
    {
        **chosen(attention_cases.TILED, *attention_cases.TILED),
        "misaligned": Case(lambda: askew_attention(pf.bfloat16)),
    },
)  # fmt: skip


def decoded(*names: str, dtype: pf.DType = pf.float32, blocks: int = 2) -> Callable[[], list[Tensor]]:
    """What encoded normals stand for."""

    def build() -> list[Tensor]:
        kinds = [encoding(name) for name in names]
        drawn = [gemm_cases.numbers((3, blocks * e.block), pf.float32, n) for n, e in enumerate(kinds)]
        given = [pf.tensor(e.encode(x)) for e, x in zip(kinds, drawn, strict=True)]
        return [pf.dequantize(x, dtype, encoding=e) for e, x in zip(kinds, given, strict=True)]

    return build


def askew_blocks() -> list[Tensor]:
    kinds = [encoding(name) for name in ("q4_0", "q4_k", "int4_g32")]
    return [pf.dequantize(on_device(e.encode(np.ones((2, e.block), np.float32))), encoding=e) for e in kinds]


DEQUANTIZE = Family(
    ("dequantize.hip", "pf_decode.h"),
    {
        "all": Case(decoded(*ENCODINGS, blocks=16)),
        "other dtypes": Case(lambda: [*decoded("q4_k", dtype=pf.bfloat16)(), *decoded("q4_0", dtype=pf.float64)()]),
        "odd": Case(decoded("f16", "f32", blocks=37)),
        "several blocks": Case(decoded("q8_0", blocks=130)),
        "misaligned": Case(askew_blocks),
    },
    {"pf_dequantize": {"VECTOR": {1, 2, 4, 8}, "THREADS": {256}}},
)


def encoded_layer(
    name: str,
    rows: int,
    out: int,
    width: int,
    dtype: pf.DType = pf.float32,
    bias: bool = False,
    patch: str = "",
    bits: int = 16,
) -> dict[str, Case]:
    """x W^T + b over an encoded W."""

    def build() -> list[Tensor]:
        data = pf.tensor(encoding(name).encode(gemm_cases.numbers((out, width), pf.float32, 1)))
        shift = numbers(out, seed=3, dtype=dtype) if bias else None
        x = numbers(rows, width, seed=2, dtype=dtype)
        return [pf.encoded_linear(x, data, shift, encoding=name, width=width, activation_bits=bits)]

    return {f"{name} {rows} {out} {width} {dtype.name}": Case(build, units=1 if out > 40 else 0, patch=patch)}


def normed_layer(name: str, rows: int, out: int, width: int) -> list[Tensor]:
    """An encoded W behind an RMS norm."""
    data = pf.tensor(encoding(name).encode(gemm_cases.numbers((out, width), pf.float32, 1)))
    x, scale = numbers(rows, width, seed=2), numbers(width, seed=3)
    return [pf.encoded_linear(pf.rms_norm(x, (width,), scale, 1e-3), data, encoding=name, width=width)]


def askew_layer(bits: int) -> list[Tensor]:
    x = on_device(gemm_cases.numbers((2, 64), pf.float32, 1))
    data = on_device(encoding("q4_0").encode(gemm_cases.numbers((5, 64), pf.float32, 2)))
    return [pf.encoded_linear(x, data, encoding="q4_0", width=64, activation_bits=bits)]


def fused_layers(bits: int) -> list[Tensor]:
    """A gate of a feed-forward network, a residual, and a sum that the epilogue's values are read for again."""
    x, rest, shift = numbers(2, 3, 64, seed=1), numbers(2, 3, 9, seed=2), numbers(9, seed=3)
    q4, q8 = (
        pf.tensor(encoding(e).encode(gemm_cases.numbers((9, 64), pf.float32, n))) for n, e in ((4, "q4_0"), (5, "q8_0"))
    )
    gate = pf.encoded_linear(x, q4, encoding="q4_0", width=64, activation_bits=bits)
    up = pf.encoded_linear(x, q8, shift, encoding="q8_0", width=64, activation_bits=bits)
    third = pf.encoded_linear(x, q4, shift, encoding="q4_0", width=64, activation_bits=bits)
    alone = pf.encoded_linear(x[0, 0], q4, shift, encoding="q4_0", width=64, activation_bits=bits)
    return [pf.silu(gate) * up + rest, up, (third * 0.5).to(pf.bfloat16), third.sum(-1), pf.relu(alone)]


ENCODED = Family(
    ("encoded.hip",),
    {
        **encoded_layer("q4_0", 1, 9, 1536, bits=32), **encoded_layer("q4_0", 2, 5, 64, bias=True, bits=32),
        **encoded_layer("q4_0", 1, 70, 2048, bits=32), **encoded_layer("q4_0", 13, 37, 96, pf.bfloat16, True),
        **encoded_layer("f16", 4, 9, 32, pf.float16), **encoded_layer("q8_0", 7, 3, 576, bits=32),
        **encoded_layer("fp8_g128", 1, 7, 512, pf.bfloat16), **encoded_layer("q4_k", 16, 67, 2048, bias=True),
        **encoded_layer("f16", 3, 5, 37), **encoded_layer("f16", 1, 5, 136, pf.float16),
        **encoded_layer("int4_g32", 2, 66, 1024, bits=32),
        "misaligned": Case(partial(askew_layer, 32)), "fused": Case(partial(fused_layers, 32)),
    },
    {
        "pf_encoded_linear": {
            "ROWS": {1, 2, 4, 8, 16}, "EACH": {1, 2}, "LANES": {1, 2, 4, 16, 32}, "VECTOR": {1, 4, 8},
            "THREADS": {256},
        },
    },
)  # fmt: skip
ENCODED_DOTS = Family(
    ("encoded_dots.hip",),
    {
        **encoded_layer("q4_0", 1, 9, 1536), **encoded_layer("q4_0", 2, 5, 64, bias=True),
        **encoded_layer("q4_0", 1, 70, 2048), **encoded_layer("q4_k", 3, 7, 4352, pf.bfloat16),
        **encoded_layer("q8_0", 4, 9, 32, pf.float16), **encoded_layer("q6_k", 1, 5, 512),
        **encoded_layer("q8_0", 2, 3, 17408, pf.bfloat16),  # two chunks
        "normed": Case(partial(normed_layer, "q4_0", 1, 9, 4352)),
        "normed rows": Case(partial(normed_layer, "q4_k", 3, 5, 512)),
        "misaligned": Case(partial(askew_layer, 16)), "fused": Case(partial(fused_layers, 16)),
    },
    {
        "pf_encoded_linear": {
            "ROWS": {1, 2, 4}, "PER": {1}, "DEEP": {1, 2}, "EACH": {1}, "TURNS": {1, 5}, "STAGES": {0},
            "VECTOR": {1, 4, 8}, "THREADS": {256}, "EARLY": {0},
        },
    },
)  # fmt: skip


def askew_experts(rows: int, dtype: pf.DType = pf.float32) -> list[Tensor]:
    x = on_device(gemm_cases.numbers((rows, 64), dtype, 1))
    data = on_device(encoding("q4_0").encode(gemm_cases.numbers((3, 5, 64), pf.float32, 2)))
    return [pf.expert_linear(x, data, pf.tensor(np.arange(rows) % 3), encoding="q4_0")]


EXPERTS = Family(
    ("experts.hip",),
    {
        **chosen(expert_cases.CASES, *expert_cases.CASES),
        **chosen(expert_cases.CASES, "a token", "many", units=1),
        **chosen(expert_cases.CASES, "many, plain", "many, float32", patch="plain"),
        **chosen(expert_cases.CASES, "many matrices", units=1, patch="plain"),
        "misaligned": Case(partial(askew_experts, 3)),
        "misaligned, many": Case(partial(askew_experts, 70, pf.bfloat16)),
        "misaligned, many (plain)": Case(partial(askew_experts, 70), patch="plain"),
    },
    {
        "pf_few_experts": {
            "ROWS": {1, 2, 4}, "EACH": {1, 2}, "LANES": {2, 8}, "VECTOR": {1, 4, 8}, "THREADS": {256},
        },
        "pf_sort_lines": {"ROWS": {32, 64}, "THREADS": {256, 512}},
        "pf_experts_mma": {**{name: set() for name in coverage.MATRIX_NUMBERS}, "A_VECTOR": {0, 1}},
        "pf_experts_tile": {
            "ROWS": {32, 64}, "COLS": {32, 64}, "DEPTH": {16}, "HIGH": {4}, "WIDE": {4}, "THREADS": {64, 256},
            "WIDTH": {4},
        },
    },
)  # fmt: skip


def askew_gemm() -> list[Tensor]:
    x = on_device(gemm_cases.numbers((20, 64), pf.bfloat16, 1))
    data = on_device(encoding("q4_0").encode(gemm_cases.numbers((5, 64), pf.float32, 2)))
    return [pf.encoded_linear(x, data, encoding="q4_0", width=64)]


def many_rows() -> list[Tensor]:
    """An activation and a residual behind one product, a sum of another."""
    x, rest = numbers(2, 10, 64, seed=1, dtype=pf.bfloat16), numbers(2, 10, 24, seed=2, dtype=pf.bfloat16)
    data = pf.tensor(encoding("q4_0").encode(gemm_cases.numbers((24, 64), pf.float32, 4)))
    first, second = (pf.encoded_linear(x, data, encoding="q4_0", width=64) for _ in range(2))
    return [pf.silu(first) * rest + rest, second.sum(-1)]


ENCODED_GEMM = Family(
    ("encoded_gemm.hip", "pf_decode_lines.h"),
    {
        **encoded_layer("q4_0", 20, 37, 96, pf.bfloat16, True), **encoded_layer("q4_k", 37, 24, 256, pf.float16),
        **encoded_layer("q8_0", 17, 12, 4096, pf.bfloat16, True), **encoded_layer("f16", 18, 9, 37, pf.bfloat16),
        **encoded_layer("q4_0", 18, 9, 64), **encoded_layer("q6_k", 2, 5, 256, pf.float64),
        **encoded_layer("q4_1", 19, 40, 64, pf.bfloat16, True, "lines"),
        **encoded_layer("q4_1", 19, 40, 4096, pf.float32, patch="lines"),
        **encoded_layer("q8_0", 19, 40, 4096, pf.bfloat16, True, "lines"),
        **encoded_layer("q5_1", 133, 130, 96, pf.bfloat16, patch="block 0"),
        **encoded_layer("q5_k", 19, 67, 256, pf.bfloat16, patch="block 5"),
        **encoded_layer("q3_k", 67, 18, 256, pf.float16, patch="block 7"),
        "misaligned": Case(askew_gemm), "fused": Case(many_rows),
    },
    {
        "pf_encoded_mma": {
            "ROWS": {16, 32, 64, 128}, "COLS": {16, 32, 64, 128}, "THREADS": set(), "WAVES_ACROSS": {1, 2, 4},
            "CHUNKS": {1, 2},
            "AS_IS": {1}, "OUT_WIDTH": {1, 4, 8}, "AXES": {0}, "A_ALONG_K": {1}, "B_ALONG_K": {1}, "B_VECTOR": {0, 1},
        },
    },
)  # fmt: skip

DECODING = Family(
    ("attention_decode.hip", "pf_attend_lines.h"),
    {
        **chosen(attention_cases.DECODED, *attention_cases.DECODED),
        **chosen(attention_cases.DECODED, "grouped, last", units=1),
        "misaligned": Case(askew_decoding),
        **{name: Case(partial(pages, name)) for name in PAGES},
    },
    {
        "pf_attend_few": {
            "LANES": {8, 16}, "PIECES": {1, 2, 4}, "ROWS": {1, 2, 4, 8}, "THREADS": {128}, "CLUSTER": {1},
            "VECTOR": {0, 1, 2}, "MASK": {0, 1, 2}, "CAP": {0, 1}, "SPANS": {0, 1},
        },
        "pf_attend_pages": {
            "LANES": {8, 16}, "PIECES": {1}, "ROWS": {2, 4}, "THREADS": {128}, "CLUSTER": {1}, "VECTOR": {0, 1, 2},
            "CAP": {0, 1}, "EARLY": {0},
        },
        "pf_attend_join": {"STEP": {32, 64}, "THREADS": {512}},
    },
)  # fmt: skip

DECODING_TILES = Family(
    ("attention_decode_mma.hip",),
    {
        **chosen(attention_cases.DECODED_TILES, *attention_cases.DECODED_TILES, patch="tiles"),
        **chosen(attention_cases.DECODED_TILES, "sixteen", "grown", units=1, patch="tiles"),
        **{
            name: Case(partial(pages, name), patch="tiles")
            for name in ("bfloat16", "tiles", "tiles, many rows", "tiles, odd")
        },
    },
    {
        "pf_attend_few_mma": {
            "DEPTH": {2, 4, 8}, "WIDTH": {1, 2}, "ROWS": {4, 8, 16}, "WAVES": {2, 4}, "STAGES": {0}, "MASK": {0, 1, 2},
        },
        "pf_attend_pages_mma": {
            "DEPTH": {1, 2, 4}, "WIDTH": {1}, "ROWS": {4, 8, 16}, "WAVES": {4}, "STAGES": {0}, "EARLY": {0},
        },
    },
)  # fmt: skip

GENERATED = Family(
    (),
    {
        **chosen(texts.CASES, *(name for name in texts.CASES if name not in ("mlp", "transposed odd", "chain 3d"))),
        **chosen(texts.CASES, "sum few columns", "softmax 20000", units=1),
        **chosen(texts.CASES, "chain", "turned", "softmax 1000", "sum 1 of permuted", "sum few rows", patch="wide"),
        "misaligned": Case(lambda: [(on_device(gemm_cases.numbers((6, 40), pf.float32, 1)) * 2.0).exp()]),
        "dropout": Case(lambda: [pf.dropout(numbers(3, 50), 0.5), pf.rand(70), pf.randn(9, dtype=pf.float64)]),
        "bytes": Case(lambda: [numbers(5, 64, dtype=pf.int8) + numbers(64, dtype=pf.int8), numbers(40) > 0.0]),
        "small floats": Case(lambda: [numbers(4, 33).to(d).to(pf.float32) * 2.0 for d in kernels.FLOAT8]),
    },
    ways={
        "flat": r"if \(t >= ",
        "turned": r"l\d+\[y \* \d+ \+ x\] = ",
        "turned back": r"l\d+\[x \* \d+ \+ y\]",
        "lanes": r"pf_shuffle_xor\(v\d+, w\)(?!(?s:.*)PF_SHARED)",
        "block": r"if \(tid % PF_WAVE == 0\) l\d+\[tid / PF_WAVE\]",
        "tile": r"l\d+\[tid\] = v\d+",
        "tile of one member": r"tid / 64;(?!(?s:.*)PF_SHARED)|tid / 32;(?!(?s:.*)PF_SHARED)",
        "chunks": r"pf_put\(scratch",
        "their sum": r"pf_get<\w+>\(scratch",
        "unrolled": r"for \(int s = 0; s < \d+; s\+\+\)",
        "looped": r"for \(int\w* g = member; g < ",
        "kept": r"^ +\w+ r\d+\[\d+\];",
        "kept as read": r"pf_hidden\(r\d+",
        "maximum and sum": r"pf_online\(",
        "vectors of columns": r"for \(int k = member; k < ",
        "rows for all": r"const int live = own",
        "vectors of 2": r"pf_vector<\w+, 2>",
        "vectors of 4": r"pf_vector<\w+, 4>",
        "vectors of 8": r"pf_vector<\w+, 8>",
        "gather": r"pf_checked\(",
        "uniforms": r"pf_uniform_at\(uni, ",
        "random": r"pf_random_",
        "long positions": r"const int64_t t = ",
    },
)
