"""PyFlame: one deep-learning stack for AMD and NVIDIA GPUs and the CPU.

    >>> import pyflame as pf
    >>> x = pf.randn(3, 4)
    >>> pf.softmax(x @ x.T, axis=-1).shape
    (3, 3)

Functions of the op catalogue (`pyflame.ops`) appear here by their names. `__init__.pyi` lists them all, with types.
"""

import builtins as _builtins
import importlib as _importlib
import sys as _sys

if _sys.argv[1:2] == ["doctor"]:  # it runs before all that follows, since it must run where that does not import
    _importlib.import_module("pyflame.cli.early").run_doctor()

import pyflame.ops as _ops  # noqa: F401  declares the catalogue
from pyflame.core.dtype import (
    DType,
    as_dtype,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from pyflame.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    CollectiveError,
    CompileError,
    DeviceError,
    DeviceFaultError,
    DeviceNameError,
    DTypeError,
    EngineStoppedError,
    FileFormatError,
    GradientError,
    IndexError,
    NotAvailableError,
    NotSupportedError,
    OutOfMemoryError,
    PyFlameError,
    QueueFullError,
    RequestCancelledError,
    RequestTimeoutError,
    ShapeError,
    StateDictError,
    TraceError,
)
from pyflame.core.errors import suggest as _suggest
from pyflame.core.generator import Generator
from pyflame.core.precision import get_float32_matmul_precision, set_float32_matmul_precision
from pyflame.core.torch_paths import FILES as _FILES
from pyflame.core.torch_paths import REFUSED as _REFUSED
from pyflame.core.torch_paths import TorchPaths as _TorchPaths
from pyflame.core.when_imported import when_imported as _when_imported
from pyflame.engine.services import clear_cache
from pyflame.tensor import Tensor
from pyflame.tensor import aten as _aten  # noqa: F401  gives pf.ops its namespace
from pyflame.tensor import methods as _methods  # noqa: F401  completes Tensor
from pyflame.tensor.arguments import publish as _publish
from pyflame.tensor.builtin import unbound as _unbound
from pyflame.tensor.counted import one_hot, repeat_interleave, where
from pyflame.tensor.creation import (
    arange,
    as_tensor,
    empty,
    empty_like,
    eye,
    from_numpy,
    full,
    full_like,
    linspace,
    logspace,
    ones,
    ones_like,
    tensor,
    tril_indices,
    triu_indices,
    zeros,
    zeros_like,
)
from pyflame.tensor.custom import custom_gradient
from pyflame.tensor.devices import (
    device,
    device_info,
    devices,
    explain_devices,
    get_device,
    reset_device,
    set_device,
    synchronize,
)
from pyflame.tensor.dispatch import FUNCTIONS as _FUNCTIONS
from pyflame.tensor.dlpack import from_dlpack
from pyflame.tensor.factorizations import det, inverse, logdet, slogdet
from pyflame.tensor.gradients import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from pyflame.tensor.indexing import argwhere, masked_select, nonzero
from pyflame.tensor.interop import from_torch
from pyflame.tensor.modes import deterministic, eager, eval
from pyflame.tensor.random import (
    get_rng_state,
    initial_seed,
    manual_seed,
    multinomial,
    normal,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    seed,
    set_rng_state,
)
from pyflame.tensor.sets import allclose, bincount, equal, numel, unique, unique_consecutive
from pyflame.tensor.torch_methods import FUNCTIONS as _TORCH_FUNCTIONS

__version__ = "0.1.0"

