"""torch's dotted paths: what programs import, ask and switch."""

from __future__ import annotations

import importlib
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn, optim
from tests.needs import needs_torch, torch
from tests.runtime.fake import FakeDriver
from tests.runtime.machine import machine, vendor

# Import statements of public programs, with the one word changed.
STATEMENTS = """
import pyflame.nn as nn
import pyflame.nn.functional as F
import pyflame.optim as optim
import pyflame.utils.data as data
import pyflame.utils.checkpoint
import pyflame.distributed as dist
import pyflame.backends.cudnn as cudnn
import pyflame.cuda
import pyflame.cuda.amp as amp
import pyflame.autograd as autograd
import pyflame.random
from pyflame import Tensor, nn, optim
from pyflame.nn import Module, Parameter
from pyflame.nn.parameter import Parameter
from pyflame.nn.parallel import DataParallel, DistributedDataParallel as DDP
from pyflame.nn.utils import clip_grad_norm_, parameters_to_vector, spectral_norm, weight_norm
from pyflame.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from pyflame.nn.utils.parametrizations import weight_norm
from pyflame.optim import Adam, Optimizer
from pyflame.optim.lr_scheduler import LambdaLR, StepLR, _LRScheduler
from pyflame.optim.optimizer import Optimizer
from pyflame.utils.data import DataLoader, Dataset, DistributedSampler, Subset, TensorDataset, random_split
from pyflame.utils.data.dataloader import default_collate
from pyflame.utils.data.dataset import Dataset
from pyflame.utils.data.distributed import DistributedSampler
from pyflame.utils.data.sampler import Sampler, SubsetRandomSampler
from pyflame.utils.checkpoint import checkpoint
from pyflame.amp import GradScaler, autocast
from pyflame.cuda import is_available
from pyflame.cuda.amp import GradScaler, autocast
from pyflame.autograd import Function, Variable, grad
from pyflame.distributed import all_reduce, init_process_group
""".strip().splitlines()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_import(statement: str) -> None:
    exec(statement, {})


def test_paths_lead_to_the_same_objects() -> None:
    data = importlib.import_module("pyflame.utils.data")
    for name in pf.data.__all__:
        assert getattr(data, name) is getattr(pf.data, name), name
    assert data.dataset.Dataset is data.Dataset and data.sampler.Sampler is pf.data.Sampler
    assert importlib.import_module("pyflame.autograd").Function is pf.autograd.Function
    assert pf.nn.utils.clip_grad_norm_ is optim.clip_grad_norm_


def test_a_missing_name_says_so() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'sofmax'; did you mean 'softmax'"):
        pf.sofmax
    with pytest.raises(AttributeError, match=r"has no attribute 'zzzqqq'$"):
        pf.zzzqqq


# --- devices ----------------------------------------------------------------------------------------------------------


def test_cuda_without_a_gpu() -> None:
    with machine():
        assert not pf.cuda.is_available() and pf.cuda.device_count() == 0
        assert pf.cuda.max_memory_allocated() == 0 and pf.cuda.get_rng_state_all() == []
        assert not pf.cuda.is_bf16_supported() and not pf.backends.cudnn.is_available()
        assert pf.accelerator.current_accelerator() is None and not pf.accelerator.is_available()
        pf.cuda.empty_cache()
        pf.cuda.manual_seed_all(3)
        a = pf.rand(4)
        pf.cuda.manual_seed(3)
        np.testing.assert_array_equal(a.numpy(), pf.rand(4).numpy())
        with pytest.raises(pf.NotAvailableError, match="none is available"):
            pf.cuda.get_device_name()


def test_cuda_means_amd_gpus_where_there_are_no_others() -> None:
    amd = vendor("rocm", FakeDriver(devices=2, kind="rocm"))
    with machine(rocm=amd):
        assert pf.cuda.is_available() and pf.cuda.device_count() == 2
        assert pf.device("cuda") == pf.device("rocm:0") and pf.device("cuda:1") == "rocm:1"
        assert pf.cuda.get_device_name(1) == pf.rocm.get_device_name(1)
        assert pf.accelerator.current_accelerator().type == "rocm"
        with pf.cuda.device(1):
            assert pf.get_device() == "rocm:1" and pf.cuda.current_device() == 1
    both = vendor("cuda", FakeDriver(kind="cuda"))
    with machine(cuda=both, rocm=amd):
        assert pf.device("cuda") == "cuda:0" and pf.cuda.device_count() == 1


