"""The interpreter: C of our own, compiled once per wave size with the system's compiler and kept on disk."""

from __future__ import annotations

import ctypes
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from pyflame.core.errors import CompileError
from pyflame.runtime.cache import digest
from pyflame.runtime.cpu.compiler import CompilerC, find_compiler
from pyflame.runtime.sim.decode.decoder import Form
from pyflame.runtime.sim.decode.inst import LAYOUT, Entry, Launch
from pyflame.runtime.sources import explain_failure, scratch_folder

_FOLDER = Path(__file__).with_name("isa")
_UNITS = (  # the one that takes longest first
    "matrix", "vector_compare", "vector_float", "vector_integer", "vector_packed", "vector_convert", "vector_scale",
    "vector_lanes", "core", "scalar_float", "operands", "memory", "access", "atomics", "buffers", "lds", "transpose",
    "shadow", "caches",
)  # fmt: skip
# A GPU's results to the bit: nothing may be contracted, and registers are read as several types. No -frounding-math:
# gcc then leaves fma scalar. Rounding modes hold all the same, since handlers are called after the mode was set,
# compute from memory to memory, and use no constant expression that a mode would change.
_FLAGS = ("-ffp-contract=off", "-fno-strict-aliasing")


class Interpreter:
    """The compiled interpreter for waves of 32 or 64 lanes: `forms` is what it can run."""

    def __init__(self, lanes: int) -> None:
        path = find_compiler()
        if path is None:
            raise CompileError(
                "[sim] expected a C compiler to build the simulator but found none; install gcc or clang, or point "
                "PYFLAME_CC at one"
            )
        compiler = CompilerC(path)
        sources = b"".join(p.read_bytes() for p in sorted(_FOLDER.iterdir()) if p.suffix in (".c", ".h", ".def"))
        flags = [f for f in (*compiler.flags, *_FLAGS, f"-DPF_LANES={lanes}") if f != "-shared"]
        name = digest("sim", compiler.version, " ".join(flags), sources) + ".so"
        self.lanes = lanes
        self._library = compiler.opened(name) or compiler.open_built(name, _build(path, flags))
        self._library.pf_sim_entry.restype = ctypes.POINTER(Entry)
        self._library.pf_sim_run.argtypes = [ctypes.POINTER(Launch)]
        self.forms: dict[str, Form] = {}
        for n in range(self._library.pf_sim_entries()):
            entry = self._library.pf_sim_entry(n).contents
            results, sources_of = (tuple(text.decode().split()) for text in (entry.results, entry.sources))
            self.forms[entry.name.decode()] = Form(entry.run, results, sources_of)
        sizes = [*(ctypes.sizeof(kind) for kind in LAYOUT), lanes]
        if sizes != [self._library.pf_sim_layout(n) for n in range(len(sizes))]:
            raise CompileError(f"[sim] expected structures of {sizes} bytes but the C compiler laid them out otherwise")

    def run(self, launch: Launch) -> int:
        """0: done, 1: a fault, 2: no host memory, 3: stopped where asked. The GIL is released meanwhile."""
        return int(self._library.pf_sim_run(ctypes.byref(launch)))


def _build(compiler: str, flags: list[str]) -> bytes:
    """Compile the units side by side and link them."""
    with scratch_folder() as folder:
        objects = [str(folder / f"{unit}.o") for unit in _UNITS]

        def compile_unit(n: int) -> None:
            source = _FOLDER / f"{_UNITS[n]}.c"
            _call([compiler, *flags, "-c", str(source), "-o", objects[n]], source)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(compile_unit, range(len(_UNITS))))
        out = folder / "sim.so"
        _call([compiler, *flags, "-shared", *objects, "-o", str(out), "-lm"], None)
        return out.read_bytes()


def _call(command: list[str], source: Path | None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        text = source.read_text() if source else ""
        raise CompileError(f"[sim] {command[0]} refused the simulator:\n{explain_failure(done.stderr, text)}")


@cache
def interpreter(lanes: int) -> Interpreter:
    """The one interpreter of a wave size.

    >>> "v_add_f32" in interpreter(64).forms
    True
    """
    return Interpreter(lanes)
