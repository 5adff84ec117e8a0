"""What `import pyflame` gives, and what it must not do."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.ir import OPS
from tests.needs import needs_torch, torch

ROOT = Path(__file__).resolve().parents[2]

# The op list of the foundation, by name.
LISTED = """
matmul batch_matmul linear einsum outer dot transpose tril triu conv1d conv2d conv3d conv_transpose1d conv_transpose2d
conv_transpose3d max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d
adaptive_avg_pool2d adaptive_max_pool2d batch_norm layer_norm group_norm instance_norm rms_norm relu leaky_relu elu
sigmoid tanh gelu silu softplus hardswish softmax log_softmax glu add sub mul div floor_div mod pow maximum minimum
neg abs sign sqrt rsqrt square reciprocal exp exp2 expm1 log log2 log1p sin cos tan asin acos atan atan2 sinh cosh erf
floor ceil round trunc isnan isinf isfinite logical_and logical_or logical_xor logical_not bitwise_and bitwise_or
bitwise_xor bitwise_not cast eq ne lt le gt ge where clamp masked_fill sum mean var std max min prod argmax argmin any
all logsumexp norm cumsum cumprod mse_loss l1_loss smooth_l1_loss cross_entropy nll_loss bce_loss binary_cross_entropy
binary_cross_entropy_with_logits kl_div reshape view flatten squeeze unsqueeze permute expand broadcast_to cat stack
split chunk pad flip roll tile repeat repeat_interleave gather scatter scatter_add index_select take_along_axis
embedding one_hot sort argsort topk unfold contiguous clone tensor zeros ones full empty zeros_like ones_like
full_like empty_like arange linspace eye rand randn randint randperm bernoulli multinomial dropout manual_seed rope
scaled_dot_product_attention swiglu grad value_and_grad no_grad enable_grad set_grad_enabled is_grad_enabled autograd
eager deterministic eval synchronize set_device get_device device_info devices device jit explain can_fuse
compile_stats clear_cache from_numpy from_dlpack as_tensor Generator get_rng_state set_rng_state float64 float32
float16 bfloat16 int64 int32 int16 int8 uint8 bool_ float8_e4m3fn float8_e4m3fnuz float8_e5m2 rocm_is_available
rocm_device_count rocm_get_device_info rocm_set_device rocm_get_device rocm_synchronize
"""
NAMES = LISTED.split()


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("name", NAMES)
def test_name_is_there(name: str) -> None:
    assert hasattr(pf, name)
    assert name in pf.__all__ or hasattr(builtins, name)


def test_all_is_sorted_and_complete() -> None:
    assert pf.__all__ == sorted(set(pf.__all__))
    for name in pf.__all__:
        assert hasattr(pf, name), name


def test_star_shadows_no_builtin() -> None:
    names: dict[str, object] = {}
    exec("from pyflame import *", names)
    assert names["softmax"] is pf.softmax and [n for n in names if hasattr(builtins, n)] == []
    assert pf.sum(pf.ones(3)).item() == 3.0


def test_import_is_quiet_and_opens_nothing() -> None:
    program = """
import sys, os
before = dict(os.environ)
import pyflame
assert dict(os.environ) == before
extras = "torch rocm cuda tokenizers jinja2 gguf onnx rich typer safetensors platformdirs jax ml_dtypes".split()
assert not [m for m in extras if m in sys.modules], [m for m in extras if m in sys.modules]
from pyflame.engine import devices
assert not devices._open
"""
    done = python(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_rooms_of_gpus_wait_for_a_gpu() -> None:
    """Neither the import nor work on the CPU loads them, nor what looks through files, compiles or simulates."""
    program = """
import os, sys
os.environ["PYFLAME_DEVICE"] = "cpu"
import pyflame as pf
gpu = ("runtime.gpu", "runtime.cuda", "runtime.rocm", "runtime.sim", "engine.gpu", "engine.capture", "engine.branches",
       "engine.libraries", "engine.aot", "engine.user", "codegen.gpu", "libs.cuda", "libs.rocm")
host = ("runtime.cpu", "runtime.cache", "libs.cpu", "core.cache_folder", "engine.evaluate", "engine.planning",
        "transform", "schedule", "passes", "codegen", "kernels")
def loaded(rooms):
    return [m for m in sys.modules if m.removeprefix("pyflame.").startswith(rooms)]
assert not loaded(gpu + host), loaded(gpu + host)
assert pf.jit(lambda x: (x @ x).sum())(pf.ones(4, 4)).item() == 64
assert not loaded(gpu), loaded(gpu)
assert loaded(host)
"""
    done = python(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "program",
    [
        # ml_dtypes comes with the first value that needs it, whoever imports it
        """
import pickle, sys, pyflame as pf
assert pickle.loads(pickle.dumps(pf.bfloat16)) is pf.bfloat16 and pf.bfloat16.itemsize == 2
x = pf.ones(2, dtype=pf.bfloat16) + 1
assert "ml_dtypes" not in sys.modules and pf.as_dtype("float8_e5m2") is pf.float8_e5m2
import ml_dtypes, numpy as np
assert x.numpy().dtype == ml_dtypes.bfloat16 == pf.bfloat16.numpy
for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"):
    assert pf.as_dtype(np.dtype(name)) is pf.as_dtype(getattr(ml_dtypes, name)) is getattr(pf, name)
assert pf.as_dtype(np.longlong) is pf.int64
for unknown in (">f4", "V3", "U2", ml_dtypes.int4):
    try:
        pf.as_dtype(np.dtype(unknown))
        raise SystemExit(str(unknown))
    except pf.DTypeError:
        pass
""",
        "from pyflame.jit import script; import pyflame as pf; assert script is pf.jit.script",
        "from pyflame.jit.annotations import List",
        "from pyflame.autograd import backward; import pyflame as pf; assert backward is pf.autograd.backward",
        "from pyflame.autograd.functional import vjp; import pyflame as pf; assert vjp is pf.autograd.functional.vjp",
        "from pyflame.autograd.function import once_differentiable",
        "from pyflame.autograd.grad_mode import no_grad",
        "from pyflame.autograd.gradcheck import GradcheckError",
        "from pyflame.autograd.variable import Variable",
    ],
)
def test_paths_of_rooms_that_are_loaded_later(program: str) -> None:
    done = python(program)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_import_is_quick(tmp_path: Path) -> None:
    """At most twice the processor time of NumPy's own import, beside it, with bytecode as an installed package has."""
    program = (
        "import time; a = time.process_time(); import numpy; b = time.process_time(); import pyflame; "
        "print((time.process_time() - b) / (b - a))"
    )
    environment = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    python(program, **environment)
    assert min(float(python(program, **environment).stdout) for _ in range(3)) < 2.0


def test_stubs_are_current() -> None:
    pytest.importorskip("ruff")  # formats them
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "make_stubs.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_torch
def test_ops_are_methods_where_torch_has_them() -> None:
    missing = [n for n in NAMES if n in OPS and hasattr(torch.Tensor, n) and not hasattr(pf.Tensor, n)]
    assert missing == []


def test_dtype_names() -> None:
    assert pf.bool is pf.bool_
    assert pf.float is pf.float32
    assert pf.long is pf.int64