def test_capability() -> None:
    for kind, arch, want in (("cuda", "sm_90", (9, 0)), ("rocm", "gfx942", (9, 4)), ("rocm", "gfx1100", (11, 0))):
        with machine(**{kind: vendor(kind, FakeDriver(kind=kind, arch=arch))}):
            assert pf.cuda.get_device_capability() == want
            assert pf.cuda.get_arch_list() == [arch]


# --- switches ---------------------------------------------------------------------------------------------------------


def test_switches_take_effect() -> None:
    cudnn, cuda = pf.backends.cudnn, pf.backends.cuda
    assert (cudnn.deterministic, cudnn.allow_tf32, cuda.matmul.allow_tf32) == (False, False, False)
    cudnn.deterministic = True
    cuda.matmul.allow_tf32 = True
    try:
        assert pf.are_deterministic_algorithms_enabled() and pf.get_float32_matmul_precision() == "high"
        assert cudnn.allow_tf32
        seen: list[bool] = []
        thread = threading.Thread(target=lambda: seen.append(cudnn.deterministic))
        thread.start(), thread.join()
        assert seen == [False]
    finally:
        cudnn.deterministic = False
        cuda.matmul.allow_tf32 = False
    with cudnn.flags(deterministic=True, allow_tf32=True):
        assert cudnn.deterministic and cudnn.allow_tf32
    assert not cudnn.deterministic and not cudnn.allow_tf32
    cudnn.benchmark = True
    assert cudnn.benchmark is True
    cudnn.benchmark = False
    pf.use_deterministic_algorithms(True)
    assert cudnn.deterministic
    pf.use_deterministic_algorithms(False)
    assert not pf.backends.mps.is_available() and not pf.backends.mkl.is_available()


def test_threads_are_fixed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pf.set_num_threads(pf.get_num_threads())
    with pytest.warns(UserWarning, match=r"PYFLAME_THREADS=77"):
        pf.set_num_threads(77)


# --- amp --------------------------------------------------------------------------------------------------------------


def product(*args: Any, **kwargs: Any) -> str:
    with pf.autocast(*args, **kwargs):
        return (pf.ones(2, 2) @ pf.ones(2, 2)).dtype.name


def test_autocast_takes_torch_arguments() -> None:
    assert product("cpu") == product(device_type="cpu") == "bfloat16"
    assert product("cuda") == product(device_type="cuda") == "float16"
    assert product("cuda", pf.bfloat16) == product("cuda", dtype=pf.bfloat16, cache_enabled=False) == "bfloat16"
    assert product("cuda", pf.float16, False) == product("cuda", enabled=False) == "float32"
    assert product("cpu", dtype=pf.float32) == "float32"
    with pf.cuda.amp.autocast(False):
        assert (pf.ones(2, 2) @ pf.ones(2, 2)).dtype is pf.float32
    with pf.amp.autocast("cpu", dtype=pf.float16):
        assert pf.is_autocast_enabled() and pf.get_autocast_dtype("cpu") is pf.float16
    assert not pf.is_autocast_enabled()


def test_a_scaler_by_its_older_path() -> None:
    assert pf.amp.GradScaler("cpu", enabled=False).is_enabled() is False
    assert pf.cuda.amp.GradScaler(init_scale=8.0).get_scale() == 8.0


def test_custom_forward_casts() -> None:
    class Double(pf.autograd.Function):
        @staticmethod
        @pf.amp.custom_fwd(device_type="cuda", cast_inputs=pf.float32)
        def forward(ctx: Any, x: Any) -> Any:
            ctx.cast = x.dtype, pf.is_autocast_enabled()
            Double.seen = ctx.cast
            return x * 2

        @staticmethod
        @pf.amp.custom_bwd(device_type="cuda")
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = pf.ones(2, dtype=pf.float16, requires_grad=True)
    with pf.autocast("cuda"):
        out = Double.apply(x)
    assert Double.seen == (pf.float32, False) and out.dtype is pf.float32
    Double.apply(x)
    assert Double.seen == (pf.float16, False)


