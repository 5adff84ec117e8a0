"""Methods and functions of torch that are compositions here, against torch; and which of its names are missing."""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn, optim
from tools.differences import MISSING

Both = Callable[[Any], Any]

CASES: dict[str, Both] = {
    "addmv": lambda lib: lib.addmv(A(lib, 3), A(lib, 3, 4), A(lib, 4), beta=0.5, alpha=2),
    "addmv_": lambda lib: A(lib, 3).addmv_(A(lib, 3, 4), A(lib, 4)),
    "addr": lambda lib: lib.addr(A(lib, 3, 4), A(lib, 3), A(lib, 4), beta=0.5, alpha=2),
    "ger": lambda lib: lib.ger(A(lib, 3), A(lib, 4)),
    "diagflat": lambda lib: lib.diagflat(A(lib, 2, 2), 1),
    "diagflat below": lambda lib: A(lib, 3).diagflat(-2),
    "dist": lambda lib: lib.dist(A(lib, 3), A(lib, 3) * 2, 3),
    "msort": lambda lib: lib.msort(A(lib, 4, 3)),
    "positive": lambda lib: lib.positive(A(lib, 3)),
    "ldexp": lambda lib: lib.ldexp(A(lib, 3), lib.tensor([1, -2, 3])),
    "hardshrink": lambda lib: A(lib, 3, 4).hardshrink(0.7),
    "hardshrink at the edge": lambda lib: lib.hardshrink(lib.tensor([0.5, -0.5, 0.6, float("nan")])),
    "split_with_sizes": lambda lib: A(lib, 5, 2).split_with_sizes([2, 0, 3])[2],
    "select_scatter": lambda lib: lib.select_scatter(A(lib, 3, 4), lib.ones(3), 1, -2),
    "slice_scatter": lambda lib: lib.slice_scatter(A(lib, 5, 4), lib.ones(2, 4), 0, 1, 5, 2),
    "slice_scatter to the end": lambda lib: A(lib, 5).slice_scatter(lib.ones(2), start=-2),
    "renorm": lambda lib: A(lib, 3, 4).renorm(2, 0, 1.0),
    "renorm of the last axis": lambda lib: lib.renorm(A(lib, 3, 4), 1, -1, 0.5),
    "index_put": lambda lib: A(lib, 3, 4).index_put((lib.tensor([0, 2]), lib.tensor([1, 1])), lib.tensor([9.0, 8.0])),
    "index_put_": lambda lib: A(lib, 3).index_put_((lib.tensor([True, False, True]),), lib.tensor(5.0)),
    "index_put twice": lambda lib: A(lib, 3, 4).index_put_(
        (lib.tensor([0, 0, -1]), lib.tensor([1, 1, 2])), lib.ones(3), accumulate=True
    ),
    "index_put of rows": lambda lib: A(lib, 3, 4).index_put((lib.tensor([[0, 0]]),), lib.ones(4), accumulate=True),
    "put": lambda lib: lib.zeros(2, 3).put_(lib.tensor([1, 4]), lib.tensor([9.0, 7.0])),
    "put twice": lambda lib: lib.ones(2, 3).put_(lib.tensor([1, 1]), lib.tensor([9.0, 7.0]), accumulate=True),
    "sum_to_size": lambda lib: A(lib, 2, 3, 4).sum_to_size(3, 1),
    "sum_to_size of all": lambda lib: A(lib, 2, 3).sum_to_size(1),
    "fill_diagonal_": lambda lib: A(lib, 3, 4).fill_diagonal_(9),
    "fill_diagonal_ tall": lambda lib: A(lib, 7, 3).fill_diagonal_(9),
    "fill_diagonal_ wrapped": lambda lib: A(lib, 7, 3).fill_diagonal_(9, wrap=True),
    "fill_diagonal_ of a cube": lambda lib: A(lib, 3, 3, 3).fill_diagonal_(9),
    "squeeze_": lambda lib: A(lib, 3, 1, 2).squeeze_(1),
    "unsqueeze_": lambda lib: A(lib, 3).unsqueeze_(0),
    "t_": lambda lib: A(lib, 3, 2).t_(),
    "transpose_": lambda lib: A(lib, 3, 2, 4).transpose_(0, 2),
    "apply_": lambda lib: A(lib, 3, 2).apply_(lambda v: v * 2 + 1),
    "new": lambda lib: A(lib, 3).new([1, 2, 3]),
    "new_tensor": lambda lib: A(lib, 3).new_tensor([1, 2]),
    "Tensor": lambda lib: lib.Tensor([[1, 2], [3, 4]]),
    "LongTensor": lambda lib: lib.LongTensor([[1, 2], [3, 4]]),
    "narrow_copy": lambda lib: A(lib, 5).narrow_copy(0, 1, 3),
    "scalar_tensor": lambda lib: lib.scalar_tensor(3),
    "frombuffer": lambda lib: lib.frombuffer(bytearray(b"abcdefgh"), dtype=lib.int16, offset=2, count=2),
    "asarray": lambda lib: lib.asarray([1.5, 2.5], copy=True),
    "relu_ as a function": lambda lib: lib.relu_(A(lib, 4)),
    "to with non_blocking": lambda lib: A(lib, 2).to("cpu", lib.float64, True),
    "to a format": lambda lib: A(lib, 1, 2, 3, 3).to(memory_format=lib.channels_last),
    "type": lambda lib: A(lib, 2).type(lib.DoubleTensor),
}


def A(lib: Any, *shape: int) -> Any:
    values = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    return lib.tensor(values)


@pytest.mark.parametrize("name", list(CASES))
def test_against_torch(name: str) -> None:
    got, want = CASES[name](pf), CASES[name](torch)
    assert got.dtype.name.rstrip("_") == str(want.dtype).removeprefix("torch.")
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6, strict=True)


