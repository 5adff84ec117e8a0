"""What libraries import from torch before they use any of it: every line runs with torch and with PyFlame."""

from __future__ import annotations

import collections
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

IMPORTS = [
    "from torch._tensor_str import PRINT_OPTS, _tensor_str, set_printoptions",
    "from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter",
    "from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors",
    "from torch.torch_version import TorchVersion",
    "from torch.nn.common_types import _size_2_t, _size_any_t",
    "from torch.nn.common_types import _maybe_indices_t, _ratio_any_t, _scalar_or_tuple_6_t, _size_2_opt_t",
    "from torch.nn.modules.module import Module, _addindent",
    "from torch.nn.modules.dropout import _DropoutNd",
    "from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AvgPoolNd, _MaxPoolNd",
    "from torch.nn.modules.transformer import _get_clones",
    "from torch.nn.modules.utils import _reverse_repeat_tuple",
    "from torch.nn.modules.linear import NonDynamicallyQuantizableLinear",
    "from torch.autograd.profiler import profile, record_function",
    "from torch.amp.grad_scaler import GradScaler",
    "from torch.amp.autocast_mode import autocast",
    "from torch.cuda.amp.grad_scaler import GradScaler",
    "from torch.optim.adamw import AdamW",
    "from torch.storage import TypedStorage, UntypedStorage",
    "from torch._tensor import Tensor",
    "from torch._dynamo import OptimizedModule, config, disable, reset",
    "import torch._dynamo; torch._dynamo.config.suppress_errors = True",
    "import torch._inductor.config; torch._inductor.config.triton.unique_kernel_names = True",
    "from torch.utils._pytree import register_pytree_node",
    "from torch.utils._pytree import SUPPORTED_NODES, LeafSpec, _get_node_type, _namedtuple_flatten",
    "from torch.nn.utils.clip_grad import clip_grad_norm_",
    "from torch.nn.utils.convert_parameters import parameters_to_vector",
    "from torch.nn.utils.memory_format import convert_conv2d_weight_memory_format",
    "from torch.nn.parallel.parallel_apply import parallel_apply",
    "from torch.nn.parallel.replicate import replicate",
    "from torch.autograd.anomaly_mode import detect_anomaly",
    "from torch.autograd.graph import Node",
    "from torch.autograd.profiler import EventList, emit_nvtx",
    "from torch import PyTorchFileReader, ScriptFunction, ScriptModule",
    "from torch._C import Value, _nn",
    "from torch.distributed import ReduceOp; ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR",
    "import torch; torch.autograd.Function.jvp",
    "from torch.distributed.rpc import RRef, rpc_sync",
    "from torch.distributed.elastic.multiprocessing.errors import record",
    "from torch.distributed.tensor import DTensor",
    "from torch.distributed._tensor import DTensor",
    "from torch.distributed.fsdp import FullyShardedDataParallel",
    "from torch.distributed.optim import ZeroRedundancyOptimizer",
    "from torch.export import Dim, export",
    "from torch.fx import Graph, GraphModule, Interpreter, Node, Proxy, Tracer, symbolic_trace",
    "from torch.fx.graph_module import GraphModule",
    "from torch.utils.cpp_extension import BuildExtension, CUDAExtension, load",
    "from torch.utils.flop_counter import FlopCounterMode",
    "from torch._subclasses.fake_tensor import FakeTensor",
    "from torch.xpu import is_available; assert not is_available()",
    "from torch.mps import empty_cache",
    "import torch.functional as F; F.einsum",
    "from torch.nn import _reduction; assert _reduction.legacy_get_string(False, None) == 'sum'",
    "from torch._C._functorch import is_batchedtensor; from torch._C import _TensorMeta",
    "from torch._dynamo.eval_frame import OptimizedModule",
    "from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex",
    "from torch.overrides import TorchFunctionMode",
    "from torch.utils._pytree import _dict_flatten, _dict_flatten_with_keys, _dict_unflatten",
    "from torch.nn.attention.flex_attention import _DEFAULT_SPARSE_BLOCK_SIZE, AuxRequest",
    "from torch.distributions.multivariate_normal import _precision_to_scale_tril",
    "from torch.distributions.transforms import _InverseTransform",
    "from torch.distributed._functional_collectives import wait_tensor",
    "from torch.distributed.algorithms.join import Join",
    "from torch.distributed._composable.fsdp import fully_shard",
    "from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecisionPolicy",
    "from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader",
    "from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict",
    "from torch.distributed.tensor._utils import compute_local_shape_and_global_offset",
    "from torch.distributed.tensor.placement_types import Shard; assert Shard(1).is_shard(1)",
    "from torch.distributed.tensor import Partial, Replicate; assert Replicate() == Replicate() != Partial()",
    "from torch.distributed.tensor.experimental import implicit_replication",
    "from torch.distributed._tensor.experimental import implicit_replication",
    "from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module",
    "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper",
    "from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner",
    "from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata",
    "from torch.distributed.checkpoint.planner import LoadPlan, SavePlanner, WriteItem",
    "from torch.distributed.fsdp import BackwardPrefetch, FullStateDictConfig, ShardedStateDictConfig",
    "from torch.distributed.fsdp.api import FullOptimStateDictConfig, StateDictSettings, StateDictType",
    "from torch.distributed.fsdp.fully_sharded_data_parallel import CPUOffload, FullyShardedDataParallel",
    "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler",
    "from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy",
    "from torch.hub import tqdm; from torch.utils.model_zoo import tqdm",
    "from torch._dynamo.utils import is_compile_supported; assert is_compile_supported('cpu')",
    "from torch.jit.annotations import BroadcastingList2; BroadcastingList2[int]",
    "import torch.quantization; from torch.ao import quantization",
    "from torch.ao.quantization import DeQuantStub, FakeQuantizeBase, ObserverBase, QConfig, QuantStub",
    "from torch.quantization import MinMaxObserver, QuantStub, fuse_modules",
    "from torch.utils.data.dataloader import _collate_fn_t; _collate_fn_t",
    "from torch.quasirandom import SobolEngine",
    "from torch._custom_ops import impl_abstract",
    "from torch._subclasses.fake_tensor import is_fake, unset_fake_temporarily; assert not is_fake(3)",
    "from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx; assert get_proxy_mode() is None",
    "from torch.utils.data._utils.pin_memory import pin_memory; assert pin_memory([2]) == [2]",
    "from torch.utils.data._utils.worker import _generate_state, get_worker_info",
    "from torch.utils.data.dataloader import BatchSampler, Dataset, IterableDataset, RandomSampler, Sampler",
    "from torch.utils.weak import TensorWeakRef, WeakIdKeyDictionary, WeakIdRef, WeakTensorKeyDictionary",
    "from torch.distributions.transforms import _clipped_sigmoid",
    "import torch; assert torch._C._has_xpu is False; torch.DeviceObjType",
    "from torch._C._functorch import _add_batch_dim, _remove_batch_dim, is_batchedtensor",
    "from torch import TensorType; from torch._C import Generator, Graph, _LinAlgError",
    "import torch; torch._C._jit_set_profiling_mode(False); torch._C._jit_set_texpr_fuser_enabled(True)",
    "import torch.serialization; assert torch.serialization.pickle.loads",
    "import torch.jit; torch.jit.__spec__, torch.jit.__path__",
    "from torch.onnx import register_custom_op_symbolic, symbolic_opset11",
    "from torch.onnx.symbolic_helper import parse_args; f = lambda g: g; assert callable(parse_args('v')(f))",
    "import torch.distributed as d; d.device_mesh.DeviceMesh; d.ReduceOp.RedOpType",
]


