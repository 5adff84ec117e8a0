"""Every Python block of the guide (guide.md) runs: on the CPU, which says that it stands in, and on a simulated GPU."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import pyflame as pf
from pyflame.backends import kernel_pytorch
from pyflame.core.errors import AMDBackendError, HIPCompilationError

torch = pytest.importorskip("torch")
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", Path(__file__).with_name("guide.md").read_text(), re.MULTILINE | re.DOTALL
)
# A simulated GPU is slow: the same layers, smaller.
SMALL = {"2048": "32", "1024": "16", "512": "16", "256": "8", "range(10)": "range(2)"}
# The guide's kernel has no body, and is asked for by another name: a compiler must refuse both.
SOURCE = '"__global__ void add(float* a, float* b, float* c) { ... }"'
MENDED = '"__global__ void add(float* a, float* b, float* c) { int i = threadIdx.x; c[i] = a[i] + b[i]; }"'


def adapted(block: str, device: str, folder: Path) -> str:
    if device != "cpu":
        for large, small in SMALL.items():
            block = block.replace(large, small)
    block = block.replace("/tmp/hip_cache", str(folder))
    return block.replace(SOURCE, MENDED).replace('kernel_source, "add_kernel"', 'kernel_source, "add"')


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "sim:gfx942"])
def test_the_guide_runs(device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel_pytorch.install()
    pf.manual_seed(0)
    torch.manual_seed(0)
    width, large = (16, 16) if device != "cpu" else (512, 1024)
    space: dict[str, Any] = {
        "input_data": torch.randn(2, width),
        "dataloader": [(torch.randn(4, large), torch.randn(4, large))],
        "batch_size": 8,
    }
    assert len(BLOCKS) == 26
    ran = 0
    with pf.device(device), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for block in BLOCKS:
            if "get_device_name" in block and not torch.cuda.is_available():
                continue  # torch's own GPU, and nothing of ours
            exec(adapted(block, device, tmp_path), space)
            ran += 1
    assert ran >= len(BLOCKS) - 1
    printed = capsys.readouterr().out
    losses = [float(x) for x in re.findall(r"Epoch \d+: loss=([\d.]+)", printed)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]
    fell_back = any("no GPU of AMD is available" in str(w.message) for w in said)
    assert fell_back == (device == "cpu")
    assert f"Using device: {device}" in printed
    assert space["kernel"].architecture == "gfx942"
    for name, value in space["checkpoint"]["model_state_dict"].items():
        torch.testing.assert_close(space["amd_model"].state_dict()[name].cpu(), value)


def test_the_guides_own_kernel_is_refused() -> None:
    kernel_pytorch.install()
    (block,) = [b for b in BLOCKS if SOURCE in b]
    with pf.device("sim:gfx942"), pytest.raises(HIPCompilationError, match="add_kernel"):
        exec(block, {})
    with pf.device("sim:gfx942"), pytest.raises(HIPCompilationError, match="expected expression"):
        exec(block.replace("add_kernel", "add"), {})


def test_the_alias_says_that_it_is_one() -> None:
    kernel_pytorch.install()
    import kernel_pytorch as alias
    from kernel_pytorch.backends.amd.amd_exceptions import AMDBackendError as error

    assert "alias" in alias.__doc__ and error is AMDBackendError
