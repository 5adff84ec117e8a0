"""What of the hand-written GPU kernels ran on the simulator: source lines, functions, and compile-time numbers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyflame.core.device import Target
from pyflame.kernels import spec
from pyflame.runtime.rocm.clang import ClangHip
from pyflame.runtime.sim.decode.inst import COUNTED
from pyflame.runtime.sim.decode.lines import source_frames
from pyflame.runtime.sim.machine import COUNT, RACES, UNINITIALISED, Kernel, Machine, Module
from pyflame.runtime.sim.memory import Memory
from tests.sim.devices import KERNEL_MODES

KERNELS = Path(spec.__file__).parent
LINES = "-gline-tables-only"
# Functions of which no instruction tells: they do nothing, are only asked for their type, fold into their callers, or
# are for NVIDIA's copies alone.
SILENT = {
    "pf_attend_lines.h": {"pf_number", "pf_piece_at", "find", "line_of", "pack", "unpack"},
    "attention_decode_mma.hip": {"behind"},
    "attention_mma.hip": {"begins"},
    "encoded.hip": {"row", "line"},
    "encoded_dots.hip": {"inside", "first", "line_of", "pair_of", "line"},
    "experts.hip": {"row", "line", "begin", "pf_parts", "piece", "has", "line_of", "k_of"},
    "matmul.hip": {"prepare", "has", "fast", "line_of", "several"},
    "pf_decode_lines.h": {"part", "has", "line_of", "panel_of", "within"},
    "pf_mma_loop.h": {"part", "has", "line_of", "k_of", "wave", "top", "left", "put"},
    "pf_mma_mfma.h": {"clear", "get", "row", "col", "line", "piece", "put"},
    "pf_mma_wmma.h": {"clear", "get", "row", "col", "multiply", "line", "piece", "put"},
    "pf_strips.h": {"whole"},
    "conv.hip": {"line_of", "result", "several", "taps_met", "channel", "column"},
    "cumulative.hip": {"pf_accumulator"},
    "sort.hip": {"pf_is_float", "key", "pf_add"},
}
# Lines of which clang makes code for a loop over no k at all, which no launch has.
UNREACHED = {"pf_tile.h": {"const int x = pf_thread() % ACROSS, y = pf_thread() / ACROSS;"}}
# Compile-time numbers of kernels over matrix tiles.
MATRIX_NUMBERS = (
    "ROWS", "COLS", "THREADS", "WAVES_ACROSS", "CHUNKS", "AXES", "A_ALONG_K", "A_VECTOR", "B_ALONG_K", "B_VECTOR",
    "AS_IS", "OUT_WIDTH",
)  # fmt: skip

MATRIX_CONV_NUMBERS = (
    "ROWS", "COLS", "THREADS", "WAVES_ACROSS", "CHUNKS", "RANK", "AS_IS", "C_LAST", "N_LAST", "O_LAST", "X_ALONG_K",
    "X_VECTOR", "W_ALONG_K", "W_VECTOR", "DILATED", "OUT_WIDTH", "MASK",
    "PHASES",
)  # fmt: skip
# Begins what NVIDIA's GPUs alone have in a file that AMD's run too: tests/null runs it, on the host.
_NVIDIA = "#if defined(__CUDACC__) || defined(PF_EMULATE)"
_FUNCTION = re.compile(r"^(?:template <.*> |  )?PF_(?:FN|MEMBER) .*?(\w+)\(", re.MULTILINE)
_TEMPLATE = re.compile(r"^template <([^\n]*)>\s+(?:PF_FN \w+|struct) (pf_\w+)", re.MULTILINE)
_CONSTANTS = re.compile(r"struct PF_KEY_kind \{.*?enum \{ (.*?) \};", re.DOTALL)
_CALL = re.compile(r"(pf_\w+)<")


class LinedClang(ClangHip):
    """A clang whose code tells the source lines of its instructions."""

    def key(self, source: str, target: Target, options: Sequence[str] = ()) -> str:
        return super().key(source, target, (*options, LINES))

    def compile(self, source: str, target: Target, options: Sequence[str] = ()) -> bytes:
        return super().compile(source, target, (*options, LINES))


class Counting(Machine):
    """A machine with all checks on that remembers which instructions ran with at least one lane."""

    def __init__(self, target: str, memory: Memory) -> None:
        super().__init__(target, memory, checks=UNINITIALISED | RACES | COUNT, modes=KERNEL_MODES)
        self.launched: dict[Module, dict[str, Kernel]] = defaultdict(dict)
        self.ran: dict[Module, np.ndarray[Any, Any]] = {}  # for each instruction whether it ran

    def launch(self, kernel: Kernel, *args: Any, **options: Any) -> None:
        super().launch(kernel, *args, **options)
        lanes = np.frombuffer(self.counts, np.uint64).reshape(-1, len(COUNTED))[:, COUNTED.index("lanes")]
        self.launched[kernel.module][kernel.name] = kernel
        self.ran[kernel.module] = self.ran.get(kernel.module, False) | (lanes > 0)

    def lines(self) -> dict[str, dict[int, bool]]:
        """File -> line -> whether any of its instructions ran, of the kernels that were launched."""
        found: dict[str, dict[int, bool]] = defaultdict(lambda: defaultdict(bool))
        for module, kernels in self.launched.items():
            starts = np.array(sorted(k.entry for k in module.kernels.values()))
            wanted = {k.entry for k in kernels.values()}
            lines = self.code(next(iter(kernels.values()))).lines
            addresses = np.array([line.address for line in lines])
            own = [starts[n] in wanted for n in np.searchsorted(starts, addresses, "right") - 1]
            frames = source_frames(module.code, addresses[own].tolist())
            for address, ran in zip(addresses[own].tolist(), self.ran[module][own].tolist(), strict=True):
                for file, number in frames.get(address, ()):
                    found[file.rpartition("/")[2]][number] |= ran
        return found


def kernel_files() -> set[str]:
    """Of kernels that AMD's GPUs run. Those of NVIDIA's own are run in tests/null: test_matrix_async.py,
    test_conv_async.py, test_attention_async.py, test_gpu_kernels_encoded.py."""
    return {f.name for f in KERNELS.glob("*.hip") if not f.stem.endswith("_async")}


def nvidia_lines(source: Sequence[str]) -> set[int]:
    """Numbers of the lines that NVIDIA's GPUs alone have.

    >>> nvidia_lines(["a", _NVIDIA, "#if 1", "b", "#endif", "c", "#endif", "d"])
    {2, 3, 4, 5, 6}
    """
    found, depth = set[int](), 0
    for number, line in enumerate(source, 1):
        if line.startswith("#endif") and depth:
            depth -= 1
        if line == _NVIDIA or (depth and line.startswith("#if")):
            depth += 1
        if depth:
            found.add(number)
    return found


def missed_lines(machine: Counting, files: Iterable[str]) -> list[str]:
    """Lines that have instructions, none of which ran; and functions of which no line ran."""
    missed, lines = [], machine.lines()
    for file in files:
        text = next(KERNELS.rglob(file)).read_text()
        source, known = text.splitlines(), lines[file]
        others = nvidia_lines(source)
        idle = {n: source[n - 1].strip() for n, ran in sorted(known.items()) if not ran}
        missed += [f"{file}:{n} {line}" for n, line in idle.items() if line not in UNREACHED.get(file, ())]
        starts = [(text.count("\n", 0, m.start()) + 1, m[1]) for m in _FUNCTION.finditer(text)]
        for (start, name), (end, _) in zip(starts, [*starts[1:], (len(source) + 1, "")], strict=True):
            own = name not in SILENT.get(file, ()) and start not in others
            if own and not any(known.get(n) for n in range(start, end)):
                missed.append(f"{file}:{start} {name} was never run")
    return missed


def missed_numbers(
    texts: Iterable[str], files: Iterable[str], wanted: Mapping[str, Mapping[str, set[Any]]]
) -> list[str]:
    """Compile-time numbers of the files' templates that never had the values wanted.

    Those of which `wanted` says nothing are flags, which must have been 0 and 1.
    """
    parameters = {
        m[2]: [p.strip() for p in m[1].split(",")]
        for file in files
        for m in _TEMPLATE.finditer(next(KERNELS.rglob(file)).read_text())
    }
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    for text in texts:
        constants = _CONSTANTS.search(text, max(0, text.find("struct PF_KEY_kind")))
        for call in _CALL.finditer(text):
            function, given = call[1], _arguments(text[call.end() :])
            if given == ["PF_KEY_kind"] and function in parameters and constants:
                for name, value in (c.split(" = ") for c in constants[1].split(", ")):
                    seen[function, name].add(value)
            for parameter, value in zip(parameters.get(function, ()), given, strict=False):
                if parameter.startswith("int "):
                    seen[function, parameter[4:]].add(value)
    missed = [f"{f} was never called" for f in wanted if not any(f == function for function, _ in seen)]
    for (function, name), values in sorted(seen.items()):
        lacking = {str(v) for v in wanted.get(function, {}).get(name, {0, 1})} - values
        if lacking:
            missed.append(f"{function} {name}: {sorted(values)}, never {sorted(lacking)}")
    return missed


def _arguments(text: str) -> list[str]:
    """Template arguments up to the bracket that closes them.

    >>> _arguments("pf_of<int>, 3>(x)")
    ['pf_of<int>', '3']
    """
    out, depth = [""], 0
    for letter in text:
        if letter == ">" and depth == 0:
            break
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            out.append("")
        else:
            out[-1] += letter
    return [part.strip() for part in out]
