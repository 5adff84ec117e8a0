"""Quantised weights of Hugging Face folders: which tensors make one weight, and how they become our blocks.

config.json's `quantization_config` says which program wrote them; core/repacking.py knows how each packs. A weight is
repacked when it is asked for, so a model is never expanded as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pyflame.core import repacking
from pyflame.core.dtype import as_dtype
from pyflame.core.errors import FileFormatError, NotSupportedError, PyFlameError

Array = np.ndarray[Any, Any]
Config = Mapping[str, Any]
Make = Callable[[Mapping[str, Array]], repacking.Repacked]  # of a weight's tensors by the ends of their names
_KNOWN = "gptq, awq, compressed-tensors, fp8, mxfp4"


@dataclass(frozen=True)
class Method:
    """The ends of the names of a weight's tensors, of which the first tells it, and what makes blocks of them. `weight`
    is the end of the name that the weight itself would have."""

    needed: tuple[str, ...]
    optional: tuple[str, ...]
    make: Make
    weight: str = ".weight"
    before: str = "."  # what stands before each end


def method_of(config: Config, path: object) -> Method:
    """How the folder's weights are packed."""
    name = config.get("quant_method")
    found = _METHODS.get(str(name))
    if found is None:
        raise NotSupportedError(
            f"[checkpoint] expected quantised weights of one of {_KNOWN} but {path} has quant_method {name!r}; a GGUF "
            "file or a plain checkpoint of the model can be loaded"
        )
    return found(config)


def packed_weights(method: Method, names: Collection[str]) -> dict[str, dict[str, str]]:
    """Name of a weight -> its tensors by the ends of their names."""
    known, found = set(names), {}
    first, *rest = method.needed
    for name in names:
        base = name.removesuffix(method.before + first) + method.before
        if name == base + first and all(base + end in known for end in rest):
            ends = [end for end in (*method.needed, *method.optional) if base + end in known]
            found[base.removesuffix(method.before) + method.weight] = {end: base + end for end in ends}
    return found


def repacked(method: Method, path: object, weight: str, parts: Mapping[str, Array]) -> repacking.Repacked:
    """The encoding and the bytes (.., out, row bytes) of a weight."""
    try:
        return method.make(parts)
    except PyFlameError as error:
        raise type(error)(f"[checkpoint] expected {weight} of {path} to be repacked but got: {error}") from error
    except (ValueError, IndexError, TypeError) as error:
        shapes = ", ".join(f"{end} {a.dtype}{list(a.shape)}" for end, a in parts.items())
        raise FileFormatError(
            f"[checkpoint] expected tensors of {weight} that fit each other in {path}: {shapes}"
        ) from error


def numbers_of(raw: Array, encoding: str, shape: tuple[int, ...]) -> Array:
    """A stored tensor as an array."""
    return np.asarray(raw).reshape(-1).view(as_dtype(encoding).numpy).reshape(shape)


# --- the programs that write them -------------------------------------------------------------------------------------


def _gptq(config: Config) -> Method:
    bits, plus = int(config.get("bits", 4)), 0 if config.get("checkpoint_format") == "gptq_v2" else 1

    def make(t: Mapping[str, Array]) -> repacking.Repacked:
        return repacking.gptq(t["qweight"], t["qzeros"], t["scales"], t.get("g_idx"), bits, plus)

    return Method(("qweight", "qzeros", "scales"), ("g_idx",), make)


def _awq(config: Config) -> Method:
    if config.get("version", "gemm").lower() != "gemm" or config.get("bits", 4) != 4:
        raise NotSupportedError(
            f"[checkpoint] expected AWQ weights of version gemm and 4 bits but got {config.get('version')} and "
            f"{config.get('bits')}"
        )
    return Method(("qweight", "qzeros", "scales"), (), lambda t: repacking.awq(t["qweight"], t["qzeros"], t["scales"]))


def _compressed(config: Config) -> Method:
    groups = list(config.get("config_groups", {}).values())
    weights = [group.get("weights") or {} for group in groups]
    kinds = {(str(w.get("type")), int(w.get("num_bits") or 0)) for w in weights}
    if len(kinds) != 1:
        raise NotSupportedError(f"[checkpoint] expected one kind of weights in config_groups but got {sorted(kinds)}")
    ((kind, bits),) = kinds
    if config.get("format") == "pack-quantized" and kind == "int":
        return Method(
            ("weight_packed", "weight_scale"), ("weight_zero_point", "weight_g_idx", "weight_shape"),
            partial(_unpack_compressed, bits),
        )  # fmt: skip
    make = {("int", 8): repacking.int8, ("float", 8): repacking.fp8}.get((kind, bits))
    if make is None:
        raise NotSupportedError(
            f"[checkpoint] expected 4- or 8-bit weights of compressed-tensors but got {kind} {bits}"
        )
    return Method(("weight", "weight_scale"), ("input_scale",), lambda t: make(t["weight"], t["weight_scale"]))


def _unpack_compressed(bits: int, t: Mapping[str, Array]) -> repacking.Repacked:
    width = int(t["weight_shape"][-1]) if "weight_shape" in t else 0
    zero, order = t.get("weight_zero_point"), t.get("weight_g_idx")
    return repacking.compressed(t["weight_packed"], t["weight_scale"], zero, order, bits, width)


def _fp8(config: Config) -> Method:
    block = config.get("weight_block_size")
    if block is None:
        return Method(
            ("weight", "weight_scale"), ("input_scale",), lambda t: repacking.fp8(t["weight"], t["weight_scale"])
        )
    size = int(block[0]), int(block[1])
    return Method(("weight", "weight_scale_inv"), (), lambda t: repacking.fp8(t["weight"], t["weight_scale_inv"], size))


def _mxfp4(config: Config) -> Method:
    """gpt-oss' experts; its other weights are plain."""
    return Method(("blocks", "scales"), (), lambda t: repacking.mxfp4(t["blocks"], t["scales"]), "", "_")


_METHODS: dict[str, Callable[[Config], Method]] = {
    "gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed, "fp8": _fp8, "mxfp4": _mxfp4,
}  # fmt: skip