@pytest.mark.parametrize("line", IMPORTS)
def test_it_can_be_imported(line: str) -> None:
    exec(line, {})
    exec(re.sub(r"\btorch\b", "pyflame", line), {})


ATTRIBUTES = [
    "_C._functorch.is_batchedtensor", "_dynamo.eval_frame.OptimizedModule", "amp.grad_scaler.GradScaler",
    "autograd.function.Function", "autograd.grad_mode.no_grad", "autograd.profiler.profile",
    "autograd.variable.Variable", "cuda.amp.autocast_mode.autocast", "distributed.distributed_c10d.ReduceOp",
    "distributed.rpc.is_available", "distributions.multivariate_normal.MultivariateNormal",
    "distributions.normal.Normal", "fx.graph_module.GraphModule", "nn._reduction.get_enum",
    "nn.common_types._size_2_t", "nn.parallel.scatter_gather.gather",
]  # fmt: skip


@pytest.mark.slow(16)
def test_files_below_packages_are_attributes() -> None:
    """In a process of its own, since an import anywhere makes attributes."""
    for library in ("torch", "pyflame"):
        program = f"import {library}, {library}.distributed; " + "; ".join(f"{library}.{path}" for path in ATTRIBUTES)
        subprocess.run([sys.executable, "-c", program], check=True)


