"""Ahead-of-time plans in files. The format, version 2, all numbers little-endian:

    8 bytes    "PYFLMAOT"
    4 bytes    version of the format
    4 bytes    length of the header in bytes
    header     JSON, UTF-8: the plan without its bytes; `[start, length]` there points into what follows
    blobs      code objects and the bytes of constants, each at a multiple of 64 from the end of the header
    32 bytes   SHA-256 of everything before

A code object or constant that occurs several times is written once. Files are written aside and renamed, and a file
whose checksum is wrong is refused, so a plan is whole or not there.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

from pyflame.core.atomic import write_atomic
from pyflame.core.dtype import DType, as_dtype
from pyflame.core.errors import FileFormatError, PyFlameError
from pyflame.core.files import parse_json, read_file
from pyflame.engine.aot.build import AotBuffer, AotLaunch, BufferArg, Lowered, ScalarArg, Uniform
from pyflame.engine.aot.resources import KernelResources, Report
from pyflame.transform.aot_check import check_plan

MAGIC = b"PYFLMAOT"
VERSION = 2
_HEAD = struct.Struct("<8sII")
_DIGEST = 32
_ALIGNMENT = 64


class _Blobs:
    """Bytes on their way into a file, each once."""

    def __init__(self) -> None:
        self.raw = bytearray()
        self._known: dict[bytes, list[int]] = {}

    def add(self, data: bytes) -> list[int]:
        """Where the bytes lie: start and length."""
        if data not in self._known:
            self.raw += bytes(-len(self.raw) % _ALIGNMENT)
            self._known[data] = [len(self.raw), len(data)]
            self.raw += data
        return self._known[data]


def write_plan(path: str | os.PathLike[str], plan: Any) -> None:
    """Write an AotPlan."""
    blobs = _Blobs()
    header = {
        "target": plan.target,
        "launches": [_launch_header(x, blobs) for x in plan.launches],
        "buffers": [_buffer_header(b, blobs) for b in plan.buffers],
        "uniform_buffer": plan.uniform_buffer,
        "error_buffer": plan.error_buffer,
        "report": [k.to_json() for k in plan.report.kernels],
        "inputs": [[s.kind, s.dtype.name, s.shape, s.name] for s in plan.inputs],
        "outputs": [[s.kind, s.dtype.name, s.shape, s.name] for s in plan.outputs],
        "uniforms": [[u.role, u.position, u.is_float, u.name] for u in plan.uniforms],
        "state": plan.state,
        "checks": plan.checks,
        "arguments": plan.arguments,
        "result": plan.result,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join((_HEAD.pack(MAGIC, VERSION, len(text)), text, blobs.raw))
    write_atomic(path, body + hashlib.sha256(body).digest())


def _launch_header(x: AotLaunch, blobs: _Blobs) -> dict[str, Any]:
    return {
        "name": x.name,
        "code_object": blobs.add(x.code_object),
        "grid": x.grid,
        "block": x.block,
        "dynamic_lds": x.dynamic_lds,
        "args": [
            ["buffer", a.buffer, a.offset] if isinstance(a, BufferArg) else ["scalar", a.value, a.dtype.name]
            for a in x.args
        ],
        "ops": x.ops,
        "implementation": x.implementation,
        "work": (x.nbytes, x.flops, x.dtype),
    }


def _buffer_header(b: AotBuffer, blobs: _Blobs) -> dict[str, Any]:
    return {
        "nbytes": b.nbytes,
        "role": b.role,
        "position": b.position,
        "dtype": _name(b.dtype),
        "shape": b.shape,
        "data": None if b.data is None else blobs.add(b.data),
        "name": b.name,
    }


def read_plan(path: str | os.PathLike[str], spec: Any) -> dict[str, Any]:
    """The arguments of an AotPlan; `spec` makes its inputs and outputs."""
    raw = read_file(Path(path))
    if raw[: len(MAGIC)] != MAGIC:
        raise FileFormatError(f"[aot] expected a file of pf.aot but {path} is none")
    if len(raw) < _HEAD.size + _DIGEST:
        raise FileFormatError(f"[aot] {path} is cut off: it has {len(raw)} bytes; write it anew with plan.save")
    _, version, length = _HEAD.unpack_from(raw)
    if version != VERSION:
        raise FileFormatError(
            f"[aot] expected a file of format {VERSION} but {path} has format {version}; compile the function again "
            "with this version of PyFlame"
        )
    body = memoryview(raw)[:-_DIGEST]
    if hashlib.sha256(body).digest() != raw[-_DIGEST:]:
        raise FileFormatError(
            f"[aot] {path} is damaged or cut off: its checksum is wrong; write it anew with plan.save"
        )
    try:
        header = parse_json(raw[_HEAD.size : _HEAD.size + length])
        plan = _plan(header, _Reader(bytes(body[_HEAD.size + length :])), spec)
        check_plan(**plan)
        return plan
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, PyFlameError) as error:
        raise FileFormatError(f"[aot] {path} has a checksum but no plan: {error}") from error


class _Reader:
    """Bytes of a file's blobs, each made once."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._made: dict[tuple[int, int], bytes] = {}

    def get(self, place: list[int]) -> bytes:
        start, length = place
        if not 0 <= start <= start + length <= len(self.raw):
            raise ValueError(f"bytes {start} to {start + length} lie outside of the file")
        return self._made.setdefault((start, length), self.raw[start : start + length])


def _buffer(b: dict[str, Any], blobs: _Reader) -> AotBuffer:
    return AotBuffer(
        b["nbytes"],
        b["role"],
        b["position"],
        None if b["dtype"] is None else as_dtype(b["dtype"]),
        tuple(b["shape"]),
        None if b["data"] is None else blobs.get(b["data"]),
        b["name"],
    )


def _launch(x: dict[str, Any], blobs: _Reader) -> AotLaunch:
    grid_x, grid_y, grid_z = x["grid"]
    block_x, block_y, block_z = x["block"]
    return AotLaunch(
        x["name"],
        blobs.get(x["code_object"]),
        (grid_x, grid_y, grid_z),
        (block_x, block_y, block_z),
        x["dynamic_lds"],
        tuple(_arg(a) for a in x["args"]),
        tuple(x["ops"]),
        x["implementation"],
        *x.get("work", ()),
    )


def _plan(header: dict[str, Any], blobs: _Reader, spec: Any) -> dict[str, Any]:
    buffers = tuple(_buffer(b, blobs) for b in header["buffers"])
    launches = tuple(_launch(x, blobs) for x in header["launches"])
    report = Report(header["target"], tuple(map(KernelResources.from_json, header["report"])))
    specs = {
        side: tuple(spec(kind, as_dtype(dtype), tuple(shape), name) for kind, dtype, shape, name in header[side])
        for side in ("inputs", "outputs")
    }
    return {
        "target": header["target"],
        "lowered": Lowered(launches, buffers, header["uniform_buffer"], header["error_buffer"], report),
        **specs,
        "uniforms": tuple(Uniform(*u) for u in header["uniforms"]),
        "state": tuple((constant, output) for constant, output in header["state"]),
        "checks": tuple((op, line) for op, line in header["checks"]),
        "arguments": header["arguments"],
        "result": header["result"],
    }


def _arg(packed: list[Any]) -> BufferArg | ScalarArg:
    kind, first, second = packed
    return BufferArg(first, second) if kind == "buffer" else ScalarArg(first, as_dtype(second))


def _name(dtype: DType | None) -> str | None:
    return None if dtype is None else dtype.name
