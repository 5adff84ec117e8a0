"""Where torch has a file of its own: what is imported by its path, as in `from pyflame.autograd.functional import vjp`.

A path leads to the module here that has its names, or to names of things that are not here. Libraries import those long
before they use them, if they ever do: each is a class that refuses when it is called.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from pyflame.core.errors import NotSupportedError

# Path in torch -> module here, or name in a module here.
FILES = {
    "jit": ":jit",  # the function itself
    "_C._functorch": "utils._private",
    "_custom_ops": "library",
    "_dynamo": "compiler",
    "_dynamo._trace_wrapped_higher_order_op": "utils._private",
    "_dynamo.config": "compiler:config",
    "_dynamo.utils": "compiler",
    "_dynamo.eval_frame": "compiler",
    "_dynamo.external_utils": "compiler",
    "_higher_order_ops.associative_scan": "utils._scans",
    "_inductor": "compiler",
    "_inductor.config": "compiler:config",
    "_lowrank": "tensor.old_linalg",
    "_six": "utils._private",
    "_tensor": "tensor.tensor",
    "_tensor_str": "utils._private",
    "_utils": "utils._private",
    "_vmap_internals": "transform.vmap",
    "amp.autocast_mode": "amp",
    "amp.grad_scaler": "amp",
    "autograd.anomaly_mode": "transform.autograd",
    "autograd.forward_ad": "transform.forward_ad",
    "autograd.function": "tensor.custom",
    "autograd.functional": "transform.functional",
    "autograd.grad_mode": "tensor.gradients",
    "autograd.gradcheck": "transform.gradcheck",
    "autograd.graph": "transform.autograd_graph",
    "autograd.profiler": "profiler",
    "autograd.variable": "transform.autograd",
    "cuda.amp.autocast_mode": "cuda.amp",
    "cuda.amp.grad_scaler": "cuda.amp",
    "distributed.constants": "distributed",
    "distributed.device_mesh": "collectives.mesh",
    "distributed.distributed_c10d": "distributed",
    "distributed.elastic.multiprocessing.errors": "utils._private",
    "distributed.fsdp": "distributed",
    "distributed.fsdp.fully_sharded_data_parallel": "distributed",
    "distributed.optim": "distributed",
    "distributed.tensor": "distributed.placements",
    "functional": "",  # PyFlame itself has its names
    "_subclasses.fake_tensor": "utils._private",
    "fx._symbolic_trace": "fx.tracer",
    "fx.experimental.proxy_tensor": "utils._private",
    "mps": "backends.absent",
    "nn._reduction": "utils._private",
    "nn.common_types": "utils._private",
    "nn.parallel.distributed": "nn.parallel.data_parallel",
    "nn.parallel.parallel_apply": "nn.parallel.pieces",
    "nn.parallel.replicate": "nn.parallel.pieces",
    "nn.parallel.scatter_gather": "nn.parallel.pieces",
    "nn.utils.clip_grad": "tensor.clip",
    "nn.utils.convert_parameters": "nn.utils.vectors",
    "nn.utils.memory_format": "nn.utils.building",
    "onnx.symbolic_helper": "onnx",
    "optim.adamw": "optim.adam",
    "storage": "tensor.storage",
    "torch_version": "utils._private",
    "utils.data._utils.pin_memory": "data.pinning",
    "utils.data._utils.worker": "data",
    "xpu": "backends.absent",
}
# all of these give the whole room
_DISTRIBUTIONS = (
    "bernoulli", "beta", "binomial", "categorical", "cauchy", "chi2", "continuous_bernoulli", "dirichlet",
    "exp_family", "exponential", "fishersnedecor", "gamma", "generalized_pareto", "geometric", "gumbel",
    "half_cauchy", "half_normal", "independent", "inverse_gamma", "kumaraswamy", "laplace", "lkj_cholesky",
    "log_normal", "logistic_normal", "lowrank_multivariate_normal", "mixture_same_family", "multinomial",
    "multivariate_normal", "negative_binomial", "normal", "one_hot_categorical", "pareto", "poisson",
    "relaxed_bernoulli", "relaxed_categorical", "studentT", "transformed_distribution", "uniform", "von_mises",
    "weibull",
)  # fmt: skip
FILES.update((f"distributions.{_name}", "distributions") for _name in _DISTRIBUTIONS)

# Path in torch -> names that are refused when they are used, and the way out. Where FILES has the path, too, all other
# names are that file's.
_OPS = (
    "pf.overrides.TorchFunctionMode sees functions and methods, and __torch_function__ of a class those of its tensors"
)
_FSDP_WAY = "pf.distributed.FullyShardedDataParallel(model) divides models"
_FSDP = (
    "BackwardPrefetch CPUOffload CPUOffloadPolicy FSDPModule FullOptimStateDictConfig FullStateDictConfig "
    "LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision MixedPrecisionPolicy OffloadPolicy "
    "OptimStateDictConfig OptimStateKeyType ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy "
    "StateDictConfig StateDictSettings StateDictType UnshardHandle fully_shard register_fsdp_forward_method",
    _FSDP_WAY,
)
_CHECKPOINTS = "pf.distributed.save_checkpoint and load_checkpoint write one file of all processes and read it"
_TENSORS = "pf.distributed.FullyShardedDataParallel and ColumnParallelLinear divide models"
_SYMBOLIC = "pf.onnx.export writes ops, not symbolic functions"
_QUANTIZATION = (
    "DeQuantStub FakeQuantize FakeQuantizeBase FusedMovingAvgObsFakeQuantize HistogramObserver MinMaxObserver "
    "MovingAverageMinMaxObserver ObserverBase PerChannelMinMaxObserver QConfig QConfigMapping QuantStub QuantWrapper "
    "convert default_observer default_qconfig default_weight_observer fuse_modules fuse_modules_qat "
    "get_default_qat_qconfig get_default_qconfig prepare prepare_qat quantize quantize_dynamic",
    "files with encoded weights run as they are: see docs/encodings.md",
)
REFUSED: dict[str, tuple[str, str]] = {
    "_C._functorch": (
        "_add_batch_dim _remove_batch_dim _vmap_decrement_nesting _vmap_increment_nesting get_unwrapped",
        "pf.vmap runs functions for each example",
    ),
    "ao.quantization": _QUANTIZATION,
    "_subclasses.fake_tensor": ("FakeTensor FakeTensorMode", "tensors of the device meta have shapes and no values"),
    "fx.experimental.proxy_tensor": ("make_fx", "pf.fx.symbolic_trace traces functions and modules"),
    "utils.data._utils.worker": ("_generate_state", "numpy.random.SeedSequence makes numbers of a seed"),
    "distributed._functional_collectives": (
        "all_gather_tensor all_reduce all_to_all_single_autograd reduce_scatter_tensor wait_tensor",
        "pf.distributed has collectives",
    ),
    "distributed._composable.fsdp": _FSDP,
    "distributed.algorithms._checkpoint.checkpoint_wrapper": (
        "CheckpointImpl CheckpointWrapper OffloadWrapper apply_activation_checkpointing checkpoint_wrapper "
        "offload_wrapper",
        "pf.checkpoint(fn, x) computes again what it does not keep",
    ),
    "distributed.algorithms.join": ("Join Joinable JoinHook", "give every process as many batches"),
    "distributed.checkpoint.default_planner": ("DefaultLoadPlanner DefaultSavePlanner", _CHECKPOINTS),
    "distributed.checkpoint.hf_storage": ("HuggingFaceStorageReader HuggingFaceStorageWriter", _CHECKPOINTS),
    "distributed.checkpoint.metadata": (
        "BytesStorageMetadata ChunkStorageMetadata Metadata MetadataIndex TensorProperties TensorStorageMetadata",
        _CHECKPOINTS,
    ),
    "distributed.checkpoint.planner": (
        "LoadItemType LoadPlan LoadPlanner ReadItem SavePlan SavePlanner WriteItem WriteItemType",
        _CHECKPOINTS,
    ),
    "distributed.checkpoint.state_dict": (
        "StateDictOptions get_model_state_dict get_optimizer_state_dict get_state_dict set_model_state_dict "
        "set_optimizer_state_dict set_state_dict",
        _CHECKPOINTS,
    ),
    "distributed.fsdp": _FSDP,
    "distributed.fsdp.api": _FSDP,
    "distributed.fsdp.fully_sharded_data_parallel": _FSDP,
    "distributed.fsdp.sharded_grad_scaler": ("ShardedGradScaler", _FSDP_WAY),
    "distributed.fsdp.wrap": (
        "CustomPolicy ModuleWrapPolicy always_wrap_policy enable_wrap lambda_auto_wrap_policy "
        "size_based_auto_wrap_policy transformer_auto_wrap_policy wrap",
        _FSDP_WAY,
    ),
    "distributed.rpc": (
        "RRef get_worker_info init_rpc remote rpc_async rpc_sync shutdown",
        "pf.distributed has collectives, send and recv",
    ),
    "distributed.tensor": (
        "DTensor _StridedShard distribute_module distribute_tensor",
        _TENSORS,
    ),
    "distributed.tensor.experimental": ("context_parallel implicit_replication local_map", _TENSORS),
    "distributed.tensor.parallel": (
        "ColwiseParallel ParallelStyle PrepareModuleInput PrepareModuleInputOutput PrepareModuleOutput RowwiseParallel "
        "SequenceParallel loss_parallel parallelize_module",
        _TENSORS,
    ),
    "distributed.tensor._utils": (
        "compute_local_shape_and_global_offset",
        _TENSORS,
    ),
    "export": ("Dim ExportedProgram export", "pf.onnx.export and pf.aot.compile write programs"),
    "onnx.symbolic_opset9": ("", _SYMBOLIC),
    "onnx.symbolic_opset11": ("", _SYMBOLIC),
    "quantization": _QUANTIZATION,
    "utils._python_dispatch": ("TorchDispatchMode", _OPS),
    "utils.cpp_extension": (
        "BuildExtension CppExtension CUDAExtension load load_inline",
        "pf.compile_kernel compiles kernels when they are called",
    ),
    "utils.flop_counter": ("FlopCounterMode", "pf.explain counts what a function computes"),
}
for _name in ("distributed._tensor", "distributed.tensor.placement_types"):
    REFUSED[_name], FILES[_name] = REFUSED["distributed.tensor"], FILES["distributed.tensor"]
REFUSED["distributed._tensor.experimental"] = REFUSED["distributed.tensor.experimental"]


def refused(name: str, way: str) -> type:
    """A class for a name of torch's that is not here: it can be imported and asked for, and raises when called."""

    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise NotSupportedError(f"[{name}] expected something that PyFlame has but this is not there; {way}")

    return type(name, (), {"__new__": __new__, "__doc__": f"Not here: {way}."})


