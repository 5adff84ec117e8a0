# ruff: noqa: E501, RUF022, RUF100
"""Written by tools/make_stubs.py. Do not edit."""

import builtins
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from pyflame import _C as _C
from pyflame import __config__ as __config__
from pyflame import accelerator as accelerator
from pyflame import amp as amp
from pyflame import backends as backends
from pyflame import bridge as bridge
from pyflame import compiler as compiler
from pyflame import cuda as cuda
from pyflame import data as data
from pyflame import distributed as distributed
from pyflame import distributions as distributions
from pyflame import fft as fft
from pyflame import func as func
from pyflame import futures as futures
from pyflame import fx as fx
from pyflame import hub as hub
from pyflame import io as io
from pyflame import library as library
from pyflame import linalg as linalg
from pyflame import llm as llm
from pyflame import multiprocessing as multiprocessing
from pyflame import nn as nn
from pyflame import onnx as onnx
from pyflame import optim as optim
from pyflame import overrides as overrides
from pyflame import profiler as profiler
from pyflame import profiling as profiling
from pyflame import quasirandom as quasirandom
from pyflame import random as random
from pyflame import serialization as serialization
from pyflame import signal as signal
from pyflame import sparse as sparse
from pyflame import special as special
from pyflame import testing as testing
from pyflame import train as train
from pyflame import types as types
from pyflame import utils as utils
from pyflame import version as version
from pyflame._C import DeviceObjType as DeviceObjType
from pyflame._C import TensorType as TensorType
from pyflame.backend.rocm import rocm_device_count as rocm_device_count
from pyflame.backend.rocm import rocm_get_device as rocm_get_device
from pyflame.backend.rocm import rocm_get_device_info as rocm_get_device_info
from pyflame.backend.rocm import rocm_is_available as rocm_is_available
from pyflame.backend.rocm import rocm_set_device as rocm_set_device
from pyflame.backend.rocm import rocm_synchronize as rocm_synchronize
from pyflame.compiler import compile as compile
from pyflame.core.cache_folder import cache_dir as cache_dir
from pyflame.core.dtype import DType as DType
from pyflame.core.dtype import as_dtype as as_dtype
from pyflame.core.dtype import bfloat16 as bfloat16
from pyflame.core.dtype import bool_ as bool_
from pyflame.core.dtype import complex64 as complex64
from pyflame.core.dtype import complex128 as complex128
from pyflame.core.dtype import float8_e4m3fn as float8_e4m3fn
from pyflame.core.dtype import float8_e4m3fnuz as float8_e4m3fnuz
from pyflame.core.dtype import float8_e5m2 as float8_e5m2
from pyflame.core.dtype import float16 as float16
from pyflame.core.dtype import float32 as float32
from pyflame.core.dtype import float64 as float64
from pyflame.core.dtype import get_default_dtype as get_default_dtype
from pyflame.core.dtype import int8 as int8
from pyflame.core.dtype import int16 as int16
from pyflame.core.dtype import int32 as int32
from pyflame.core.dtype import int64 as int64
from pyflame.core.dtype import promote_types as promote_types
from pyflame.core.dtype import set_default_dtype as set_default_dtype
from pyflame.core.dtype import uint8 as uint8
from pyflame.core.dtype import uint16 as uint16
from pyflame.core.dtype import uint32 as uint32
from pyflame.core.dtype import uint64 as uint64
from pyflame.core.errors import ArgumentError as ArgumentError
from pyflame.core.errors import ArgumentTypeError as ArgumentTypeError
from pyflame.core.errors import CollectiveError as CollectiveError
from pyflame.core.errors import CompileError as CompileError
from pyflame.core.errors import DeviceError as DeviceError
from pyflame.core.errors import DeviceFaultError as DeviceFaultError
from pyflame.core.errors import DeviceNameError as DeviceNameError
from pyflame.core.errors import DTypeError as DTypeError
from pyflame.core.errors import EngineStoppedError as EngineStoppedError
from pyflame.core.errors import FileFormatError as FileFormatError
from pyflame.core.errors import GradientError as GradientError
from pyflame.core.errors import IndexError as IndexError
from pyflame.core.errors import NotAvailableError as NotAvailableError
from pyflame.core.errors import NotSupportedError as NotSupportedError
from pyflame.core.errors import OutOfMemoryError as OutOfMemoryError
from pyflame.core.errors import PyFlameError as PyFlameError
from pyflame.core.errors import QueueFullError as QueueFullError
from pyflame.core.errors import RequestCancelledError as RequestCancelledError
from pyflame.core.errors import RequestTimeoutError as RequestTimeoutError
from pyflame.core.errors import ShapeError as ShapeError
from pyflame.core.errors import StateDictError as StateDictError
from pyflame.core.errors import TraceError as TraceError
from pyflame.core.generator import Generator as Generator
from pyflame.core.limits import finfo as finfo
from pyflame.core.limits import iinfo as iinfo
from pyflame.core.precision import get_float32_matmul_precision as get_float32_matmul_precision
from pyflame.core.precision import set_float32_matmul_precision as set_float32_matmul_precision
from pyflame.distributions.counts import binomial as binomial
from pyflame.distributions.counts import poisson as poisson
from pyflame.distributions.gammas import _sample_dirichlet as _sample_dirichlet
from pyflame.distributions.gammas import _standard_gamma as _standard_gamma
from pyflame.doctor.monitor import monitor as monitor
from pyflame.engine.compile_stats import compile_stats as compile_stats
from pyflame.engine.services import clear_cache as clear_cache
from pyflame.futures import Future as Future
from pyflame.io import load as load
from pyflame.io import save as save
from pyflame.nn.functional import alpha_dropout as alpha_dropout
from pyflame.nn.functional import bilinear as bilinear
from pyflame.nn.functional import channel_shuffle as channel_shuffle
from pyflame.nn.functional import conv_tbc as conv_tbc
from pyflame.nn.functional import cosine_embedding_loss as cosine_embedding_loss
from pyflame.nn.functional import ctc_loss as ctc_loss
from pyflame.nn.functional import embedding_bag as embedding_bag
from pyflame.nn.functional import feature_alpha_dropout as feature_alpha_dropout
from pyflame.nn.functional import hinge_embedding_loss as hinge_embedding_loss
from pyflame.nn.functional import margin_ranking_loss as margin_ranking_loss
from pyflame.nn.functional import max_pool1d_with_indices as max_pool1d_with_indices
from pyflame.nn.functional import native_channel_shuffle as native_channel_shuffle
from pyflame.nn.functional import pairwise_distance as pairwise_distance
from pyflame.nn.functional import pixel_shuffle as pixel_shuffle
from pyflame.nn.functional import pixel_unshuffle as pixel_unshuffle
from pyflame.nn.functional import poisson_nll_loss as poisson_nll_loss
from pyflame.nn.functional import rrelu as rrelu
from pyflame.nn.functional import rrelu_ as rrelu_
from pyflame.nn.functional import threshold as threshold
from pyflame.nn.functional import threshold_ as threshold_
from pyflame.nn.functional import triplet_margin_loss as triplet_margin_loss
from pyflame.nn.functional.native import affine_grid_generator as affine_grid_generator
from pyflame.nn.functional.native import alpha_dropout_ as alpha_dropout_
from pyflame.nn.functional.native import constant_pad_nd as constant_pad_nd
from pyflame.nn.functional.native import convolution as convolution
from pyflame.nn.functional.native import dropout_ as dropout_
from pyflame.nn.functional.native import embedding_renorm_ as embedding_renorm_
from pyflame.nn.functional.native import feature_alpha_dropout_ as feature_alpha_dropout_
from pyflame.nn.functional.native import feature_dropout as feature_dropout
from pyflame.nn.functional.native import feature_dropout_ as feature_dropout_
from pyflame.nn.functional.native import grid_sampler as grid_sampler
from pyflame.nn.functional.native import grid_sampler_2d as grid_sampler_2d
from pyflame.nn.functional.native import grid_sampler_3d as grid_sampler_3d
from pyflame.nn.functional.native import native_batch_norm as native_batch_norm
from pyflame.nn.functional.native import native_dropout as native_dropout
from pyflame.nn.functional.native import native_group_norm as native_group_norm
from pyflame.nn.functional.native import native_layer_norm as native_layer_norm
from pyflame.nn.functional.native import norm_except_dim as norm_except_dim
from pyflame.nn.recurrent_functions import gru as gru
from pyflame.nn.recurrent_functions import gru_cell as gru_cell
from pyflame.nn.recurrent_functions import lstm as lstm
from pyflame.nn.recurrent_functions import lstm_cell as lstm_cell
from pyflame.nn.recurrent_functions import rnn_relu as rnn_relu
from pyflame.nn.recurrent_functions import rnn_relu_cell as rnn_relu_cell
from pyflame.nn.recurrent_functions import rnn_tanh as rnn_tanh
from pyflame.nn.recurrent_functions import rnn_tanh_cell as rnn_tanh_cell
from pyflame.optim import GradScaler as GradScaler
from pyflame.profiling import annotate as annotate
from pyflame.profiling import profile as profile
from pyflame.schedule.patterns import can_fuse as can_fuse
from pyflame.tensor import Tensor as Tensor
from pyflame.tensor import sim as sim
from pyflame.tensor.counted import one_hot as one_hot
from pyflame.tensor.counted import repeat_interleave as repeat_interleave
from pyflame.tensor.counted import where as where
from pyflame.tensor.creation import arange as arange
from pyflame.tensor.creation import as_tensor as as_tensor
from pyflame.tensor.creation import empty as empty
from pyflame.tensor.creation import empty_like as empty_like
from pyflame.tensor.creation import eye as eye
from pyflame.tensor.creation import from_numpy as from_numpy
from pyflame.tensor.creation import full as full
from pyflame.tensor.creation import full_like as full_like
from pyflame.tensor.creation import linspace as linspace
from pyflame.tensor.creation import logspace as logspace
from pyflame.tensor.creation import ones as ones
from pyflame.tensor.creation import ones_like as ones_like
from pyflame.tensor.creation import tensor as tensor
from pyflame.tensor.creation import tril_indices as tril_indices
from pyflame.tensor.creation import triu_indices as triu_indices
from pyflame.tensor.creation import zeros as zeros
from pyflame.tensor.creation import zeros_like as zeros_like
from pyflame.tensor.custom import custom_gradient as custom_gradient
from pyflame.tensor.devices import device as device
from pyflame.tensor.devices import device_info as device_info
from pyflame.tensor.devices import devices as devices
from pyflame.tensor.devices import explain_devices as explain_devices
from pyflame.tensor.devices import get_device as get_device
from pyflame.tensor.devices import reset_device as reset_device
from pyflame.tensor.devices import set_device as set_device
from pyflame.tensor.devices import synchronize as synchronize
from pyflame.tensor.dlpack import from_dlpack as from_dlpack
from pyflame.tensor.encoded import EncodedTensor as EncodedTensor
from pyflame.tensor.encoded import dequantize as dequantize
from pyflame.tensor.encoded import quantize as quantize
from pyflame.tensor.factorizations import det as det
from pyflame.tensor.factorizations import inverse as inverse
from pyflame.tensor.factorizations import logdet as logdet
from pyflame.tensor.factorizations import slogdet as slogdet
from pyflame.tensor.gradients import enable_grad as enable_grad
from pyflame.tensor.gradients import inference_mode as inference_mode
from pyflame.tensor.gradients import is_grad_enabled as is_grad_enabled
from pyflame.tensor.gradients import no_grad as no_grad
from pyflame.tensor.gradients import set_grad_enabled as set_grad_enabled
from pyflame.tensor.indexing import argwhere as argwhere
from pyflame.tensor.indexing import masked_select as masked_select
from pyflame.tensor.indexing import nonzero as nonzero
from pyflame.tensor.interop import from_torch as from_torch
from pyflame.tensor.kernels import compile_kernel as compile_kernel
from pyflame.tensor.linalg import matrix_exp as matrix_exp
from pyflame.tensor.matrix_norms import matrix_power as matrix_power
from pyflame.tensor.memory import empty_cache as empty_cache
from pyflame.tensor.memory import max_memory_allocated as max_memory_allocated
from pyflame.tensor.memory import max_memory_reserved as max_memory_reserved
from pyflame.tensor.memory import memory_allocated as memory_allocated
from pyflame.tensor.memory import memory_info as memory_info
from pyflame.tensor.memory import memory_reserved as memory_reserved
from pyflame.tensor.memory import memory_stats as memory_stats
from pyflame.tensor.memory import memory_summary as memory_summary
from pyflame.tensor.memory import reset_peak_memory_stats as reset_peak_memory_stats
from pyflame.tensor.memory import set_memory_fraction as set_memory_fraction
from pyflame.tensor.modes import deterministic as deterministic
from pyflame.tensor.modes import eager as eager
from pyflame.tensor.modes import eval as eval
from pyflame.tensor.old_linalg import cholesky as cholesky
from pyflame.tensor.old_linalg import geqrf as geqrf
from pyflame.tensor.old_linalg import lobpcg as lobpcg
from pyflame.tensor.old_linalg import lu as lu
from pyflame.tensor.old_linalg import lu_unpack as lu_unpack
from pyflame.tensor.old_linalg import orgqr as orgqr
from pyflame.tensor.old_linalg import ormqr as ormqr
from pyflame.tensor.old_linalg import pca_lowrank as pca_lowrank
from pyflame.tensor.old_linalg import pinverse as pinverse
from pyflame.tensor.old_linalg import qr as qr
from pyflame.tensor.old_linalg import svd as svd
from pyflame.tensor.old_linalg import svd_lowrank as svd_lowrank
from pyflame.tensor.old_linalg import triangular_solve as triangular_solve
from pyflame.tensor.random import get_rng_state as get_rng_state
from pyflame.tensor.random import initial_seed as initial_seed
from pyflame.tensor.random import manual_seed as manual_seed
from pyflame.tensor.random import multinomial as multinomial
from pyflame.tensor.random import normal as normal
from pyflame.tensor.random import rand as rand
from pyflame.tensor.random import rand_like as rand_like
from pyflame.tensor.random import randint as randint
from pyflame.tensor.random import randint_like as randint_like
from pyflame.tensor.random import randn as randn
from pyflame.tensor.random import randn_like as randn_like
from pyflame.tensor.random import randperm as randperm
from pyflame.tensor.random import seed as seed
from pyflame.tensor.random import set_rng_state as set_rng_state
from pyflame.tensor.segments import _convert_indices_from_coo_to_csr as _convert_indices_from_coo_to_csr
from pyflame.tensor.segments import _convert_indices_from_csr_to_coo as _convert_indices_from_csr_to_coo
from pyflame.tensor.segments import _segment_reduce as _segment_reduce
from pyflame.tensor.segments import segment_reduce as segment_reduce
from pyflame.tensor.sets import allclose as allclose
from pyflame.tensor.sets import bincount as bincount
from pyflame.tensor.sets import equal as equal
from pyflame.tensor.sets import numel as numel
from pyflame.tensor.sets import unique as unique
from pyflame.tensor.sets import unique_consecutive as unique_consecutive
from pyflame.tensor.signals import bartlett_window as bartlett_window
from pyflame.tensor.signals import blackman_window as blackman_window
from pyflame.tensor.signals import hamming_window as hamming_window
from pyflame.tensor.signals import hann_window as hann_window
from pyflame.tensor.signals import istft as istft
from pyflame.tensor.signals import kaiser_window as kaiser_window
from pyflame.tensor.signals import stft as stft
from pyflame.tensor.sparse import sparse_coo_tensor as sparse_coo_tensor
from pyflame.tensor.sparse import spmm as spmm
from pyflame.tensor.sparse_csr import sparse_csr_tensor as sparse_csr_tensor
from pyflame.tensor.storage import TypedStorage as TypedStorage
from pyflame.tensor.storage import UntypedStorage as UntypedStorage
from pyflame.tensor.streams import Event as Event
from pyflame.tensor.streams import Stream as Stream
from pyflame.tensor.streams import current_stream as current_stream
from pyflame.tensor.streams import default_stream as default_stream
from pyflame.tensor.torch_cuda import rocm as rocm
from pyflame.tensor.torch_functions import adjoint as adjoint
from pyflame.tensor.torch_functions import alias_copy as alias_copy
from pyflame.tensor.torch_functions import as_strided as as_strided
from pyflame.tensor.torch_functions import as_strided_copy as as_strided_copy
from pyflame.tensor.torch_functions import as_strided_scatter as as_strided_scatter
from pyflame.tensor.torch_functions import chain_matmul as chain_matmul
from pyflame.tensor.torch_functions import cholesky_inverse as cholesky_inverse
from pyflame.tensor.torch_functions import cholesky_solve as cholesky_solve
from pyflame.tensor.torch_functions import combinations as combinations
from pyflame.tensor.torch_functions import cond as cond
from pyflame.tensor.torch_functions import cumulative_trapezoid as cumulative_trapezoid
from pyflame.tensor.torch_functions import detach as detach
from pyflame.tensor.torch_functions import detach_copy as detach_copy
from pyflame.tensor.torch_functions import diagonal_copy as diagonal_copy
from pyflame.tensor.torch_functions import diagonal_scatter as diagonal_scatter
from pyflame.tensor.torch_functions import empty_permuted as empty_permuted
from pyflame.tensor.torch_functions import empty_strided as empty_strided
from pyflame.tensor.torch_functions import expand_copy as expand_copy
from pyflame.tensor.torch_functions import fill as fill
from pyflame.tensor.torch_functions import frobenius_norm as frobenius_norm
from pyflame.tensor.torch_functions import gradient as gradient
from pyflame.tensor.torch_functions import isreal as isreal
from pyflame.tensor.torch_functions import lu_solve as lu_solve
from pyflame.tensor.torch_functions import mvlgamma as mvlgamma
from pyflame.tensor.torch_functions import nonzero_static as nonzero_static
from pyflame.tensor.torch_functions import nuclear_norm as nuclear_norm
from pyflame.tensor.torch_functions import permute_copy as permute_copy
from pyflame.tensor.torch_functions import resolve_conj as resolve_conj
from pyflame.tensor.torch_functions import resolve_neg as resolve_neg
from pyflame.tensor.torch_functions import select_copy as select_copy
from pyflame.tensor.torch_functions import split_copy as split_copy
from pyflame.tensor.torch_functions import split_with_sizes_copy as split_with_sizes_copy
from pyflame.tensor.torch_functions import squeeze_copy as squeeze_copy
from pyflame.tensor.torch_functions import t_copy as t_copy
from pyflame.tensor.torch_functions import to_dlpack as to_dlpack
from pyflame.tensor.torch_functions import transpose_copy as transpose_copy
from pyflame.tensor.torch_functions import unbind_copy as unbind_copy
from pyflame.tensor.torch_functions import unfold_copy as unfold_copy
from pyflame.tensor.torch_functions import unravel_index as unravel_index
from pyflame.tensor.torch_functions import unsqueeze_copy as unsqueeze_copy
from pyflame.tensor.torch_functions import view_copy as view_copy
from pyflame.tensor.torch_methods import is_same_size as is_same_size
from pyflame.tensor.torch_methods import is_signed as is_signed
from pyflame.tensor.torch_names import BFloat16Tensor as BFloat16Tensor
from pyflame.tensor.torch_names import BoolTensor as BoolTensor
from pyflame.tensor.torch_names import ByteTensor as ByteTensor
from pyflame.tensor.torch_names import CharTensor as CharTensor
from pyflame.tensor.torch_names import DoubleTensor as DoubleTensor
from pyflame.tensor.torch_names import FloatTensor as FloatTensor
from pyflame.tensor.torch_names import HalfTensor as HalfTensor
from pyflame.tensor.torch_names import IntTensor as IntTensor
from pyflame.tensor.torch_names import LongTensor as LongTensor
from pyflame.tensor.torch_names import PyTorchFileReader as PyTorchFileReader
from pyflame.tensor.torch_names import ShortTensor as ShortTensor
from pyflame.tensor.torch_names import Size as Size
from pyflame.tensor.torch_names import SymBool as SymBool
from pyflame.tensor.torch_names import SymFloat as SymFloat
from pyflame.tensor.torch_names import SymInt as SymInt
from pyflame.tensor.torch_names import _assert as _assert
from pyflame.tensor.torch_names import _assert_async as _assert_async
from pyflame.tensor.torch_names import _check as _check
from pyflame.tensor.torch_names import _check_index as _check_index
from pyflame.tensor.torch_names import _check_is_size as _check_is_size
from pyflame.tensor.torch_names import _check_not_implemented as _check_not_implemented
from pyflame.tensor.torch_names import _check_tensor_all as _check_tensor_all
from pyflame.tensor.torch_names import _check_tensor_all_with as _check_tensor_all_with
from pyflame.tensor.torch_names import _check_type as _check_type
from pyflame.tensor.torch_names import _check_value as _check_value
from pyflame.tensor.torch_names import _check_with as _check_with
from pyflame.tensor.torch_names import are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled
from pyflame.tensor.torch_names import asarray as asarray
from pyflame.tensor.torch_names import broadcast_shapes as broadcast_shapes
from pyflame.tensor.torch_names import can_cast as can_cast
from pyflame.tensor.torch_names import chalf as chalf
from pyflame.tensor.torch_names import channels_last as channels_last
from pyflame.tensor.torch_names import channels_last_3d as channels_last_3d
from pyflame.tensor.torch_names import clear_autocast_cache as clear_autocast_cache
from pyflame.tensor.torch_names import complex32 as complex32
from pyflame.tensor.torch_names import contiguous_format as contiguous_format
from pyflame.tensor.torch_names import default_generator as default_generator
from pyflame.tensor.torch_names import dtype as dtype
from pyflame.tensor.torch_names import e as e
from pyflame.tensor.torch_names import frombuffer as frombuffer
from pyflame.tensor.torch_names import get_autocast_cpu_dtype as get_autocast_cpu_dtype
from pyflame.tensor.torch_names import get_autocast_dtype as get_autocast_dtype
from pyflame.tensor.torch_names import get_autocast_gpu_dtype as get_autocast_gpu_dtype
from pyflame.tensor.torch_names import get_default_device as get_default_device
from pyflame.tensor.torch_names import get_deterministic_debug_mode as get_deterministic_debug_mode
from pyflame.tensor.torch_names import get_num_interop_threads as get_num_interop_threads
from pyflame.tensor.torch_names import get_num_threads as get_num_threads
from pyflame.tensor.torch_names import inf as inf
from pyflame.tensor.torch_names import is_anomaly_enabled as is_anomaly_enabled
from pyflame.tensor.torch_names import is_autocast_cache_enabled as is_autocast_cache_enabled
from pyflame.tensor.torch_names import is_autocast_cpu_enabled as is_autocast_cpu_enabled
from pyflame.tensor.torch_names import is_autocast_enabled as is_autocast_enabled
from pyflame.tensor.torch_names import is_complex as is_complex
from pyflame.tensor.torch_names import is_conj as is_conj
from pyflame.tensor.torch_names import (
    is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled,
)
from pyflame.tensor.torch_names import is_floating_point as is_floating_point
from pyflame.tensor.torch_names import is_inference as is_inference
from pyflame.tensor.torch_names import is_inference_mode_enabled as is_inference_mode_enabled
from pyflame.tensor.torch_names import is_neg as is_neg
from pyflame.tensor.torch_names import is_nonzero as is_nonzero
from pyflame.tensor.torch_names import is_storage as is_storage
from pyflame.tensor.torch_names import is_tensor as is_tensor
from pyflame.tensor.torch_names import jagged as jagged
from pyflame.tensor.torch_names import layout as layout
from pyflame.tensor.torch_names import legacy_contiguous_format as legacy_contiguous_format
from pyflame.tensor.torch_names import memory_format as memory_format
from pyflame.tensor.torch_names import nan as nan
from pyflame.tensor.torch_names import newaxis as newaxis
from pyflame.tensor.torch_names import pi as pi
from pyflame.tensor.torch_names import preserve_format as preserve_format
from pyflame.tensor.torch_names import qint8 as qint8
from pyflame.tensor.torch_names import qint32 as qint32
from pyflame.tensor.torch_names import quint8 as quint8
from pyflame.tensor.torch_names import range as range
from pyflame.tensor.torch_names import result_type as result_type
from pyflame.tensor.torch_names import scalar_tensor as scalar_tensor
from pyflame.tensor.torch_names import set_autocast_cache_enabled as set_autocast_cache_enabled
from pyflame.tensor.torch_names import set_default_device as set_default_device
from pyflame.tensor.torch_names import set_default_tensor_type as set_default_tensor_type
from pyflame.tensor.torch_names import set_deterministic_debug_mode as set_deterministic_debug_mode
from pyflame.tensor.torch_names import set_flush_denormal as set_flush_denormal
from pyflame.tensor.torch_names import set_num_interop_threads as set_num_interop_threads
from pyflame.tensor.torch_names import set_num_threads as set_num_threads
from pyflame.tensor.torch_names import set_printoptions as set_printoptions
from pyflame.tensor.torch_names import sparse_bsc as sparse_bsc
from pyflame.tensor.torch_names import sparse_bsr as sparse_bsr
from pyflame.tensor.torch_names import sparse_coo as sparse_coo
from pyflame.tensor.torch_names import sparse_csc as sparse_csc
from pyflame.tensor.torch_names import sparse_csr as sparse_csr
from pyflame.tensor.torch_names import strided as strided
from pyflame.tensor.torch_names import sym_float as sym_float
from pyflame.tensor.torch_names import sym_int as sym_int
from pyflame.tensor.torch_names import sym_max as sym_max
from pyflame.tensor.torch_names import sym_min as sym_min
from pyflame.tensor.torch_names import typename as typename
from pyflame.tensor.torch_names import use_deterministic_algorithms as use_deterministic_algorithms
from pyflame.tensor.torch_statistics import histogram as histogram
from pyflame.tensor.torch_statistics import histogramdd as histogramdd
from pyflame.tensor.torch_statistics import pdist as pdist
from pyflame.transform import aot as aot
from pyflame.transform import autocast as autocast
from pyflame.transform import autograd as autograd
from pyflame.transform import checkpoint as checkpoint
from pyflame.transform import explain as explain
from pyflame.transform import grad as grad
from pyflame.transform import jit as jit
from pyflame.transform import value_and_grad as value_and_grad
from pyflame.transform.torch_jit import ScriptFunction as ScriptFunction
from pyflame.transform.torch_jit import ScriptModule as ScriptModule
from pyflame.transform.vmap import vmap as vmap

