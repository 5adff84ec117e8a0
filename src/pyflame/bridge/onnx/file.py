"""Reads an ONNX file and checks it, as far as a file from a stranger must be checked: what is damaged, of another
format, or points out of its folder is refused with the file's name and the field's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflame.bridge.onnx.table import FIRST_OPSET, LAST_OPSET
from pyflame.core.errors import FileFormatError, NotSupportedError
from pyflame.core.files import check_regular
from pyflame.core.optional import optional

MAX_PROTO = 2**31 - 1  # bytes: what protobuf reads; larger weights lie beside the file


def read_model(path: str | os.PathLike[str]) -> Any:
    """The checked ModelProto of a file, its weights loaded and its own functions inlined."""
    onnx = optional("onnx", "onnx", "onnx")
    place = Path(path)
    if not 0 < check_regular(place).st_size <= MAX_PROTO:
        raise FileFormatError(f"[onnx] expected 1 to {MAX_PROTO:,} bytes but {place} has {place.stat().st_size:,}")
    try:
        model = onnx.load_model(place, load_external_data=False)
    except Exception as error:  # protobuf's DecodeError, which cannot be named without importing protobuf
        raise FileFormatError(f"[onnx] expected an ONNX model but {place} cannot be parsed: {error}") from None
    _check_external(model, place)
    return checked(model, str(place), place.parent)


def checked(model: Any, source: str, folder: Path | None = None) -> Any:
    """A ModelProto in memory, checked; `source` is what errors call it, `folder` where weights beside it lie."""
    onnx = optional("onnx", "onnx", "onnx")
    opset = opset_of(model)
    if not FIRST_OPSET <= opset <= LAST_OPSET:
        raise NotSupportedError(
            f"[onnx] expected opset {FIRST_OPSET} to {LAST_OPSET} but {source} has {opset}; convert it with "
            "onnx.version_converter"
        )
    external = optional("onnx.external_data_helper", "onnx", "onnx")
    try:
        if folder is not None:
            external.load_external_data_for_model(model, str(folder))
        if model.ByteSize() <= MAX_PROTO:  # the checker needs it in one piece
            onnx.checker.check_model(_with_shapes(model))
        return optional("onnx.inliner", "onnx", "onnx").inline_local_functions(model) if model.functions else model
    except (onnx.checker.ValidationError, ValueError, OSError, RuntimeError) as error:
        raise FileFormatError(f"[onnx] expected a valid model but {source} is not: {error}") from None


def _with_shapes(model: Any) -> Any:
    """The model for the checker, which wants shapes of outputs; many exporters leave them out, and we need none."""
    if all(o.type.tensor_type.HasField("shape") for o in model.graph.output if o.type.HasField("tensor_type")):
        return model
    copy = type(model)()
    copy.CopyFrom(model)
    for output in copy.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.shape.SetInParent()
    return copy


def opset_of(model: Any) -> int:
    """The version of ONNX's own operators that a model is written for; 0 where it names none."""
    return max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)


def graphs(graph: Any) -> Iterator[Any]:
    """The graph and all graphs among its nodes' attributes."""
    waiting = [graph]
    while waiting:
        found = waiting.pop()
        yield found
        for node in found.node:
            for attribute in node.attribute:
                waiting += [attribute.g] if attribute.HasField("g") else []
                waiting += attribute.graphs


def _tensors(model: Any) -> Iterator[Any]:
    for graph in graphs(model.graph):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in node.attribute:
                yield from [attribute.t] if attribute.HasField("t") else []
                yield from attribute.tensors


def _check_external(model: Any, path: Path) -> None:
    """Weights that lie beside the file must lie in its folder, and be as long as the model says."""
    folder = path.parent.resolve()
    for tensor in _tensors(model):
        fields = {entry.key: entry.value for entry in tensor.external_data}
        if tensor.data_location != tensor.EXTERNAL:
            continue
        location = fields.get("location", "")
        target = (folder / location).resolve()
        if not location or Path(location).is_absolute() or not target.is_relative_to(folder) or target == folder:
            raise FileFormatError(
                f"[onnx] expected external data within the folder of {path} but the field location of tensor "
                f"{tensor.name!r} is {location!r}"
            )
        if not target.is_file():
            raise FileFormatError(
                f"[onnx] expected external data of tensor {tensor.name!r} in {target} but it is missing"
            )
        size, offset, length = target.stat().st_size, fields.get("offset", "0"), fields.get("length", "0")
        if not (offset.isdecimal() and length.isdecimal() and int(offset) + int(length) <= size):
            raise FileFormatError(
                f"[onnx] expected the fields offset and length of tensor {tensor.name!r} in {path} to lie within the "
                f"{size:,} bytes of {target.name} but got {offset!r} and {length!r}"
            )