# PyTorch's names for the same dtypes. Those that Python has too are reachable as pf.bool, but not exported by `*`.
double, half, long, short = float64, float16, int64, int16
cfloat, cdouble = complex64, complex128
bool, float, int = bool_, float32, int32

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "CollectiveError",
    "CompileError",
    "DType",
    "DTypeError",
    "DeviceError",
    "DeviceFaultError",
    "DeviceNameError",
    "EngineStoppedError",
    "FileFormatError",
    "Generator",
    "GradientError",
    "IndexError",
    "NotAvailableError",
    "NotSupportedError",
    "OutOfMemoryError",
    "PyFlameError",
    "QueueFullError",
    "RequestCancelledError",
    "RequestTimeoutError",
    "ShapeError",
    "StateDictError",
    "Tensor",
    "TraceError",
    "__version__",
    "allclose",
    "arange",
    "argwhere",
    "as_dtype",
    "as_tensor",
    "bfloat16",
    "bincount",
    "bool_",
    "cdouble",
    "cfloat",
    "clear_cache",
    "complex64",
    "complex128",
    "custom_gradient",
    "det",
    "deterministic",
    "device",
    "device_info",
    "devices",
    "double",
    "eager",
    "empty",
    "empty_like",
    "enable_grad",
    "equal",
    "eval",
    "explain_devices",
    "eye",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_numpy",
    "from_torch",
    "full",
    "full_like",
    "get_default_dtype",
    "get_device",
    "get_float32_matmul_precision",
    "get_rng_state",
    "half",
    "inference_mode",
    "initial_seed",
    "int8",
    "int16",
    "int32",
    "int64",
    "inverse",
    "is_grad_enabled",
    "linspace",
    "logdet",
    "logspace",
    "long",
    "manual_seed",
    "masked_select",
    "multinomial",
    "no_grad",
    "nonzero",
    "normal",
    "numel",
    "one_hot",
    "ones",
    "ones_like",
    "promote_types",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "repeat_interleave",
    "reset_device",
    "seed",
    "set_default_dtype",
    "set_device",
    "set_float32_matmul_precision",
    "set_grad_enabled",
    "set_rng_state",
    "short",
    "slogdet",
    "synchronize",
    "tensor",
    "tril_indices",
    "triu_indices",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unique",
    "unique_consecutive",
    "where",
    "zeros",
    "zeros_like",
]
# Rooms, and names of theirs, that are imported when first asked for: `pf.nn`, `pf.save`.
_ROOMS = (
    "accelerator", "amp", "backends", "bridge", "compiler", "cuda", "data", "distributed", "distributions", "fft",
    "__config__", "_C", "func", "futures", "fx", "hub", "io", "library", "linalg", "llm", "multiprocessing", "nn",
    "onnx", "optim", "overrides", "profiler", "profiling", "quasirandom", "random",
    "serialization", "signal", "sparse", "special", "testing", "train", "types", "utils", "version",
)  # fmt: skip
_ROCM_NAMES = ("device_count", "get_device", "get_device_info", "is_available", "set_device", "synchronize")
_TORCH_NAMES = (
    "_assert", "_assert_async", "_check", "_check_index", "_check_is_size", "_check_not_implemented",
    "_check_tensor_all", "_check_tensor_all_with", "_check_type", "_check_value", "_check_with",
    "are_deterministic_algorithms_enabled",
    "asarray", "BFloat16Tensor",
    "BoolTensor", "broadcast_shapes", "ByteTensor", "can_cast", "channels_last", "channels_last_3d", "CharTensor",
    "clear_autocast_cache", "contiguous_format", "default_generator", "DoubleTensor", "dtype", "e", "FloatTensor",
    "frombuffer", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype", "get_default_device",
    "get_deterministic_debug_mode", "get_num_interop_threads", "get_num_threads", "HalfTensor", "inf", "IntTensor",
    "is_anomaly_enabled", "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled", "is_complex",
    "is_conj", "is_deterministic_algorithms_warn_only_enabled", "is_floating_point", "is_inference",
    "is_inference_mode_enabled", "is_neg", "is_nonzero", "is_storage", "is_tensor", "layout",
    "legacy_contiguous_format", "LongTensor",
    "memory_format", "nan", "newaxis", "pi", "preserve_format", "range", "result_type", "scalar_tensor",
    "set_autocast_cache_enabled", "set_default_device", "set_flush_denormal", "set_default_tensor_type",
    "set_deterministic_debug_mode", "set_num_interop_threads", "set_num_threads", "set_printoptions", "ShortTensor",
    "Size", "strided", "sym_float", "sym_int", "sym_max", "sym_min", "SymBool", "SymFloat", "SymInt", "typename",
    "use_deterministic_algorithms",
)  # fmt: skip
_NO_DTYPES = ("PyTorchFileReader", "chalf", "complex32", "qint32", "qint8", "quint8")
_LAYOUTS = ("jagged", "sparse_bsc", "sparse_bsr", "sparse_coo", "sparse_csc", "sparse_csr")
_SIGNALS = (
    "bartlett_window", "blackman_window", "hamming_window", "hann_window", "istft", "kaiser_window", "stft",
)  # fmt: skip
_FUNCTIONAL = (
    "alpha_dropout", "bilinear", "channel_shuffle", "conv_tbc", "cosine_embedding_loss", "ctc_loss", "embedding_bag",
    "feature_alpha_dropout", "hinge_embedding_loss", "margin_ranking_loss", "max_pool1d_with_indices",
    "native_channel_shuffle", "pairwise_distance", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "rrelu",
    "rrelu_", "threshold", "threshold_", "triplet_margin_loss",
)  # fmt: skip
_MADE_OF_OTHERS = (
    "adjoint", "alias_copy", "as_strided", "as_strided_copy", "as_strided_scatter", "chain_matmul", "cholesky_inverse",
    "cholesky_solve", "combinations", "cond", "cumulative_trapezoid", "detach", "detach_copy", "diagonal_copy",
    "diagonal_scatter", "empty_permuted", "empty_strided", "expand_copy", "fill", "frobenius_norm", "gradient",
    "isreal", "lu_solve", "mvlgamma", "nonzero_static", "nuclear_norm", "permute_copy", "resolve_conj", "resolve_neg",
    "select_copy", "split_copy", "split_with_sizes_copy", "squeeze_copy", "t_copy", "to_dlpack", "transpose_copy",
    "unbind_copy", "unfold_copy", "unravel_index", "unsqueeze_copy", "view_copy",
)  # fmt: skip
_NATIVE = (
    "affine_grid_generator", "alpha_dropout_", "constant_pad_nd", "convolution", "dropout_", "embedding_renorm_",
    "feature_alpha_dropout_", "feature_dropout", "feature_dropout_", "grid_sampler", "grid_sampler_2d",
    "grid_sampler_3d", "native_batch_norm", "native_dropout", "native_group_norm", "native_layer_norm",
    "norm_except_dim",
)  # fmt: skip
_RECURRENT = ("gru", "gru_cell", "lstm", "lstm_cell", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell")
_SEGMENTS = (
    "segment_reduce", "_segment_reduce", "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo",
)  # fmt: skip
_OLD_LINALG = (
    "cholesky", "geqrf", "lobpcg", "lu", "lu_unpack", "orgqr", "ormqr", "pca_lowrank", "pinverse", "qr", "svd",
    "svd_lowrank", "triangular_solve",
)  # fmt: skip
_MEMORY = (
    "empty_cache", "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_info", "memory_reserved",
    "memory_stats", "memory_summary", "reset_peak_memory_stats", "set_memory_fraction",
)  # fmt: skip
_STREAMS = ("Event", "Stream", "current_stream", "default_stream")
_TRANSFORMS = ("autocast", "checkpoint", "explain", "grad", "jit", "value_and_grad")
_LATER = {
    **{room: (room, None) for room in _ROOMS},
    **{name: ("transform", name) for name in _TRANSFORMS},
    "autograd": ("transform.autograd", None),
    "can_fuse": ("schedule.patterns", "can_fuse"),
    "finfo": ("core.limits", "finfo"),
    "iinfo": ("core.limits", "iinfo"),
    **{f"rocm_{name}": ("backend.rocm", f"rocm_{name}") for name in _ROCM_NAMES},
    **{name: ("tensor.torch_names", name) for name in _TORCH_NAMES},
    **{name: ("tensor.signals", name) for name in _SIGNALS},
    **{name: ("nn.functional", name) for name in _FUNCTIONAL},
    **{name: ("nn.functional.native", name) for name in _NATIVE},
    **{name: ("nn.recurrent_functions", name) for name in _RECURRENT},
    **{name: ("tensor.torch_functions", name) for name in _MADE_OF_OTHERS},
    **{name: ("tensor.torch_methods", name) for name in ("is_same_size", "is_signed")},
    "aot": ("transform.aot", None),
    **{name: ("tensor.memory", name) for name in _MEMORY},
    **{name: ("tensor.streams", name) for name in _STREAMS},
    "rocm": ("tensor.torch_cuda", "rocm"),
    **{name: ("tensor.storage", name) for name in ("TypedStorage", "UntypedStorage")},
    "sparse_coo_tensor": ("tensor.sparse", "sparse_coo_tensor"),
    "sparse_csr_tensor": ("tensor.sparse_csr", "sparse_csr_tensor"),
    **{name: ("tensor.torch_names", name) for name in (*_LAYOUTS, *_NO_DTYPES)},
    **{name: ("transform.torch_jit", name) for name in ("ScriptFunction", "ScriptModule")},
    **{name: ("_C", name) for name in ("DeviceObjType", "TensorType")},
    "spmm": ("tensor.sparse", "spmm"),
    **{name: ("tensor.segments", name) for name in _SEGMENTS},
    **{name: ("distributions.gammas", name) for name in ("_sample_dirichlet", "_standard_gamma")},
    **{name: ("tensor.torch_statistics", name) for name in ("histogram", "histogramdd", "pdist")},
    **{name: ("tensor.old_linalg", name) for name in _OLD_LINALG},
    "matrix_exp": ("tensor.linalg", "matrix_exp"),
    "matrix_power": ("tensor.matrix_norms", "matrix_power"),
    "vmap": ("transform.vmap", "vmap"),
    **{name: ("distributions.counts", name) for name in ("binomial", "poisson")},
    "sim": ("tensor.sim", None),
    **{name: ("tensor.encoded", name) for name in ("EncodedTensor", "dequantize", "quantize")},
    "Future": ("futures", "Future"),
    "GradScaler": ("optim", "GradScaler"),
    "annotate": ("profiling", "annotate"),
    "cache_dir": ("core.cache_folder", "cache_dir"),
    "compile": ("compiler", "compile"),
    "compile_kernel": ("tensor.kernels", "compile_kernel"),
    "compile_stats": ("engine.compile_stats", "compile_stats"),
    "load": ("io", "load"),
    "monitor": ("doctor.monitor", "monitor"),
    "profile": ("profiling", "profile"),
    "save": ("io", "save"),
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        if name == "torch":  # torch.torch is torch
            return _sys.modules[__name__]
        if name.endswith("_") and not name.startswith("_") and hasattr(Tensor, name):
            return globals().setdefault(name, _unbound(getattr(Tensor, name)))  # torch.relu_(x), as x.relu_()
        if name.startswith("_foreach_"):
            return _importlib.import_module("pyflame.tensor.foreach").foreach(name)
        if name in _FILES or name in _REFUSED:
            return _importlib.import_module(f"pyflame.{name}")
        near = "" if name.startswith("_") else _suggest(name, __all__, 0.8)  # which Python and its tools look for
        raise AttributeError(f"module 'pyflame' has no attribute {name!r}{near}")
    room, member = _LATER[name]
    module = _importlib.import_module(f"pyflame.{room}")
    globals()[name] = module if member is None else getattr(module, member)
    _publish((name,), globals(), __name__)
    return globals()[name]  # type: ignore[no-any-return]


def _know_einops(backends: object) -> None:
    _importlib.import_module("pyflame.tensor.einops").register(backends)


_when_imported("einops._backends", _know_einops)


def _know_einops_layers(_: object) -> None:
    _sys.modules["einops.layers.pyflame"] = _importlib.import_module("pyflame.nn.einops")


_when_imported("einops.layers", _know_einops_layers)

# `from pyflame.autograd import Function` finds the room of that name: give it what `pf.autograd` has. It is asked for
# by its path, since a program that puts PyFlame in torch's place makes `pf.autograd` the room.
_room = _importlib.import_module("pyflame.autograd")
_room.__getattr__ = lambda name: getattr(_importlib.import_module("pyflame.transform.autograd"), name)  # type: ignore[method-assign]
del autograd  # noqa: F821  the room, which importing it put here


_sys.meta_path.append(_TorchPaths())

_publish(__all__, globals(), __name__)
__all__ += _LATER
_functions = {**_TORCH_FUNCTIONS, **_FUNCTIONS}
_functions = {_name: _functions[_name] for _name in _functions.keys() - set(__all__)}
globals().update(_functions)
__all__ += _functions
# `from pyflame import *` leaves Python's own sum, max, eval and so on alone; pf.sum is there all the same.
__all__ = sorted(_name for _name in __all__ if not hasattr(_builtins, _name))