TensorLike: TypeAlias = Tensor | np.ndarray[Any, Any] | builtins.float

__version__: str
double: DType
half: DType
long: DType
short: DType
cfloat: DType
cdouble: DType
bool: DType
float: DType
int: DType

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "CollectiveError",
    "CompileError",
    "DType",
    "DTypeError",
    "DeviceError",
    "DeviceFaultError",
    "DeviceNameError",
    "DeviceObjType",
    "DoubleTensor",
    "EncodedTensor",
    "EngineStoppedError",
    "Event",
    "FileFormatError",
    "FloatTensor",
    "Future",
    "Generator",
    "GradScaler",
    "GradientError",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "NotAvailableError",
    "NotSupportedError",
    "OutOfMemoryError",
    "PyFlameError",
    "PyTorchFileReader",
    "QueueFullError",
    "RequestCancelledError",
    "RequestTimeoutError",
    "ScriptFunction",
    "ScriptModule",
    "ShapeError",
    "ShortTensor",
    "Size",
    "StateDictError",
    "Stream",
    "SymBool",
    "SymFloat",
    "SymInt",
    "Tensor",
    "TensorType",
    "TraceError",
    "TypedStorage",
    "UntypedStorage",
    "_C",
    "__config__",
    "__version__",
    "_assert",
    "_assert_async",
    "_check",
    "_check_index",
    "_check_is_size",
    "_check_not_implemented",
    "_check_tensor_all",
    "_check_tensor_all_with",
    "_check_type",
    "_check_value",
    "_check_with",
    "_convert_indices_from_coo_to_csr",
    "_convert_indices_from_csr_to_coo",
    "_int_mm",
    "_sample_dirichlet",
    "_segment_reduce",
    "_standard_gamma",
    "absolute",
    "accelerator",
    "acos",
    "acosh",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "add",
    "addbmm",
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "addr",
    "adjoint",
    "affine_grid_generator",
    "airy_ai",
    "alias_copy",
    "allclose",
    "alpha_dropout",
    "alpha_dropout_",
    "amax",
    "amin",
    "aminmax",
    "amp",
    "angle",
    "annotate",
    "aot",
    "arange",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "are_deterministic_algorithms_enabled",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "as_dtype",
    "as_strided",
    "as_strided_copy",
    "as_strided_scatter",
    "as_tensor",
    "asarray",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "autocast",
    "autograd",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "backends",
    "baddbmm",
    "bartlett_window",
    "batch_matmul",
    "batch_norm",
    "batch_norm_stats",
    "bce_loss",
    "bce_with_logits",
    "bernoulli",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "bfloat16",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "bincount",
    "binomial",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "blackman_window",
    "block_diag",
    "bmm",
    "bool_",
    "bridge",
    "broadcast_shapes",
    "broadcast_tensors",
    "broadcast_to",
    "bucketize",
    "cache_dir",
    "can_cast",
    "can_fuse",
    "cartesian_prod",
    "cast",
    "cat",
    "cdist",
    "cdouble",
    "ceil",
    "celu",
    "cfloat",
    "chain_matmul",
    "chalf",
    "channel_shuffle",
    "channels_last",
    "channels_last_3d",
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "checkpoint",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "chunk",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clear_autocast_cache",
    "clear_cache",
    "clip",
    "clone",
    "column_stack",
    "combinations",
    "compile_kernel",
    "compile_stats",
    "compiler",
    "complex128",
    "complex32",
    "complex64",
    "concat",
    "concatenate",
    "cond",
    "conj",
    "conj_physical",
    "constant_pad_nd",
    "contiguous",
    "contiguous_format",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution",
    "copysign",
    "corrcoef",
    "cos",
    "cosh",
    "cosine_embedding_loss",
    "cosine_similarity",
    "count_nonzero",
    "cov",
    "cross",
    "cross_entropy",
    "ctc_loss",
    "cuda",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_trapezoid",
    "current_stream",
    "custom_gradient",
    "data",
    "default_generator",
    "default_stream",
    "deg2rad",
    "dequantize",
    "det",
    "detach",
    "detach_copy",
    "deterministic",
    "device",
    "device_info",
    "devices",
    "diag",
    "diag_embed",
    "diagflat",
    "diagonal",
    "diagonal_copy",
    "diagonal_scatter",
    "diff",
    "digamma",
    "dist",
    "distributed",
    "distributions",
    "div",
    "divide",
    "dot",
    "double",
    "dropout",
    "dropout_",
    "dsplit",
    "dstack",
    "dtype",
    "e",
    "eager",
    "einsum",
    "elu",
    "embedding",
    "embedding_bag",
    "embedding_renorm_",
    "empty",
    "empty_cache",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "enable_grad",
    "encoded_linear",
    "eq",
    "equal",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp",
    "exp2",
    "expand",
    "expand_as",
    "expand_copy",
    "expert_linear",
    "explain",
    "explain_devices",
    "expm1",
    "eye",
    "feature_alpha_dropout",
    "feature_alpha_dropout_",
    "feature_dropout",
    "feature_dropout_",
    "fft",
    "fill",
    "finfo",
    "fix",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "float16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float_power",
    "floor",
    "floor_div",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "fold",
    "frac",
    "frexp",
    "frobenius_norm",
    "from_dlpack",
    "from_numpy",
    "from_torch",
    "frombuffer",
    "full",
    "full_like",
    "func",
    "futures",
    "fx",
    "gather",
    "gcd",
    "ge",
    "gelu",
    "geqrf",
    "ger",
    "get_autocast_cpu_dtype",
    "get_autocast_dtype",
    "get_autocast_gpu_dtype",
    "get_default_device",
    "get_default_dtype",
    "get_deterministic_debug_mode",
    "get_device",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "get_num_threads",
    "get_rng_state",
    "glu",
    "grad",
    "gradient",
    "greater",
    "greater_equal",
    "grid_sampler",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "group_norm",
    "gru",
    "gru_cell",
    "gt",
    "half",
    "hamming_window",
    "hann_window",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "heaviside",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "hinge_embedding_loss",
    "histc",
    "histogram",
    "histogramdd",
    "hsplit",
    "hstack",
    "hub",
    "huber_loss",
    "hypot",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "igamma",
    "igammac",
    "iinfo",
    "imag",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "index_select",
    "inf",
    "inference_mode",
    "initial_seed",
    "inner",
    "instance_norm",
    "int16",
    "int32",
    "int64",
    "int8",
    "interleaved_linear",
    "inverse",
    "io",
    "is_anomaly_enabled",
    "is_autocast_cache_enabled",
    "is_autocast_cpu_enabled",
    "is_autocast_enabled",
    "is_complex",
    "is_conj",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_floating_point",
    "is_grad_enabled",
    "is_inference",
    "is_inference_mode_enabled",
    "is_neg",
    "is_nonzero",
    "is_same_size",
    "is_signed",
    "is_storage",
    "is_tensor",
    "isclose",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "istft",
    "jagged",
    "jit",
    "kaiser_window",
    "kl_div",
    "kron",
    "kthvalue",
    "l1_loss",
    "laguerre_polynomial_l",
    "layer_norm",
    "layout",
    "lcm",
    "ldexp",
    "le",
    "leaky_relu",
    "left_shift",
    "legacy_contiguous_format",
    "legendre_polynomial_p",
    "lerp",
    "less",
    "less_equal",
    "lgamma",
    "library",
    "linalg",
    "linear",
    "linear_cross_entropy",
    "linspace",
    "llm",
    "load",
    "lobpcg",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "logaddexp",
    "logaddexp2",
    "logcumsumexp",
    "logdet",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logsigmoid",
    "logspace",
    "logsumexp",
    "long",
    "lstm",
    "lstm_cell",
    "lt",
    "lu",
    "lu_solve",
    "lu_unpack",
    "manual_seed",
    "margin_ranking_loss",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "matmul",
    "matrix_exp",
    "matrix_power",
    "max_memory_allocated",
    "max_memory_reserved",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool3d",
    "maximum",
    "mean",
    "median",
    "memory_allocated",
    "memory_format",
    "memory_info",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "meshgrid",
    "minimum",
    "mish",
    "mm",
    "mod",
    "mode",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "monitor",
    "moveaxis",
    "movedim",
    "mse_loss",
    "msort",
    "mul",
    "multinomial",
    "multiply",
    "multiprocessing",
    "mv",
    "mvlgamma",
    "nan",
    "nan_to_num",
    "nanmean",
    "nanmedian",
    "nanquantile",
    "nansum",
    "narrow",
    "narrow_copy",
    "native_batch_norm",
    "native_channel_shuffle",
    "native_dropout",
    "native_group_norm",
    "native_layer_norm",
    "ne",
    "neg",
    "negative",
    "newaxis",
    "nextafter",
    "nll_loss",
    "nn",
    "no_grad",
    "nonzero",
    "nonzero_static",
    "norm",
    "norm_except_dim",
    "normal",
    "not_equal",
    "nuclear_norm",
    "numel",
    "one_hot",
    "ones",
    "ones_like",
    "onnx",
    "optim",
    "orgqr",
    "ormqr",
    "outer",
    "overrides",
    "pad",
    "paged_attention",
    "pairwise_distance",
    "pca_lowrank",
    "pdist",
    "permute",
    "permute_copy",
    "pi",
    "pinverse",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson",
    "poisson_nll_loss",
    "polar",
    "polygamma",
    "positive",
    "prelu",
    "preserve_format",
    "prod",
    "profile",
    "profiler",
    "profiling",
    "promote_types",
    "put",
    "qint32",
    "qint8",
    "qr",
    "quantile",
    "quantize",
    "quasirandom",
    "quint8",
    "rad2deg",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "random",
    "randperm",
    "ravel",
    "real",
    "reciprocal",
    "relu",
    "relu6",
    "remainder",
    "renorm",
    "repeat",
    "repeat_interleave",
    "reset_device",
    "reset_peak_memory_stats",
    "reshape",
    "reshape_as",
    "resolve_conj",
    "resolve_neg",
    "result_type",
    "right_shift",
    "rms_norm",
    "rnn_relu",
    "rnn_relu_cell",
    "rnn_tanh",
    "rnn_tanh_cell",
    "rocm",
    "rocm_device_count",
    "rocm_get_device",
    "rocm_get_device_info",
    "rocm_is_available",
    "rocm_set_device",
    "rocm_synchronize",
    "roll",
    "rope",
    "rot90",
    "row_stack",
    "rrelu",
    "rrelu_",
    "rsqrt",
    "rsub",
    "save",
    "scalar_tensor",
    "scaled_dot_product_attention",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "searchsorted",
    "seed",
    "segment_reduce",
    "select",
    "select_copy",
    "select_scatter",
    "selu",
    "serialization",
    "set_autocast_cache_enabled",
    "set_default_device",
    "set_default_dtype",
    "set_default_tensor_type",
    "set_deterministic_debug_mode",
    "set_device",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_grad_enabled",
    "set_memory_fraction",
    "set_num_interop_threads",
    "set_num_threads",
    "set_printoptions",
    "set_rng_state",
    "sgn",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
    "short",
    "sigmoid",
    "sign",
    "signal",
    "signbit",
    "silu",
    "sim",
    "sin",
    "sinc",
    "sinh",
    "slice_scatter",
    "slogdet",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "softsign",
    "sort",
    "sparse",
    "sparse_bsc",
    "sparse_bsr",
    "sparse_coo",
    "sparse_coo_tensor",
    "sparse_csc",
    "sparse_csr",
    "sparse_csr_tensor",
    "special",
    "split",
    "split_copy",
    "split_with_sizes",
    "split_with_sizes_copy",
    "spmm",
    "sqrt",
    "square",
    "squeeze",
    "squeeze_copy",
    "stack",
    "std",
    "std_mean",
    "stft",
    "strided",
    "sub",
    "subtract",
    "svd",
    "svd_lowrank",
    "swapaxes",
    "swapdims",
    "swiglu",
    "sym_float",
    "sym_int",
    "sym_max",
    "sym_min",
    "synchronize",
    "t",
    "t_copy",
    "take",
    "take_along_axis",
    "take_along_dim",
    "tan",
    "tanh",
    "tensor",
    "tensor_split",
    "tensordot",
    "testing",
    "threshold",
    "threshold_",
    "tile",
    "to_dlpack",
    "topk",
    "trace",
    "train",
    "transpose",
    "transpose_copy",
    "trapezoid",
    "trapz",
    "triangular_solve",
    "tril",
    "tril_indices",
    "triplet_margin_loss",
    "triu",
    "triu_indices",
    "true_divide",
    "trunc",
    "typename",
    "types",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "unbind",
    "unbind_copy",
    "unflatten",
    "unfold",
    "unfold2d",
    "unfold_copy",
    "unique",
    "unique_consecutive",
    "unravel_index",
    "unsafe_chunk",
    "unsafe_split",
    "unsafe_split_with_sizes",
    "unsqueeze",
    "unsqueeze_copy",
    "use_deterministic_algorithms",
    "utils",
    "value_and_grad",
    "vander",
    "var",
    "var_mean",
    "varlen_attn",
    "vdot",
    "version",
    "view",
    "view_as",
    "view_as_complex",
    "view_as_real",
    "view_copy",
    "vmap",
    "vsplit",
    "vstack",
    "where",
    "xlogy",
    "zeros",
    "zeros_like",
    "zeta",
]