# --- one process ------------------------------------------------------------------------------------------------------


@pytest.fixture
def group() -> Any:
    pf.distributed.init_process_group("nccl", world_size=1, rank=0)
    yield pf.distributed
    pf.distributed.destroy_process_group()


def test_collectives_of_one_process(group: Any) -> None:
    assert (group.get_rank(), group.get_world_size(), group.get_backend()) == (0, 1, "nccl")
    x = pf.arange(3.0)
    group.all_reduce(x)
    group.broadcast(x, src=0)
    group.barrier()
    assert group.all_reduce(x, op=group.ReduceOp.AVG, async_op=True).wait()
    out, whole = [pf.zeros(3)], pf.zeros(1, 3)
    group.all_gather(out, x)
    group.all_gather_into_tensor(whole, x)
    np.testing.assert_array_equal(out[0].numpy(), [0, 1, 2])
    np.testing.assert_array_equal(whole.numpy(), [[0, 1, 2]])
    objects: list[Any] = [None]
    group.all_gather_object(objects, {"a": 1})
    assert objects == [{"a": 1}]
    with pytest.raises(pf.ArgumentError, match="expected process src from 0 to 0 of 1 but got 1"):
        group.broadcast(x, 1)
    sampler = pf.utils.data.DistributedSampler(range(5), shuffle=False)
    assert list(sampler) == [0, 1, 2, 3, 4] and len(sampler) == 5


def test_processes_that_cannot_meet_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    dist = pf.distributed
    assert dist.is_available() and not dist.is_initialized()
    with pytest.raises(pf.ArgumentError, match="expected MASTER_ADDR and MASTER_PORT to say where 4 processes meet"):
        dist.init_process_group("gloo", world_size=4, rank=0)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(pf.ArgumentError, match="expected the rank of this process among 2"):
        dist.init_process_group("gloo")
    with pytest.raises(pf.ArgumentError, match="call init_process_group first"):
        dist.get_rank()
    assert not dist.is_initialized()


@needs_torch
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("n", "replicas"), [(10, 3), (2, 5), (9, 3), (1, 1)])
def test_distributed_sampler(n: int, replicas: int, drop_last: bool) -> None:
    options = dict(num_replicas=replicas, shuffle=False, drop_last=drop_last)
    for rank in range(replicas):
        ours = pf.utils.data.DistributedSampler(range(n), rank=rank, **options)
        theirs = torch.utils.data.DistributedSampler(range(n), rank=rank, **options)
        assert list(ours) == list(theirs) and len(ours) == len(theirs)
    shuffled = [pf.utils.data.DistributedSampler(range(10), 2, rank, seed=1) for rank in (0, 1)]
    first = [list(s) for s in shuffled]
    assert sorted(first[0] + first[1]) == list(range(10))
    for s in shuffled:
        s.set_epoch(1)
    assert [list(s) for s in shuffled] != first


def test_wrappers_for_many_gpus() -> None:
    inner = nn.Linear(3, 2)
    for wrap in (nn.parallel.DistributedDataParallel, nn.DataParallel):
        model = wrap(inner, device_ids=[0])
        assert model.module is inner and list(model.state_dict()) == ["module.weight", "module.bias"]
        np.testing.assert_array_equal(model(pf.ones(1, 3)).detach().numpy(), inner(pf.ones(1, 3)).detach().numpy())
        with pytest.raises(pf.NotSupportedError, match="expected at most one device"):
            wrap(inner, device_ids=[0, 1])
    with nn.parallel.DistributedDataParallel(inner, find_unused_parameters=True).no_sync():
        pass


# --- functions of functions -------------------------------------------------------------------------------------------