def test_attributes_lead_there_too() -> None:
    assert pf.sparse.torch.eye(2).tolist() == [[1, 0], [0, 1]]  # old programs write torch.sparse.torch.eye
    pf._dynamo.config.cache_size_limit = 64
    assert pf._dynamo.config.cache_size_limit == 64 and pf._inductor.config is pf._dynamo.config
    assert not pf.xpu.is_available() and pf.mps.device_count() == 0
    with pytest.raises(AttributeError):
        pf.no_such_file


@pytest.mark.parametrize(
    ("path", "name"), [("distributed.rpc", "rpc_sync"), ("export", "export"), ("utils.cpp_extension", "load")]
)
def test_what_is_not_there_is_refused_when_it_is_used(path: str, name: str) -> None:
    found = getattr(importlib.import_module(f"pyflame.{path}"), name)
    assert inspect.isclass(found) and not isinstance(pf.ones(2), found)
    with pytest.raises(pf.NotSupportedError, match=rf"\[{name}\] .*pf\."):
        found(pf.nn.Linear(2, 2))


def test_ops_by_their_names_in_aten() -> None:
    found: list[list[Any]] = []
    for library in (pf, torch):
        aten = library.ops.aten
        x = library.tensor([[-1.0, 2.0], [3.0, -2.0]])
        results = [
            aten.relu(x), aten.relu.default(x), aten.add.Tensor(x, x), aten.mm.default(x, x), aten.view.default(x, [4]),
            aten.sum.dim_IntList(x, [1]), aten.select.int(x, 0, 1), aten.gelu(x), aten.t.default(x),
        ]  # fmt: skip
        found.append([r.tolist() for r in results])
    assert [np.allclose(a, b, rtol=1e-3) for a, b in zip(*found, strict=True)] == [True] * 9
    with pytest.raises(AttributeError):
        pf.ops.aten.no_such_op


ATEN = [
    "_softmax.default(x, 1, False)", "_log_softmax(x, 1, False)", "_to_copy.default(x, dtype=t.float64)", "alias(x)",
    "_unsafe_view.default(x, [6])", "slice.Tensor(x, 1, 0, 2)", "slice(x, -1, 1)", "index.Tensor(x, [None, i])",
    "copy.default(x, x[0])", "fill.Scalar(x, 2.0)", "zero(x)", "full.default([2], 3.0)", "ones([2])",
    "zeros_like.default(x)", "arange.start_step(0, 6, 2)", "linalg_vector_norm.default(x)", "special_entr(x.abs())",
    "scalar_tensor.default(2.0)", "lift_fresh(x)", "_reshape_alias(x, [6], [1])", "fft_fft.default(x).real",
    "convolution.default(x[None], x[:, None, :2], None, [1], [0], [1], False, [0], 2)",
    "convolution.default(x[None], x[:, None], None, [2], [1], [1], True, [1], 2)",
    "constant_pad_nd.default(x, [1, 1], 2.0)",
    "native_layer_norm.default(x, [3], None, None, 1e-5)[0]", "linalg_inv_ex(x[:, :2])[0]",
    "upsample_nearest1d(x[None], [6])",
    "upsample_bilinear2d(x[None, None], [4, 6], False)", "reflection_pad1d(x, [1, 1])", "replication_pad1d(x, [1, 1])",
]  # fmt: skip


