"""The matrix product as cuBLASLt and hipBLASLt do it: describe once, ask for algorithms, run with addresses.

Both libraries share one interface under two sets of names. What they have in common is here; `cuda/cublaslt.py` and
`rocm/hipblaslt.py` say it in their words.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.core.locks import lock
from pyflame.libs.binding import LibraryError
from pyflame.libs.gemm import ColumnGemm, GemmSpec, Operand, by_columns

ALIGNMENT = 256  # what libraries assume of addresses unless told
Alignments = tuple[int, int, int, int]  # of A, B, C, bias
Proposed = tuple[int, int, Alignments]  # bytes of workspace at most, algorithms wanted, alignments
_ALIGNED: Alignments = (ALIGNMENT,) * 4
PLANS = 1024  # problems kept described; the least recently used goes first
SCALARS: dict[str, Any] = {"float64": ctypes.c_double, "int8": ctypes.c_int32}  # of alpha and beta; else float32


@dataclass(frozen=True)
class Algorithm:
    """One way to run a problem: the library's own description, and the workspace it needs."""

    data: Any
    workspace: int


@dataclass
class Described:
    """A problem in the library's words, with the algorithms it proposes, best first."""

    problem: ColumnGemm
    operation: Any
    layouts: tuple[Any, Any, Any]
    alpha: Any
    beta: Any
    algorithms: list[Algorithm] = field(default_factory=list)


def alignment(address: int) -> int:
    """The largest power of two, up to 256, that divides an address.

    >>> alignment(0x1010)
    16
    """
    return min(address & -address, ALIGNMENT) if address else ALIGNMENT


class LtMatmul(ABC):
    """A matrix product of a library. Addresses and streams in, nothing else; one object per device."""

    name = ""
    version = ""
    error: type[LibraryError] = LibraryError
    reproducible = True  # whether its makers promise the same bits in every run

    def __init__(self) -> None:
        self._described: OrderedDict[tuple[Any, ...], Described] = OrderedDict()
        self._lock = lock()

    def supports(self, spec: GemmSpec, workspace_bytes: int = 0) -> bool:
        """Whether the library has an algorithm for aligned operands."""
        return self.count(spec, workspace_bytes) > 0

    def count(self, spec: GemmSpec, workspace_bytes: int = 0, wanted: int = 1) -> int:
        """How many algorithms the library proposes, at most `wanted`; `rank` of `matmul` counts through them."""
        return len(self.workspaces(spec, workspace_bytes, wanted))

    def workspaces(
        self, spec: GemmSpec, workspace_bytes: int = 0, wanted: int = 1, aligned: Alignments = _ALIGNED
    ) -> list[int]:
        """The bytes of workspace that each of the algorithms needs which the library proposes, best first."""
        if by_columns(spec) is None:
            return []
        with self._lock:
            return [a.workspace for a in self._find(spec, workspace_bytes, aligned, wanted).algorithms]

    def matmul(
        self,
        spec: GemmSpec,
        a: int,
        b: int,
        c: int,
        bias: int = 0,
        stream: int = 0,
        workspace: int = 0,
        workspace_bytes: int = 0,
        rank: int = 0,
        addend: int = 0,
        proposed: Proposed | None = None,
    ) -> None:
        """Start C = activation(alpha A B + beta C + bias) on a stream. All are addresses on the device.

        `rank` picks the algorithm: 0 is the library's best guess, and others may be faster. `addend`: where the C lies
        that is added, if not where the result goes. `proposed`: what `workspaces` was asked for; its answer tells how
        large the workspace must be, and its ranks hold.
        """
        if spec.bias and not bias:
            raise ArgumentError(f"[{self.name}] expected the address of the bias of {spec.text} but got 0")
        addend = addend or c
        if proposed is not None:
            limit, wanted, aligned = proposed
        else:
            limit, wanted, aligned = workspace_bytes, rank + 1, _ALIGNED
            if (a | b | c | bias | addend) % ALIGNMENT:
                aligned = (alignment(a), alignment(b), min(alignment(c), alignment(addend)), alignment(bias))
        with self._lock:
            found = self._find(spec, limit, aligned, wanted)
            if rank >= len(found.algorithms):
                raise self.error(
                    f"[{self.name}] expected an algorithm number {rank} for {spec.text} but the library has "
                    f"{len(found.algorithms)} with {workspace_bytes} bytes of workspace; PyFlame's own kernel does it"
                )
            if spec.bias:
                self._set_bias(found.operation, bias)
            first, second = (b, a) if found.problem.swapped else (a, b)
            algorithm = found.algorithms[rank]
            if algorithm.workspace > workspace_bytes:
                raise ArgumentError(
                    f"[{self.name}] expected {algorithm.workspace} bytes of workspace for {spec.text} but got "
                    f"{workspace_bytes}; take another algorithm"
                )
            self._run(found, algorithm, (first, second, addend, c), stream, workspace, workspace_bytes)

    def close(self) -> None:
        """Give everything back to the library."""
        with self._lock:
            while self._described:
                self._forget(self._described.popitem()[1])

    def _find(self, spec: GemmSpec, workspace: int, aligned: Alignments, wanted: int) -> Described:
        key = (spec, workspace, aligned, wanted)
        found = self._described.get(key)
        if found is not None:
            if len(self._described) > PLANS // 2:  # long before something must go
                self._described.move_to_end(key)
            return found
        problem = by_columns(spec)
        if problem is None:
            raise self.error(
                f"[{self.name}] expected matrices that lie by rows or by columns but got strides {spec.a}, {spec.b}, "
                f"{spec.c} for {spec.text}; copy them, or let PyFlame's own kernel read them"
            )
        scalar = SCALARS.get(spec.dtype, ctypes.c_float)
        number = int if scalar is ctypes.c_int32 else float
        operation = self._operation(spec, problem)
        operands = (problem.first, problem.second, problem.out)
        dtypes = (spec.dtype, spec.dtype, spec.out)
        first, second, out = (self._layout(d, o, spec.batch) for d, o in zip(dtypes, operands, strict=True))
        found = Described(
            problem, operation, (first, second, out), scalar(number(spec.alpha)), scalar(number(spec.beta))
        )
        if problem.swapped:
            aligned = (aligned[1], aligned[0], aligned[2], aligned[3])
        if spec.bias:
            self._set_bias(operation, aligned[3])  # never read: a search looks at the address for its alignment alone
        found.algorithms = self._search(found, workspace, aligned, wanted)
        self._described[key] = found
        if len(self._described) > PLANS:
            self._forget(self._described.popitem(last=False)[1])
        return found

    @abstractmethod
    def _operation(self, spec: GemmSpec, problem: ColumnGemm) -> Any:
        """Describe precision, transposition and epilogue."""

    @abstractmethod
    def _layout(self, dtype: str, operand: Operand, batch: int) -> Any:
        """Describe a matrix."""

    @abstractmethod
    def _search(self, found: Described, workspace: int, aligned: Sequence[int], wanted: int) -> list[Algorithm]:
        """Ask for algorithms; none where the library does not support the problem."""

    @abstractmethod
    def _set_bias(self, operation: Any, address: int) -> None:
        """Say where the bias lies."""

    @abstractmethod
    def _run(
        self, found: Described, algorithm: Algorithm, addresses: Sequence[int], stream: int, workspace: int, size: int
    ) -> None:
        """Start it on the addresses of the first operand, the second, what is added and the result."""

    @abstractmethod
    def _forget(self, found: Described) -> None:
        """Destroy a description."""