def _int_mm(x: TensorLike, y: TensorLike) -> Tensor:
    """Product of two int8 matrices, added up and given in int32, as quantised layers want it.

    >>> pf._int_mm(pf.full((2, 3), 100, dtype=pf.int8), pf.full((3, 2), 100, dtype=pf.int8))
    tensor([[30000, 30000],
            [30000, 30000]], dtype=pyflame.int32)
    """

def abs(x: TensorLike) -> Tensor:
    """The absolute value.

    >>> pf.abs(pf.tensor([1.0, -2.0]))
    tensor([1., 2.])
    """

def absolute(x: TensorLike) -> Tensor:
    """Same as `abs`."""

def acos(x: TensorLike) -> Tensor:
    """The angle in [0, pi] whose cosine is x.

    >>> pf.acos(pf.tensor([0.0, 1.0]))
    tensor([1.5708, 0.0000])
    """

def acosh(x: TensorLike) -> Tensor:
    """Inverse hyperbolic cosine; NaN below 1.

    >>> pf.acosh(pf.tensor([1.0, 2.0]))
    tensor([0.0000, 1.3170])
    """

def adaptive_avg_pool1d(input: TensorLike, output_size: Any) -> Tensor:
    """Means over windows that share the axis evenly among `output_size` outputs.

    >>> pf.adaptive_avg_pool1d(pf.ones(1, 2, 7), 3).shape
    (1, 2, 3)
    """

def adaptive_avg_pool2d(input: TensorLike, output_size: Any) -> Tensor:
    """Means over windows that share both axes evenly among `output_size` outputs; None keeps a size.

    >>> pf.adaptive_avg_pool2d(pf.ones(1, 2, 7, 9), (1, None)).shape
    (1, 2, 1, 9)
    """

def adaptive_avg_pool3d(input: TensorLike, output_size: Any) -> Tensor:
    """Means over windows that share three axes evenly among `output_size` outputs; None keeps a size.

    >>> pf.adaptive_avg_pool3d(pf.ones(1, 2, 4, 7, 9), 2).shape
    (1, 2, 2, 2, 2)
    """

def adaptive_max_pool1d(input: TensorLike, output_size: Any, return_indices: builtins.bool = False) -> Tensor:
    """Maxima over windows that share the axis evenly among `output_size` outputs.

    >>> pf.adaptive_max_pool1d(pf.ones(1, 2, 7), 3).shape
    (1, 2, 3)
    """

def adaptive_max_pool2d(input: TensorLike, output_size: Any, return_indices: builtins.bool = False) -> Tensor:
    """Maxima over windows that share both axes evenly among `output_size` outputs; None keeps a size.

    >>> pf.adaptive_max_pool2d(pf.ones(1, 2, 7, 9), 3).shape
    (1, 2, 3, 3)
    """

def adaptive_max_pool3d(input: TensorLike, output_size: Any, return_indices: builtins.bool = False) -> Tensor:
    """Maxima over windows that share three axes evenly among `output_size` outputs; None keeps a size.

    >>> pf.adaptive_max_pool3d(pf.ones(1, 2, 4, 7, 9), 2).shape
    (1, 2, 2, 2, 2)
    """

def add(x: TensorLike, y: TensorLike, *, alpha: builtins.float = 1) -> Tensor:
    """x + alpha * y; `or` for bools.

    >>> pf.add(pf.tensor([1.0, 2.0]), 0.5)
    tensor([1.5000, 2.5000])
    """

def addbmm(
    input: TensorLike, batch1: TensorLike, batch2: TensorLike, *, beta: builtins.float = 1, alpha: builtins.float = 1
) -> Tensor:
    """beta * input + alpha * the sum of the products of two batches of matrices.

    >>> pf.addbmm(pf.zeros(2, 2), pf.ones(3, 2, 4), pf.ones(3, 4, 2))
    tensor([[12., 12.],
            [12., 12.]])
    """

def addcdiv(x: TensorLike, y: TensorLike, z: TensorLike, value: builtins.float = 1) -> Tensor:
    """x + value * y / z.

    >>> pf.addcdiv(pf.tensor([1.0]), pf.tensor([6.0]), pf.tensor([2.0]), value=0.5)
    tensor([2.5000])
    """

def addcmul(x: TensorLike, y: TensorLike, z: TensorLike, value: builtins.float = 1) -> Tensor:
    """x + value * y * z.

    >>> pf.addcmul(pf.tensor([1.0]), pf.tensor([2.0]), pf.tensor([3.0]), value=0.5)
    tensor([4.])
    """

def addmm(
    input: TensorLike, mat1: TensorLike, mat2: TensorLike, beta: builtins.float = 1, alpha: builtins.float = 1
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2).

    >>> pf.addmm(pf.ones(4), pf.ones(2, 3), pf.ones(3, 4)).shape
    (2, 4)
    """

def addmv(
    input: TensorLike, mat: TensorLike, vec: TensorLike, *, beta: builtins.float = 1, alpha: builtins.float = 1
) -> Tensor:
    """beta * input + alpha * (mat @ vec).

    >>> pf.addmv(pf.ones(2), pf.eye(2), pf.tensor([1.0, 2.0]))
    tensor([2., 3.])
    """

def addr(
    input: TensorLike, vec1: TensorLike, vec2: TensorLike, *, beta: builtins.float = 1, alpha: builtins.float = 1
) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2).

    >>> pf.addr(pf.zeros(2, 2), pf.ones(2), pf.tensor([1.0, 2.0]))
    tensor([[1., 2.],
            [1., 2.]])
    """

def airy_ai(x: TensorLike) -> Tensor:
    """Airy's function Ai. It has no gradient."""