@pytest.mark.parametrize("call", ATEN)
def test_ops_that_only_aten_names(call: str) -> None:
    found = []
    for library in (pf, torch):
        x = library.tensor([[-1.0, 2.0, 0.5], [3.0, -2.0, 1.5]])
        found.append(
            eval(f"aten.{call}", {"aten": library.ops.aten, "t": library, "x": x, "i": library.tensor([0, 2])})
        )
    ours, theirs = found
    assert (
        tuple(ours.shape) == tuple(theirs.shape) and str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    )
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_it_stands_in_for_torch() -> None:
    """Programs that put it in torch's place ask it what torch can do, which must not be asked of itself."""
    program = (
        "import sys, pyflame; sys.modules['torch'] = pyflame; import torch\n"
        "assert torch is pyflame and not torch.distributed.is_nccl_available()\n"
        "try: torch.ones(2).to_torch()\n"
        "except torch.NotSupportedError as error: assert 'under another name' in str(error)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_keys_that_are_objects_not_values() -> None:
    for library in (pf, torch):
        weak = importlib.import_module(f"{library.__name__}.utils.weak")
        known, (x, y) = weak.WeakTensorKeyDictionary(), (library.ones(2), library.ones(2))
        known[x], known[y] = 1, 2
        assert (known[x], known[y], len(known)) == (1, 2, 2) and library.ones(2) not in known
        assert [key is x or key is y for key in known] == [True, True] and weak.WeakIdRef(x)() is x
        del y
        assert len(known) == 1 and known.pop(x) == 1 and not known


def test_small_helpers() -> None:
    for library in (pf, torch):
        name = library.__name__
        tensors = [library.ones(2, 3), library.arange(4.0)]
        utils = importlib.import_module(f"{name}._utils")
        flat = utils._flatten_dense_tensors(tensors)
        again = utils._unflatten_dense_tensors(flat, tensors)
        assert tuple(flat.shape) == (10,) and [t.tolist() for t in again] == [t.tolist() for t in tensors]
        version = importlib.import_module(f"{name}.torch_version").TorchVersion("1.10.1+cu113")
        assert version > "1.9" and version >= (1, 10) and version < "2.0" and not version <= "1.10.0"
        helpers = importlib.import_module(f"{name}.nn.modules.utils")
        assert helpers._reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)
        clones = importlib.import_module(f"{name}.nn.modules.transformer")._get_clones(library.nn.Linear(2, 2), 3)
        assert len(clones) == 3 and clones[0].weight is not clones[1].weight
        assert importlib.import_module(f"{name}._tensor_str").PRINT_OPTS.precision == 4
        loader = iter(library.utils.data.DataLoader([1, 2]))
        base = importlib.import_module(f"{name}.utils.data.dataloader")._BaseDataLoaderIter
        assert isinstance(loader, base) and not isinstance([], base)


def test_trees_of_other_classes() -> None:
    for library in (pf, torch):
        tree = importlib.import_module(f"{library.__name__}.utils._pytree")
        kind = type("Pair", (), {"__init__": lambda self, a, b: self.__dict__.update(a=a, b=b)})
        tree.register_pytree_node(kind, lambda p: ([p.a, p.b], type(p)), lambda parts, context: context(*parts))
        made = tree.tree_map(lambda x: x * 2, {"x": kind(1, [2, 3])})["x"]
        assert (made.a, made.b) == (2, [4, 6])


def test_what_to_asks_for() -> None:
    """Lightning's modules read it, to remember their device and dtype."""
    found = []
    for library in (pf, torch):
        parse = library._C._nn._parse_to
        asked = [
            parse("cpu"), parse(library.float16), parse(library.device("cpu"), library.float32, True),
            parse(library.ones(2).double().to("cpu")), parse(device="cpu", dtype=library.float64), parse(None),
        ]  # fmt: skip
        found.append([[str(part).removeprefix("pyflame.").removeprefix("torch.") for part in a] for a in asked])
        assert library.nn.Linear(2, 2).to(library.complex64).weight.dtype is library.complex64
    assert found[0] == found[1]


def test_dtypes_are_leaves() -> None:
    """Lightning and others walk through the fields of dataclasses, and refuse those that are frozen."""
    assert not dataclasses.is_dataclass(pf.float32) and not dataclasses.is_dataclass(torch.float32)


def test_trees_are_of_the_types_that_are_registered() -> None:
    class Named(dict):  # type: ignore[type-arg]
        pass

    point = collections.namedtuple("point", "a b")
    trees = [
        [1, (2, {"a": 3})], Named(a=1), point(1, [2]), collections.OrderedDict(z=1, a=2),
        collections.defaultdict(list, {"k": [1]}), collections.deque([1, 2], maxlen=3), 5, None, [],
    ]  # fmt: skip
    for tree in trees:
        ours, theirs = (
            (leaves, isinstance(spec, library.LeafSpec), spec.num_leaves, library.tree_unflatten(leaves, spec))
            for library in (pf.utils._pytree, torch.utils._pytree)
            for leaves, spec in [library.tree_flatten(tree)]
        )
        assert ours == theirs and type(ours[-1]) is type(theirs[-1])
