"""What a matrix product is to a BLAS: the same question in the library's words, column by column.

Libraries store matrices by columns, PyFlame by rows. A row-major matrix is its own transpose read by columns, so
C = A B by rows is asked for as C^T = B^T A^T by columns: operands swap places and nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyflame.core.errors import ArgumentError

Strides = tuple[int, ...]  # of rows, of columns, of matrices in a batch; in elements. Empty: packed rows
ACTIVATIONS = ("", "relu", "gelu")  # gelu is the tanh form in every library
OUTPUTS = {
    "float64": ("float64",),
    "float32": ("float32",),
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "int8": ("int32",),
}


@dataclass(frozen=True)
class GemmSpec:
    """C = activation(alpha A B + beta C + bias): A is (m, k), B is (k, n), C is (m, n), bias is (n,) in C's dtype.

    Strides left out are those of packed rows. A batch stride of 0 repeats A or B.

    >>> GemmSpec(64, 32, 16, "bfloat16", bias=True, activation="gelu").c
    (32, 1, 2048)
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"  # of A and B
    out: str = ""  # of C; A's dtype, or int32 for int8, when left out
    batch: int = 1
    a: Strides = ()
    b: Strides = ()
    c: Strides = ()
    bias: bool = False
    activation: str = ""
    tf32: bool = False  # float32 operands may be rounded to 10 bits of mantissa
    alpha: float = 1.0
    beta: float = 0.0
    gradient: bool = False  # in float16, whose subnormals must count: it may be rounded to bfloat16 instead

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k, self.batch) < 1:
            raise ArgumentError(
                f"[gemm] expected positive sizes but got {self.text}; an empty product needs no library"
            )
        if self.dtype not in OUTPUTS:
            raise ArgumentError(f"[gemm] expected one of {', '.join(OUTPUTS)} but got {self.dtype}")
        if not self.out:
            object.__setattr__(self, "out", OUTPUTS[self.dtype][0])
        if self.out not in OUTPUTS[self.dtype]:
            raise ArgumentError(
                f"[gemm] expected {' or '.join(OUTPUTS[self.dtype])} of {self.dtype} but got {self.out}"
            )
        if self.activation not in ACTIVATIONS:
            raise ArgumentError(f"[gemm] expected an activation among {ACTIVATIONS} but got {self.activation!r}")
        for name, rows, cols in (("a", self.m, self.k), ("b", self.k, self.n), ("c", self.m, self.n)):
            if not getattr(self, name):
                object.__setattr__(self, name, (cols, 1, rows * cols))
        object.__setattr__(self, "_hash", hash(tuple(vars(self).values())))

    def __hash__(self) -> int:
        """Computed once: a spec is the key of every call."""
        return self._hash  # type: ignore[attr-defined, no-any-return]

    @property
    def text(self) -> str:
        """The problem in one line."""
        end = "".join((" +bias" * self.bias, f" +{self.activation}" * bool(self.activation)))
        many = f"{self.batch}x " if self.batch > 1 else ""
        return f"{many}({self.m}, {self.k}) @ ({self.k}, {self.n}) {self.dtype}{' tf32' * self.tf32}{end}"

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True)
class Operand:
    """A matrix by columns as it lies in memory, and whether it is read transposed."""

    rows: int
    cols: int
    lead: int  # elements from a column to the next
    stride: int  # elements from a matrix of the batch to the next
    transposed: bool = False


@dataclass(frozen=True)
class ColumnGemm:
    """The problem by columns: the (m, n) result of `first` times `second`; `swapped` where B comes first."""

    m: int
    n: int
    k: int
    first: Operand
    second: Operand
    out: Operand
    swapped: bool


def _lead(strides: Strides, rows: int, cols: int, by_rows: bool) -> int:
    """The leading size of a matrix of these strides if it lies in memory that way, else 0."""
    far, near = (strides[0], strides[1]) if by_rows else (strides[1], strides[0])
    outer, inner = (rows, cols) if by_rows else (cols, rows)
    if inner > 1 and near != 1:
        return 0
    lead = far if outer > 1 else max(far, inner)
    return lead if lead >= inner else 0


def _operand(strides: Strides, rows: int, cols: int, flip: bool) -> Operand | None:
    """The matrix (rows, cols), or its transpose with `flip`, as the library sees it."""
    by_columns = _lead(strides, rows, cols, by_rows=False)
    by_rows = _lead(strides, rows, cols, by_rows=True)
    # Read as it lies when possible: transposed reads are slower in some libraries and need no less memory.
    plain, other = (by_rows, by_columns) if flip else (by_columns, by_rows)
    wide, high = (rows, cols) if flip else (cols, rows)
    if plain:
        return Operand(high, wide, plain, strides[2])
    if other:
        return Operand(wide, high, other, strides[2], transposed=True)
    return None


def by_columns(spec: GemmSpec) -> ColumnGemm | None:
    """The problem as a BLAS takes it, or None where the strides are beyond it.

    >>> by_columns(GemmSpec(2, 3, 4)).swapped
    True
    """
    swapped = bool(_lead(spec.c, spec.m, spec.n, by_rows=True))
    if not swapped and (spec.bias or not _lead(spec.c, spec.m, spec.n, by_rows=False)):
        return None  # a bias runs along the library's columns, which are our rows only when swapped
    if spec.batch > 1 and spec.c[2] == 0:
        return None
    a, b = _operand(spec.a, spec.m, spec.k, swapped), _operand(spec.b, spec.k, spec.n, swapped)
    c = _operand(spec.c, spec.m, spec.n, swapped)
    if a is None or b is None or c is None:
        return None
    if swapped:
        return ColumnGemm(spec.n, spec.m, spec.k, b, a, c, True)
    return ColumnGemm(spec.m, spec.n, spec.k, a, b, c, False)
