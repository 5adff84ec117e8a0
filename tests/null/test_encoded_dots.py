"""Integer dots with encoded weights (encoded_dots.hip) as NVIDIA's GPUs get them, bytes copied ahead: on the host.

`tests/sim/test_encoded.py` runs the way of AMD's GPUs, `tests/gpu` the instructions.
"""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.encoding import encoding
from pyflame.core.targets import TARGETS
from tests.gpu.gemm_cases import Array, Build, Case
from tests.null.test_gpu_kernels_gemm import Emulated


def dots(name: str, rows: int, out: int, width: int, dtype: pf.DType, normed: bool = False) -> Build:
    def build() -> Case:
        rng, kind = np.random.default_rng([rows, width]), encoding(name)
        data = kind.encode(rng.normal(size=(out, width)).astype(np.float32))
        x, bias = (rng.normal(size=s).astype(dtype.numpy) for s in ((rows, width), out))
        given, wide = pf.tensor(x), x.astype(np.float64)
        if normed:
            scale = rng.normal(size=width).astype(dtype.numpy)
            given = pf.rms_norm(given, (width,), pf.tensor(scale), 1e-5)
            wide = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-5) * scale.astype(np.float64)
        y = pf.encoded_linear(given, pf.tensor(data), pf.tensor(bias), encoding=name, width=width)
        want = wide @ kind.decode(data).astype(np.float64).T + bias.astype(np.float64)
        return Case([y], [want.astype(dtype.numpy)])

    return build


def check(found: list[Array], case: Case) -> None:
    want = case.expected[0].astype(np.float64)
    loose = {4: 5e-5, 2: 1e-2}[case.expected[0].dtype.itemsize]
    far = np.abs(found[0].reshape(want.shape).astype(np.float64) - want).max()
    assert far <= loose * np.abs(want).max(), far


CASES = {
    "one row": dots("q4_0", 1, 21, 1536, pf.bfloat16),  # a turn and a half
    "several waves": dots("q4_0", 1, 9, 8704, pf.float32),
    "several chunks": dots("q4_0", 1, 3, 40960, pf.float32),
    "rows": dots("q4_k", 3, 17, 2304, pf.float16),
    "four rows": dots("int4_g128", 4, 5, 1024, pf.float32),
    "wide blocks": dots("q8_0", 2, 18, 512, pf.bfloat16),
    "no whole pieces": dots("q4_0", 1, 5, 96, pf.float32),
    "pieces of 8 bytes": dots("q6_k", 1, 9, 2048, pf.bfloat16),
    "straight from memory": dots("q6_k", 1, 9, 1280, pf.bfloat16),
    "normed": dots("q4_0", 1, 21, 1536, pf.bfloat16, normed=True),
    "normed rows, several chunks": dots("q4_k", 3, 2, 17408, pf.float16, normed=True),
    "normed, straight from memory": dots("q6_k", 2, 5, 1280, pf.float32, normed=True),
}


@pytest.mark.parametrize("name", CASES)
def test_on_the_host(name: str) -> None:
    emulated = Emulated(TARGETS["sm_90"], {name: CASES[name]})
    (text,) = (t for t in emulated.texts if "encoded_dots.hip" in t)
    stages = int(text.split("PF_KEY_decoder, ")[1].split(", ")[5])
    assert (stages == 0) == ("straight" in name or name == "no whole pieces")
    assert "pf_await();" not in text  # behind what is asked for early
    assert emulated.wrong(check, reverse=len(name) % 2 == 1) == {}
