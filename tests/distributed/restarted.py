"""A program for torchrun: trains with checkpoints, and goes on from the last one when it is started again.

On its first start rank 1 is killed in the middle; with two restarts it raises on its second; the last one comes to the
end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pyflame as pf
import pyflame.distributed as dist
from pyflame import optim
from tests.distributed.data_parallel import _batches, _loss, _model, _part


def main(folder: str, restarts: str) -> None:
    dist.init_process_group("gloo", timeout=60)
    start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    file = Path(folder) / "run.safetensors"
    model = pf.nn.parallel.DistributedDataParallel(_model())
    optimizer = dist.ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, lr=1e-2)
    done = dist.load_checkpoint(file, model, optimizer)["step"] if file.exists() else 0
    print(f"start {start} rank {dist.get_rank()} at step {done}", flush=True)
    for step, batch in enumerate(_batches()[done:], done):
        optimizer.zero_grad()
        _loss(model, *_part(batch)).backward()
        if dist.get_rank() == 1 and step == 1 and start == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if dist.get_rank() == 1 and step == 2 and start == 1 and restarts == "2":
            raise ValueError("a mistake on rank 1")
        optimizer.step()
        dist.save_checkpoint(file, model, optimizer, step=step + 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
