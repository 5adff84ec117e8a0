# ruff: noqa: E501, RUF022, RUF100
"""Written by tools/make_stubs.py. Do not edit."""

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from pyflame.core.generator import Generator
from pyflame.tensor.tensor import Tensor

TensorLike: TypeAlias = Tensor | np.ndarray[Any, Any] | builtins.float

class Catalogue:
    __slots__ = ()
    @property
    def H(self) -> Tensor: ...
    @property
    def T(self) -> Tensor: ...
    def __abs__(self) -> Tensor:
        """The absolute value."""

    def __add__(self, other: TensorLike) -> Tensor: ...
    def __and__(self, other: TensorLike) -> Tensor: ...
    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: builtins.bool = False) -> Tensor:
        """What NumPy's functions of a tensor give: a tensor over the array that they made, as in PyTorch; a mask is of
        uint8 there, too."""

    def __complex__(self) -> Any: ...
    def __contains__(self, value: Any) -> builtins.bool: ...
    def __copy__(self) -> Tensor:
        """Another cell with the same value: part of the same tape, or a leaf of its own."""

    @property
    def __cuda_array_interface__(self) -> Tensor: ...
    def __deepcopy__(self, memo: builtins.dict[builtins.int, Any]) -> Tensor:
        """An independent tensor. It may share memory until one of both is changed in place."""

    def __div__(self, other: TensorLike) -> Tensor: ...
    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: builtins.bool | None = None
    ) -> Any:
        """A DLPack capsule over the tensor's memory, without a copy. Whoever takes it must not write to it."""

    def __dlpack_device__(self) -> builtins.tuple[builtins.int, builtins.int]:
        """(device type, number) in DLPack's terms. A constant that no device holds is the host's."""

    def __eq__(self, other: Any) -> Tensor: ...  # type: ignore[override]
    def __floordiv__(self, other: TensorLike) -> Tensor: ...
    def __format__(self, spec: builtins.str) -> builtins.str: ...
    def __ge__(self, other: Any) -> Tensor: ...
    def __getitem__(self, key: Any) -> Tensor:
        """x[key], as NumPy reads it; basic indices make a view without copying."""

    def __gt__(self, other: Any) -> Tensor: ...
    def __iadd__(self, other: TensorLike) -> Tensor: ...
    def __iand__(self, other: TensorLike) -> Tensor: ...
    def __ifloordiv__(self, other: TensorLike) -> Tensor: ...
    def __ilshift__(self, other: TensorLike) -> Tensor: ...
    def __imatmul__(self, other: TensorLike) -> Tensor: ...
    def __imod__(self, other: TensorLike) -> Tensor: ...
    def __imul__(self, other: TensorLike) -> Tensor: ...
    def __invert__(self) -> Tensor:
        """Every bit of an integer turned over; `not` for bools."""

    def __ior__(self, other: TensorLike) -> Tensor: ...
    def __ipow__(self, other: TensorLike) -> Tensor: ...
    def __irshift__(self, other: TensorLike) -> Tensor: ...
    def __isub__(self, other: TensorLike) -> Tensor: ...
    def __itruediv__(self, other: TensorLike) -> Tensor: ...
    def __ixor__(self, other: TensorLike) -> Tensor: ...
    def __le__(self, other: Any) -> Tensor: ...
    def __lshift__(self, other: TensorLike) -> Tensor: ...
    def __lt__(self, other: Any) -> Tensor: ...
    def __matmul__(self, other: TensorLike) -> Tensor: ...
    def __mod__(self, other: TensorLike) -> Tensor: ...
    def __mul__(self, other: TensorLike) -> Tensor: ...
    def __ne__(self, other: Any) -> Tensor: ...  # type: ignore[override]
    def __neg__(self) -> Tensor:
        """-x."""

    def __or__(self, other: TensorLike) -> Tensor: ...
    def __pos__(self) -> Tensor:
        """The tensor itself: +x."""

    def __pow__(self, other: TensorLike) -> Tensor: ...
    def __radd__(self, other: TensorLike) -> Tensor: ...
    def __rand__(self, other: TensorLike) -> Tensor: ...
    def __rdiv__(self, other: TensorLike) -> Tensor: ...
    def __reduce__(self) -> builtins.tuple[Any, ...]:
        """Pickle: the values, and the device it is committed to."""

    def __reversed__(self) -> Iterator[Tensor]: ...
    def __rfloordiv__(self, other: TensorLike) -> Tensor: ...
    def __rlshift__(self, other: TensorLike) -> Tensor: ...
    def __rmatmul__(self, other: TensorLike) -> Tensor: ...
    def __rmod__(self, other: TensorLike) -> Tensor: ...
    def __rmul__(self, other: TensorLike) -> Tensor: ...
    def __ror__(self, other: TensorLike) -> Tensor: ...
    def __round__(self, digits: builtins.int | None = None) -> Tensor: ...
    def __rpow__(self, other: TensorLike) -> Tensor: ...
    def __rrshift__(self, other: TensorLike) -> Tensor: ...
    def __rshift__(self, other: TensorLike) -> Tensor: ...
    def __rsub__(self, other: TensorLike) -> Tensor: ...
    def __rtruediv__(self, other: TensorLike) -> Tensor: ...
    def __rxor__(self, other: TensorLike) -> Tensor: ...
    def __setitem__(self, key: Any, value: Any) -> None:
        """x[key] = value. The value broadcasts and is converted; where an index repeats, the last one wins."""

    def __sub__(self, other: TensorLike) -> Tensor: ...
    def __truediv__(self, other: TensorLike) -> Tensor: ...
    def __xor__(self, other: TensorLike) -> Tensor: ...
    @property
    def _base(self) -> Tensor: ...
    def _is_view(self) -> builtins.bool: ...
    def _make_subclass(self, data: Tensor, require_grad: builtins.bool = False) -> Any:
        """A tensor of a subclass that shares the memory of another, without its tape."""

    def abs(self) -> Tensor:
        """The absolute value."""

    def abs_(self) -> Tensor:
        """The absolute value."""

    def absolute(self) -> Tensor:
        """Same as `abs`."""

    def absolute_(self) -> Tensor:
        """Same as `abs_`."""

    def acos(self) -> Tensor:
        """The angle in [0, pi] whose cosine is x."""

    def acos_(self) -> Tensor:
        """The angle in [0, pi] whose cosine is x."""

    def acosh(self) -> Tensor:
        """Inverse hyperbolic cosine; NaN below 1."""

    def acosh_(self) -> Tensor:
        """Inverse hyperbolic cosine; NaN below 1."""

    def add(self, y: TensorLike, *, alpha: builtins.float = 1) -> Tensor:
        """x + alpha * y; `or` for bools."""

    def add_(self, y: TensorLike, *, alpha: builtins.float = 1) -> Tensor:
        """x + alpha * y; `or` for bools."""

    def addbmm(
        self, batch1: TensorLike, batch2: TensorLike, *, beta: builtins.float = 1, alpha: builtins.float = 1
    ) -> Tensor:
        """beta * input + alpha * the sum of the products of two batches of matrices."""

    def addbmm_(self, *args: Any, **kwargs: Any) -> Tensor:
        """addbmm, in place."""

    def addcdiv(self, y: TensorLike, z: TensorLike, value: builtins.float = 1) -> Tensor:
        """x + value * y / z."""

    def addcdiv_(self, y: TensorLike, z: TensorLike, value: builtins.float = 1) -> Tensor:
        """x + value * y / z."""

    def addcmul(self, y: TensorLike, z: TensorLike, value: builtins.float = 1) -> Tensor:
        """x + value * y * z."""

    def addcmul_(self, y: TensorLike, z: TensorLike, value: builtins.float = 1) -> Tensor:
        """x + value * y * z."""

    def addmm(self, mat1: TensorLike, mat2: TensorLike, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """beta * input + alpha * (mat1 @ mat2)."""

    def addmm_(self, mat1: TensorLike, mat2: TensorLike, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """beta * input + alpha * (mat1 @ mat2)."""

    def addmv(self, mat: TensorLike, vec: TensorLike, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """beta * input + alpha * (mat @ vec)."""

    def addmv_(self, *args: Any, **kwargs: Any) -> Tensor:
        """addmv, in place."""

    def addr(
        self, vec1: TensorLike, vec2: TensorLike, *, beta: builtins.float = 1, alpha: builtins.float = 1
    ) -> Tensor:
        """beta * input + alpha * outer(vec1, vec2)."""

    def addr_(self, *args: Any, **kwargs: Any) -> Tensor:
        """addr, in place."""

    def adjoint(self, *args: Any, **kwargs: Any) -> Any:
        """See the function adjoint."""

    def all(self, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
        """Whether no element over axes is 0."""

    def allclose(
        self,
        other: Tensor,
        rtol: builtins.float = 1e-05,
        atol: builtins.float = 1e-08,
        equal_nan: builtins.bool = False,
    ) -> builtins.bool:
        """Whether all elements are close, as a bool. Evaluates both tensors; under jit it raises: use isclose(...).all()."""

    def amax(self, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
        """The largest element over axes, NaN where there is one; equals share the gradient."""

    def amin(self, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
        """The smallest element over axes, NaN where there is one; equals share the gradient."""

    def aminmax(self, *, axis: Any = None, keepdims: builtins.bool = False) -> Any:
        """The smallest and the largest element, over one axis or all of them."""

    def angle(self) -> Tensor:
        """The angle of each number with the positive real axis, in radians."""

    def any(self, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
        """Whether any element over axes is not 0."""

    def apply_(self, callable: Callable[[Any], Any]) -> Tensor:
        """Replace each element by what a Python function makes of it. Slow, and for the CPU."""

    def arccos(self) -> Tensor:
        """Same as `acos`."""

    def arccos_(self) -> Tensor:
        """Same as `acos_`."""

    def arccosh(self) -> Tensor:
        """Same as `acosh`."""

    def arccosh_(self) -> Tensor:
        """Same as `acosh_`."""

    def arcsin(self) -> Tensor:
        """Same as `asin`."""

    def arcsin_(self) -> Tensor:
        """Same as `asin_`."""

    def arcsinh(self) -> Tensor:
        """Same as `asinh`."""

    def arcsinh_(self) -> Tensor:
        """Same as `asinh_`."""

    def arctan(self) -> Tensor:
        """Same as `atan`."""

    def arctan2(self, x: TensorLike) -> Tensor:
        """Same as `atan2`."""

    def arctan2_(self, x: TensorLike) -> Tensor:
        """Same as `atan2_`."""

    def arctan_(self) -> Tensor:
        """Same as `atan_`."""

    def arctanh(self) -> Tensor:
        """Same as `atanh`."""

    def arctanh_(self) -> Tensor:
        """Same as `atanh_`."""

    def argmax(self, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
        """Where the largest element lies along an axis, or in the flattened tensor; the first of equals or NaNs."""

    def argmin(self, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
        """Where the smallest element lies along an axis, or in the flattened tensor; the first of equals or NaNs."""

    def argsort(self, axis: Any = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
        """Where the elements along an axis lie, in sorted order. Equals keep their order; NaN counts as the largest."""

    def argwhere(self) -> Tensor:
        """Positions of the elements that are not 0, as rows. Evaluates x."""

    def as_strided(self, *args: Any, **kwargs: Any) -> Any:
        """See the function as_strided."""

    def as_strided_(self, size: Any, stride: Any, storage_offset: builtins.int | None = None) -> Tensor:
        """`as_strided`, in place: the tensor gets another shape, and lies where it did."""

    def as_strided_scatter(self, *args: Any, **kwargs: Any) -> Any:
        """See the function as_strided_scatter."""

    def as_subclass(self, cls: builtins.type[Any]) -> Any:
        """The same tensor as an object of a subclass of Tensor; gradients flow through."""

    def asin(self) -> Tensor:
        """The angle in [-pi/2, pi/2] whose sine is x."""

    def asin_(self) -> Tensor:
        """The angle in [-pi/2, pi/2] whose sine is x."""

    def asinh(self) -> Tensor:
        """Inverse hyperbolic sine."""

    def asinh_(self) -> Tensor:
        """Inverse hyperbolic sine."""

    def atan(self) -> Tensor:
        """The angle in (-pi/2, pi/2) whose tangent is x."""

    def atan2(self, x: TensorLike) -> Tensor:
        """The angle of the point (x, y), in [-pi, pi]."""

    def atan2_(self, x: TensorLike) -> Tensor:
        """The angle of the point (x, y), in [-pi, pi]."""

    def atan_(self) -> Tensor:
        """The angle in (-pi/2, pi/2) whose tangent is x."""

    def atanh(self) -> Tensor:
        """Inverse hyperbolic tangent; NaN outside of [-1, 1]."""

    def atanh_(self) -> Tensor:
        """Inverse hyperbolic tangent; NaN outside of [-1, 1]."""

    def baddbmm(
        self, batch1: TensorLike, batch2: TensorLike, beta: builtins.float = 1, alpha: builtins.float = 1
    ) -> Tensor:
        """beta * input + alpha * (batch1 @ batch2), over stacks of matrices."""

    def baddbmm_(
        self, batch1: TensorLike, batch2: TensorLike, beta: builtins.float = 1, alpha: builtins.float = 1
    ) -> Tensor:
        """beta * input + alpha * (batch1 @ batch2), over stacks of matrices."""

    def batch_matmul(self, y: TensorLike) -> Tensor:
        """Matrix products over leading batch axes, which broadcast: matmul for tensors with at least two axes."""

    def batch_norm(
        self,
        running_mean: TensorLike | None = None,
        running_var: TensorLike | None = None,
        weight: TensorLike | None = None,
        bias: TensorLike | None = None,
        training: builtins.bool = False,
        momentum: builtins.float = 0.1,
        eps: builtins.float = 1e-05,
    ) -> Tensor:
        """Mean 0 and variance 1 per channel of (N, C, ...), then scaled and shifted."""

    def bernoulli(self, p: builtins.float | None = None, generator: Generator | None = None) -> Tensor:
        """1 with a probability given by each element of the input, or by `p`, else 0; in the input's dtype."""

    def bernoulli_(self, p: builtins.float = 0.5, *, generator: Generator | None = None) -> Tensor:
        """Fill with 1 with probability p, else 0."""

    def bfloat16(self) -> Tensor:
        """A conversion to bfloat16."""

    def bincount(self, weights: Tensor | None = None, minlength: builtins.int = 0) -> Tensor:
        """How often each whole number from 0 on occurs, or the sum of its weights. Evaluates x; under jit it raises."""

    def bitwise_and(self, y: TensorLike) -> Tensor:
        """x & y, bit by bit."""

    def bitwise_and_(self, y: TensorLike) -> Tensor:
        """x & y, bit by bit."""

    def bitwise_left_shift(self, y: TensorLike) -> Tensor:
        """Same as `left_shift`."""

    def bitwise_left_shift_(self, y: TensorLike) -> Tensor:
        """Same as `left_shift_`."""

    def bitwise_not(self) -> Tensor:
        """Every bit of an integer turned over; `not` for bools."""

    def bitwise_not_(self) -> Tensor:
        """Every bit of an integer turned over; `not` for bools."""

    def bitwise_or(self, y: TensorLike) -> Tensor:
        """x | y, bit by bit."""

    def bitwise_or_(self, y: TensorLike) -> Tensor:
        """x | y, bit by bit."""

    def bitwise_right_shift(self, y: TensorLike) -> Tensor:
        """Same as `right_shift`."""

    def bitwise_right_shift_(self, y: TensorLike) -> Tensor:
        """Same as `right_shift_`."""

    def bitwise_xor(self, y: TensorLike) -> Tensor:
        """x ^ y, bit by bit."""

    def bitwise_xor_(self, y: TensorLike) -> Tensor:
        """x ^ y, bit by bit."""

    def bmm(self, y: TensorLike) -> Tensor:
        """Product of two stacks of matrices, pair by pair."""

    def bool(self) -> Tensor:
        """A conversion to bool_."""

    def broadcast_to(self, *shape: Any) -> Tensor:
        """Same as `expand`."""

    def bucketize(
        self, boundaries: TensorLike, *, out_int32: builtins.bool = False, right: builtins.bool = False
    ) -> Tensor:
        """The number of the bucket between sorted boundaries that each element falls in."""

    def byte(self) -> Tensor:
        """A conversion to uint8."""

    def cast(self, dtype: builtins.object) -> Tensor:
        """Convert to another dtype."""

    def cauchy_(
        self, median: builtins.float = 0.0, sigma: builtins.float = 1.0, *, generator: Generator | None = None
    ) -> Tensor:
        """Fill with Cauchy-distributed numbers."""

    def cdouble(self) -> Tensor:
        """A conversion to complex128."""

    def ceil(self) -> Tensor:
        """The smallest whole number that is not below x."""

    def ceil_(self) -> Tensor:
        """The smallest whole number that is not below x."""

    def celu_(self, alpha: builtins.float = 1.0) -> Tensor:
        """x where it is positive, else alpha * (exp(x / alpha) - 1)."""

    def cfloat(self) -> Tensor:
        """A conversion to complex64."""

    def char(self) -> Tensor:
        """A conversion to int8."""

    def cholesky(self, *args: Any, **kwargs: Any) -> Any:
        """See the function cholesky."""

    def cholesky_inverse(self, *args: Any, **kwargs: Any) -> Any:
        """See the function cholesky_inverse."""

    def cholesky_solve(self, *args: Any, **kwargs: Any) -> Any:
        """See the function cholesky_solve."""

    def chunk(self, chunks: builtins.int, axis: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """At most `chunks` parts of equal size along an axis; the last may be smaller. No copies."""

    def clamp(self, min: Any = None, max: Any = None) -> Tensor:
        """x, but no less than min and no more than max: numbers, tensors or None."""

    def clamp_(self, min: Any = None, max: Any = None) -> Tensor:
        """x, but no less than min and no more than max: numbers, tensors or None."""

    def clamp_max(self, max: TensorLike) -> Tensor:
        """x, but no more than max. Unlike minimum's, the gradient of a tie belongs to x alone."""

    def clamp_max_(self, max: TensorLike) -> Tensor:
        """x, but no more than max. Unlike minimum's, the gradient of a tie belongs to x alone."""

    def clamp_min(self, min: TensorLike) -> Tensor:
        """x, but no less than min. Unlike maximum's, the gradient of a tie belongs to x alone."""

    def clamp_min_(self, min: TensorLike) -> Tensor:
        """x, but no less than min. Unlike maximum's, the gradient of a tie belongs to x alone."""

    def clip(self, min: Any = None, max: Any = None) -> Tensor:
        """Same as `clamp`."""

    def clip_(self, min: Any = None, max: Any = None) -> Tensor:
        """Same as `clamp_`."""

    def clone(self, *, memory_format: Any = None) -> Tensor:
        """A copy with memory of its own, in a memory format where one is named."""

    def coalesce(self) -> Any:
        """Of sparse tensors: a dense one raises."""

    def conj(self) -> Tensor:
        """Complex numbers with their imaginary parts negated; real numbers as they are."""

    def conj_physical(self) -> Tensor:
        """Same as `conj`."""

    def conj_physical_(self, *args: Any, **kwargs: Any) -> Tensor:
        """Same as `conj_`."""

    def const_data_ptr(self) -> builtins.int:
        """The address of its first element, in the memory of its device, until the tensor is written to. Evaluates it."""

    def contiguous(self, memory_format: Any = ...) -> Tensor:
        """The same values in row-major memory, or in another memory format: the tensor itself where they lie so."""

    def copy_(self, src: Any, non_blocking: builtins.bool = False) -> Tensor:
        """Take the values of another tensor, which broadcasts and is converted. Nothing waits for it in any case."""

    def copysign(self, y: TensorLike) -> Tensor:
        """The size of x with the sign of y, whose zeros have one too."""

    def copysign_(self, y: TensorLike) -> Tensor:
        """The size of x with the sign of y, whose zeros have one too."""

    def corrcoef(self) -> Tensor:
        """The correlations of variables (rows) over observations (columns): covariances divided by both deviations."""

    def cos(self) -> Tensor:
        """Cosine of an angle in radians."""

    def cos_(self) -> Tensor:
        """Cosine of an angle in radians."""

    def cosh(self) -> Tensor:
        """Hyperbolic cosine."""

    def cosh_(self) -> Tensor:
        """Hyperbolic cosine."""

    def cosine_similarity(self, x2: TensorLike, axis: Any = 1, eps: builtins.float = 1e-08) -> Tensor:
        """The cosine of the angle between vectors along an axis; norms below eps count as eps."""

    def count_nonzero(self, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
        """How many elements over axes are not 0."""

    def cov(
        self, *, correction: builtins.int = 1, fweights: TensorLike | None = None, aweights: TensorLike | None = None
    ) -> Tensor:
        """The covariances of variables (rows) over observations (columns), which may count several times or by weight."""

    def cpu(self) -> Tensor:
        """The same values on the host."""

    def cross(self, y: TensorLike, axis: builtins.int | None = None) -> Tensor:
        """The cross product of vectors of size 3 along an axis; along the first of that size where none is given."""

    def cuda(
        self, device: builtins.object = None, non_blocking: builtins.bool = False, memory_format: Any = None
    ) -> Tensor:
        """The same values on an NVIDIA GPU, or on an AMD GPU where there is no other. `device`: its number or name."""

    def cummax(self, axis: Any) -> Any:
        """The largest element up to each one along an axis, and where it lies: the last of equals. NaN counts as largest."""

    def cummin(self, axis: Any) -> Any:
        """The smallest element up to each one along an axis, and where it lies: the last of equals. NaN counts as smallest."""

    def cumprod(self, axis: Any, dtype: builtins.object = None) -> Tensor:
        """Running products along an axis; integers and bools are multiplied as int64."""

    def cumprod_(self, axis: Any, dtype: builtins.object = None) -> Tensor:
        """Running products along an axis; integers and bools are multiplied as int64."""

    def cumsum(self, axis: Any, dtype: builtins.object = None) -> Tensor:
        """Running sums along an axis; integers and bools are summed as int64."""

    def cumsum_(self, axis: Any, dtype: builtins.object = None) -> Tensor:
        """Running sums along an axis; integers and bools are summed as int64."""

    @property
    def data(self) -> Tensor: ...
    @data.setter
    def data(self, value: Tensor) -> None: ...
    def data_ptr(self) -> builtins.int:
        """The address of its first element, in the memory of its device, until the tensor is written to. Evaluates it."""

    def deg2rad(self) -> Tensor:
        """An angle in degrees, in radians."""

    def deg2rad_(self) -> Tensor:
        """An angle in degrees, in radians."""

    def dense_dim(self) -> builtins.int:
        """How many axes are dense: all."""

    def det(self) -> Tensor:
        """The determinant of square matrices. Evaluates them."""

    def detach_(self) -> Tensor:
        """Leave the tape."""

    def diag(self, diagonal: builtins.int = 0) -> Tensor:
        """A vector as the diagonal of a matrix of zeros, or the diagonal of a matrix as a vector."""

    def diag_embed(self, offset: builtins.int = 0, dim1: builtins.int = -2, dim2: builtins.int = -1) -> Tensor:
        """The vectors of the last axis as diagonals of matrices of zeros, which lie along dim1 and dim2."""

    def diagflat(self, offset: builtins.int = 0) -> Tensor:
        """A matrix with these elements, flattened, on a diagonal."""

    def diagonal(self, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1) -> Tensor:
        """The diagonal of two axes, as a last axis; above the main one where the offset is positive."""

    def diagonal_scatter(self, *args: Any, **kwargs: Any) -> Any:
        """See the function diagonal_scatter."""

    def diff(
        self, n: builtins.int = 1, axis: Any = -1, prepend: TensorLike | None = None, append: TensorLike | None = None
    ) -> Tensor:
        """Differences of neighbours along an axis, n times over; tensors may be put before and behind x first."""

    def digamma(self) -> Tensor:
        """The derivative of lgamma; NaN at whole numbers below 0."""

    def digamma_(self) -> Tensor:
        """The derivative of lgamma; NaN at whole numbers below 0."""

    def dim(self) -> builtins.int:
        """Number of axes."""

    def dim_order(self, *, ambiguity_check: Any = False) -> builtins.tuple[builtins.int, ...]:
        """The axes from the one whose neighbours lie farthest apart in memory to the nearest."""

    def dist(self, y: TensorLike, p: builtins.float = 2) -> Tensor:
        """The p-norm of x - y."""

    def div(self, y: TensorLike | builtins.float, rounding_mode: builtins.str | None = None) -> Tensor:
        """x / y in floating point; with rounding_mode "floor" or "trunc" rounded, and then integers stay integers."""

    def div_(self, y: TensorLike | builtins.float, rounding_mode: builtins.str | None = None) -> Tensor:
        """x / y in floating point; with rounding_mode "floor" or "trunc" rounded, and then integers stay integers."""

    def divide(self, y: TensorLike | builtins.float, rounding_mode: builtins.str | None = None) -> Tensor:
        """Same as `div`."""

    def divide_(self, y: TensorLike | builtins.float, rounding_mode: builtins.str | None = None) -> Tensor:
        """Same as `div_`."""

    def dot(self, y: TensorLike) -> Tensor:
        """Inner product of two vectors."""

    def double(self) -> Tensor:
        """A conversion to float64."""

    def dropout(
        self, p: builtins.float = 0.5, training: builtins.bool = True, generator: Generator | None = None
    ) -> Tensor:
        """Each element becomes 0 with probability p; the others are divided by 1 - p. Without `training`, x itself."""

    def dsplit(self, indices_or_sections: builtins.int | Sequence[builtins.int]) -> builtins.tuple[Tensor, ...]:
        """Equal parts, or parts cut at positions, along the third axis."""

    def element_size(self) -> builtins.int:
        """Bytes of one element."""

    def elu(self, alpha: builtins.float = 1.0) -> Tensor:
        """x where it is positive, else alpha * (exp(x) - 1)."""

    def elu_(self, alpha: builtins.float = 1.0) -> Tensor:
        """x where it is positive, else alpha * (exp(x) - 1)."""

    def embedding(self, indices: TensorLike, padding_idx: builtins.int | None = None) -> Tensor:
        """Rows of `weight` at `indices`. The row at `padding_idx` gets no gradient."""

    def eq(self, y: TensorLike) -> Tensor:
        """x == y."""

    def eq_(self, y: TensorLike) -> Tensor:
        """x == y."""

    def equal(self, other: Tensor) -> builtins.bool:
        """Whether two tensors have the same shape and elements, as a bool. Evaluates both; under jit it raises."""

    def erf(self) -> Tensor:
        """The error function."""

    def erf_(self) -> Tensor:
        """The error function."""

    def erfc(self) -> Tensor:
        """1 - erf(x), exact where that is tiny."""

    def erfc_(self) -> Tensor:
        """1 - erf(x), exact where that is tiny."""

    def erfinv(self) -> Tensor:
        """The number whose erf is x: infinite at -1 and 1, NaN beyond."""

    def erfinv_(self) -> Tensor:
        """The number whose erf is x: infinite at -1 and 1, NaN beyond."""

    def exp(self) -> Tensor:
        """e to the power x."""

    def exp2(self) -> Tensor:
        """2 to the power x."""

    def exp2_(self) -> Tensor:
        """2 to the power x."""

    def exp_(self) -> Tensor:
        """e to the power x."""

    def expand(self, *shape: Any) -> Tensor:
        """Repeat axes of size 1 without copying; -1 keeps a size."""

    def expand_as(self, other: TensorLike) -> Tensor:
        """x expanded to the shape of another tensor."""

    def expm1(self) -> Tensor:
        """exp(x) - 1, exact near 0."""

    def expm1_(self) -> Tensor:
        """exp(x) - 1, exact near 0."""

    def exponential_(self, lambd: builtins.float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with exponentially distributed numbers of this rate."""

    def fill_(self, value: Any) -> Tensor:
        """Make every element this number."""

    def fill_diagonal_(self, fill_value: builtins.float, wrap: builtins.bool = False) -> Tensor:
        """Make the main diagonal this number; with `wrap` it starts again below a tall matrix."""

    def fix(self) -> Tensor:
        """Same as `trunc`."""

    def fix_(self) -> Tensor:
        """Same as `trunc_`."""

    def flatten(self, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
        """Make one axis of the axes from start_dim to end_dim."""

    def flip(self, *axis: Any) -> Tensor:
        """The elements in reverse order along axes; along all of them by default."""

    def fliplr(self) -> Tensor:
        """The columns (the second axis) in reverse order."""

    def flipud(self) -> Tensor:
        """The rows (the first axis) in reverse order."""

    def float(self) -> Tensor:
        """A conversion to float32."""

    def float_power(self, exponent: Any) -> Tensor:
        """x to the power of the exponent, in float64."""

    def float_power_(self, exponent: Any) -> Tensor:
        """x to the power of the exponent, in float64."""

    def floor(self) -> Tensor:
        """The largest whole number that is not above x."""

    def floor_(self) -> Tensor:
        """The largest whole number that is not above x."""

    def floor_div(self, y: TensorLike) -> Tensor:
        """x / y rounded down; 0 where integers are divided by 0."""

    def floor_div_(self, y: TensorLike) -> Tensor:
        """x / y rounded down; 0 where integers are divided by 0."""

    def floor_divide(self, y: TensorLike) -> Tensor:
        """Same as `floor_div`."""

    def floor_divide_(self, y: TensorLike) -> Tensor:
        """Same as `floor_div_`."""

    def fmax(self, y: TensorLike) -> Tensor:
        """The larger of x and y; where one is NaN the other."""

    def fmin(self, y: TensorLike) -> Tensor:
        """The smaller of x and y; where one is NaN the other."""

    def fmod(self, y: TensorLike | builtins.float) -> Tensor:
        """The rest of x / y, with x's sign (C's fmod)."""

    def fmod_(self, y: TensorLike | builtins.float) -> Tensor:
        """The rest of x / y, with x's sign (C's fmod)."""

    def fold(self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
        """Add windows back into images: (N, C*kh*kw, windows) -> (N, C, H, W): the other direction of unfold2d."""

    def frac(self) -> Tensor:
        """The fraction of x, with x's sign."""

    def frac_(self) -> Tensor:
        """The fraction of x, with x's sign."""

    def frexp(self) -> Any:
        """Mantissas in [0.5, 1) with the sign of x, and int32 exponents: x = mantissa * 2**exponent."""

    def gather(self, dim: builtins.int, index: TensorLike, *, sparse_grad: builtins.bool = False) -> Tensor:
        """out[i][j] = x[i][index[i][j]] for dim=1, and alike for other axes. Gradients are dense, whatever is asked for."""

    def gcd(self, y: TensorLike) -> Tensor:
        """The greatest common divisor of integers, never negative; that of 0 and 0 is 0."""

    def gcd_(self, y: TensorLike) -> Tensor:
        """The greatest common divisor of integers, never negative; that of 0 and 0 is 0."""

    def ge(self, y: TensorLike) -> Tensor:
        """x >= y."""

    def ge_(self, y: TensorLike) -> Tensor:
        """x >= y."""

    def gelu(self, approximate: builtins.str = "none") -> Tensor:
        """x times the share of a normal distribution that lies below x; approximate="tanh" is the formula of GPT-2."""

    def gelu_(self, approximate: builtins.str = "none") -> Tensor:
        """x times the share of a normal distribution that lies below x; approximate="tanh" is the formula of GPT-2."""

    def geometric_(self, p: builtins.float, *, generator: Generator | None = None) -> Tensor:
        """Fill with how many trials of probability p the first success takes."""

    def geqrf(self, *args: Any, **kwargs: Any) -> Any:
        """See the function geqrf."""

    def ger(self, y: TensorLike) -> Tensor:
        """All products of an element of x and an element of y."""

    def get_device(self) -> builtins.int:
        """The number of its GPU; -1 on the CPU."""

    def glu(self, axis: builtins.int = -1, *, dim: builtins.int | None = None) -> Tensor:
        """a * sigmoid(b), where a and b are the halves of x along an axis."""

    @property
    def grad_dtype(self) -> Tensor: ...
    @property
    def grad_fn(self) -> Tensor: ...
    def greater(self, y: TensorLike) -> Tensor:
        """Same as `gt`."""

    def greater_(self, y: TensorLike) -> Tensor:
        """Same as `gt_`."""

    def greater_equal(self, y: TensorLike) -> Tensor:
        """Same as `ge`."""

    def greater_equal_(self, y: TensorLike) -> Tensor:
        """Same as `ge_`."""

    def group_norm(
        self,
        num_groups: builtins.int,
        weight: TensorLike | None = None,
        bias: TensorLike | None = None,
        eps: builtins.float = 1e-05,
    ) -> Tensor:
        """Mean 0 and variance 1 over each group of channels of (N, C, ...), then scaled and shifted per channel."""

    def gt(self, y: TensorLike) -> Tensor:
        """x > y."""

    def gt_(self, y: TensorLike) -> Tensor:
        """x > y."""

    def half(self) -> Tensor:
        """A conversion to float16."""

    def hardshrink(self, lambd: builtins.float = 0.5) -> Tensor:
        """0 where the element is at most lambd from it."""

    def hardsigmoid(self) -> Tensor:
        """relu6(x + 3) / 6: three straight pieces near sigmoid."""

    def hardsigmoid_(self) -> Tensor:
        """relu6(x + 3) / 6: three straight pieces near sigmoid."""

    def hardswish(self) -> Tensor:
        """x * hardsigmoid(x)."""

    def hardswish_(self) -> Tensor:
        """x * hardsigmoid(x)."""

    def hardtanh(self, min_val: builtins.float = -1.0, max_val: builtins.float = 1.0) -> Tensor:
        """x, held between min_val and max_val."""

    def hardtanh_(self, min_val: builtins.float = -1.0, max_val: builtins.float = 1.0) -> Tensor:
        """x, held between min_val and max_val."""

    def heaviside(self, values: TensorLike) -> Tensor:
        """0 below 0, 1 above, and `values` at 0."""

    def heaviside_(self, values: TensorLike) -> Tensor:
        """0 below 0, 1 above, and `values` at 0."""

    def histc(self, bins: builtins.int = 100, min: builtins.float = 0, max: builtins.float = 0) -> Tensor:
        """How many elements fall into each of `bins` equal parts of [min, max], or of [x.min(), x.max()] where both are 0."""

    def histogram(self, *args: Any, **kwargs: Any) -> Any:
        """See the function histogram."""

    def hsplit(self, indices_or_sections: builtins.int | Sequence[builtins.int]) -> builtins.tuple[Tensor, ...]:
        """Equal parts, or parts cut at positions, along the second axis; of a vector along its only one."""

    def hypot(self, y: TensorLike | builtins.float) -> Tensor:
        """sqrt(x * x + y * y), without overflow."""

    def hypot_(self, y: TensorLike | builtins.float) -> Tensor:
        """sqrt(x * x + y * y), without overflow."""

    def i0(self) -> Tensor:
        """The modified Bessel function of the first kind, order 0."""

    def i0_(self) -> Tensor:
        """The modified Bessel function of the first kind, order 0."""

    def igamma(self, x: TensorLike) -> Tensor:
        """The lower incomplete gamma function of x, divided by gamma(a). It has no gradient for a."""

    def igamma_(self, x: TensorLike) -> Tensor:
        """The lower incomplete gamma function of x, divided by gamma(a). It has no gradient for a."""

    def igammac(self, x: TensorLike) -> Tensor:
        """The upper incomplete gamma function of x, divided by gamma(a): 1 - igamma. It has no gradient for a."""

    def igammac_(self, x: TensorLike) -> Tensor:
        """The upper incomplete gamma function of x, divided by gamma(a): 1 - igamma. It has no gradient for a."""

    @property
    def imag(self) -> Tensor: ...
    @imag.setter
    def imag(self, value: Tensor) -> None: ...
    def index_add(self, dim: builtins.int, index: TensorLike, source: TensorLike, alpha: Any = 1) -> Tensor:
        """x with slices of `source`, times alpha, added at these positions of one axis."""

    def index_add_(self, dim: builtins.int, index: TensorLike, source: TensorLike, alpha: Any = 1) -> Tensor:
        """x with slices of `source`, times alpha, added at these positions of one axis."""

    def index_copy(self, dim: builtins.int, index: TensorLike, source: TensorLike) -> Tensor:
        """x with the slices at these positions of one axis replaced."""

    def index_copy_(self, dim: builtins.int, index: TensorLike, source: TensorLike) -> Tensor:
        """x with the slices at these positions of one axis replaced."""

    def index_fill(self, dim: builtins.int, index: TensorLike, value: Any) -> Tensor:
        """x with one number at these positions of an axis."""

    def index_fill_(self, dim: builtins.int, index: TensorLike, value: Any) -> Tensor:
        """x with one number at these positions of an axis."""

    def index_put(self, indices: Sequence[Any], values: Any, accumulate: builtins.bool = False) -> Tensor:
        """A copy with values at these indices; with `accumulate` they are added, also where an index occurs twice."""

    def index_put_(self, *args: Any, **kwargs: Any) -> Tensor:
        """index_put, in place."""

    def index_reduce(
        self,
        dim: builtins.int,
        index: TensorLike,
        source: TensorLike,
        reduce: builtins.str,
        *,
        include_self: builtins.bool = True,
    ) -> Tensor:
        """x with slices of `source` combined into these positions of an axis: "prod", "mean", "amax" or "amin", with x's
        own slices or without."""

    def index_reduce_(
        self,
        dim: builtins.int,
        index: TensorLike,
        source: TensorLike,
        reduce: builtins.str,
        *,
        include_self: builtins.bool = True,
    ) -> Tensor:
        """x with slices of `source` combined into these positions of an axis: "prod", "mean", "amax" or "amin", with x's
        own slices or without."""

    def index_select(self, dim: builtins.int, index: TensorLike) -> Tensor:
        """The slices of x at these positions of one axis."""

    def indices(self) -> Any:
        """Of sparse tensors: a dense one raises."""

    def inner(self, y: TensorLike) -> Tensor:
        """Sum of products over the last axis of both."""

    def instance_norm(
        self,
        running_mean: TensorLike | None = None,
        running_var: TensorLike | None = None,
        weight: TensorLike | None = None,
        bias: TensorLike | None = None,
        use_input_stats: builtins.bool = True,
        momentum: builtins.float = 0.1,
        eps: builtins.float = 1e-05,
    ) -> Tensor:
        """Mean 0 and variance 1 over each channel of each sample of (N, C, ...); else by running statistics."""

    def int(self) -> Tensor:
        """A conversion to int32."""

    def inverse(self) -> Tensor:
        """The inverse of square matrices. Evaluates them."""

    def is_coalesced(self) -> Any:
        """Of sparse tensors: a dense one raises."""

    def is_complex(self) -> builtins.bool:
        """Whether the elements are complex numbers."""

    def is_conj(self) -> builtins.bool: ...
    def is_contiguous(self, memory_format: Any = ...) -> builtins.bool:
        """Whether the elements lie in row-major order, or in another memory format, without gaps. Evaluates the tensor."""

    @property
    def is_cpu(self) -> Tensor: ...
    @property
    def is_cuda(self) -> Tensor: ...
    def is_distributed(self) -> builtins.bool: ...
    def is_floating_point(self) -> builtins.bool:
        """Whether the elements are floats."""

    def is_inference(self) -> builtins.bool: ...
    @property
    def is_ipu(self) -> Tensor: ...
    @property
    def is_maia(self) -> Tensor: ...
    @property
    def is_meta(self) -> Tensor: ...
    @property
    def is_mkldnn(self) -> Tensor: ...
    @property
    def is_mps(self) -> Tensor: ...
    @property
    def is_mtia(self) -> Tensor: ...
    def is_neg(self) -> builtins.bool: ...
    @property
    def is_nested(self) -> Tensor: ...
    def is_nonzero(self) -> builtins.bool:
        """Whether its one element is not 0."""

    def is_pinned(self) -> builtins.bool: ...
    @property
    def is_quantized(self) -> Tensor: ...
    def is_same_size(self, other: Tensor) -> builtins.bool:
        """Whether it has another tensor's shape."""

    def is_set_to(self, tensor: Tensor) -> builtins.bool:
        """Whether another tensor has the same elements of the same memory, in the same order."""

    def is_shared(self) -> builtins.bool: ...
    def is_signed(self) -> builtins.bool:
        """Whether its dtype has numbers below 0."""

    @property
    def is_sparse(self) -> Tensor: ...
    @property
    def is_sparse_csr(self) -> Tensor: ...
    @property
    def is_vulkan(self) -> Tensor: ...
    @property
    def is_xla(self) -> Tensor: ...
    @property
    def is_xpu(self) -> Tensor: ...
    def isclose(
        self,
        y: TensorLike,
        rtol: builtins.float = 1e-05,
        atol: builtins.float = 1e-08,
        equal_nan: builtins.bool = False,
    ) -> Tensor:
        """Whether |x - y| <= atol + rtol * |y|; infinities are close when they are equal."""

    def isfinite(self) -> Tensor:
        """Whether x is neither NaN nor infinite."""

    def isinf(self) -> Tensor:
        """Whether x is infinite."""

    def isnan(self) -> Tensor:
        """Whether x is NaN."""

    def isneginf(self) -> Tensor:
        """Whether x is infinite and below 0."""

    def isposinf(self) -> Tensor:
        """Whether x is infinite and above 0."""

    def isreal(self, *args: Any, **kwargs: Any) -> Any:
        """See the function isreal."""

    def istft(self, *args: Any, **kwargs: Any) -> Any:
        """See the function istft."""

    @property
    def itemsize(self) -> Tensor: ...
    def kron(self, y: TensorLike) -> Tensor:
        """Kronecker's product: y, times each element of x, in place of that element."""

    def kthvalue(self, k: builtins.int, axis: Any = -1, keepdims: builtins.bool = False) -> Any:
        """The k-th smallest element along an axis (counted from 1), and where it lies."""

    def layer_norm(
        self,
        normalized_shape: Any,
        weight: TensorLike | None = None,
        bias: TensorLike | None = None,
        eps: builtins.float = 1e-05,
    ) -> Tensor:
        """Mean 0 and variance 1 over the last axes, then scaled and shifted: (x - mean) / sqrt(var + eps) * weight + bias."""

    @property
    def layout(self) -> Tensor: ...
    def lcm(self, y: TensorLike) -> Tensor:
        """The least common multiple of integers, never negative unless it overflows; 0 where one is 0."""

    def lcm_(self, y: TensorLike) -> Tensor:
        """The least common multiple of integers, never negative unless it overflows; 0 where one is 0."""

    def ldexp(self, y: TensorLike) -> Tensor:
        """x * 2**y."""

    def ldexp_(self, *args: Any, **kwargs: Any) -> Tensor:
        """ldexp, in place."""

    def le(self, y: TensorLike) -> Tensor:
        """x <= y."""

    def le_(self, y: TensorLike) -> Tensor:
        """x <= y."""

    def leaky_relu(self, negative_slope: Any = 0.01) -> Tensor:
        """x where it is positive, else negative_slope * x."""

    def leaky_relu_(self, negative_slope: Any = 0.01) -> Tensor:
        """x where it is positive, else negative_slope * x."""

    def left_shift(self, y: TensorLike) -> Tensor:
        """x << y; 0 where y is negative or all bits are shifted out."""

    def left_shift_(self, y: TensorLike) -> Tensor:
        """x << y; 0 where y is negative or all bits are shifted out."""

    def lerp(self, end: TensorLike, weight: TensorLike) -> Tensor:
        """x + weight * (end - x): from x to end as the weight goes from 0 to 1."""

    def lerp_(self, end: TensorLike, weight: TensorLike) -> Tensor:
        """x + weight * (end - x): from x to end as the weight goes from 0 to 1."""

    def less(self, y: TensorLike) -> Tensor:
        """Same as `lt`."""

    def less_(self, y: TensorLike) -> Tensor:
        """Same as `lt_`."""

    def less_equal(self, y: TensorLike) -> Tensor:
        """Same as `le`."""

    def less_equal_(self, y: TensorLike) -> Tensor:
        """Same as `le_`."""

    def lgamma(self) -> Tensor:
        """The logarithm of |gamma(x)|."""

    def lgamma_(self) -> Tensor:
        """The logarithm of |gamma(x)|."""

    def log(self) -> Tensor:
        """Natural logarithm; -inf at 0, NaN below."""

    def log10(self) -> Tensor:
        """Logarithm to base 10."""

    def log10_(self) -> Tensor:
        """Logarithm to base 10."""

    def log1p(self) -> Tensor:
        """log(1 + x), exact near 0."""

    def log1p_(self) -> Tensor:
        """log(1 + x), exact near 0."""

    def log2(self) -> Tensor:
        """Logarithm to base 2."""

    def log2_(self) -> Tensor:
        """Logarithm to base 2."""

    def log_(self) -> Tensor:
        """Natural logarithm; -inf at 0, NaN below."""

    def log_normal_(
        self, mean: builtins.float = 1.0, std: builtins.float = 2.0, *, generator: Generator | None = None
    ) -> Tensor:
        """Fill with numbers whose logarithm is normal."""

    def log_softmax(
        self, axis: builtins.int = -1, dtype: builtins.object = None, *, dim: builtins.int | None = None
    ) -> Tensor:
        """log(softmax(x)) along an axis, exact where the softmax is tiny."""

    def logaddexp(self, y: TensorLike | builtins.float) -> Tensor:
        """log(exp(x) + exp(y)), without overflow."""

    def logaddexp2(self, y: TensorLike | builtins.float) -> Tensor:
        """log2(2**x + 2**y), without overflow."""

    def logcumsumexp(self, axis: Any) -> Tensor:
        """The logarithm of running sums of exp(x) along an axis, without overflow."""

    def logdet(self) -> Tensor:
        """The logarithm of the determinant, NaN where that is negative. Evaluates its argument."""

    def logical_and(self, y: TensorLike) -> Tensor:
        """Whether both are true (not 0)."""

    def logical_and_(self, y: TensorLike) -> Tensor:
        """Whether both are true (not 0)."""

    def logical_not(self) -> Tensor:
        """Whether x is 0 or False."""

    def logical_not_(self) -> Tensor:
        """Whether x is 0 or False."""

    def logical_or(self, y: TensorLike) -> Tensor:
        """Whether one of them is true (not 0)."""

    def logical_or_(self, y: TensorLike) -> Tensor:
        """Whether one of them is true (not 0)."""

    def logical_xor(self, y: TensorLike) -> Tensor:
        """Whether exactly one of them is true (not 0)."""

    def logical_xor_(self, y: TensorLike) -> Tensor:
        """Whether exactly one of them is true (not 0)."""

    def logit(self, eps: builtins.float | None = None) -> Tensor:
        """log(x / (1 - x)), sigmoid's inverse; with eps x is kept within [eps, 1 - eps]."""

    def logit_(self, eps: builtins.float | None = None) -> Tensor:
        """log(x / (1 - x)), sigmoid's inverse; with eps x is kept within [eps, 1 - eps]."""

    def logsigmoid(self) -> Tensor:
        """log(sigmoid(x)), exact for large |x|."""

    def logsumexp(self, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
        """log(sum(exp(x))) over axes, without overflow."""

    def long(self) -> Tensor:
        """A conversion to int64."""

    def lt(self, y: TensorLike) -> Tensor:
        """x < y."""

    def lt_(self, y: TensorLike) -> Tensor:
        """x < y."""

    def lu(self, *args: Any, **kwargs: Any) -> Any:
        """See the function lu."""

    def lu_solve(self, *args: Any, **kwargs: Any) -> Any:
        """See the function lu_solve."""

    @property
    def mH(self) -> Tensor: ...
    @property
    def mT(self) -> Tensor: ...
    def map2_(self, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
        """Replace each element by what a Python function makes of it and of two others'. Slow, and for the CPU."""

    def map_(self, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
        """Replace each element by what a Python function makes of it and of another's. Slow, and for the CPU."""

    def masked_fill(self, mask: TensorLike, value: Any) -> Tensor:
        """x with `value` where the mask holds, in x's dtype."""

    def masked_fill_(self, mask: TensorLike, value: Any) -> Tensor:
        """x with `value` where the mask holds, in x's dtype."""

    def masked_scatter(self, mask: TensorLike, source: TensorLike) -> Tensor:
        """x with the elements where a mask holds replaced, in order, by those of a source."""

    def masked_scatter_(self, mask: TensorLike, source: TensorLike) -> Tensor:
        """x with the elements where a mask holds replaced, in order, by those of a source."""

    def masked_select(self, mask: Tensor) -> Tensor:
        """The elements where a mask holds, as a vector; x and mask broadcast. Evaluates the mask."""

    def matmul(self, y: TensorLike) -> Tensor:
        """Matrix product with NumPy's broadcasting: vectors count as a row on the left and a column on the right."""

    def matrix_exp(self, *args: Any, **kwargs: Any) -> Any:
        """See the function matrix_exp."""

    def matrix_power(self, *args: Any, **kwargs: Any) -> Any:
        """See the function matrix_power."""

    def max(self, axis: Any = None, keepdims: builtins.bool = False) -> Any:
        """The largest element, NaN where there is one. Along an axis it gives (values, indices): the first of equals."""

    def maximum(self, y: TensorLike) -> Tensor:
        """The larger of x and y; NaN where either is NaN."""

    def maximum_(self, y: TensorLike) -> Tensor:
        """The larger of x and y; NaN where either is NaN."""

    def mean(self, axis: Any = None, keepdims: builtins.bool = False, dtype: builtins.object = None) -> Tensor:
        """The mean over axes."""

    def median(self, axis: Any = None, keepdims: builtins.bool = False) -> Any:
        """The middle element: the lower of two, NaN where there is one. Along an axis it gives (values, indices)."""

    def min(self, axis: Any = None, keepdims: builtins.bool = False) -> Any:
        """The smallest element, NaN where there is one. Along an axis it gives (values, indices): the first of equals."""

    def minimum(self, y: TensorLike) -> Tensor:
        """The smaller of x and y; NaN where either is NaN."""

    def minimum_(self, y: TensorLike) -> Tensor:
        """The smaller of x and y; NaN where either is NaN."""

    def mish(self) -> Tensor:
        """x * tanh(softplus(x))."""

    def mish_(self) -> Tensor:
        """x * tanh(softplus(x))."""

    def mm(self, y: TensorLike) -> Tensor:
        """Product of two matrices."""

    def mod(self, y: TensorLike) -> Tensor:
        """The rest of x / y, with y's sign (Python's %, torch.remainder); 0 where integers are divided by 0."""

    def mod_(self, y: TensorLike) -> Tensor:
        """The rest of x / y, with y's sign (Python's %, torch.remainder); 0 where integers are divided by 0."""

    def mode(self, axis: Any = -1, keepdims: builtins.bool = False) -> Any:
        """The most frequent element along an axis, the smallest of several, and where it lies: the last of equals."""

    def module_load(self, other: Tensor, assign: builtins.bool = False) -> Tensor:
        """What `load_state_dict` puts in the place of this tensor: itself with the other's values, or the other."""

    def moveaxis(self, source: Any, destination: Any) -> Tensor:
        """Same as `movedim`."""

    def movedim(self, source: Any, destination: Any) -> Tensor:
        """Move axes to other places; the rest keep their order."""

    def msort(self) -> Tensor:
        """The elements in order along the first axis."""

    def mul(self, y: TensorLike) -> Tensor:
        """x * y; `and` for bools."""

    def mul_(self, y: TensorLike) -> Tensor:
        """x * y; `and` for bools."""

    def multinomial(
        self, num_samples: builtins.int, replacement: builtins.bool = False, *, generator: Generator | None = None
    ) -> Tensor:
        """Indices drawn with the probabilities of each row, which need not sum to 1. (n,) -> (k,), (rows, n) -> (rows, k)."""

    def multiply(self, y: TensorLike) -> Tensor:
        """Same as `mul`."""

    def multiply_(self, y: TensorLike) -> Tensor:
        """Same as `mul_`."""

    def mv(self, y: TensorLike) -> Tensor:
        """Product of a matrix and a vector."""

    def mvlgamma(self, *args: Any, **kwargs: Any) -> Any:
        """See the function mvlgamma."""

    def mvlgamma_(self, *args: Any, **kwargs: Any) -> Tensor:
        """mvlgamma, in place."""

    @property
    def name(self) -> Tensor: ...
    def nan_to_num(
        self, nan: builtins.float = 0.0, posinf: builtins.float | None = None, neginf: builtins.float | None = None
    ) -> Tensor:
        """x with NaN and the infinities replaced; None stands for the largest and smallest number of x's dtype."""

    def nan_to_num_(
        self, nan: builtins.float = 0.0, posinf: builtins.float | None = None, neginf: builtins.float | None = None
    ) -> Tensor:
        """x with NaN and the infinities replaced; None stands for the largest and smallest number of x's dtype."""

    def nanmean(self, axis: Any = None, keepdims: builtins.bool = False, dtype: builtins.object = None) -> Tensor:
        """The mean over axes of the elements that are not NaN."""

    def nanmedian(self, axis: Any = None, keepdims: builtins.bool = False) -> Any:
        """The middle of the elements that are not NaN: the lower of two. Along an axis it gives (values, indices)."""

    def nanquantile(
        self, q: Any, axis: Any = None, keepdims: builtins.bool = False, *, interpolation: builtins.str = "linear"
    ) -> Tensor:
        """As quantile, of the elements that are not NaN."""

    def nansum(self, axis: Any = None, keepdims: builtins.bool = False, dtype: builtins.object = None) -> Tensor:
        """Sum over axes that takes NaN as 0."""

    def narrow(self, dim: builtins.int, start: builtins.int, length: builtins.int) -> Tensor:
        """`length` positions of one axis, from `start` on."""

    def narrow_copy(self, dim: builtins.int, start: builtins.int, length: builtins.int) -> Tensor:
        """A copy of a range along an axis."""

    def ndimension(self) -> builtins.int:
        """Number of axes."""

    def ne(self, y: TensorLike) -> Tensor:
        """x != y."""

    def ne_(self, y: TensorLike) -> Tensor:
        """x != y."""

    def neg(self) -> Tensor:
        """-x."""

    def neg_(self) -> Tensor:
        """-x."""

    def negative(self) -> Tensor:
        """Same as `neg`."""

    def negative_(self) -> Tensor:
        """Same as `neg_`."""

    def nelement(self) -> builtins.int:
        """Number of elements."""

    def new(self, *args: Any, device: builtins.object = None) -> Tensor:
        """An uninitialised tensor of this dtype with these sizes, or one of these numbers."""

    def new_empty(
        self,
        *size: Any,
        dtype: builtins.object = None,
        device: builtins.object = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """Uninitialised memory under another shape, with the dtype and device of this tensor."""

    def new_empty_strided(
        self,
        size: Any,
        stride: Any,
        *,
        dtype: builtins.object = None,
        device: builtins.object = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """Uninitialised memory with these strides, with the dtype and device of this tensor."""

    def new_full(
        self,
        size: Any,
        fill_value: Any,
        *,
        dtype: builtins.object = None,
        device: builtins.object = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """One number under another shape, with the dtype and device of this tensor."""

    def new_ones(
        self,
        *size: Any,
        dtype: builtins.object = None,
        device: builtins.object = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """Ones under another shape, with the dtype and device of this tensor."""

    def new_tensor(
        self,
        data: Any,
        *,
        dtype: builtins.object = None,
        device: builtins.object = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """A tensor of this data with the dtype and device of this one."""

    def new_zeros(
        self,
        *size: Any,
        dtype: builtins.object = None,
        device: builtins.object = None,
        requires_grad: builtins.bool = False,
    ) -> Tensor:
        """Zeros under another shape, with the dtype and device of this tensor."""

    def nextafter(self, y: TensorLike) -> Tensor:
        """The next number after x in the direction of y, in their dtype."""

    def nextafter_(self, y: TensorLike) -> Tensor:
        """The next number after x in the direction of y, in their dtype."""

    def nonzero(self, as_tuple: builtins.bool = False) -> Any:
        """Positions of the elements that are not 0, as rows; or one tensor per axis. Evaluates x."""

    def nonzero_static(self, *args: Any, **kwargs: Any) -> Any:
        """See the function nonzero_static."""

    def norm(
        self, p: Any = 2, axis: Any = None, keepdims: builtins.bool = False, dtype: builtins.object = None
    ) -> Tensor:
        """The p-norm of the vectors along axes: (sum |x|^p)^(1/p), with its limits at p = 0, inf and -inf. "fro": p = 2."""

    def normal_(
        self, mean: builtins.float = 0.0, std: builtins.float = 1.0, *, generator: Generator | None = None
    ) -> Tensor:
        """Fill with normal numbers."""

    def not_equal(self, y: TensorLike) -> Tensor:
        """Same as `ne`."""

    def not_equal_(self, y: TensorLike) -> Tensor:
        """Same as `ne_`."""

    def one_hot(self, num_classes: builtins.int) -> Tensor:
        """1 at the position that each index names, 0 elsewhere, along a new last axis; an index outside gives zeros."""

    def orgqr(self, *args: Any, **kwargs: Any) -> Any:
        """See the function orgqr."""

    def ormqr(self, *args: Any, **kwargs: Any) -> Any:
        """See the function ormqr."""

    def outer(self, y: TensorLike) -> Tensor:
        """All products of an element of x and an element of y."""

    @property
    def output_nr(self) -> Tensor: ...
    def pad(self, pad: Any, mode: builtins.str = "constant", value: Any = 0.0) -> Tensor:
        """Put elements before and behind axes: pad = (last axis before, last axis behind, axis before it before, ...)."""

    def permute(self, *axes: Any) -> Tensor:
        """Reorder the axes."""

    def pin_memory(self, *args: Any, **kwargs: Any) -> Tensor:
        """The tensor itself."""

    def pinverse(self, *args: Any, **kwargs: Any) -> Any:
        """See the function pinverse."""

    def polygamma(self, n: builtins.int) -> Tensor:
        """The derivative of order n of digamma."""

    def polygamma_(self, *args: Any, **kwargs: Any) -> Tensor:
        """polygamma, in place."""

    def positive(self) -> Tensor:
        """The tensor itself: +x."""

    def pow(self, exponent: Any) -> Tensor:
        """x to the power of the exponent."""

    def pow_(self, exponent: Any) -> Tensor:
        """x to the power of the exponent."""

    def prelu(self, weight: TensorLike) -> Tensor:
        """leaky_relu with learned slopes: one for all, or one per channel (axis 1)."""

    def prod(self, axis: Any = None, keepdims: builtins.bool = False, dtype: builtins.object = None) -> Tensor:
        """The product over axes; integers and bools are multiplied as int64."""

    def put(self, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Tensor:
        """A copy with elements at these row-major positions replaced, or added to."""

    def put_(self, *args: Any, **kwargs: Any) -> Tensor:
        """put, in place."""

    def qr(self, *args: Any, **kwargs: Any) -> Any:
        """See the function qr."""

    def quantile(
        self, q: Any, axis: Any = None, keepdims: builtins.bool = False, *, interpolation: builtins.str = "linear"
    ) -> Tensor:
        """What a share q of the elements along an axis, or of all, lies below: q is a number in [0, 1] or a vector of them."""

    def rad2deg(self) -> Tensor:
        """An angle in radians, in degrees."""

    def rad2deg_(self) -> Tensor:
        """An angle in radians, in degrees."""

    def random_(
        self, low: builtins.int = 0, high: builtins.int | None = None, *, generator: Generator | None = None
    ) -> Tensor:
        """Fill with whole numbers in [low, high); without bounds, all that the dtype holds exactly from 0 on."""

    def ravel(self, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
        """Same as `flatten`."""

    @property
    def real(self) -> Tensor: ...
    @real.setter
    def real(self, value: Tensor) -> None: ...
    def reciprocal(self) -> Tensor:
        """1 / x."""

    def reciprocal_(self) -> Tensor:
        """1 / x."""

    def record_stream(self, *args: Any, **kwargs: Any) -> None:
        """Memory is reused only when the work that uses it is done: there is nothing to record."""

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Any:
        """Call `hook(gradient)` in each backward pass, when this tensor's gradient is known; what it returns replaces it."""

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Any:
        """Call `hook(tensor)` in each backward pass, when `.grad` of this leaf has its gradient."""

    def relu(self) -> Tensor:
        """max(x, 0)."""

    def relu6(self) -> Tensor:
        """min(max(x, 0), 6)."""

    def relu_(self) -> Tensor:
        """max(x, 0)."""

    def remainder(self, y: TensorLike) -> Tensor:
        """Same as `mod`."""

    def remainder_(self, y: TensorLike) -> Tensor:
        """Same as `mod_`."""

    def renorm(self, p: builtins.float, dim: builtins.int, maxnorm: builtins.float) -> Tensor:
        """Each slice along an axis scaled down to a norm of at most maxnorm."""

    def renorm_(self, *args: Any, **kwargs: Any) -> Tensor:
        """renorm, in place."""

    def repeat(self, *sizes: Any) -> Tensor:
        """x repeated as a whole along its axes; more sizes than axes make new ones in front."""

    def repeat_interleave(
        self,
        repeats: builtins.int | Tensor | None = None,
        dim: builtins.int | None = None,
        *,
        output_size: builtins.int | None = None,
    ) -> Tensor:
        """Each element `repeats` times in place, along an axis or of the flattened tensor."""

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements, in row-major order, under another shape. One size may be -1."""

    def reshape_as(self, other: TensorLike) -> Tensor:
        """x under the shape of another tensor."""

    def resize_(self, *size: Any) -> Tensor:
        """Another shape, of the first elements in memory order; there must be enough of them."""

    def resize_as_(self, other: Tensor) -> Tensor:
        """`resize_` to the shape of another tensor."""

    def resolve_conj(self, *args: Any, **kwargs: Any) -> Any:
        """See the function resolve_conj."""

    def resolve_neg(self, *args: Any, **kwargs: Any) -> Any:
        """See the function resolve_neg."""

    def retain_grad(self) -> None:
        """Keep the gradient of a tensor that was computed in its .grad, as leaves do."""

    @property
    def retains_grad(self) -> Tensor: ...
    def right_shift(self, y: TensorLike) -> Tensor:
        """x >> y, keeping the sign; 0 or -1 where y is negative or all bits are shifted out."""

    def right_shift_(self, y: TensorLike) -> Tensor:
        """x >> y, keeping the sign; 0 or -1 where y is negative or all bits are shifted out."""

    def rms_norm(
        self, normalized_shape: Any, weight: TensorLike | None = None, eps: builtins.float | None = None
    ) -> Tensor:
        """Mean square 1 over the last axes, then scaled: x / sqrt(mean(x^2) + eps) * weight. eps: the dtype's unless given."""

    def rocm(
        self, device: builtins.object = None, non_blocking: builtins.bool = False, memory_format: Any = None
    ) -> Tensor:
        """The same values on an AMD GPU. `device`: its number or name."""

    def roll(self, shifts: Any, axis: Any = None) -> Tensor:
        """Move elements along axes; those that leave at the end come in at the start. Without an axis x counts as flat."""

    def rot90(self, k: builtins.int = 1, axis: Any = ...) -> Tensor:
        """Turn the plane of two axes by k quarters, from the first axis towards the second."""

    def round(self, decimals: builtins.int = 0) -> Tensor:
        """The nearest whole number, halves to the even one; or to this many decimals."""

    def round_(self, decimals: builtins.int = 0) -> Tensor:
        """The nearest whole number, halves to the even one; or to this many decimals."""

    def rsqrt(self) -> Tensor:
        """1 / sqrt(x)."""

    def rsqrt_(self) -> Tensor:
        """1 / sqrt(x)."""

    def scatter(self, dim: builtins.int, index: TensorLike, src: Any, reduce: builtins.str | None = None) -> Tensor:
        """x with out[i][index[i][j]] = src[i][j] for dim=1, and alike for other axes; reduce: "add", "multiply"."""

    def scatter_(self, dim: builtins.int, index: TensorLike, src: Any, reduce: builtins.str | None = None) -> Tensor:
        """x with out[i][index[i][j]] = src[i][j] for dim=1, and alike for other axes; reduce: "add", "multiply"."""

    def scatter_add(self, dim: builtins.int, index: TensorLike, src: Any) -> Tensor:
        """x with src[i][j] added to out[i][index[i][j]] for dim=1, and alike for other axes."""

    def scatter_add_(self, dim: builtins.int, index: TensorLike, src: Any) -> Tensor:
        """x with src[i][j] added to out[i][index[i][j]] for dim=1, and alike for other axes."""

    def scatter_reduce(
        self,
        dim: builtins.int,
        index: TensorLike,
        src: TensorLike,
        reduce: builtins.str,
        include_self: builtins.bool = True,
    ) -> Tensor:
        """As scatter, with values that meet combined: "sum", "prod", "mean", "amax" or "amin", with x's own or without."""

    def scatter_reduce_(
        self,
        dim: builtins.int,
        index: TensorLike,
        src: TensorLike,
        reduce: builtins.str,
        include_self: builtins.bool = True,
    ) -> Tensor:
        """As scatter, with values that meet combined: "sum", "prod", "mean", "amax" or "amin", with x's own or without."""

    def searchsorted(
        self,
        input: Any,
        *,
        out_int32: builtins.bool = False,
        right: builtins.bool = False,
        side: builtins.str | None = None,
        sorter: TensorLike | None = None,
    ) -> Tensor:
        """Where each value would be inserted to keep the last axis sorted: before equal ones, or behind them if `right`."""

    def select(self, dim: builtins.int, index: builtins.int) -> Tensor:
        """One position of an axis; the axis is dropped."""

    def select_scatter(self, src: TensorLike, dim: builtins.int, index: builtins.int) -> Tensor:
        """x with the slice at one position of an axis replaced."""

    def selu(self) -> Tensor:
        """The elu whose outputs keep mean 0 and variance 1 through deep networks."""

    def selu_(self) -> Tensor:
        """The elu whose outputs keep mean 0 and variance 1 through deep networks."""

    def set_(
        self, source: Any = None, storage_offset: builtins.int = 0, size: Any = None, stride: Any = None
    ) -> Tensor:
        """Lie where another tensor does, with its shape; without one, have no elements. What shared memory with it before
        no longer does."""

    def sgn(self) -> Tensor:
        """Same as `sign`."""

    def sgn_(self) -> Tensor:
        """Same as `sign_`."""

    def share_memory_(self, *args: Any, **kwargs: Any) -> Tensor:
        """The tensor itself."""

    def short(self) -> Tensor:
        """A conversion to int16."""

    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x))."""

    def sigmoid_(self) -> Tensor:
        """1 / (1 + exp(-x))."""

    def sign(self) -> Tensor:
        """-1, 0 or 1; 0 for NaN."""

    def sign_(self) -> Tensor:
        """-1, 0 or 1; 0 for NaN."""

    def signbit(self) -> Tensor:
        """Whether x has a minus: below 0, or the 0 that is approached from there."""

    def silu(self) -> Tensor:
        """x * sigmoid(x), also called swish."""

    def silu_(self) -> Tensor:
        """x * sigmoid(x), also called swish."""

    def sin(self) -> Tensor:
        """Sine of an angle in radians."""

    def sin_(self) -> Tensor:
        """Sine of an angle in radians."""

    def sinc(self) -> Tensor:
        """sin(pi x) / (pi x), and 1 at 0."""

    def sinc_(self) -> Tensor:
        """sin(pi x) / (pi x), and 1 at 0."""

    def sinh(self) -> Tensor:
        """Hyperbolic sine."""

    def sinh_(self) -> Tensor:
        """Hyperbolic sine."""

    def size(self, dim: builtins.int | None = None) -> Any:
        """The shape, or the size of one axis. (`numel()` counts elements.)"""

    def slice_scatter(
        self,
        src: TensorLike,
        dim: builtins.int = 0,
        start: builtins.int | None = None,
        end: builtins.int | None = None,
        step: builtins.int = 1,
    ) -> Tensor:
        """x with a range of an axis replaced."""

    def slogdet(self) -> Any:
        """The sign of the determinant of square matrices, and the logarithm of its size. Evaluates them."""

    def softmax(
        self, axis: builtins.int = -1, dtype: builtins.object = None, *, dim: builtins.int | None = None
    ) -> Tensor:
        """exp(x) / sum(exp(x)) along an axis, computed without overflow."""

    def softplus(self, beta: builtins.float = 1.0, threshold: builtins.float = 20.0) -> Tensor:
        """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold."""

    def softplus_(self, beta: builtins.float = 1.0, threshold: builtins.float = 20.0) -> Tensor:
        """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold."""

    def softsign(self) -> Tensor:
        """x / (1 + |x|)."""

    def sort(self, axis: Any = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Any:
        """The elements along an axis in order, and where they lay. Equals keep their order; NaN counts as the largest."""

    def sparse_dim(self) -> builtins.int:
        """How many axes are sparse: none."""

    def sparse_mask(self, mask: Any) -> Any:
        """The elements at the positions of a sparse tensor, as one."""

    def split(self, split_size_or_sections: Any, axis: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """Parts of an axis: of one size (the last may be smaller), or of the sizes in a list. No copies."""

    def split_with_sizes(self, split_sizes: Sequence[builtins.int], dim: builtins.int = 0) -> Any:
        """Parts of these sizes along an axis."""

    def sqrt(self) -> Tensor:
        """The square root; NaN below 0."""

    def sqrt_(self) -> Tensor:
        """The square root; NaN below 0."""

    def square(self) -> Tensor:
        """x * x."""

    def square_(self) -> Tensor:
        """x * x."""

    def squeeze(self, axis: Any = None) -> Tensor:
        """Drop axes of size 1: all, one, or several. Axes of another size stay."""

    def squeeze_(self, *args: Any, **kwargs: Any) -> Tensor:
        """squeeze, in place: the tensor gets another shape, and lies where it did."""

    def std(
        self,
        axis: Any = None,
        unbiased: builtins.bool | None = None,
        keepdims: builtins.bool = False,
        *,
        correction: Any = None,
        ddof: Any = None,
    ) -> Tensor:
        """The standard deviation over axes: the square root of `var`."""

    def stft(self, *args: Any, **kwargs: Any) -> Any:
        """See the function stft."""

    def storage(self) -> Any:
        """The memory that it lies in, as elements of the dtype of the tensor that owns it."""

    def storage_offset(self) -> builtins.int:
        """Where its first element lies in its storage, in elements."""

    def stride(self, dim: builtins.int | None = None) -> Any:
        """How many elements apart neighbours along each axis lie in memory, as PyTorch would hold them. Evaluates what is
        no view."""

    def sub(self, y: TensorLike, *, alpha: builtins.float = 1) -> Tensor:
        """x - alpha * y."""

    def sub_(self, y: TensorLike, *, alpha: builtins.float = 1) -> Tensor:
        """x - alpha * y."""

    def subtract(self, y: TensorLike, *, alpha: builtins.float = 1) -> Tensor:
        """Same as `sub`."""

    def subtract_(self, y: TensorLike, *, alpha: builtins.float = 1) -> Tensor:
        """Same as `sub_`."""

    def sum(self, axis: Any = None, keepdims: builtins.bool = False, dtype: builtins.object = None) -> Tensor:
        """Sum over axes; integers and bools are summed as int64."""

    def sum_to_size(self, *size: Any) -> Tensor:
        """Summed over the axes along which this shape would broadcast."""

    def svd(self, *args: Any, **kwargs: Any) -> Any:
        """See the function svd."""

    def swapaxes(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Same as `transpose`."""

    def swapaxes_(self, *args: Any, **kwargs: Any) -> Tensor:
        """Same as `transpose_`."""

    def swapdims(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Same as `transpose`."""

    def swapdims_(self, *args: Any, **kwargs: Any) -> Tensor:
        """Same as `transpose_`."""

    def swiglu(self, gate: TensorLike | None = None) -> Tensor:
        """x * silu(gate); with one argument its last axis holds x and then the gate, as in `glu`."""

    def t(self) -> Tensor:
        """A matrix with its axes exchanged; a vector or a number as it is."""

    def t_(self, *args: Any, **kwargs: Any) -> Tensor:
        """t, in place: the tensor gets another shape, and lies where it did."""

    def take(self, index: TensorLike, axis: builtins.int | None = None) -> Tensor:
        """Elements at these positions of the flattened tensor, or of one axis."""

    def take_along_axis(self, indices: TensorLike, axis: builtins.int | None = None) -> Tensor:
        """Take elements along an axis by an index per position; the other axes broadcast. Without an axis x is flattened."""

    def take_along_dim(self, indices: TensorLike, axis: builtins.int | None = None) -> Tensor:
        """Same as `take_along_axis`."""

    def tan(self) -> Tensor:
        """Tangent of an angle in radians."""

    def tan_(self) -> Tensor:
        """Tangent of an angle in radians."""

    def tanh(self) -> Tensor:
        """Hyperbolic tangent."""

    def tanh_(self) -> Tensor:
        """Hyperbolic tangent."""

    def tensor_split(
        self, indices_or_sections: builtins.int | Sequence[builtins.int], axis: builtins.int = 0
    ) -> builtins.tuple[Tensor, ...]:
        """An axis cut into so many parts of nearly equal size, or at these positions. No copies."""

    def tensordot(self, y: TensorLike, dims: Any = 2) -> Tensor:
        """Sum of products over the last `dims` axes of x and the first of y, or over two lists of axes."""

    def tile(self, *reps: Any) -> Tensor:
        """As repeat, with the counts meant for the last axes where they are fewer."""

    def to(
        self,
        *args: Any,
        dtype: builtins.object = None,
        device: builtins.object = None,
        copy: builtins.bool = False,
        non_blocking: builtins.bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        """Another dtype or device: to(pf.float16), to("cpu"), to(other). The tensor itself where nothing changes."""

    def to_dense(self, *args: Any, **kwargs: Any) -> Tensor:
        """The tensor itself."""

    def to_sparse(self) -> Any:
        """The elements that are not 0, and their positions (see pf.sparse). Evaluates the tensor."""

    def to_sparse_coo(self) -> Any:
        """The elements that are not 0, and their positions (see pf.sparse). Evaluates the tensor."""

    def to_sparse_csr(self, dense_dim: builtins.int | None = None) -> Any:
        """The elements of a matrix that are not 0, in compressed rows. Evaluates the tensor."""

    def to_torch(self) -> Any:
        """A torch tensor with this tensor's values, over the same memory, on the CPU or the same GPU: read it, or
        `.clone()` it to write. Torch's current stream waits for what computes it, the host does not. What is on a device
        that torch has not is copied to the CPU."""

    def topk(self, k: builtins.int, axis: Any = -1, largest: builtins.bool = True, sorted: builtins.bool = True) -> Any:
        """The k largest (or smallest) elements along an axis in order, and where they lie; of equals the first ones."""

    def trace(self) -> Tensor:
        """The sum of a matrix's diagonal."""

    def transpose(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Exchange two axes."""

    def transpose_(self, *args: Any, **kwargs: Any) -> Tensor:
        """transpose, in place: the tensor gets another shape, and lies where it did."""

    def triangular_solve(self, *args: Any, **kwargs: Any) -> Any:
        """See the function triangular_solve."""

    def tril(self, diagonal: builtins.int = 0) -> Tensor:
        """The lower triangle of matrices, up to a diagonal; 0 above."""

    def tril_(self, diagonal: builtins.int = 0) -> Tensor:
        """The lower triangle of matrices, up to a diagonal; 0 above."""

    def triu(self, diagonal: builtins.int = 0) -> Tensor:
        """The upper triangle of matrices, from a diagonal on; 0 below."""

    def triu_(self, diagonal: builtins.int = 0) -> Tensor:
        """The upper triangle of matrices, from a diagonal on; 0 below."""

    def true_divide(self, y: TensorLike) -> Tensor:
        """x / y, always in floating point."""

    def true_divide_(self, y: TensorLike) -> Tensor:
        """x / y, always in floating point."""

    def trunc(self) -> Tensor:
        """x without its fraction."""

    def trunc_(self) -> Tensor:
        """x without its fraction."""

    def type(self, dtype: builtins.object = None) -> Any:
        """PyTorch's name of what it is, as "torch.cuda.FloatTensor", or a conversion to another dtype."""

    def type_as(self, other: Tensor) -> Tensor:
        """A conversion to another tensor's dtype and device."""

    def unbind(self, axis: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """The slices along an axis, without that axis. No copies."""

    def unflatten(self, dim: builtins.int, sizes: Any) -> Tensor:
        """Cut one axis into several; one of the sizes may be -1."""

    def unfold(self, dimension: builtins.int, size: builtins.int, step: builtins.int) -> Tensor:
        """Windows of `size` along an axis, every `step`, as a new last axis."""

    def unfold2d(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
        """Sliding windows of images as columns: (N, C, H, W) -> (N, C*kh*kw, windows); nn.functional.unfold."""

    def uniform_(
        self, a: builtins.float = 0.0, b: builtins.float = 1.0, *, generator: Generator | None = None
    ) -> Tensor:
        """Fill with uniform numbers in [a, b)."""

    def unique(
        self,
        sorted: builtins.bool = True,
        return_inverse: builtins.bool = False,
        return_counts: builtins.bool = False,
        dim: builtins.int | None = None,
    ) -> Any:
        """The different elements in order, or the different slices along an axis. Evaluates x; under jit it raises."""

    def unique_consecutive(
        self,
        return_inverse: builtins.bool = False,
        return_counts: builtins.bool = False,
        dim: builtins.int | None = None,
    ) -> Any:
        """The elements, or slices along an axis, that differ from the one before. Evaluates x; under jit it raises."""

    def unsafe_chunk(self, chunks: builtins.int, axis: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """At most `chunks` parts of equal size along an axis; the last may be smaller. No copies."""

    def unsafe_split(self, split_size_or_sections: Any, axis: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """Parts of an axis: of one size (the last may be smaller), or of the sizes in a list. No copies."""

    def unsafe_split_with_sizes(self, split_sizes: Sequence[builtins.int], dim: builtins.int = 0) -> Any:
        """Parts of these sizes along an axis."""

    def unsqueeze(self, axis: builtins.int) -> Tensor:
        """A new axis of size 1 at this place."""

    def unsqueeze_(self, *args: Any, **kwargs: Any) -> Tensor:
        """unsqueeze, in place: the tensor gets another shape, and lies where it did."""

    def untyped_storage(self) -> Any:
        """The memory that it lies in, in bytes."""

    def values(self) -> Any:
        """Of sparse tensors: a dense one raises."""

    def var(
        self,
        axis: Any = None,
        unbiased: builtins.bool | None = None,
        keepdims: builtins.bool = False,
        *,
        correction: Any = None,
        ddof: Any = None,
    ) -> Tensor:
        """The variance over axes: squares summed and divided by n - correction (or `ddof`; 1 unless given)."""

    def vdot(self, y: TensorLike) -> Tensor:
        """Inner product of two vectors, of which the first is conjugated."""

    def view(self, *shape: Any, dtype: builtins.object = None) -> Tensor:
        """Same as `reshape`."""

    def view_as(self, other: Tensor) -> Tensor:
        """Same as `reshape_as`."""

    def vsplit(self, indices_or_sections: builtins.int | Sequence[builtins.int]) -> builtins.tuple[Tensor, ...]:
        """Equal parts, or parts cut at positions, along the first axis."""

    def where(self, condition: Tensor, other: Any) -> Tensor:
        """This tensor where a condition holds, else another."""

    def xlogy(self, y: TensorLike) -> Tensor:
        """x * log(y), and 0 where x is 0, unless y is NaN."""

    def xlogy_(self, y: TensorLike) -> Tensor:
        """x * log(y), and 0 where x is 0, unless y is NaN."""

    def zero_(self) -> Tensor:
        """Make every element 0."""