QUESTIONS = (
    "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_quantized", "is_nested", "is_leaf", "itemsize", "requires_grad",
    "ndim", "is_signed()", "is_pinned()", "is_shared()", "is_floating_point()", "get_device()", "element_size()",
    "dim()", "numel()", "nelement()",
)  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("dtype", ["float32", "uint8", "bool", "bfloat16"])
def test_questions(question: str, dtype: str) -> None:
    def ask(lib: Any) -> Any:
        found = getattr(lib.ones(2, 3, dtype=getattr(lib, dtype)), question.removesuffix("()"))
        return found() if question.endswith("()") else found

    assert ask(pf) == ask(torch)


def test_grad_fn_is_there_for_what_was_computed() -> None:
    x = pf.ones(2, requires_grad=True)
    assert x.grad_fn is None and (x * 2).grad_fn is not None and (x * 2).detach().grad_fn is None


def test_gradients_flow_through_shape_changes_in_place() -> None:
    x = pf.ones(2, 3, requires_grad=True)
    y = x * 2
    y.unsqueeze_(0).transpose_(1, 2)
    assert y.shape == (1, 3, 2)
    (y * pf.arange(6.0).reshape(1, 3, 2)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), (np.arange(6.0).reshape(3, 2).T * 2))


def test_sizes_and_values_of_tensor() -> None:
    assert pf.Tensor(2, 3).shape == (2, 3) and pf.Tensor(2, 3).dtype is pf.float32 and pf.Tensor().shape == (0,)
    assert pf.Tensor(np.ones((2, 2))).dtype is pf.float32
    assert pf.Tensor(pf.Size([2, 3]) if False else [2.0]).tolist() == [2.0]
    with pytest.raises(TypeError):
        pf.Tensor("text")


@pytest.mark.parametrize("name", ["log_normal_", "cauchy_", "geometric_"])
def test_random_fills(name: str) -> None:
    """The median of many draws, against torch's."""
    args = (0.3,) if name == "geometric_" else ()
    pf.manual_seed(0), torch.manual_seed(0)
    got, want = (getattr(lib.empty(40000), name)(*args).numpy() for lib in (pf, torch))
    np.testing.assert_allclose(
        np.quantile(got, [0.2, 0.5, 0.8]), np.quantile(want, [0.2, 0.5, 0.8]), rtol=0.1, atol=0.05
    )


def test_formats_of_scalars() -> None:
    assert f"{pf.tensor(3.14159):.3f}" == "3.142" and f"{pf.tensor(7):>4d}" == "   7"
    assert f"{pf.tensor(2.5)}" == f"{torch.tensor(2.5)}" == "2.5"


# --- what is missing --------------------------------------------------------------------------------------------------

PLACES: dict[str, tuple[Any, Any]] = {
    "fft": (torch.fft, pf.fft),
    "func": (torch.func, pf.func),
    "linalg": (torch.linalg, pf.linalg),
    "profiler": (torch.profiler, pf.profiler),
    "signal.windows": (torch.signal.windows, pf.signal.windows),
    "special": (torch.special, pf.special),
    "nn": (torch.nn, nn),
    "nn.functional": (torch.nn.functional, nn.functional),
    "nn.init": (torch.nn.init, nn.init),
    "nn.Module": (torch.nn.Module, nn.Module),
    "nn.utils.rnn": (torch.nn.utils.rnn, nn.utils.rnn),
    "optim": (torch.optim, optim),
    "optim.lr_scheduler": (torch.optim.lr_scheduler, optim.lr_scheduler),
    "utils.data": (torch.utils.data, pf.utils.data),
}
# Machinery of torch that programs do not use: types, notes, tools of its own modules, names that were given up.
MACHINERY = re.compile(
    "[a-z_]*torch_function[a-z_]*|.*_notes|.*_with_indices|BroadcastingList.|.*_DatasetKind|.*(data)?pipe.*|.*validation.*"
    "|(constant|dirac|normal|orthogonal|sparse|uniform|(kaiming|xavier)_(normal|uniform))"  # old names in init, warn
    "|DType|DFIterDataPipe|DataChunk|Optional|ScalingType|SwizzleType|TYPE_CHECKING|GRID_SAMPLE_.*|T_destination"
    "|assert_int_or_pair|boolean_dispatch|call_super_init|common_types|dump_patches|factory_kwargs|grad|intrinsic|ipu"
    "|modules|mtia|native_channel_shuffle|non_deterministic|qat|quantizable|register_backward_hook|xpu|NLLLoss2d|Container"
    "|smart_apply"  # transformers puts it into nn.Module, where another test has imported it
    "|swap_in_optimizer_params_and_state|bind|PackedSequence_|Callable|Iterable|NamedTuple|Tensor|TypeVar|Union|overload"
)


def missing(place: str) -> set[str]:
    theirs, ours = PLACES[place]
    listed = getattr(theirs, "__all__", None) or [n for n in dir(theirs) if not n.startswith("_")]
    found = [n for n in listed if not hasattr(ours, n) and not isinstance(getattr(theirs, n), types.ModuleType)]
    submodules = [n for n in ("swa_utils", "quantized") if hasattr(theirs, n) and not hasattr(ours, n)]
    return {n for n in (*found, *submodules) if not MACHINERY.fullmatch(n)}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_missing_is_said(place: str) -> None:
    """The audit: every name of torch is there, or in the table that the guide for its users shows."""
    known = set(MISSING.get(place, ()))
    assert missing(place) - known == set(), "missing, and not in tools/differences.py"
    assert known - missing(place) == set(), "in tools/differences.py, and there"


def test_the_table_names_places_that_are_compared() -> None:
    assert set(MISSING) <= set(PLACES)