def all(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether no element over axes is 0.

    >>> pf.tensor([0.0, 2.0]).all()
    tensor(False)
    """

def amax(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """The largest element over axes, NaN where there is one; equals share the gradient.

    >>> pf.amax(pf.tensor([[1.0, 5.0], [7.0, 2.0]]), axis=0)
    tensor([7., 5.])
    """

def amin(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """The smallest element over axes, NaN where there is one; equals share the gradient.

    >>> pf.amin(pf.tensor([[1.0, 5.0], [7.0, 2.0]]), axis=0)
    tensor([1., 2.])
    """

def aminmax(x: TensorLike, *, axis: Any = None, keepdims: builtins.bool = False) -> Any:
    """The smallest and the largest element, over one axis or all of them.

    >>> pf.aminmax(pf.tensor([1.0, 3.0, 2.0])).max
    tensor(3.)
    """

def angle(x: TensorLike) -> Tensor:
    """The angle of each number with the positive real axis, in radians.

    >>> pf.angle(pf.tensor([1j]))
    tensor([1.5708])
    """

def any(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether any element over axes is not 0.

    >>> pf.tensor([0.0, 2.0]).any()
    tensor(True)
    """

def arccos(x: TensorLike) -> Tensor:
    """Same as `acos`."""

def arccosh(x: TensorLike) -> Tensor:
    """Same as `acosh`."""

def arcsin(x: TensorLike) -> Tensor:
    """Same as `asin`."""

def arcsinh(x: TensorLike) -> Tensor:
    """Same as `asinh`."""

def arctan(x: TensorLike) -> Tensor:
    """Same as `atan`."""

def arctan2(y: TensorLike, x: TensorLike) -> Tensor:
    """Same as `atan2`."""

def arctanh(x: TensorLike) -> Tensor:
    """Same as `atanh`."""

def argmax(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """Where the largest element lies along an axis, or in the flattened tensor; the first of equals or NaNs.

    >>> pf.tensor([1.0, 5.0, 5.0]).argmax()
    tensor(1)
    """

def argmin(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """Where the smallest element lies along an axis, or in the flattened tensor; the first of equals or NaNs.

    >>> pf.tensor([4.0, 1.0, 1.0]).argmin()
    tensor(1)
    """

def argsort(x: TensorLike, axis: Any = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    """Where the elements along an axis lie, in sorted order. Equals keep their order; NaN counts as the largest.

    >>> pf.argsort(pf.tensor([3.0, 1.0, 2.0]))
    tensor([1, 2, 0])
    """

def asin(x: TensorLike) -> Tensor:
    """The angle in [-pi/2, pi/2] whose sine is x.

    >>> pf.asin(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 1.5708])
    """

def asinh(x: TensorLike) -> Tensor:
    """Inverse hyperbolic sine.

    >>> pf.asinh(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8814])
    """

def atan(x: TensorLike) -> Tensor:
    """The angle in (-pi/2, pi/2) whose tangent is x.

    >>> pf.atan(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7854])
    """

def atan2(y: TensorLike, x: TensorLike) -> Tensor:
    """The angle of the point (x, y), in [-pi, pi].

    >>> pf.atan2(pf.tensor([1.0]), pf.tensor([-1.0]))
    tensor([2.3562])
    """

def atanh(x: TensorLike) -> Tensor:
    """Inverse hyperbolic tangent; NaN outside of [-1, 1].

    >>> pf.atanh(pf.tensor([0.0, 0.5]))
    tensor([0.0000, 0.5493])
    """

def atleast_1d(*tensors: Any) -> Tensor:
    """Numbers as vectors of one element, other tensors as they are; several tensors make a tuple.

    >>> pf.atleast_1d(pf.tensor(2.0))
    tensor([2.])
    """

def atleast_2d(*tensors: Any) -> Tensor:
    """Numbers and vectors as matrices of one row, other tensors as they are; several tensors make a tuple.

    >>> pf.atleast_2d(pf.tensor([1.0, 2.0])).shape
    (1, 2)
    """

def atleast_3d(*tensors: Any) -> Tensor:
    """Tensors with three axes: (N,) becomes (1, N, 1), (M, N) becomes (M, N, 1); several tensors make a tuple.

    >>> pf.atleast_3d(pf.ones(2, 3)).shape
    (2, 3, 1)
    """

def avg_pool1d(
    input: TensorLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: builtins.bool = False,
    count_include_pad: builtins.bool = True,
) -> Tensor:
    """The mean of each window of ([N,] C, L).

    >>> pf.avg_pool1d(pf.ones(1, 2, 8), 2).shape
    (1, 2, 4)
    """

def avg_pool2d(
    input: TensorLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: builtins.bool = False,
    count_include_pad: builtins.bool = True,
    divisor_override: builtins.int | None = None,
) -> Tensor:
    """The mean of each window of ([N,] C, H, W); divisor_override replaces the number of elements.

    >>> pf.avg_pool2d(pf.ones(1, 2, 8, 8), 2).shape
    (1, 2, 4, 4)
    """

def avg_pool3d(
    input: TensorLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: builtins.bool = False,
    count_include_pad: builtins.bool = True,
    divisor_override: builtins.int | None = None,
) -> Tensor:
    """The mean of each window of ([N,] C, D, H, W); divisor_override replaces the number of elements.

    >>> pf.avg_pool3d(pf.ones(1, 2, 4, 8, 8), 2).shape
    (1, 2, 2, 4, 4)
    """

def baddbmm(
    input: TensorLike, batch1: TensorLike, batch2: TensorLike, beta: builtins.float = 1, alpha: builtins.float = 1
) -> Tensor:
    """beta * input + alpha * (batch1 @ batch2), over stacks of matrices.

    >>> pf.baddbmm(pf.ones(5, 2, 4), pf.ones(5, 2, 3), pf.ones(5, 3, 4)).shape
    (5, 2, 4)
    """

def batch_matmul(x: TensorLike, y: TensorLike) -> Tensor:
    """Matrix products over leading batch axes, which broadcast: matmul for tensors with at least two axes.

    >>> pf.batch_matmul(pf.ones(5, 2, 3), pf.ones(5, 3, 4)).shape
    (5, 2, 4)
    """

def batch_norm(
    x: TensorLike,
    running_mean: TensorLike | None = None,
    running_var: TensorLike | None = None,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    training: builtins.bool = False,
    momentum: builtins.float = 0.1,
    eps: builtins.float = 1e-05,
) -> Tensor:
    """Mean 0 and variance 1 per channel of (N, C, ...), then scaled and shifted.

    Training goes by the batch's own statistics, inference by the running ones. These are not changed here:
    `batch_norm_stats` gives their next values.

    >>> pf.batch_norm(pf.randn(8, 3, 4, 4), training=True).shape
    (8, 3, 4, 4)
    """

def batch_norm_stats(
    x: TensorLike,
    running_mean: TensorLike | None = None,
    running_var: TensorLike | None = None,
    momentum: builtins.float = 0.1,
) -> builtins.tuple[Tensor, Tensor]:
    """The mean and unbiased variance per channel of (N, C, ...); with running statistics, what these become:
    (1 - momentum) * running + momentum * batch.

    >>> mean, var = pf.batch_norm_stats(pf.randn(8, 3, 4, 4))
    >>> mean.shape
    (3,)
    """

def bce_loss(
    input: TensorLike, target: TensorLike, weight: TensorLike | None = None, reduction: builtins.str = "mean"
) -> Tensor:
    """Same as `binary_cross_entropy`."""

def bce_with_logits(
    input: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    reduction: builtins.str = "mean",
    pos_weight: TensorLike | None = None,
) -> Tensor:
    """Same as `binary_cross_entropy_with_logits`."""

def bernoulli(input: TensorLike, p: builtins.float | None = None, generator: Generator | None = None) -> Tensor:
    """1 with a probability given by each element of the input, or by `p`, else 0; in the input's dtype.

    >>> pf.bernoulli(pf.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """

def bessel_j0(x: TensorLike) -> Tensor:
    """The Bessel function of the first kind, order 0."""

def bessel_j1(x: TensorLike) -> Tensor:
    """The Bessel function of the first kind, order 1."""

def bessel_y0(x: TensorLike) -> Tensor:
    """The Bessel function of the second kind, order 0; NaN below 0."""

def bessel_y1(x: TensorLike) -> Tensor:
    """The Bessel function of the second kind, order 1; NaN below 0."""

def binary_cross_entropy(
    input: TensorLike, target: TensorLike, weight: TensorLike | None = None, reduction: builtins.str = "mean"
) -> Tensor:
    """-(target * log(input) + (1 - target) * log(1 - input)), averaged; logarithms are held above -100.

    >>> pf.binary_cross_entropy(pf.tensor([0.5, 0.9]), pf.tensor([1.0, 1.0]))
    tensor(0.3993)
    """

def binary_cross_entropy_with_logits(
    input: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    reduction: builtins.str = "mean",
    pos_weight: TensorLike | None = None,
) -> Tensor:
    """binary_cross_entropy(sigmoid(input), target) without its overflows; pos_weight scales the loss of positives.

    >>> pf.binary_cross_entropy_with_logits(pf.tensor([0.0, 2.0]), pf.tensor([1.0, 1.0]))
    tensor(0.4100)
    """

def bitwise_and(x: TensorLike, y: TensorLike) -> Tensor:
    """x & y, bit by bit.

    >>> pf.bitwise_and(pf.tensor([6, 5]), 3)
    tensor([2, 1])
    """

def bitwise_left_shift(x: TensorLike, y: TensorLike) -> Tensor:
    """Same as `left_shift`."""

def bitwise_not(x: TensorLike) -> Tensor:
    """Every bit of an integer turned over; `not` for bools.

    >>> pf.bitwise_not(pf.tensor([0, 5]))
    tensor([-1, -6])
    """

def bitwise_or(x: TensorLike, y: TensorLike) -> Tensor:
    """x | y, bit by bit.

    >>> pf.bitwise_or(pf.tensor([6, 5]), 3)
    tensor([7, 7])
    """

def bitwise_right_shift(x: TensorLike, y: TensorLike) -> Tensor:
    """Same as `right_shift`."""

def bitwise_xor(x: TensorLike, y: TensorLike) -> Tensor:
    """x ^ y, bit by bit.

    >>> pf.bitwise_xor(pf.tensor([6, 5]), 3)
    tensor([5, 6])
    """

def block_diag(*tensors: TensorLike) -> Tensor:
    """Matrices along the diagonal of a larger one, zeros elsewhere; vectors count as rows, numbers as 1 x 1.

    >>> pf.block_diag(pf.ones(1, 2), pf.tensor(3.0))
    tensor([[1., 1., 0.],
            [0., 0., 3.]])
    """

def bmm(x: TensorLike, y: TensorLike) -> Tensor:
    """Product of two stacks of matrices, pair by pair.

    >>> pf.bmm(pf.ones(5, 2, 3), pf.ones(5, 3, 4)).shape
    (5, 2, 4)
    """

def broadcast_tensors(*tensors: Any) -> builtins.tuple[Tensor, ...]:
    """Tensors under the shape that they broadcast to, without copies.

    >>> [t.shape for t in pf.broadcast_tensors(pf.ones(3, 1), pf.ones(4))]
    [(3, 4), (3, 4)]
    """

def broadcast_to(x: TensorLike, *shape: Any) -> Tensor:
    """Same as `expand`."""

def bucketize(
    x: Any, boundaries: TensorLike, *, out_int32: builtins.bool = False, right: builtins.bool = False
) -> Tensor:
    """The number of the bucket between sorted boundaries that each element falls in.

    >>> pf.bucketize(pf.tensor([1.0, 5.0]), pf.tensor([0.0, 2.0]))
    tensor([1, 2])
    """

def cartesian_prod(*tensors: Any) -> Tensor:
    """All combinations of the elements of vectors, as rows.

    >>> pf.cartesian_prod(pf.tensor([1, 2]), pf.tensor([3, 4])).shape
    (4, 2)
    """

def cast(x: TensorLike, dtype: builtins.object) -> Tensor:
    """Convert to another dtype.

    >>> pf.cast(pf.tensor([1.5, 2.5]), pf.int32)
    tensor([1, 2], dtype=pyflame.int32)
    """

def cat(tensors: Sequence[TensorLike], axis: builtins.int = 0) -> Tensor:
    """Tensors one behind the other along an existing axis.

    >>> pf.cat([pf.tensor([1, 2]), pf.tensor([3])])
    tensor([1, 2, 3])
    """

def cdist(
    x1: TensorLike,
    x2: TensorLike,
    p: builtins.float = 2.0,
    compute_mode: builtins.str = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """The p-norm distance of each row of x1 to each row of x2, over stacks of matrices. No product is used for p = 2.

    >>> pf.cdist(pf.tensor([[0.0, 0.0]]), pf.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[5., 1.]])
    """

def ceil(x: TensorLike) -> Tensor:
    """The smallest whole number that is not below x.

    >>> pf.ceil(pf.tensor([1.2, -1.7]))
    tensor([ 2., -1.])
    """

def celu(x: TensorLike, alpha: builtins.float = 1.0) -> Tensor:
    """x where it is positive, else alpha * (exp(x / alpha) - 1).

    >>> pf.celu(pf.tensor([-1.0, 2.0]), alpha=2.0)
    tensor([-0.7869,  2.0000])
    """

def chebyshev_polynomial_t(x: TensorLike, n: TensorLike) -> Tensor:
    """Chebyshev's polynomial of the first kind and degree n, at x. It has no gradient; above degree 2**20 it is NaN where n steps would lead to it."""

def chebyshev_polynomial_u(x: TensorLike, n: TensorLike) -> Tensor:
    """Chebyshev's polynomial of the second kind and degree n, at x. It has no gradient; above degree 2**20 it is NaN where n steps would lead to it."""

def chebyshev_polynomial_v(x: TensorLike, n: TensorLike) -> Tensor:
    """Chebyshev's polynomial of the third kind and degree n, at x. It has no gradient; above degree 2**20 it is NaN where n steps would lead to it."""

def chebyshev_polynomial_w(x: TensorLike, n: TensorLike) -> Tensor:
    """Chebyshev's polynomial of the fourth kind and degree n, at x. It has no gradient; above degree 2**20 it is NaN where n steps would lead to it."""

def chunk(x: TensorLike, chunks: builtins.int, axis: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
    """At most `chunks` parts of equal size along an axis; the last may be smaller. No copies.

    >>> [p.shape for p in pf.zeros(5).chunk(2)]
    [(3,), (2,)]
    """

def clamp(x: TensorLike, min: Any = None, max: Any = None) -> Tensor:
    """x, but no less than min and no more than max: numbers, tensors or None.

    >>> pf.clamp(pf.tensor([-2.0, 0.5, 3.0]), min=0.0, max=1.0)
    tensor([0.0000, 0.5000, 1.0000])
    """

def clamp_max(x: TensorLike, max: TensorLike) -> Tensor:
    """x, but no more than max. Unlike minimum's, the gradient of a tie belongs to x alone.

    >>> pf.clamp_max(pf.tensor([-2.0, 0.5]), 0.0)
    tensor([-2.,  0.])
    """

def clamp_min(x: TensorLike, min: TensorLike) -> Tensor:
    """x, but no less than min. Unlike maximum's, the gradient of a tie belongs to x alone.

    >>> pf.clamp_min(pf.tensor([-2.0, 0.5]), 0.0)
    tensor([0.0000, 0.5000])
    """

def clip(x: TensorLike, min: Any = None, max: Any = None) -> Tensor:
    """Same as `clamp`."""

def clone(x: TensorLike, *, memory_format: Any = None) -> Tensor:
    """A copy with memory of its own, in a memory format where one is named."""

def column_stack(tensors: Sequence[TensorLike]) -> Tensor:
    """Tensors side by side along the second axis, vectors as columns.

    >>> pf.column_stack([pf.tensor([1, 2]), pf.tensor([3, 4])])
    tensor([[1, 3],
            [2, 4]])
    """

def complex(real: TensorLike, imag: TensorLike) -> Tensor:
    """Complex numbers from their real and imaginary parts.

    >>> pf.complex(pf.tensor([1.0]), pf.tensor([2.0]))
    tensor([1.+2.j])
    """

def concat(tensors: Sequence[TensorLike], axis: builtins.int = 0) -> Tensor:
    """Same as `cat`."""

def concatenate(tensors: Sequence[TensorLike], axis: builtins.int = 0) -> Tensor:
    """Same as `cat`."""

def conj(x: TensorLike) -> Tensor:
    """Complex numbers with their imaginary parts negated; real numbers as they are.

    >>> pf.conj(pf.tensor([1 + 2j]))
    tensor([1.-2.j])
    """

def conj_physical(x: TensorLike) -> Tensor:
    """Same as `conj`."""

def contiguous(x: TensorLike, memory_format: Any = None) -> Tensor:
    """The same values in row-major memory, or in another memory format.

    >>> pf.ones(2, 3).T.contiguous().shape
    (3, 2)
    """

def conv1d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: builtins.int = 1,
) -> Tensor:
    """Convolution over one axis: input ([N,] C, L), weight (O, C/groups, K). padding: numbers, "same" or "valid".

    >>> pf.conv1d(pf.ones(2, 3, 8), pf.ones(4, 3, 3), padding=1).shape
    (2, 4, 8)
    """

def conv2d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: builtins.int = 1,
) -> Tensor:
    """Convolution over two axes: input ([N,] C, H, W), weight (O, C/groups, KH, KW). padding as in conv1d.

    >>> pf.conv2d(pf.ones(1, 3, 224, 224), pf.ones(64, 3, 7, 7), stride=2, padding=3).shape
    (1, 64, 112, 112)
    """

def conv3d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: builtins.int = 1,
) -> Tensor:
    """Convolution over three axes: input ([N,] C, D, H, W), weight (O, C/groups, KD, KH, KW).

    >>> pf.conv3d(pf.ones(1, 2, 4, 8, 8), pf.ones(3, 2, 3, 3, 3), padding="same").shape
    (1, 3, 4, 8, 8)
    """

def conv_transpose1d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: builtins.int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution over one axis, the gradient of conv1d for its input: weight (C, O/groups, K).

    >>> pf.conv_transpose1d(pf.ones(2, 3, 8), pf.ones(3, 4, 2), stride=2).shape
    (2, 4, 16)
    """

def conv_transpose2d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: builtins.int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution over two axes, the gradient of conv2d for its input: weight (C, O/groups, KH, KW).

    >>> pf.conv_transpose2d(pf.ones(2, 3, 8, 8), pf.ones(3, 4, 3, 3), stride=2, padding=1, output_padding=1).shape
    (2, 4, 16, 16)
    """

def conv_transpose3d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: builtins.int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution over three axes, the gradient of conv3d for its input: weight (C, O/groups, KD, KH, KW).

    >>> pf.conv_transpose3d(pf.ones(1, 2, 4, 4, 4), pf.ones(2, 3, 2, 2, 2), stride=2).shape
    (1, 3, 8, 8, 8)
    """

def copysign(x: TensorLike, y: TensorLike) -> Tensor:
    """The size of x with the sign of y, whose zeros have one too.

    >>> pf.copysign(pf.tensor([1.0, 2.0]), pf.tensor([-3.0, -0.0]))
    tensor([-1., -2.])
    """

def corrcoef(x: TensorLike) -> Tensor:
    """The correlations of variables (rows) over observations (columns): covariances divided by both deviations.

    >>> pf.corrcoef(pf.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """

def cos(x: TensorLike) -> Tensor:
    """Cosine of an angle in radians.

    >>> pf.cos(pf.tensor([0.0, 1.0]))
    tensor([1.0000, 0.5403])
    """

def cosh(x: TensorLike) -> Tensor:
    """Hyperbolic cosine.

    >>> pf.cosh(pf.tensor([0.0, 1.0]))
    tensor([1.0000, 1.5431])
    """

def cosine_similarity(x1: TensorLike, x2: TensorLike, axis: Any = 1, eps: builtins.float = 1e-08) -> Tensor:
    """The cosine of the angle between vectors along an axis; norms below eps count as eps.

    >>> pf.cosine_similarity(pf.tensor([[1.0, 0.0]]), pf.tensor([[1.0, 1.0]]))
    tensor([0.7071])
    """

def count_nonzero(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """How many elements over axes are not 0.

    >>> pf.count_nonzero(pf.tensor([0, 3, 0, 4]))
    tensor(2)
    """

def cov(
    x: TensorLike,
    *,
    correction: builtins.int = 1,
    fweights: TensorLike | None = None,
    aweights: TensorLike | None = None,
) -> Tensor:
    """The covariances of variables (rows) over observations (columns), which may count several times or by weight.

    >>> pf.cov(pf.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """

def cross(x: TensorLike, y: TensorLike, axis: builtins.int | None = None) -> Tensor:
    """The cross product of vectors of size 3 along an axis; along the first of that size where none is given.

    >>> pf.cross(pf.tensor([1.0, 0.0, 0.0]), pf.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """

def cross_entropy(
    input: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    ignore_index: builtins.int = -100,
    reduction: builtins.str = "mean",
    label_smoothing: builtins.float = 0.0,
) -> Tensor:
    """-log(softmax(input)[target]), averaged. The input holds logits, (C,), (N, C) or (N, C, d1, ...); the target class
    indices, or probabilities of the input's shape.

    >>> pf.cross_entropy(pf.tensor([[2.0, 0.0], [0.0, 2.0]]), pf.tensor([0, 1]))
    tensor(0.1269)
    """

def cummax(x: TensorLike, axis: Any) -> Any:
    """The largest element up to each one along an axis, and where it lies: the last of equals. NaN counts as largest.

    >>> pf.cummax(pf.tensor([1.0, 3.0, 2.0]), 0).values
    tensor([1., 3., 3.])
    """

def cummin(x: TensorLike, axis: Any) -> Any:
    """The smallest element up to each one along an axis, and where it lies: the last of equals. NaN counts as smallest.

    >>> pf.cummin(pf.tensor([2.0, 3.0, 1.0]), 0).values
    tensor([2., 2., 1.])
    """

def cumprod(x: TensorLike, axis: Any, dtype: builtins.object = None) -> Tensor:
    """Running products along an axis; integers and bools are multiplied as int64.

    >>> pf.cumprod(pf.tensor([1.0, 2.0, 3.0]), 0)
    tensor([1., 2., 6.])
    """

def cumsum(x: TensorLike, axis: Any, dtype: builtins.object = None) -> Tensor:
    """Running sums along an axis; integers and bools are summed as int64.

    >>> pf.cumsum(pf.tensor([1.0, 2.0, 3.0]), 0)
    tensor([1., 3., 6.])
    """

def deg2rad(x: TensorLike) -> Tensor:
    """An angle in degrees, in radians.

    >>> pf.deg2rad(pf.tensor([180.0]))
    tensor([3.1416])
    """

def diag(x: TensorLike, diagonal: builtins.int = 0) -> Tensor:
    """A vector as the diagonal of a matrix of zeros, or the diagonal of a matrix as a vector.

    >>> pf.diag(pf.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """

def diag_embed(x: TensorLike, offset: builtins.int = 0, dim1: builtins.int = -2, dim2: builtins.int = -1) -> Tensor:
    """The vectors of the last axis as diagonals of matrices of zeros, which lie along dim1 and dim2.

    >>> pf.diag_embed(pf.ones(5, 3)).shape
    (5, 3, 3)
    """

def diagflat(x: TensorLike, offset: builtins.int = 0) -> Tensor:
    """A matrix with these elements, flattened, on a diagonal.

    >>> pf.diagflat(pf.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """

def diagonal(x: TensorLike, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1) -> Tensor:
    """The diagonal of two axes, as a last axis; above the main one where the offset is positive.

    >>> pf.tensor([[1, 2], [3, 4]]).diagonal()
    tensor([1, 4])
    """

def diff(
    x: TensorLike,
    n: builtins.int = 1,
    axis: Any = -1,
    prepend: TensorLike | None = None,
    append: TensorLike | None = None,
) -> Tensor:
    """Differences of neighbours along an axis, n times over; tensors may be put before and behind x first.

    >>> pf.diff(pf.tensor([1, 4, 9]))
    tensor([3, 5])
    """

def digamma(x: TensorLike) -> Tensor:
    """The derivative of lgamma; NaN at whole numbers below 0.

    >>> pf.digamma(pf.tensor([1.0, 2.0]))
    tensor([-0.5772,  0.4228])
    """

def dist(x: TensorLike, y: TensorLike, p: builtins.float = 2) -> Tensor:
    """The p-norm of x - y.

    >>> pf.dist(pf.tensor([3.0, 0.0]), pf.tensor([0.0, 4.0]))
    tensor(5.)
    """

def div(
    x: TensorLike | builtins.float, y: TensorLike | builtins.float, rounding_mode: builtins.str | None = None
) -> Tensor:
    """x / y in floating point; with rounding_mode "floor" or "trunc" rounded, and then integers stay integers.

    >>> pf.div(pf.tensor([-7, 7]), 2, rounding_mode="trunc")
    tensor([-3,  3])
    """

def divide(
    x: TensorLike | builtins.float, y: TensorLike | builtins.float, rounding_mode: builtins.str | None = None
) -> Tensor:
    """Same as `div`."""

def dot(x: TensorLike, y: TensorLike) -> Tensor:
    """Inner product of two vectors.

    >>> pf.dot(pf.ones(3), pf.ones(3))
    tensor(3.)
    """

def dropout(
    x: TensorLike, p: builtins.float = 0.5, training: builtins.bool = True, generator: Generator | None = None
) -> Tensor:
    """Each element becomes 0 with probability p; the others are divided by 1 - p. Without `training`, x itself.

    >>> pf.dropout(pf.ones(3), 0.5, training=False)
    tensor([1., 1., 1.])
    """

def dsplit(x: TensorLike, indices_or_sections: builtins.int | Sequence[builtins.int]) -> builtins.tuple[Tensor, ...]:
    """Equal parts, or parts cut at positions, along the third axis.

    >>> [p.shape for p in pf.zeros(2, 3, 4).dsplit(2)]
    [(2, 3, 2), (2, 3, 2)]
    """

def dstack(tensors: Sequence[TensorLike]) -> Tensor:
    """Tensors behind each other, along the third axis.

    >>> pf.dstack([pf.ones(2, 3), pf.zeros(2, 3)]).shape
    (2, 3, 2)
    """

def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sum of products over named axes. Axes may be numbers too: each operand, then a list of its axes, and last, if
    wanted, a list of the result's.

    >>> pf.einsum("bqhd,bkhd->bhqk", pf.ones(2, 3, 4, 5), pf.ones(2, 6, 4, 5)).shape
    (2, 4, 3, 6)
    """

def elu(x: TensorLike, alpha: builtins.float = 1.0) -> Tensor:
    """x where it is positive, else alpha * (exp(x) - 1).

    >>> pf.elu(pf.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """

def embedding(weight: TensorLike, indices: TensorLike, padding_idx: builtins.int | None = None) -> Tensor:
    """Rows of `weight` at `indices`. The row at `padding_idx` gets no gradient.

    >>> pf.embedding(pf.tensor([[1.0, 2.0], [3.0, 4.0]]), pf.tensor([1, 0]))
    tensor([[3., 4.],
            [1., 2.]])
    """

def encoded_linear(
    x: TensorLike,
    data: TensorLike,
    bias: TensorLike | None = None,
    *,
    encoding: Any,
    width: Any,
    activation_bits: builtins.int = 16,
) -> Tensor:
    """x @ W.T + bias, with W of shape (out, width) as encoded rows (out, row bytes). Gradients go to x and bias.

    Where the encoding has integer codes the CPU multiplies in integers, with x rounded to `activation_bits`, each group
    of 16 or 32 elements by its largest. 16 makes an error of about 0.004% of the result's norm; 8 makes one of 0.5%, as
    in llama.cpp, and is faster; 32 asks for x as it is, and is slower. With AMX many rows are multiplied in bfloat16,
    of any encoding but float32: 16 makes an error of 0.0005% there, 8 one of 0.25%. GPUs multiply few rows in integers,
    with 16 bits where 8 are asked for too, and more rows in floats.

    >>> w = pf.quantize(pf.ones(4, 32), "q8_0")
    >>> pf.encoded_linear(pf.ones(2, 32), w.data, encoding="q8_0", width=32).shape
    (2, 4)
    """

def eq(x: TensorLike, y: TensorLike) -> Tensor:
    """x == y.

    >>> pf.eq(pf.tensor([1.0, 2.0]), 2.0)
    tensor([False,  True])
    """

def erf(x: TensorLike) -> Tensor:
    """The error function.

    >>> pf.erf(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8427])
    """

def erfc(x: TensorLike) -> Tensor:
    """1 - erf(x), exact where that is tiny.

    >>> pf.erfc(pf.tensor([0.0, 1.0]))
    tensor([1.0000, 0.1573])
    """

def erfcx(x: TensorLike) -> Tensor:
    """e^(x^2) erfc(x), where the factors would be infinite and 0, too."""

def erfinv(x: TensorLike) -> Tensor:
    """The number whose erf is x: infinite at -1 and 1, NaN beyond.

    >>> pf.erfinv(pf.tensor([0.0, 0.5]))
    tensor([0.0000, 0.4769])
    """

def exp(x: TensorLike) -> Tensor:
    """e to the power x.

    >>> pf.exp(pf.tensor([0.0, 1.0]))
    tensor([1.0000, 2.7183])
    """

def exp2(x: TensorLike) -> Tensor:
    """2 to the power x.

    >>> pf.exp2(pf.tensor([0.0, 3.0]))
    tensor([1., 8.])
    """

def expand(x: TensorLike, *shape: Any) -> Tensor:
    """Repeat axes of size 1 without copying; -1 keeps a size.

    >>> pf.ones(3, 1).expand(3, 4).shape
    (3, 4)
    """

def expand_as(x: TensorLike, other: TensorLike) -> Tensor:
    """x expanded to the shape of another tensor.

    >>> pf.ones(3, 1).expand_as(pf.zeros(3, 4)).shape
    (3, 4)
    """

def expert_linear(
    x: TensorLike,
    data: TensorLike,
    ids: TensorLike,
    bias: TensorLike | None = None,
    *,
    encoding: Any = None,
    activation_bits: builtins.int = 16,
) -> Tensor:
    """x @ W[id].T + bias[id] for each id: every line of x by a matrix of its own, as in a mixture of experts.

    W (count, out, width) is of x's dtype or, with an encoding, rows of its bytes. ids have the shape of x without its
    last axis, or more axes behind these: then a line of x is multiplied with several matrices. The result has the shape
    (*ids.shape, out). Gradients go to x, bias, and W where it has no encoding. activation_bits: of encoded
    matrices, as in `encoded_linear`.

    >>> stack = pf.stack([pf.eye(2), 3 * pf.eye(2)])
    >>> pf.expert_linear(pf.tensor([[1.0, 2.0], [3.0, 4.0]]), stack, pf.tensor([1, 0]))
    tensor([[3., 6.],
            [3., 4.]])
    """

def expm1(x: TensorLike) -> Tensor:
    """exp(x) - 1, exact near 0.

    >>> pf.expm1(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 1.7183])
    """

def fix(x: TensorLike) -> Tensor:
    """Same as `trunc`."""

def flatten(x: TensorLike, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
    """Make one axis of the axes from start_dim to end_dim.

    >>> pf.zeros(2, 3, 4).flatten(1).shape
    (2, 12)
    """

def flip(x: TensorLike, *axis: Any) -> Tensor:
    """The elements in reverse order along axes; along all of them by default.

    >>> pf.tensor([1, 2, 3]).flip(0)
    tensor([3, 2, 1])
    """

def fliplr(x: TensorLike) -> Tensor:
    """The columns (the second axis) in reverse order.

    >>> pf.tensor([[1, 2], [3, 4]]).fliplr()
    tensor([[2, 1],
            [4, 3]])
    """

def flipud(x: TensorLike) -> Tensor:
    """The rows (the first axis) in reverse order.

    >>> pf.tensor([[1, 2], [3, 4]]).flipud()
    tensor([[3, 4],
            [1, 2]])
    """

def float_power(x: Any, exponent: Any) -> Tensor:
    """x to the power of the exponent, in float64.

    >>> pf.float_power(pf.tensor([2]), -1)
    tensor([0.5000], dtype=pyflame.float64)
    """

def floor(x: TensorLike) -> Tensor:
    """The largest whole number that is not above x.

    >>> pf.floor(pf.tensor([1.7, -1.2]))
    tensor([ 1., -2.])
    """

def floor_div(x: TensorLike, y: TensorLike) -> Tensor:
    """x / y rounded down; 0 where integers are divided by 0.

    >>> pf.floor_div(pf.tensor([-7, 7]), 2)
    tensor([-4,  3])
    """

def floor_divide(x: TensorLike, y: TensorLike) -> Tensor:
    """Same as `floor_div`."""

def fmax(x: TensorLike, y: TensorLike) -> Tensor:
    """The larger of x and y; where one is NaN the other.

    >>> pf.fmax(pf.tensor([1.0, float("nan")]), pf.tensor([2.0, 3.0]))
    tensor([2., 3.])
    """

def fmin(x: TensorLike, y: TensorLike) -> Tensor:
    """The smaller of x and y; where one is NaN the other.

    >>> pf.fmin(pf.tensor([1.0, float("nan")]), pf.tensor([2.0, 3.0]))
    tensor([1., 3.])
    """

def fmod(x: TensorLike | builtins.float, y: TensorLike | builtins.float) -> Tensor:
    """The rest of x / y, with x's sign (C's fmod).

    >>> pf.fmod(pf.tensor([-7, 7]), 3)
    tensor([-1,  1])
    """

def fold(
    x: TensorLike, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Add windows back into images: (N, C*kh*kw, windows) -> (N, C, H, W): the other direction of unfold2d.

    >>> pf.fold(pf.ones(1, 4, 4), (3, 3), 2)[0, 0, 1, 1]
    tensor(4.)
    """

def frac(x: TensorLike) -> Tensor:
    """The fraction of x, with x's sign.

    >>> pf.frac(pf.tensor([1.5, -2.25]))
    tensor([ 0.5000, -0.2500])
    """

def frexp(x: TensorLike) -> Any:
    """Mantissas in [0.5, 1) with the sign of x, and int32 exponents: x = mantissa * 2**exponent.

    >>> pf.frexp(pf.tensor([8.0, -3.0])).mantissa
    tensor([ 0.5000, -0.7500])
    """

def gather(x: TensorLike, dim: builtins.int, index: TensorLike, *, sparse_grad: builtins.bool = False) -> Tensor:
    """out[i][j] = x[i][index[i][j]] for dim=1, and alike for other axes. Gradients are dense, whatever is asked for.

    >>> pf.gather(pf.tensor([[1, 2], [3, 4]]), 1, pf.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """

def gcd(x: TensorLike, y: TensorLike) -> Tensor:
    """The greatest common divisor of integers, never negative; that of 0 and 0 is 0.

    >>> pf.gcd(pf.tensor([12, 7]), pf.tensor([-18, 0]))
    tensor([6, 7])
    """

def ge(x: TensorLike, y: TensorLike) -> Tensor:
    """x >= y.

    >>> pf.ge(pf.tensor([1.0, 2.0]), 2.0)
    tensor([False,  True])
    """

def gelu(x: TensorLike, approximate: builtins.str = "none") -> Tensor:
    """x times the share of a normal distribution that lies below x; approximate="tanh" is the formula of GPT-2.

    >>> pf.gelu(pf.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """

def glu(x: TensorLike, axis: builtins.int = -1, *, dim: builtins.int | None = None) -> Tensor:
    """a * sigmoid(b), where a and b are the halves of x along an axis.

    >>> pf.glu(pf.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([0.5000, 1.0000])
    """

def greater(x: TensorLike, y: TensorLike) -> Tensor:
    """Same as `gt`."""

def greater_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """Same as `ge`."""

def group_norm(
    x: TensorLike,
    num_groups: builtins.int,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: builtins.float = 1e-05,
) -> Tensor:
    """Mean 0 and variance 1 over each group of channels of (N, C, ...), then scaled and shifted per channel.

    >>> pf.group_norm(pf.randn(2, 6, 4, 4), 3).shape
    (2, 6, 4, 4)
    """

def gt(x: TensorLike, y: TensorLike) -> Tensor:
    """x > y.

    >>> pf.gt(pf.tensor([1.0, 3.0]), 2.0)
    tensor([False,  True])
    """

def hardsigmoid(x: TensorLike) -> Tensor:
    """relu6(x + 3) / 6: three straight pieces near sigmoid.

    >>> pf.hardsigmoid(pf.tensor([-4.0, 0.0, 4.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """

def hardswish(x: TensorLike) -> Tensor:
    """x * hardsigmoid(x).

    >>> pf.hardswish(pf.tensor([-4.0, 3.0]))
    tensor([-0., 3.])
    """

def hardtanh(x: TensorLike, min_val: builtins.float = -1.0, max_val: builtins.float = 1.0) -> Tensor:
    """x, held between min_val and max_val.

    >>> pf.hardtanh(pf.tensor([-3.0, 0.5, 3.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """

def heaviside(x: TensorLike, values: TensorLike) -> Tensor:
    """0 below 0, 1 above, and `values` at 0.

    >>> pf.heaviside(pf.tensor([-1.0, 0.0, 2.0]), pf.tensor(0.5))
    tensor([0.0000, 0.5000, 1.0000])
    """

def hermite_polynomial_h(x: TensorLike, n: TensorLike) -> Tensor:
    """Hermite's polynomial and degree n, at x. It has no gradient; above degree 2**20 it is NaN where n steps would lead to it."""

def hermite_polynomial_he(x: TensorLike, n: TensorLike) -> Tensor:
    """Hermite's polynomial of probability and degree n, at x. It has no gradient; above degree 2**20 it is NaN where n steps would lead to it."""

def histc(x: TensorLike, bins: builtins.int = 100, min: builtins.float = 0, max: builtins.float = 0) -> Tensor:
    """How many elements fall into each of `bins` equal parts of [min, max], or of [x.min(), x.max()] where both are 0.

    >>> pf.histc(pf.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
    tensor([0., 2., 1., 0.])
    """

def hsplit(x: TensorLike, indices_or_sections: builtins.int | Sequence[builtins.int]) -> builtins.tuple[Tensor, ...]:
    """Equal parts, or parts cut at positions, along the second axis; of a vector along its only one.

    >>> [p.shape for p in pf.zeros(2, 4).hsplit(2)]
    [(2, 2), (2, 2)]
    """

def hstack(tensors: Sequence[TensorLike]) -> Tensor:
    """Tensors one behind the other along the second axis, vectors along their only one.

    >>> pf.hstack([pf.tensor([1, 2]), pf.tensor([3])])
    tensor([1, 2, 3])
    """

def huber_loss(
    input: TensorLike, target: TensorLike, reduction: builtins.str = "mean", delta: builtins.float = 1.0
) -> Tensor:
    """d^2 / 2 for differences d up to delta, else delta * (|d| - delta / 2); averaged.

    >>> pf.huber_loss(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 4.0]))
    tensor(0.7500)
    """

def hypot(x: TensorLike | builtins.float, y: TensorLike | builtins.float) -> Tensor:
    """sqrt(x * x + y * y), without overflow.

    >>> pf.hypot(pf.tensor([3.0]), pf.tensor([4.0]))
    tensor([5.])
    """

def i0(x: TensorLike) -> Tensor:
    """The modified Bessel function of the first kind, order 0."""

def i0e(x: TensorLike) -> Tensor:
    """i0(x), times e^-|x|."""

def i1(x: TensorLike) -> Tensor:
    """The modified Bessel function of the first kind, order 1."""

def i1e(x: TensorLike) -> Tensor:
    """i1(x), times e^-|x|."""

def igamma(a: TensorLike, x: TensorLike) -> Tensor:
    """The lower incomplete gamma function of x, divided by gamma(a). It has no gradient for a.

    >>> pf.igamma(pf.tensor([1.0]), pf.tensor([1.0]))
    tensor([0.6321])
    """

def igammac(a: TensorLike, x: TensorLike) -> Tensor:
    """The upper incomplete gamma function of x, divided by gamma(a): 1 - igamma. It has no gradient for a.

    >>> pf.igammac(pf.tensor([1.0]), pf.tensor([1.0]))
    tensor([0.3679])
    """

def imag(x: TensorLike) -> Tensor:
    """The imaginary parts of complex numbers.

    >>> pf.imag(pf.tensor([1 + 2j]))
    tensor([2.])
    """

def index_add(x: TensorLike, dim: builtins.int, index: TensorLike, source: TensorLike, alpha: Any = 1) -> Tensor:
    """x with slices of `source`, times alpha, added at these positions of one axis.

    >>> pf.index_add(pf.zeros(3), 0, pf.tensor([1, 1]), pf.tensor([1.0, 2.0]))
    tensor([0., 3., 0.])
    """

def index_copy(x: TensorLike, dim: builtins.int, index: TensorLike, source: TensorLike) -> Tensor:
    """x with the slices at these positions of one axis replaced.

    >>> pf.index_copy(pf.zeros(3), 0, pf.tensor([2]), pf.tensor([5.0]))
    tensor([0., 0., 5.])
    """

def index_fill(x: TensorLike, dim: builtins.int, index: TensorLike, value: Any) -> Tensor:
    """x with one number at these positions of an axis.

    >>> pf.index_fill(pf.zeros(3), 0, pf.tensor([2]), 7.0)
    tensor([0., 0., 7.])
    """

def index_reduce(
    x: TensorLike,
    dim: builtins.int,
    index: TensorLike,
    source: TensorLike,
    reduce: builtins.str,
    *,
    include_self: builtins.bool = True,
) -> Tensor:
    """x with slices of `source` combined into these positions of an axis: "prod", "mean", "amax" or "amin", with x's
    own slices or without.

    >>> pf.index_reduce(pf.ones(2), 0, pf.tensor([0, 0]), pf.tensor([3.0, 5.0]), "prod")
    tensor([15.,  1.])
    """

def index_select(x: TensorLike, dim: builtins.int, index: TensorLike) -> Tensor:
    """The slices of x at these positions of one axis.

    >>> pf.index_select(pf.tensor([[1, 2], [3, 4]]), 0, pf.tensor([1, 1]))
    tensor([[3, 4],
            [3, 4]])
    """

def inner(x: TensorLike, y: TensorLike) -> Tensor:
    """Sum of products over the last axis of both.

    >>> pf.inner(pf.ones(2, 3), pf.ones(4, 3)).shape
    (2, 4)
    """

def instance_norm(
    x: TensorLike,
    running_mean: TensorLike | None = None,
    running_var: TensorLike | None = None,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    use_input_stats: builtins.bool = True,
    momentum: builtins.float = 0.1,
    eps: builtins.float = 1e-05,
) -> Tensor:
    """Mean 0 and variance 1 over each channel of each sample of (N, C, ...); else by running statistics.

    >>> pf.instance_norm(pf.randn(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

def interleaved_linear(
    x: TensorLike,
    data: TensorLike,
    bias: TensorLike | None = None,
    *,
    encoding: Any,
    width: Any,
    lines: Any,
    outputs: Any,
    activation_bits: builtins.int = 16,
) -> Tensor:
    """`encoded_linear` with a weight of `outputs` rows whose bytes lie interleaved in sets of `lines` rows.

    That is the fastest order for a CPU, whose vectors say how many lines; `interleave` knows it. A product with another
    number, on a GPU, or with `activation_bits=32` puts the bytes in order first.

    >>> from pyflame.tensor.interleaved import interleave
    >>> w = interleave(pf.quantize(pf.ones(5, 32), "q8_0"))
    >>> pf.interleaved_linear(pf.ones(2, 32), w.data, encoding="q8_0", width=32, lines=w.lines, outputs=5).shape
    (2, 5)
    """

def isclose(
    x: TensorLike,
    y: TensorLike,
    rtol: builtins.float = 1e-05,
    atol: builtins.float = 1e-08,
    equal_nan: builtins.bool = False,
) -> Tensor:
    """Whether |x - y| <= atol + rtol * |y|; infinities are close when they are equal.

    >>> pf.isclose(pf.tensor([1.0, 2.0]), pf.tensor([1.000001, 2.1]))
    tensor([ True, False])
    """

def isfinite(x: TensorLike) -> Tensor:
    """Whether x is neither NaN nor infinite.

    >>> pf.isfinite(pf.tensor([1.0, float("nan")]))
    tensor([ True, False])
    """

def isin(
    elements: Any, test_elements: Any, *, assume_unique: builtins.bool = False, invert: builtins.bool = False
) -> Tensor:
    """Whether each element is among the test elements; with `invert`, whether it is not.

    >>> pf.isin(pf.tensor([1, 2, 3]), pf.tensor([3, 1]))
    tensor([ True, False,  True])
    """

def isinf(x: TensorLike) -> Tensor:
    """Whether x is infinite.

    >>> pf.isinf(pf.tensor([1.0, float("-inf")]))
    tensor([False,  True])
    """

def isnan(x: TensorLike) -> Tensor:
    """Whether x is NaN.

    >>> pf.isnan(pf.tensor([1.0, float("nan")]))
    tensor([False,  True])
    """

def isneginf(x: TensorLike) -> Tensor:
    """Whether x is infinite and below 0.

    >>> pf.isneginf(pf.tensor([float("inf"), float("-inf")]))
    tensor([False,  True])
    """

def isposinf(x: TensorLike) -> Tensor:
    """Whether x is infinite and above 0.

    >>> pf.isposinf(pf.tensor([float("inf"), float("-inf")]))
    tensor([ True, False])
    """

def kl_div(
    input: TensorLike, target: TensorLike, reduction: builtins.str = "mean", log_target: builtins.bool = False
) -> Tensor:
    """target * (log(target) - input), averaged: the input holds log-probabilities, the target probabilities or, with
    log_target, their logarithms. "batchmean" divides the sum by the first axis, as the definition does.

    >>> pf.kl_div(pf.tensor([[-0.7, -0.7]]), pf.tensor([[0.5, 0.5]]), reduction="batchmean")
    tensor(0.0069)
    """

def kron(x: TensorLike, y: TensorLike) -> Tensor:
    """Kronecker's product: y, times each element of x, in place of that element.

    >>> pf.kron(pf.eye(2), pf.ones(2, 3)).shape
    (4, 6)
    """

def kthvalue(x: TensorLike, k: builtins.int, axis: Any = -1, keepdims: builtins.bool = False) -> Any:
    """The k-th smallest element along an axis (counted from 1), and where it lies.

    >>> pf.kthvalue(pf.tensor([3.0, 1.0, 2.0]), 2).values
    tensor(2.)
    """

def l1_loss(input: TensorLike, target: TensorLike, reduction: builtins.str = "mean") -> Tensor:
    """|input - target|, averaged.

    >>> pf.l1_loss(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 4.0]))
    tensor(1.)
    """

def laguerre_polynomial_l(x: TensorLike, n: TensorLike) -> Tensor:
    """Laguerre's polynomial and degree n, at x. It has no gradient; above degree 2**20 it is NaN where n steps would lead to it."""

def layer_norm(
    x: TensorLike,
    normalized_shape: Any,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: builtins.float = 1e-05,
) -> Tensor:
    """Mean 0 and variance 1 over the last axes, then scaled and shifted: (x - mean) / sqrt(var + eps) * weight + bias.

    >>> pf.layer_norm(pf.tensor([[1.0, 3.0]]), (2,))
    tensor([[-1.0000,  1.0000]])
    """

def lcm(x: TensorLike, y: TensorLike) -> Tensor:
    """The least common multiple of integers, never negative unless it overflows; 0 where one is 0.

    >>> pf.lcm(pf.tensor([4, 5]), pf.tensor([6, 0]))
    tensor([12,  0])
    """

def ldexp(x: TensorLike, y: TensorLike) -> Tensor:
    """x * 2**y.

    >>> pf.ldexp(pf.tensor([1.0]), pf.tensor([3]))
    tensor([8.])
    """

def le(x: TensorLike, y: TensorLike) -> Tensor:
    """x <= y.

    >>> pf.le(pf.tensor([1.0, 3.0]), 2.0)
    tensor([ True, False])
    """

def leaky_relu(x: TensorLike, negative_slope: Any = 0.01) -> Tensor:
    """x where it is positive, else negative_slope * x.

    >>> pf.leaky_relu(pf.tensor([-1.0, 2.0]), negative_slope=0.1)
    tensor([-0.1000,  2.0000])
    """

def left_shift(x: TensorLike, y: TensorLike) -> Tensor:
    """x << y; 0 where y is negative or all bits are shifted out.

    >>> pf.left_shift(pf.tensor([1, 3]), 2)
    tensor([ 4, 12])
    """

def legendre_polynomial_p(x: TensorLike, n: TensorLike) -> Tensor:
    """Legendre's polynomial and degree n, at x. It has no gradient; above degree 2**20 it is NaN where n steps would lead to it."""

def lerp(x: TensorLike, end: TensorLike, weight: TensorLike) -> Tensor:
    """x + weight * (end - x): from x to end as the weight goes from 0 to 1.

    >>> pf.lerp(pf.tensor([0.0, 2.0]), pf.tensor([10.0, 10.0]), 0.5)
    tensor([5., 6.])
    """

def less(x: TensorLike, y: TensorLike) -> Tensor:
    """Same as `lt`."""

def less_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """Same as `le`."""

def lgamma(x: TensorLike) -> Tensor:
    """The logarithm of |gamma(x)|.

    >>> pf.lgamma(pf.tensor([1.0, 5.0]))
    tensor([0.0000, 3.1781])
    """

def linear(x: TensorLike, weight: TensorLike, bias: TensorLike | None = None) -> Tensor:
    """x @ weight.T + bias, with weight of shape (out, in) or (in,).

    >>> pf.linear(pf.ones(2, 3), pf.ones(4, 3), pf.zeros(4)).shape
    (2, 4)
    """

def linear_cross_entropy(
    input: TensorLike,
    linear_weight: TensorLike,
    target: TensorLike,
    *,
    linear_bias: TensorLike | None = None,
    weight: TensorLike | None = None,
    reduction: builtins.str = "mean",
    ignore_index: builtins.int | None = None,
    label_smoothing: builtins.float = 0.0,
    options: Any = None,
) -> Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target, ...), without all logits in memory where they
    are many. Of inputs (..., in) each row has its class index; (N, in) may also meet probabilities.

    >>> x, head = pf.ones(4, 3), pf.zeros(10, 3)
    >>> pf.linear_cross_entropy(x, head, pf.tensor([1, 2, 3, 4]))
    tensor(2.3026)
    """

def log(x: TensorLike) -> Tensor:
    """Natural logarithm; -inf at 0, NaN below.

    >>> pf.log(pf.tensor([1.0, 10.0]))
    tensor([0.0000, 2.3026])
    """

def log10(x: TensorLike) -> Tensor:
    """Logarithm to base 10.

    >>> pf.log10(pf.tensor([1.0, 100.0]))
    tensor([0., 2.])
    """

def log1p(x: TensorLike) -> Tensor:
    """log(1 + x), exact near 0.

    >>> pf.log1p(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 0.6931])
    """

def log2(x: TensorLike) -> Tensor:
    """Logarithm to base 2.

    >>> pf.log2(pf.tensor([1.0, 8.0]))
    tensor([0., 3.])
    """

def log_softmax(
    x: TensorLike, axis: builtins.int = -1, dtype: builtins.object = None, *, dim: builtins.int | None = None
) -> Tensor:
    """log(softmax(x)) along an axis, exact where the softmax is tiny.

    >>> pf.log_softmax(pf.tensor([1.0, 2.0, 3.0]))
    tensor([-2.4076, -1.4076, -0.4076])
    """

def logaddexp(x: TensorLike | builtins.float, y: TensorLike | builtins.float) -> Tensor:
    """log(exp(x) + exp(y)), without overflow.

    >>> pf.logaddexp(pf.tensor([1000.0]), pf.tensor([1000.0]))
    tensor([1000.6932])
    """

def logaddexp2(x: TensorLike | builtins.float, y: TensorLike | builtins.float) -> Tensor:
    """log2(2**x + 2**y), without overflow.

    >>> pf.logaddexp2(pf.tensor([1.0]), pf.tensor([1.0]))
    tensor([2.])
    """

def logcumsumexp(x: TensorLike, axis: Any) -> Tensor:
    """The logarithm of running sums of exp(x) along an axis, without overflow.

    >>> pf.logcumsumexp(pf.tensor([0.0, 0.0, 0.0]), 0)
    tensor([0.0000, 0.6931, 1.0986])
    """

def logical_and(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether both are true (not 0).

    >>> pf.logical_and(pf.tensor([True, True]), pf.tensor([True, False]))
    tensor([ True, False])
    """

def logical_not(x: TensorLike) -> Tensor:
    """Whether x is 0 or False.

    >>> pf.logical_not(pf.tensor([True, False]))
    tensor([False,  True])
    """

def logical_or(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether one of them is true (not 0).

    >>> pf.logical_or(pf.tensor([False, True]), pf.tensor([False, False]))
    tensor([False,  True])
    """

def logical_xor(x: TensorLike, y: TensorLike) -> Tensor:
    """Whether exactly one of them is true (not 0).

    >>> pf.logical_xor(pf.tensor([True, True]), pf.tensor([True, False]))
    tensor([False,  True])
    """

def logit(x: TensorLike, eps: builtins.float | None = None) -> Tensor:
    """log(x / (1 - x)), sigmoid's inverse; with eps x is kept within [eps, 1 - eps].

    >>> pf.logit(pf.tensor([0.5, 0.9]))
    tensor([0.0000, 2.1972])
    """

def logsigmoid(x: TensorLike) -> Tensor:
    """log(sigmoid(x)), exact for large |x|.

    >>> pf.logsigmoid(pf.tensor([0.0, -50.0]))
    tensor([ -0.6931, -50.0000])
    """

def logsumexp(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """log(sum(exp(x))) over axes, without overflow.

    >>> pf.logsumexp(pf.tensor([1000.0, 1000.0]))
    tensor(1000.6932)
    """

def lt(x: TensorLike, y: TensorLike) -> Tensor:
    """x < y.

    >>> pf.lt(pf.tensor([1.0, 2.0]), 2.0)
    tensor([ True, False])
    """

def masked_fill(x: TensorLike, mask: TensorLike, value: Any) -> Tensor:
    """x with `value` where the mask holds, in x's dtype.

    >>> pf.masked_fill(pf.tensor([1.0, 2.0]), pf.tensor([True, False]), 0.0)
    tensor([0., 2.])
    """

def masked_scatter(x: TensorLike, mask: TensorLike, source: TensorLike) -> Tensor:
    """x with the elements where a mask holds replaced, in order, by those of a source.

    >>> pf.masked_scatter(pf.zeros(3), pf.tensor([True, False, True]), pf.tensor([1.0, 2.0]))
    tensor([1., 0., 2.])
    """

def matmul(x: TensorLike, y: TensorLike) -> Tensor:
    """Matrix product with NumPy's broadcasting: vectors count as a row on the left and a column on the right.

    >>> (pf.ones(2, 3) @ pf.ones(3, 4)).shape
    (2, 4)
    """

def max(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False) -> Any:
    """The largest element, NaN where there is one. Along an axis it gives (values, indices): the first of equals.

    With a second tensor it is the elementwise `maximum`. Over several axes use `amax`, which gives values only.

    >>> pf.tensor([[1.0, 5.0], [7.0, 2.0]]).max(1).indices
    tensor([1, 0])
    """

def max_pool1d(
    input: TensorLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: builtins.bool = False,
    return_indices: builtins.bool = False,
) -> Tensor:
    """The largest element of each window of ([N,] C, L); with return_indices also where it was found.

    >>> pf.max_pool1d(pf.ones(1, 2, 8), 2).shape
    (1, 2, 4)
    """

def max_pool2d(
    input: TensorLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: builtins.bool = False,
    return_indices: builtins.bool = False,
) -> Tensor:
    """The largest element of each window of ([N,] C, H, W); with return_indices also where in its plane it was found.

    >>> pf.max_pool2d(pf.ones(1, 2, 8, 8), 3, stride=2, padding=1).shape
    (1, 2, 4, 4)
    """

def max_pool3d(
    input: TensorLike,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: builtins.bool = False,
    return_indices: builtins.bool = False,
) -> Tensor:
    """The largest element of each window of ([N,] C, D, H, W); with return_indices also where it was found.

    >>> pf.max_pool3d(pf.ones(1, 2, 4, 8, 8), 2).shape
    (1, 2, 2, 4, 4)
    """

def maximum(x: TensorLike, y: TensorLike) -> Tensor:
    """The larger of x and y; NaN where either is NaN.

    >>> pf.maximum(pf.tensor([1.0, 4.0]), pf.tensor([2.0, 3.0]))
    tensor([2., 4.])
    """

def mean(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False, dtype: builtins.object = None) -> Tensor:
    """The mean over axes.

    >>> pf.tensor([[1.0, 2.0], [3.0, 5.0]]).mean(axis=0)
    tensor([2.0000, 3.5000])
    """

def median(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False) -> Any:
    """The middle element: the lower of two, NaN where there is one. Along an axis it gives (values, indices).

    >>> pf.median(pf.tensor([3.0, 1.0, 2.0, 9.0]))
    tensor(2.)
    """

def meshgrid(*tensors: Any, indexing: builtins.str = "ij") -> builtins.tuple[Tensor, ...]:
    """Coordinates of a grid over vectors, one tensor per vector, without copies. "xy" swaps the first two axes.

    >>> [g.shape for g in pf.meshgrid(pf.arange(3), pf.arange(2))]
    [(3, 2), (3, 2)]
    """

def min(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False) -> Any:
    """The smallest element, NaN where there is one. Along an axis it gives (values, indices): the first of equals.

    With a second tensor it is the elementwise `minimum`. Over several axes use `amin`, which gives values only.

    >>> pf.tensor([[1.0, 5.0], [7.0, 2.0]]).min(1).values
    tensor([1., 2.])
    """

def minimum(x: TensorLike, y: TensorLike) -> Tensor:
    """The smaller of x and y; NaN where either is NaN.

    >>> pf.minimum(pf.tensor([1.0, 4.0]), pf.tensor([2.0, 3.0]))
    tensor([1., 3.])
    """

def mish(x: TensorLike) -> Tensor:
    """x * tanh(softplus(x)).

    >>> pf.mish(pf.tensor([0.0, 2.0]))
    tensor([0.0000, 1.9440])
    """

def mm(x: TensorLike, y: TensorLike) -> Tensor:
    """Product of two matrices.

    >>> pf.mm(pf.ones(2, 3), pf.ones(3, 4)).shape
    (2, 4)
    """

def mod(x: TensorLike, y: TensorLike) -> Tensor:
    """The rest of x / y, with y's sign (Python's %, torch.remainder); 0 where integers are divided by 0.

    >>> pf.mod(pf.tensor([-7, 7]), 3)
    tensor([2, 1])
    """

def mode(x: TensorLike, axis: Any = -1, keepdims: builtins.bool = False) -> Any:
    """The most frequent element along an axis, the smallest of several, and where it lies: the last of equals.

    >>> pf.mode(pf.tensor([3, 1, 3, 2])).values
    tensor(3)
    """

def modified_bessel_k0(x: TensorLike) -> Tensor:
    """The modified Bessel function of the second kind, order 0; NaN below 0."""

def modified_bessel_k1(x: TensorLike) -> Tensor:
    """The modified Bessel function of the second kind, order 1; NaN below 0."""

def moveaxis(x: TensorLike, source: Any, destination: Any) -> Tensor:
    """Same as `movedim`."""

def movedim(x: TensorLike, source: Any, destination: Any) -> Tensor:
    """Move axes to other places; the rest keep their order.

    >>> pf.zeros(2, 3, 4).movedim(0, -1).shape
    (3, 4, 2)
    """

def mse_loss(input: TensorLike, target: TensorLike, reduction: builtins.str = "mean") -> Tensor:
    """(input - target)^2, averaged.

    >>> pf.mse_loss(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 4.0]))
    tensor(2.)
    """

def msort(x: TensorLike) -> Tensor:
    """The elements in order along the first axis.

    >>> pf.msort(pf.tensor([3, 1, 2]))
    tensor([1, 2, 3])
    """

def mul(x: TensorLike, y: TensorLike) -> Tensor:
    """x * y; `and` for bools.

    >>> pf.mul(pf.tensor([1.0, 2.0]), 1.5)
    tensor([1.5000, 3.0000])
    """

def multiply(x: TensorLike, y: TensorLike) -> Tensor:
    """Same as `mul`."""

def mv(x: TensorLike, y: TensorLike) -> Tensor:
    """Product of a matrix and a vector.

    >>> pf.mv(pf.ones(2, 3), pf.ones(3))
    tensor([3., 3.])
    """

def nan_to_num(
    x: TensorLike, nan: builtins.float = 0.0, posinf: builtins.float | None = None, neginf: builtins.float | None = None
) -> Tensor:
    """x with NaN and the infinities replaced; None stands for the largest and smallest number of x's dtype.

    >>> pf.nan_to_num(pf.tensor([1.0, float("nan")]))
    tensor([1., 0.])
    """

def nanmean(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False, dtype: builtins.object = None) -> Tensor:
    """The mean over axes of the elements that are not NaN.

    >>> pf.nanmean(pf.tensor([1.0, float("nan"), 2.0]))
    tensor(1.5000)
    """

def nanmedian(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False) -> Any:
    """The middle of the elements that are not NaN: the lower of two. Along an axis it gives (values, indices).

    >>> pf.nanmedian(pf.tensor([3.0, float("nan"), 1.0, 2.0]))
    tensor(2.)
    """

def nanquantile(
    x: TensorLike, q: Any, axis: Any = None, keepdims: builtins.bool = False, *, interpolation: builtins.str = "linear"
) -> Tensor:
    """As quantile, of the elements that are not NaN.

    >>> pf.nanquantile(pf.tensor([1.0, float("nan"), 3.0]), 0.5)
    tensor(2.)
    """

def nansum(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False, dtype: builtins.object = None) -> Tensor:
    """Sum over axes that takes NaN as 0.

    >>> pf.nansum(pf.tensor([1.0, float("nan"), 2.0]))
    tensor(3.)
    """

def narrow(x: TensorLike, dim: builtins.int, start: builtins.int, length: builtins.int) -> Tensor:
    """`length` positions of one axis, from `start` on.

    >>> pf.arange(5).narrow(0, 1, 3)
    tensor([1, 2, 3])
    """

def ne(x: TensorLike, y: TensorLike) -> Tensor:
    """x != y.

    >>> pf.ne(pf.tensor([1.0, 2.0]), 2.0)
    tensor([ True, False])
    """

def neg(x: TensorLike) -> Tensor:
    """-x.

    >>> pf.neg(pf.tensor([1.0, -2.0]))
    tensor([-1.,  2.])
    """

def negative(x: TensorLike) -> Tensor:
    """Same as `neg`."""

def nextafter(x: TensorLike, y: TensorLike) -> Tensor:
    """The next number after x in the direction of y, in their dtype.

    >>> pf.nextafter(pf.tensor([1.0]), pf.tensor([2.0])) - 1 == pf.finfo(pf.float32).eps
    tensor([True])
    """

def nll_loss(
    input: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    ignore_index: builtins.int = -100,
    reduction: builtins.str = "mean",
) -> Tensor:
    """-input[target], averaged: the input holds log-probabilities, (C,), (N, C) or (N, C, d1, ...).

    >>> pf.nll_loss(pf.tensor([[-0.5, -1.0], [-2.0, -0.1]]), pf.tensor([0, 1]))
    tensor(0.3000)
    """

def norm(
    x: TensorLike, p: Any = 2, axis: Any = None, keepdims: builtins.bool = False, dtype: builtins.object = None
) -> Tensor:
    """The p-norm of the vectors along axes: (sum |x|^p)^(1/p), with its limits at p = 0, inf and -inf. "fro": p = 2.

    >>> pf.norm(pf.tensor([3.0, 4.0]))
    tensor(5.)
    """

def not_equal(x: TensorLike, y: TensorLike) -> Tensor:
    """Same as `ne`."""

def outer(x: TensorLike, y: TensorLike) -> Tensor:
    """All products of an element of x and an element of y.

    >>> pf.outer(pf.ones(2), pf.ones(3)).shape
    (2, 3)
    """

def pad(x: TensorLike, pad: Any, mode: builtins.str = "constant", value: Any = 0.0) -> Tensor:
    """Put elements before and behind axes: pad = (last axis before, last axis behind, axis before it before, ...).

    They are `value` ("constant"), the elements inside mirrored ("reflect"), the outermost one ("replicate") or those of
    the other end ("circular"). Negative numbers take elements away.

    >>> pf.pad(pf.tensor([1, 2, 3]), (2, 1), mode="reflect")
    tensor([3, 2, 1, 2, 3, 2])
    """

def paged_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    table: TensorLike,
    lengths: TensorLike,
    *,
    scale: builtins.float | None = None,
    softcap: builtins.float | None = None,
    window: Any = None,
    key_scale: TensorLike | None = None,
    value_scale: TensorLike | None = None,
    sinks: TensorLike | None = None,
) -> Tensor:
    """Causal attention of the last T positions of each sequence over its cache: query (B, H, T, D) gives (B, H, T, E).

    key (P, N, G, D) and value (P, N, G, E) are P pages of N positions. Position p of sequence b lies in page
    table[b, p // N], at p % N. lengths[b] positions count, or as many as there is room for; the queries are the last of
    them. Numbers of the table beyond that must name some page. A query that sees nothing gets 0. Pages may be of
    another dtype than the query, int8 and float8 included; key_scale and value_scale (P, N, G) are what their numbers
    are multiplied with. sinks: one more score for each head, whose value is 0. window, softcap and scale are as in
    `scaled_dot_product_attention`. There is no gradient.

    >>> pages, table = pf.randn(8, 16, 2, 64), pf.tensor([[3, 0], [5, 7]])
    >>> pf.paged_attention(pf.randn(2, 4, 1, 64), pages, pages, table, pf.tensor([20, 32])).shape
    (2, 4, 1, 64)
    """

def permute(x: TensorLike, *axes: Any) -> Tensor:
    """Reorder the axes.

    >>> pf.zeros(2, 3, 4).permute(2, 0, 1).shape
    (4, 2, 3)
    """

def polar(abs: TensorLike, angle: TensorLike) -> Tensor:
    """Complex numbers from their absolute values and angles.

    >>> pf.polar(pf.tensor([2.0]), pf.tensor([0.0]))
    tensor([2.+0.j])
    """

def polygamma(n: builtins.int, x: TensorLike) -> Tensor:
    """The derivative of order n of digamma.

    >>> pf.polygamma(1, pf.tensor([1.0]))
    tensor([1.6449])
    """

def pow(x: Any, exponent: Any) -> Tensor:
    """x to the power of the exponent.

    >>> pf.pow(pf.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.])
    """

def prelu(x: TensorLike, weight: TensorLike) -> Tensor:
    """leaky_relu with learned slopes: one for all, or one per channel (axis 1).

    >>> pf.prelu(pf.tensor([-1.0, 2.0]), pf.tensor([0.25]))
    tensor([-0.2500,  2.0000])
    """

def prod(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False, dtype: builtins.object = None) -> Tensor:
    """The product over axes; integers and bools are multiplied as int64.

    >>> pf.tensor([2.0, 3.0, 4.0]).prod()
    tensor(24.)
    """

def quantile(
    x: TensorLike, q: Any, axis: Any = None, keepdims: builtins.bool = False, *, interpolation: builtins.str = "linear"
) -> Tensor:
    """What a share q of the elements along an axis, or of all, lies below: q is a number in [0, 1] or a vector of them.

    Between two elements the interpolation decides: "linear", "lower", "higher", "midpoint" or "nearest". NaN where
    there is one.

    >>> pf.quantile(pf.tensor([1.0, 2.0, 4.0, 8.0]), 0.5)
    tensor(3.)
    """

def rad2deg(x: TensorLike) -> Tensor:
    """An angle in radians, in degrees.

    >>> pf.rad2deg(pf.tensor([3.0]))
    tensor([171.8873])
    """

def ravel(x: TensorLike, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
    """Same as `flatten`."""

def real(x: TensorLike) -> Tensor:
    """The real parts of complex numbers; real numbers as they are.

    >>> pf.real(pf.tensor([1 + 2j]))
    tensor([1.])
    """

def reciprocal(x: TensorLike) -> Tensor:
    """1 / x.

    >>> pf.reciprocal(pf.tensor([4.0, -2.0]))
    tensor([ 0.2500, -0.5000])
    """

def relu(x: TensorLike) -> Tensor:
    """max(x, 0).

    >>> pf.relu(pf.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

def relu6(x: TensorLike) -> Tensor:
    """min(max(x, 0), 6).

    >>> pf.relu6(pf.tensor([-1.0, 2.0, 9.0]))
    tensor([0., 2., 6.])
    """

def remainder(x: TensorLike, y: TensorLike) -> Tensor:
    """Same as `mod`."""

def repeat(x: TensorLike, *sizes: Any) -> Tensor:
    """x repeated as a whole along its axes; more sizes than axes make new ones in front.

    >>> pf.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """

def reshape(x: TensorLike, *shape: Any) -> Tensor:
    """The same elements, in row-major order, under another shape. One size may be -1.

    >>> pf.arange(6).reshape(2, -1).shape
    (2, 3)
    """

def reshape_as(x: TensorLike, other: TensorLike) -> Tensor:
    """x under the shape of another tensor.

    >>> pf.zeros(6).reshape_as(pf.ones(2, 3)).shape
    (2, 3)
    """

def right_shift(x: TensorLike, y: TensorLike) -> Tensor:
    """x >> y, keeping the sign; 0 or -1 where y is negative or all bits are shifted out.

    >>> pf.right_shift(pf.tensor([4, -8]), 2)
    tensor([ 1, -2])
    """

def rms_norm(
    x: TensorLike, normalized_shape: Any, weight: TensorLike | None = None, eps: builtins.float | None = None
) -> Tensor:
    """Mean square 1 over the last axes, then scaled: x / sqrt(mean(x^2) + eps) * weight. eps: the dtype's unless given.

    >>> pf.rms_norm(pf.tensor([[3.0, 4.0]]), (2,))
    tensor([[0.8485, 1.1314]])
    """

def roll(x: TensorLike, shifts: Any, axis: Any = None) -> Tensor:
    """Move elements along axes; those that leave at the end come in at the start. Without an axis x counts as flat.

    >>> pf.tensor([1, 2, 3]).roll(1)
    tensor([3, 1, 2])
    """

def rope(
    x: TensorLike,
    positions: TensorLike,
    base: builtins.float = 10000.0,
    interleaved: builtins.bool = False,
    rotary_dim: builtins.int | None = None,
    frequencies: TensorLike | None = None,
) -> Tensor:
    """Rotary position embedding of x (..., T, D): pairs of elements turn by position * base^(-2i/D).

    Pairs are (i, i + D/2), as in Llama and GPT-NeoX, or neighbours when interleaved. `positions` is (T) or (B, T), a
    tensor, so that decoding at another position uses the same plan. `rotary_dim`: only the first so many of D turn.
    `frequencies` (rotary_dim/2) replace base^(-2i/D); positions and frequencies get no gradient.

    >>> pf.rope(pf.ones(1, 2, 3, 4), pf.arange(3)).shape
    (1, 2, 3, 4)
    """

def rot90(x: TensorLike, k: builtins.int = 1, axis: Any = ...) -> Tensor:
    """Turn the plane of two axes by k quarters, from the first axis towards the second.

    >>> pf.tensor([[1, 2], [3, 4]]).rot90()
    tensor([[2, 4],
            [1, 3]])
    """

def round(x: TensorLike, decimals: builtins.int = 0) -> Tensor:
    """The nearest whole number, halves to the even one; or to this many decimals.

    >>> pf.round(pf.tensor([0.5, 1.5, 2.4]))
    tensor([0., 2., 2.])
    """

def row_stack(tensors: Sequence[TensorLike]) -> Tensor:
    """Same as `vstack`."""

def rsqrt(x: TensorLike) -> Tensor:
    """1 / sqrt(x).

    >>> pf.rsqrt(pf.tensor([4.0, 16.0]))
    tensor([0.5000, 0.2500])
    """

def rsub(x: TensorLike, y: Any, *, alpha: builtins.float = 1) -> Tensor:
    """y - alpha * x: sub with its arguments exchanged.

    >>> pf.rsub(pf.tensor([1.0, 2.0]), 5.0)
    tensor([4., 3.])
    """

def scaled_dot_product_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    attn_mask: TensorLike | None = None,
    dropout_p: builtins.float = 0.0,
    is_causal: builtins.bool = False,
    scale: builtins.float | None = None,
    enable_gqa: builtins.bool = False,
    *,
    window: Any = None,
    softcap: builtins.float | None = None,
    query_offset: builtins.int | TensorLike = 0,
    lengths: TensorLike | None = None,
) -> Tensor:
    """softmax(query key^T * scale + mask) value, over (..., heads, T, D); scale is 1/sqrt(D) unless given.

    A boolean mask says who is seen, any other is added. Causal: query i sees keys 0..i. With enable_gqa fewer heads
    in key and value than in query are shared by groups of query heads; one is in any case. A query that sees nothing
    gets 0.

    Beyond PyTorch: window=(left, right): query i sees keys i - left to i + right, where -1 is no limit; one number is
    both, so a causal model sees so many keys back, besides its own. Its cost is that of the window. softcap=c:
    scores are c * tanh(score / c) before the mask, as in Gemma 2. query_offset: query i stands at key i + query_offset,
    for causal and windows; S - T makes the queries the last ones, as when decoding. lengths: so many keys of each batch
    entry count. Both may be tensors of one number for each batch entry, so that one plan serves a growing cache.

    >>> q, k = pf.randn(1, 8, 16, 64), pf.randn(1, 2, 16, 64)
    >>> pf.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True).shape
    (1, 8, 16, 64)
    """

def scaled_modified_bessel_k0(x: TensorLike) -> Tensor:
    """modified_bessel_k0(x), times e^x."""

def scaled_modified_bessel_k1(x: TensorLike) -> Tensor:
    """modified_bessel_k1(x), times e^x."""

def scatter(
    x: TensorLike, dim: builtins.int, index: TensorLike, src: Any, reduce: builtins.str | None = None
) -> Tensor:
    """x with out[i][index[i][j]] = src[i][j] for dim=1, and alike for other axes; reduce: "add", "multiply".

    >>> pf.scatter(pf.zeros(2, 3), 1, pf.tensor([[0], [2]]), 1.0)
    tensor([[1., 0., 0.],
            [0., 0., 1.]])
    """

def scatter_add(x: TensorLike, dim: builtins.int, index: TensorLike, src: Any) -> Tensor:
    """x with src[i][j] added to out[i][index[i][j]] for dim=1, and alike for other axes.

    >>> pf.scatter_add(pf.zeros(3), 0, pf.tensor([1, 1, 2]), pf.tensor([1.0, 2.0, 3.0]))
    tensor([0., 3., 3.])
    """

def scatter_reduce(
    x: TensorLike,
    dim: builtins.int,
    index: TensorLike,
    src: TensorLike,
    reduce: builtins.str,
    include_self: builtins.bool = True,
) -> Tensor:
    """As scatter, with values that meet combined: "sum", "prod", "mean", "amax" or "amin", with x's own or without.

    >>> pf.scatter_reduce(pf.zeros(2), 0, pf.tensor([0, 0]), pf.tensor([1.0, 5.0]), "amax")
    tensor([5., 0.])
    """

def searchsorted(
    sorted_sequence: TensorLike,
    input: Any,
    *,
    out_int32: builtins.bool = False,
    right: builtins.bool = False,
    side: builtins.str | None = None,
    sorter: TensorLike | None = None,
) -> Tensor:
    """Where each value would be inserted to keep the last axis sorted: before equal ones, or behind them if `right`.

    `side` says the same in words, "left" or "right"; `sorter` holds the positions that sort the sequence, if it is not.

    >>> pf.searchsorted(pf.tensor([1, 3, 5]), pf.tensor([0, 3, 9]))
    tensor([0, 1, 3])
    """

def select(x: TensorLike, dim: builtins.int, index: builtins.int) -> Tensor:
    """One position of an axis; the axis is dropped.

    >>> pf.tensor([[1, 2], [3, 4]]).select(1, -1)
    tensor([2, 4])
    """

def select_scatter(x: TensorLike, src: TensorLike, dim: builtins.int, index: builtins.int) -> Tensor:
    """x with the slice at one position of an axis replaced.

    >>> pf.select_scatter(pf.zeros(2, 2), pf.ones(2), 0, 1)
    tensor([[0., 0.],
            [1., 1.]])
    """

def selu(x: TensorLike) -> Tensor:
    """The elu whose outputs keep mean 0 and variance 1 through deep networks.

    >>> pf.selu(pf.tensor([-1.0, 2.0]))
    tensor([-1.1113,  2.1014])
    """

def sgn(x: TensorLike) -> Tensor:
    """Same as `sign`."""

def shifted_chebyshev_polynomial_t(x: Any, n: Any) -> Tensor:
    """Chebyshev's polynomial of the first kind and degree n, at 2x - 1. It has no gradient."""

def shifted_chebyshev_polynomial_u(x: Any, n: Any) -> Tensor:
    """Chebyshev's polynomial of the second kind and degree n, at 2x - 1. It has no gradient."""

def shifted_chebyshev_polynomial_v(x: Any, n: Any) -> Tensor:
    """Chebyshev's polynomial of the third kind and degree n, at 2x - 1. It has no gradient."""

def shifted_chebyshev_polynomial_w(x: Any, n: Any) -> Tensor:
    """Chebyshev's polynomial of the fourth kind and degree n, at 2x - 1. It has no gradient."""

def sigmoid(x: TensorLike) -> Tensor:
    """1 / (1 + exp(-x)).

    >>> pf.sigmoid(pf.tensor([0.0, 2.0]))
    tensor([0.5000, 0.8808])
    """

def sign(x: TensorLike) -> Tensor:
    """-1, 0 or 1; 0 for NaN.

    >>> pf.sign(pf.tensor([3.0, 0.0, -2.0]))
    tensor([ 1.,  0., -1.])
    """

def signbit(x: TensorLike) -> Tensor:
    """Whether x has a minus: below 0, or the 0 that is approached from there.

    >>> pf.signbit(pf.tensor([1.0, -0.0]))
    tensor([False,  True])
    """

def silu(x: TensorLike) -> Tensor:
    """x * sigmoid(x), also called swish.

    >>> pf.silu(pf.tensor([0.0, 2.0]))
    tensor([0.0000, 1.7616])
    """

def sin(x: TensorLike) -> Tensor:
    """Sine of an angle in radians.

    >>> pf.sin(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8415])
    """

def sinc(x: TensorLike) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0.

    >>> pf.sinc(pf.tensor([0.0, 0.5]))
    tensor([1.0000, 0.6366])
    """

def sinh(x: TensorLike) -> Tensor:
    """Hyperbolic sine.

    >>> pf.sinh(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 1.1752])
    """

def slice_scatter(
    x: TensorLike,
    src: TensorLike,
    dim: builtins.int = 0,
    start: builtins.int | None = None,
    end: builtins.int | None = None,
    step: builtins.int = 1,
) -> Tensor:
    """x with a range of an axis replaced.

    >>> pf.slice_scatter(pf.zeros(3), pf.ones(2), 0, 1)
    tensor([0., 1., 1.])
    """

def smooth_l1_loss(
    input: TensorLike, target: TensorLike, reduction: builtins.str = "mean", beta: builtins.float = 1.0
) -> Tensor:
    """d^2 / (2 beta) for differences d below beta, else |d| - beta / 2; averaged.

    >>> pf.smooth_l1_loss(pf.tensor([1.0, 2.0]), pf.tensor([1.0, 4.0]))
    tensor(0.7500)
    """

def softmax(
    x: TensorLike, axis: builtins.int = -1, dtype: builtins.object = None, *, dim: builtins.int | None = None
) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis, computed without overflow.

    >>> pf.softmax(pf.tensor([1.0, 2.0, 3.0]))
    tensor([0.0900, 0.2447, 0.6652])
    """

def softplus(x: TensorLike, beta: builtins.float = 1.0, threshold: builtins.float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold.

    >>> pf.softplus(pf.tensor([0.0, 30.0]))
    tensor([ 0.6931, 30.0000])
    """

def softsign(x: TensorLike) -> Tensor:
    """x / (1 + |x|).

    >>> pf.softsign(pf.tensor([-1.0, 3.0]))
    tensor([-0.5000,  0.7500])
    """

def sort(x: TensorLike, axis: Any = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Any:
    """The elements along an axis in order, and where they lay. Equals keep their order; NaN counts as the largest.

    >>> pf.sort(pf.tensor([3.0, 1.0, 2.0])).values
    tensor([1., 2., 3.])
    """

def split(x: TensorLike, split_size_or_sections: Any, axis: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
    """Parts of an axis: of one size (the last may be smaller), or of the sizes in a list. No copies.

    >>> [p.shape for p in pf.zeros(5).split(2)]
    [(2,), (2,), (1,)]
    """

def sqrt(x: TensorLike) -> Tensor:
    """The square root; NaN below 0.

    >>> pf.sqrt(pf.tensor([4.0, 9.0]))
    tensor([2., 3.])
    """

def square(x: TensorLike) -> Tensor:
    """x * x.

    >>> pf.square(pf.tensor([3.0, -2.0]))
    tensor([9., 4.])
    """

def squeeze(x: TensorLike, axis: Any = None) -> Tensor:
    """Drop axes of size 1: all, one, or several. Axes of another size stay.

    >>> pf.zeros(1, 3, 1).squeeze().shape
    (3,)
    """

def stack(tensors: Sequence[TensorLike], axis: builtins.int = 0) -> Tensor:
    """Tensors of one shape side by side along a new axis.

    >>> pf.stack([pf.tensor([1, 2]), pf.tensor([3, 4])])
    tensor([[1, 2],
            [3, 4]])
    """

def std(
    x: TensorLike,
    axis: Any = None,
    unbiased: builtins.bool | None = None,
    keepdims: builtins.bool = False,
    *,
    correction: Any = None,
    ddof: Any = None,
) -> Tensor:
    """The standard deviation over axes: the square root of `var`.

    >>> pf.tensor([1.0, 3.0]).std(ddof=0)
    tensor(1.)
    """

def std_mean(
    x: TensorLike,
    axis: Any = None,
    unbiased: builtins.bool | None = None,
    keepdims: builtins.bool = False,
    *,
    correction: Any = None,
    ddof: Any = None,
) -> builtins.tuple[Tensor, Tensor]:
    """The standard deviation and the mean over axes.

    >>> pf.std_mean(pf.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """

def sub(x: TensorLike, y: TensorLike, *, alpha: builtins.float = 1) -> Tensor:
    """x - alpha * y.

    >>> pf.sub(pf.tensor([1.0, 2.0]), 0.5)
    tensor([0.5000, 1.5000])
    """

def subtract(x: TensorLike, y: TensorLike, *, alpha: builtins.float = 1) -> Tensor:
    """Same as `sub`."""

def sum(x: TensorLike, axis: Any = None, keepdims: builtins.bool = False, dtype: builtins.object = None) -> Tensor:
    """Sum over axes; integers and bools are summed as int64.

    >>> pf.ones(2, 3).sum(axis=1)
    tensor([3., 3.])
    """

def swapaxes(x: TensorLike, dim0: builtins.int, dim1: builtins.int) -> Tensor:
    """Same as `transpose`."""

def swapdims(x: TensorLike, dim0: builtins.int, dim1: builtins.int) -> Tensor:
    """Same as `transpose`."""

def swiglu(x: TensorLike, gate: TensorLike | None = None) -> Tensor:
    """x * silu(gate); with one argument its last axis holds x and then the gate, as in `glu`.

    >>> pf.swiglu(pf.tensor([[2.0, 0.0]]))
    tensor([[0.]])
    """

def t(x: TensorLike) -> Tensor:
    """A matrix with its axes exchanged; a vector or a number as it is.

    >>> pf.zeros(2, 3).t().shape
    (3, 2)
    """

def take(x: TensorLike, index: TensorLike, axis: builtins.int | None = None) -> Tensor:
    """Elements at these positions of the flattened tensor, or of one axis.

    >>> pf.take(pf.tensor([[1, 2], [3, 4]]), pf.tensor([3, 0]))
    tensor([4, 1])
    """

def take_along_axis(x: TensorLike, indices: TensorLike, axis: builtins.int | None = None) -> Tensor:
    """Take elements along an axis by an index per position; the other axes broadcast. Without an axis x is flattened.

    >>> x = pf.tensor([[3, 1, 2]])
    >>> pf.take_along_axis(x, pf.tensor([[1, 2, 0]]), axis=1)
    tensor([[1, 2, 3]])
    """

def take_along_dim(x: TensorLike, indices: TensorLike, axis: builtins.int | None = None) -> Tensor:
    """Same as `take_along_axis`."""

def tan(x: TensorLike) -> Tensor:
    """Tangent of an angle in radians.

    >>> pf.tan(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 1.5574])
    """

def tanh(x: TensorLike) -> Tensor:
    """Hyperbolic tangent.

    >>> pf.tanh(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7616])
    """

def tensor_split(
    x: TensorLike, indices_or_sections: builtins.int | Sequence[builtins.int], axis: builtins.int = 0
) -> builtins.tuple[Tensor, ...]:
    """An axis cut into so many parts of nearly equal size, or at these positions. No copies.

    >>> [p.shape for p in pf.arange(7).tensor_split(3)]
    [(3,), (2,), (2,)]
    """

def tensordot(x: TensorLike, y: TensorLike, dims: Any = 2) -> Tensor:
    """Sum of products over the last `dims` axes of x and the first of y, or over two lists of axes.

    >>> pf.tensordot(pf.ones(2, 3, 4), pf.ones(3, 4, 5)).shape
    (2, 5)
    """

def tile(x: TensorLike, *reps: Any) -> Tensor:
    """As repeat, with the counts meant for the last axes where they are fewer.

    >>> pf.tensor([[1], [2]]).tile(2)
    tensor([[1, 1],
            [2, 2]])
    """

def topk(
    x: TensorLike, k: builtins.int, axis: Any = -1, largest: builtins.bool = True, sorted: builtins.bool = True
) -> Any:
    """The k largest (or smallest) elements along an axis in order, and where they lie; of equals the first ones.

    >>> pf.topk(pf.tensor([3.0, 1.0, 2.0]), 2).indices
    tensor([0, 2])
    """

def trace(x: TensorLike) -> Tensor:
    """The sum of a matrix's diagonal.

    >>> pf.trace(pf.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(5.)
    """

def transpose(x: TensorLike, dim0: builtins.int, dim1: builtins.int) -> Tensor:
    """Exchange two axes.

    >>> pf.zeros(2, 3, 4).transpose(0, 2).shape
    (4, 3, 2)
    """

def trapezoid(
    y: TensorLike, x: TensorLike | None = None, *, dx: builtins.float | None = None, axis: Any = -1
) -> Tensor:
    """The integral of y along an axis by the trapezoidal rule, over the points x or points that are dx (1) apart.

    >>> pf.trapezoid(pf.tensor([1.0, 2.0, 3.0]))
    tensor(4.)
    """

def trapz(y: TensorLike, x: TensorLike | None = None, *, dx: builtins.float | None = None, axis: Any = -1) -> Tensor:
    """Same as `trapezoid`."""

def tril(x: TensorLike, diagonal: builtins.int = 0) -> Tensor:
    """The lower triangle of matrices, up to a diagonal; 0 above.

    >>> pf.tril(pf.ones(2, 2))
    tensor([[1., 0.],
            [1., 1.]])
    """

def triu(x: TensorLike, diagonal: builtins.int = 0) -> Tensor:
    """The upper triangle of matrices, from a diagonal on; 0 below.

    >>> pf.triu(pf.ones(2, 2))
    tensor([[1., 1.],
            [0., 1.]])
    """

def true_divide(x: TensorLike, y: TensorLike) -> Tensor:
    """x / y, always in floating point.

    >>> pf.true_divide(pf.tensor([1, 2]), 4)
    tensor([0.2500, 0.5000])
    """

def trunc(x: TensorLike) -> Tensor:
    """x without its fraction.

    >>> pf.trunc(pf.tensor([1.7, -1.7]))
    tensor([ 1., -1.])
    """

def unbind(x: TensorLike, axis: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
    """The slices along an axis, without that axis. No copies.

    >>> [p.shape for p in pf.zeros(2, 3).unbind(1)]
    [(2,), (2,), (2,)]
    """

def unflatten(x: TensorLike, dim: builtins.int, sizes: Any) -> Tensor:
    """Cut one axis into several; one of the sizes may be -1.

    >>> pf.zeros(2, 6).unflatten(1, (3, -1)).shape
    (2, 3, 2)
    """

def unfold(x: TensorLike, dimension: builtins.int, size: builtins.int, step: builtins.int) -> Tensor:
    """Windows of `size` along an axis, every `step`, as a new last axis.

    >>> pf.tensor([1, 2, 3, 4]).unfold(0, 2, 1)
    tensor([[1, 2],
            [2, 3],
            [3, 4]])
    """

def unfold2d(x: TensorLike, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Sliding windows of images as columns: (N, C, H, W) -> (N, C*kh*kw, windows); nn.functional.unfold.

    >>> pf.unfold2d(pf.zeros(1, 3, 4, 4), 2).shape
    (1, 12, 9)
    """

def unsqueeze(x: TensorLike, axis: builtins.int) -> Tensor:
    """A new axis of size 1 at this place.

    >>> pf.zeros(3).unsqueeze(-1).shape
    (3, 1)
    """

def vander(x: TensorLike, N: builtins.int | None = None, increasing: builtins.bool = False) -> Tensor:
    """The powers of a vector's elements, one column per power: N of them, or as many as there are elements.

    >>> pf.vander(pf.tensor([2, 3]), 3)
    tensor([[4, 2, 1],
            [9, 3, 1]])
    """

def var(
    x: TensorLike,
    axis: Any = None,
    unbiased: builtins.bool | None = None,
    keepdims: builtins.bool = False,
    *,
    correction: Any = None,
    ddof: Any = None,
) -> Tensor:
    """The variance over axes: squares summed and divided by n - correction (or `ddof`; 1 unless given).

    >>> pf.tensor([1.0, 2.0, 3.0, 4.0]).var(correction=0)
    tensor(1.2500)
    """

def var_mean(
    x: TensorLike,
    axis: Any = None,
    unbiased: builtins.bool | None = None,
    keepdims: builtins.bool = False,
    *,
    correction: Any = None,
    ddof: Any = None,
) -> builtins.tuple[Tensor, Tensor]:
    """The variance and the mean over axes.

    >>> pf.var_mean(pf.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """

def varlen_attn(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    cu_seq_q: TensorLike,
    cu_seq_k: TensorLike,
    max_q: builtins.int | None = None,
    max_k: builtins.int | None = None,
    *,
    scale: builtins.float | None = None,
    window_size: Any = ...,
    enable_gqa: builtins.bool = False,
    seqused_k: TensorLike | None = None,
    softcap: builtins.float | None = None,
) -> Tensor:
    """Attention within packed sequences: query (T, H, D), key (S, G, D), value (S, G, E) give (T, H, E).

    Sequence n has queries cu_seq_q[n] to cu_seq_q[n + 1] and keys cu_seq_k[n] to cu_seq_k[n + 1]; both begin with 0 and
    never fall. Its last query stands at its last key: window_size=(-1, 0) is causal, (left, 0) a window of so many keys
    back. seqused_k: only so many keys of each sequence count. max_q and max_k are not needed. Queries of no sequence,
    and those that see nothing, get 0.

    >>> q, ends = pf.randn(10, 4, 16), pf.tensor([0, 3, 10])
    >>> pf.varlen_attn(q, q, q, ends, ends, window_size=(-1, 0)).shape
    (10, 4, 16)
    """

def vdot(x: TensorLike, y: TensorLike) -> Tensor:
    """Inner product of two vectors, of which the first is conjugated.

    >>> pf.vdot(pf.ones(3), pf.ones(3))
    tensor(3.)
    """

def view(x: TensorLike, *shape: Any) -> Tensor:
    """Same as `reshape`."""

def view_as(x: TensorLike, other: TensorLike) -> Tensor:
    """Same as `reshape_as`."""

def view_as_complex(x: TensorLike) -> Tensor:
    """Complex numbers from a last axis of size 2: the real and the imaginary part.

    >>> pf.view_as_complex(pf.tensor([[1.0, 2.0]]))
    tensor([1.+2.j])
    """

def view_as_real(x: TensorLike) -> Tensor:
    """The real and the imaginary parts of complex numbers, along a new last axis.

    >>> pf.view_as_real(pf.tensor([1 + 2j]))
    tensor([[1., 2.]])
    """

def vsplit(x: TensorLike, indices_or_sections: builtins.int | Sequence[builtins.int]) -> builtins.tuple[Tensor, ...]:
    """Equal parts, or parts cut at positions, along the first axis.

    >>> [p.shape for p in pf.zeros(4, 2).vsplit(2)]
    [(2, 2), (2, 2)]
    """

def vstack(tensors: Sequence[TensorLike]) -> Tensor:
    """Tensors below each other: along the first axis, with vectors as rows.

    >>> pf.vstack([pf.tensor([1, 2]), pf.tensor([3, 4])]).shape
    (2, 2)
    """

def xlogy(x: TensorLike, y: TensorLike) -> Tensor:
    """x * log(y), and 0 where x is 0, unless y is NaN.

    >>> pf.xlogy(pf.tensor([0.0, 2.0]), pf.tensor([0.0, 1.5]))
    tensor([0.0000, 0.8109])
    """

def zeta(s: TensorLike, q: TensorLike) -> Tensor:
    """Hurwitz's zeta: the sum of (q + k)^-s over all k from 0 on. It has no gradient for s.

    >>> pf.special.zeta(pf.tensor([2.0]), pf.tensor([1.0]))
    tensor([1.6449])
    """

def ger(x: TensorLike, y: TensorLike) -> Tensor:
    """All products of an element of x and an element of y.

    >>> pf.outer(pf.ones(2), pf.ones(3)).shape
    (2, 3)
    """

def hardshrink(input: Tensor, lambd: builtins.float = 0.5) -> Tensor:
    """0 where the element is at most lambd from it.

    >>> pf.hardshrink(pf.tensor([0.3, 1.0]))
    tensor([0., 1.])
    """

def index_put(input: Tensor, indices: Sequence[Any], values: Any, accumulate: builtins.bool = False) -> Tensor:
    """A copy with values at these indices; with `accumulate` they are added, also where an index occurs twice.

    >>> pf.index_put(pf.zeros(3), (pf.tensor([0, 0]),), pf.ones(2), accumulate=True).tolist()
    [2.0, 0.0, 0.0]
    """

def narrow_copy(input: Tensor, dim: builtins.int, start: builtins.int, length: builtins.int) -> Tensor:
    """A copy of a range along an axis.

    >>> pf.narrow_copy(pf.arange(4), 0, 1, 2)
    tensor([1, 2])
    """

def positive(input: Tensor) -> Tensor:
    """The tensor itself: +x.

    >>> pf.positive(pf.tensor([-1]))
    tensor([-1])
    """

def put(input: Tensor, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Tensor:
    """A copy with elements at these row-major positions replaced, or added to.

    >>> pf.put(pf.zeros(3), pf.tensor([1]), pf.tensor([9.0])).tolist()
    [0.0, 9.0, 0.0]
    """

def renorm(input: Tensor, p: builtins.float, dim: builtins.int, maxnorm: builtins.float) -> Tensor:
    """Each slice along an axis scaled down to a norm of at most maxnorm.

    >>> pf.renorm(pf.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """

def split_with_sizes(input: Tensor, split_sizes: Sequence[builtins.int], dim: builtins.int = 0) -> Any:
    """Parts of these sizes along an axis.

    >>> [p.tolist() for p in pf.split_with_sizes(pf.arange(3), [1, 2])]
    [[0], [1, 2]]
    """

def unsafe_chunk(x: TensorLike, chunks: builtins.int, axis: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
    """At most `chunks` parts of equal size along an axis; the last may be smaller. No copies.

    >>> [p.shape for p in pf.zeros(5).chunk(2)]
    [(3,), (2,)]
    """

def unsafe_split(x: TensorLike, split_size_or_sections: Any, axis: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
    """Parts of an axis: of one size (the last may be smaller), or of the sizes in a list. No copies.

    >>> [p.shape for p in pf.zeros(5).split(2)]
    [(2,), (2,), (1,)]
    """

def unsafe_split_with_sizes(input: Tensor, split_sizes: Sequence[builtins.int], dim: builtins.int = 0) -> Any:
    """Parts of these sizes along an axis.

    >>> [p.tolist() for p in pf.split_with_sizes(pf.arange(3), [1, 2])]
    [[0], [1, 2]]
    """