# Paths above others that are nothing themselves.
PACKAGES = (
    "_higher_order_ops",
    "_subclasses", "ao", "distributed._composable", "distributed.algorithms",
    "distributed.algorithms._checkpoint", "distributed.elastic", "distributed.elastic.multiprocessing",
    "fx.experimental",
)  # fmt: skip


def _known(short: str) -> bool:
    return short in FILES or short in REFUSED or short in PACKAGES


def below(package: str) -> Callable[[str], Any]:
    """A module's `__getattr__`: torch imports the files below it by itself, so programs write
    `torch.distributions.normal.Normal`.
    """

    def __getattr__(name: str) -> Any:
        if not _known(f"{package}.{name}"):
            raise AttributeError(f"module 'pyflame.{package}' has no attribute {name!r}")
        return importlib.import_module(f"pyflame.{package}.{name}")

    return __getattr__


class TorchPaths:
    """Finds those files."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        short = name.removeprefix("pyflame.")
        known = _known(short) and short != name
        return ModuleSpec(name, self, is_package=True) if known else None  # type: ignore[arg-type]

    def create_module(self, spec: object) -> None:
        """A plain one; where a path leads to another module, importlib takes what `exec_module` puts into its place."""

    def exec_module(self, module: ModuleType) -> None:
        short = module.__name__.removeprefix("pyflame.")
        if short in FILES:
            file, _, member = FILES[short].partition(":")
            found: Any = importlib.import_module(f"pyflame.{file}".rstrip("."))
            if short not in REFUSED:
                sys.modules[module.__name__] = getattr(found, member) if member else found
                return
            vars(module)["__getattr__"] = lambda name: getattr(found, name)
        if short in REFUSED:
            names, way = REFUSED[short]
            vars(module).update({name: refused(name, way) for name in names.split()}, is_available=lambda: False)
