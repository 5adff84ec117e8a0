"""Peak memory of one GPT training step (float32, Adam), ours and torch's, each in a process of its own.

Counted is how far the process's peak resident memory rises above what it holds after the imports, in three steps:
parameters, optimiser state, gradients, activations and scratch. (Linux: /proc/self/clear_refs resets the peak.)
"""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.peers import have
from benchmarks.timing import Result

STEPS = 3

OURS = """
from benchmarks.training import gpt, jitted_step
model, x, y = gpt()
step, call = jitted_step(model, x, y)
"""
TORCH = """
import torch
from benchmarks import torch_models
from benchmarks.training import BATCH, GPT
x, y = (torch.randint(0, GPT["vocab"], (BATCH, GPT["context"])) for _ in range(2))
call = torch_models.step(torch_models.gpt(**GPT), x, y)
"""
MEASURE = """
import json, re
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
{imports}
open("/proc/self/clear_refs", "w").write("5")
before = peak()
{body}
for _ in range({steps}):
    call()
print(json.dumps(peak() - before))
"""


def _peak(body: str, imports: str) -> float:
    program = MEASURE.format(body=body, imports=imports, steps=STEPS)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def run() -> list[Result]:
    peaks = {"pyflame": _peak(OURS, "import benchmarks.training, pyflame.nn, pyflame.optim")}
    if have("torch"):
        peaks["torch"] = _peak(TORCH, "import torch, benchmarks.training, torch._dynamo")
    return [Result("peak memory of a gpt step", 0, "MB", peaks, 1.0)]
