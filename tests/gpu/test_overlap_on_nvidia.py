"""Launches of a graph that begin while those before them end, on a real NVIDIA GPU (sm_90 and newer)."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.targets import TARGETS
from pyflame.engine.texts import gpu_source
from pyflame.runtime.cuda.device import CUDA
from tests.gpu.nvidia import absent
from tests.plans import plan_of
from tests.runtime.test_overlap import few_rows, programs

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)

WAIT = "ACQBULK"
MEMORY = re.compile(r"\b(?:LDG|STG|LD|ST|RED|ATOMG?|LDGSTS|UBLKCP)\b")


def chain(step: Callable[[pf.Tensor], pf.Tensor], x: pf.Tensor, count: int) -> pf.Tensor:
    for _ in range(count):
        x = step(x)
    return x


@pytest.mark.parametrize("size", [7, 1000, 300_000])
def test_each_sees_what_the_one_before_wrote(size: int) -> None:
    """Sixty launches, each of which reads all that the one before wrote, two hundred times."""

    def turned(x: pf.Tensor) -> pf.Tensor:
        return (x.flip(0).cumsum(0) * 1e-3).contiguous()

    step = pf.jit(lambda x: chain(turned, x, 20))
    x = pf.tensor(np.random.default_rng(0).standard_normal(size).astype(np.float32), device="cuda")
    want = chain(turned, x, 20).numpy()
    for _ in range(200):
        np.testing.assert_allclose(step(x).numpy(), want, rtol=1e-5, atol=1e-30)


def test_no_load_is_moved_before_the_wait(tmp_path: Path) -> None:
    """The compiler may think of memory behind restricted pointers as never written, and load it whenever it likes."""
    tool = shutil.which("nvdisasm") or "/usr/local/cuda/bin/nvdisasm"
    assert Path(tool).exists(), "expected nvdisasm of the CUDA toolkit"
    weight = pf.tensor(np.ones((64, 2048), np.float32), dtype=pf.bfloat16)
    pf.eval(weight)
    made = [*[program() for program in programs().values()], few_rows(weight)]
    launches = [launch for y in made for launch in plan_of(y, target="sm_90").launches]
    texts = {gpu_source(launch, TARGETS["sm_90"]).text for launch in launches}
    seen = 0
    for number, text in enumerate(sorted(texts)):
        file = tmp_path / f"{number}.cubin"
        file.write_bytes(CUDA.open(0).kernels.build(text.replace("PF_KEY", "k")))
        code = subprocess.run([tool, "-c", str(file)], capture_output=True, text=True, check=True).stdout
        for kernel in re.split(r"\n\s*\.section\s+\.text\.", code)[1:]:
            before, found, _ = kernel.partition(WAIT)
            early = MEMORY.findall(before)
            assert found and len(early) == early_loads(text), kernel[:200]
            seen += 1
    assert seen >= len(texts)


def early_loads(text: str) -> int:
    """How many loads a kernel does before it waits: those of weights that no launch writes."""
    numbers = dict(re.findall(r"(\w+) = (\d+)", text))
    return int(numbers["TOGETHER"]) * int(numbers["EACH"]) if numbers.get("EARLY") == "1" else 0


def test_weights_are_asked_for_early() -> None:
    """Layers in a row over weights that nobody writes, and one that is computed from what was written last."""
    rng = np.random.default_rng(1)
    weights = [pf.tensor(rng.standard_normal((2048, 2048)) / 45, dtype=pf.bfloat16, device="cuda") for _ in range(6)]
    packed = [pf.quantize(w.float().cpu(), "q4_0").data.to("cuda") for w in weights]
    scale = pf.tensor(rng.standard_normal(2048), dtype=pf.bfloat16, device="cuda")

    def layers(x: pf.Tensor) -> pf.Tensor:
        for w, data in zip(weights, packed, strict=True):
            x = x + pf.silu(pf.linear(pf.rms_norm(x, (2048,), scale, 1e-5), w))
            x = x + pf.encoded_linear(pf.rms_norm(x, (2048,), scale, 1e-5), data, encoding="q4_0", width=2048)
            x = x + pf.linear(x, w * x.mean())
        return x

    step = pf.jit(layers)
    for _ in range(50):
        x = pf.tensor(rng.standard_normal((1, 2048)), dtype=pf.bfloat16, device="cuda")
        got, want = step(x).float().numpy(), layers(x).float().numpy()
        np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2 * np.abs(want).max())
