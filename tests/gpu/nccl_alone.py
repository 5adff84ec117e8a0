"""A program: one process in a group of torch's NCCL. Its collectives change nothing, but go the way of many GPUs'."""

from __future__ import annotations

import sys
from typing import Any

import torch

import pyflame as pf
import pyflame.distributed as dist
from pyflame import nn, optim

STEPS = 6


to_the_host = torch.Tensor.cpu


def by_the_host(values: Any) -> Any:
    """As `cpu`, of bytes alone: they are lines and objects that processes tell each other."""
    assert values.dtype == torch.uint8, "a collective's result went by way of the host"
    return to_the_host(values)


def collectives() -> None:
    for dtype in (pf.float32, pf.bfloat16, pf.int64):
        x = pf.arange(1000, device="cuda").to(dtype)
        want, parts = x.numpy(), [pf.empty_like(x)]
        gathered, received = pf.empty_like(x), pf.empty_like(x)
        work = dist.all_reduce(x, async_op=True)
        assert work is not None and work.wait()
        dist.broadcast(x, 0)
        dist.all_gather(parts, x)
        dist.all_gather_into_tensor(gathered, x)
        dist.reduce_scatter_tensor(received, x)
        for found in (x, parts[0], gathered, received):
            assert found.device == "cuda:0" and (found.numpy() == want).all()
    x.add_(1)  # memory of torch's is never written to
    assert (gathered.numpy() == want).all()


def losses(wrap: Any, jitted: bool) -> list[float]:
    pf.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 8)).to("cuda"))
    x = pf.randn(32, 64, device="cuda")
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)

    def step(x: pf.Tensor) -> pf.Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = pf.jit(step) if jitted else step
    return [run(x) for _ in range(STEPS)]


def main(store: str) -> None:
    torch.distributed.init_process_group("nccl", init_method=f"file://{store}", rank=0, world_size=1)
    dist.init_process_group()
    assert dist.get_backend() == "nccl"
    torch.Tensor.cpu = by_the_host  # type: ignore[method-assign]
    collectives()
    plain = losses(lambda model: model, jitted=False)
    ddp, fsdp = nn.parallel.DistributedDataParallel, dist.FullyShardedDataParallel
    found = [losses(ddp, False), losses(ddp, True), losses(fsdp, False)]
    torch.Tensor.cpu = to_the_host  # type: ignore[method-assign]
    want = [float(loss) for loss in plain]
    for each in found:
        assert all(abs(float(a) - b) < 1e-5 * want[0] for a, b in zip(each, want, strict=True)), (each, want)
    dist.destroy_process_group()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