def test_compile_gives_back_what_it_is_given() -> None:
    model = nn.Linear(2, 3)
    assert pf.compile(model, mode="reduce-overhead") is model

    @pf.compile(fullgraph=True, dynamic=False, backend="inductor")
    def branch(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x

    x = pf.ones(2, requires_grad=True)
    branch(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    with pytest.raises(pf.ArgumentTypeError, match="expected a function or a module"):
        pf.compile(3)
    assert pf.compiler.disable(branch) is branch and not pf.compiler.is_compiling()


def test_checkpoint_takes_torch_options() -> None:
    x = pf.ones(3, requires_grad=True)
    pf.utils.checkpoint.checkpoint(lambda a: a.exp(), x, use_reentrant=False, preserve_rng_state=True).sum().backward()
    layers = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    got = pf.utils.checkpoint.checkpoint_sequential(layers, 2, x, use_reentrant=False)
    np.testing.assert_allclose(got.detach().numpy(), layers(x).detach().numpy(), rtol=1e-6)


def test_fork_rng() -> None:
    pf.manual_seed(5)
    with pf.random.fork_rng(devices=[]):
        inside = pf.rand(3).tolist()
    assert inside == pf.rand(3).tolist()
    assert pf.Generator(device="cpu").manual_seed(1).initial_seed() == 1
    assert pf.Generator("cuda").device.type == "cuda"
    assert isinstance(pf.manual_seed(0), pf.Generator)


@pytest.mark.parametrize(
    "call",
    [
        lambda: pf.hub.load("a/b", "c"),
        lambda: pf.hub.load_state_dict_from_url("http://x"),
    ],
)
def test_what_is_not_there_says_so(call: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"^\[hub\] expected"):
        call()


# --- small names ------------------------------------------------------------------------------------------------------


def test_typed_tensors() -> None:
    assert pf.LongTensor([1, 2]).dtype is pf.int64 and pf.FloatTensor(2, 3).shape == (2, 3)
    assert isinstance(pf.ones(2), pf.FloatTensor) and not isinstance(pf.ones(2), pf.LongTensor)
    assert pf.ones(2).type(pf.LongTensor).dtype is pf.int64
    assert pf.FloatTensor().shape == (0,)
    with pytest.raises(TypeError, match=r"\[FloatTensor\] expected"):
        pf.FloatTensor([1.0], [2.0])


@needs_torch
def test_questions() -> None:
    for a, b in (((2,), (3, 1)), ((), (4,)), ((1, 5), (5,))):
        assert pf.broadcast_shapes(a, b) == tuple(torch.broadcast_shapes(a, b))
    names = ["float32", "float16", "int64", "uint8", "bool"]
    for a in names:
        for b in names:
            assert pf.can_cast(getattr(pf, a), getattr(pf, b)) == torch.can_cast(getattr(torch, a), getattr(torch, b))
            got = pf.result_type(pf.ones(2, dtype=getattr(pf, a)), pf.ones((), dtype=getattr(pf, b)))
            want = torch.result_type(torch.ones(2, dtype=getattr(torch, a)), torch.ones((), dtype=getattr(torch, b)))
            assert str(want).removeprefix("torch.") == got.name.rstrip("_")
    assert pf.Size([2, 3]).numel() == 6 and pf.Size((2, 3, 4))[1:].numel() == 12
    assert (pf.is_tensor(pf.ones(1)), pf.is_tensor(1), pf.is_floating_point(pf.ones(1))) == (True, False, True)
    assert isinstance(pf.float32, pf.dtype) and pf.inf == float("inf") and pf.pi > 3.14 and pf.newaxis is None


def test_makers_take_layouts() -> None:
    x = pf.zeros(2, 3, layout=pf.strided, pin_memory=True)
    assert pf.zeros_like(x, memory_format=pf.preserve_format).shape == (2, 3)
    assert x.clone(memory_format=pf.contiguous_format).contiguous(memory_format=pf.preserve_format).shape == (2, 3)
    assert pf.randn(2, pin_memory=False, layout=pf.strided).shape == (2,)
    with pytest.raises(TypeError, match="did you mean 'device'"):
        pf.zeros(2, devcie="cpu")


def test_print_options() -> None:
    try:
        pf.set_printoptions(precision=2)
        assert repr(pf.tensor([1 / 3])) == "tensor([0.33])"
        pf.set_printoptions(sci_mode=True)
        assert repr(pf.tensor([1 / 3])) == "tensor([3.33e-01])"
        pf.set_printoptions(profile="default", edgeitems=1, threshold=3)
        assert repr(pf.arange(9)) == "tensor([0,  ..., 8])"
        with pytest.raises(pf.ArgumentError, match="expected a profile of"):
            pf.set_printoptions(profile="huge")
    finally:
        pf.set_printoptions(profile="default")
    assert repr(pf.tensor([1 / 3])) == "tensor([0.3333])"
