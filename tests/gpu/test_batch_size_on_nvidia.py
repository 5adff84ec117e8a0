"""find_batch_size on a real GPU: a pool of segments, captured graphs, workspaces of libraries, a driver's memory."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn, optim
from pyflame.train import Trainer, find_batch_size
from tests.gpu.nvidia import absent

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)

GIB = 1 << 30


def test_what_it_finds_trains_under_the_same_limit() -> None:
    with pf.device("cuda"):
        layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
        model = nn.Sequential(layer, nn.Linear(512, 512))
        optimizer = optim.AdamW(model.parameters(), lr=1e-3)
        before = [p.numpy().copy() for p in model.parameters()]

        def batch(count: int) -> tuple[np.ndarray, np.ndarray]:
            return np.ones((count, 256, 512), np.float32), np.ones((count, 256, 512), np.float32)

        found = find_batch_size(
            model, batch, loss_fn=nn.MSELoss(), optimizer=optimizer, memory=4 * GIB, multiple_of=8, largest=4096
        )
        print(found)
        assert 8 <= found.batch < 4096
        assert all(np.array_equal(a, p.numpy()) for a, p in zip(before, model.parameters(), strict=True))
        peaks = [(p.peak, p.estimate) for p in found.probes if p.peak and p.estimate and p.batch >= 32]
        assert all(0.5 < estimate / peak < 1.5 for peak, estimate in peaks)
        data = [tuple(map(pf.tensor, batch(found.batch)))]
        pf.set_memory_fraction(found.usable / pf.memory_info("cuda")[1], "cuda")
        try:
            Trainer(model, optimizer, nn.MSELoss(), train_data=data, max_steps=4, progress=False).fit()
        finally:
            pf.set_memory_fraction(1.0, "cuda")


def test_inference_fills_the_gpu_and_leaves_it_empty() -> None:
    with pf.device("cuda"):
        model = nn.Sequential(nn.Linear(1 << 16, 1 << 14), nn.ReLU())
        held = pf.memory_allocated("cuda")
        sample = np.zeros((1, 1 << 16), np.float32)
        found = find_batch_size(model, sample, multiple_of=1024, largest=8192, memory=8 * GIB)
        print(found)
        assert found.batch >= 1024
        assert pf.memory_allocated("cuda") <= held + (1 << 20)
