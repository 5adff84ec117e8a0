"""Every encoding: its NumPy decoder against the gguf package's, its C text against NumPy, its encoder."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyflame as pf
from pyflame.core.encoding import ENCODINGS, Encoding, encoding, row_bytes

KINDS = [pytest.param(e, id=e.name) for e in ENCODINGS.values()]
GGUF = [pytest.param(e, id=e.name) for e in ENCODINGS.values() if e.ggml is not None]
# rms error of normals after encoding, at most; a better encoder may lower it
ERRORS = {
    "f32": 0.0, "f16": 3e-4, "bf16": 2e-3, "q8_0": 6e-3, "q6_k": 0.02, "q5_0": 0.045, "q5_1": 0.04, "q5_k": 0.038,
    "q4_0": 0.09, "q4_1": 0.085, "q4_k": 0.072, "iq4_nl": 0.085, "iq4_xs": 0.08, "mxfp4": 0.12, "q3_k": 0.16,
    "q2_k": 0.28, "int8": 8e-3, "fp8": 0.03, "int4": 0.12,
}  # fmt: skip


def gguf_type(kind: Encoding) -> Any:
    gguf = pytest.importorskip("gguf")
    return gguf.GGMLQuantizationType(kind.ggml)


def random_bytes(kind: Encoding, rows: int = 5, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (rows, 3 * kind.nbytes), dtype=np.uint8)


def assert_same_bits(got: Any, want: Any) -> None:
    """Equal but for the payload of NaN, which hardware chooses."""
    assert got.dtype == want.dtype == np.float32 and got.shape == want.shape
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(np.uint32)[~nan], want.view(np.uint32)[~nan])


def normals(kind: Encoding, *shape: int) -> Any:
    values = np.random.default_rng(1).normal(size=(*shape, 4 * max(kind.block, 64))).astype(np.float32)
    values[..., 3] = 0.0
    return values


@pytest.mark.parametrize("kind", GGUF)
def test_decodes_as_gguf_does(kind: Encoding) -> None:
    dequantize = pytest.importorskip("gguf.quants").dequantize

    for seed in range(3):
        data = random_bytes(kind, seed=seed)
        with np.errstate(all="ignore"):
            want = dequantize(data, gguf_type(kind))
        assert_same_bits(kind.decode(data), want)


@pytest.mark.parametrize("kind", GGUF)
def test_encodes_as_gguf_does_where_it_can(kind: Encoding) -> None:
    quantize = pytest.importorskip("gguf.quants").quantize

    values = normals(kind, 7)
    values[2] = 0.0
    values[3] = np.round(values[3] * 4) / 4  # ties
    try:
        with np.errstate(all="ignore"):
            want = quantize(values, gguf_type(kind)).view(np.uint8)
    except NotImplementedError:
        assert kind.name in ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs")
        return
    np.testing.assert_array_equal(kind.encode(values), want.reshape(7, -1))


@pytest.mark.parametrize("kind", KINDS)
def test_encoders_are_as_near_as_their_bits_allow(kind: Encoding) -> None:
    values = normals(kind, 2, 6)
    decoded = kind.decode(kind.encode(values))
    assert decoded.shape == values.shape
    assert float(np.sqrt(np.mean((decoded - values) ** 2))) <= ERRORS[kind.name.split("_g")[0]]
    zeros = np.zeros_like(values)
    np.testing.assert_array_equal(kind.decode(kind.encode(zeros)), zeros)


@pytest.mark.parametrize("kind", KINDS)
def test_encoding_again_changes_little(kind: Encoding) -> None:
    """What a format can hold it gives back: a second trip moves nothing by more than the first one did."""
    once = kind.decode(kind.encode(normals(kind, 4)))
    twice = kind.decode(kind.encode(once))
    assert np.abs(twice - once).max() <= np.abs(once - normals(kind, 4)).max()


@pytest.mark.parametrize("kind", KINDS)
def test_c_text_gives_the_bits_of_numpy(kind: Encoding) -> None:
    data = random_bytes(kind, 9, seed=5)
    assert_same_bits(pf.dequantize(pf.tensor(data), encoding=kind).numpy(), kind.decode(data))


@pytest.mark.parametrize("kind", KINDS)
def test_c_text_keeps_to_the_alignment_of_blocks(kind: Encoding) -> None:
    """GPU kernels load 16 bytes as words of what divides a block's bytes."""
    aligned = min(kind.nbytes & -kind.nbytes, 16)
    for place in re.findall(r"pf_sixteen_at\(b \+ ([^();]*)\)", kind.c):
        for g in range(kind.block // kind.group):
            offset = eval(place.replace("/", "//"), {"g": g, "part": g // 2})
            assert offset % aligned == 0 and offset + 16 <= kind.nbytes, place


@pytest.mark.parametrize("dtype", [pf.float16, pf.bfloat16, pf.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["q4_0", "q4_k", "f16"])
def test_dequantize_to_other_dtypes_rounds_once(name: str, dtype: pf.DType) -> None:
    kind = encoding(name)
    data = kind.encode(normals(kind, 3))
    got = pf.dequantize(pf.tensor(data), dtype, encoding=name)
    assert got.dtype is dtype
    np.testing.assert_array_equal(got.numpy(), kind.decode(data).astype(dtype.numpy))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(list(ENCODINGS)), st.integers(0, 3), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_any_bytes_decode(name: str, rows: int, blocks: int, seed: int) -> None:
    kind = encoding(name)
    data = np.random.default_rng(seed).integers(0, 256, (rows, blocks * kind.nbytes), dtype=np.uint8)
    assert_same_bits(pf.dequantize(pf.tensor(data), encoding=name).numpy(), kind.decode(data))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(ENCODINGS)), st.floats(0.01, 1e3), st.integers(0, 2**32 - 1))
def test_errors_are_within_a_step(name: str, scale: float, seed: int) -> None:
    """No element is off by more than the coarsest step that its block may have."""
    kind = encoding(name)
    values = (np.random.default_rng(seed).uniform(-scale, scale, (2, kind.block))).astype(np.float32)
    error = np.abs(kind.decode(kind.encode(values)) - values).max()
    steps = {"q2": 1.0, "q3": 0.3, "mx": 0.3}.get(name[:2], 0.2)  # of the block's largest number
    assert error <= steps * np.abs(values).max() + 1e-7


def test_names_are_found_in_any_case_and_unknown_ones_named() -> None:
    assert encoding("Q4_K") is ENCODINGS["q4_k"] and encoding(ENCODINGS["f16"]) is ENCODINGS["f16"]
    assert row_bytes("q4_k", 512) == 288
    with pytest.raises(pf.ArgumentError, match=r"\[quantize\] expected an encoding but got 'q4_z'.*known are .*q4_0"):
        pf.quantize(pf.ones(32), "q4_z")


def test_what_cannot_be_encoded_is_refused() -> None:
    with pytest.raises(pf.ShapeError, match="multiple of 32 elements"):
        pf.quantize(pf.ones(4, 33), "q4_0")
    with pytest.raises(pf.DTypeError, match="floating-point"):
        pf.quantize(pf.tensor([[1] * 32]), "q4_0")
    with pytest.raises(pf.ArgumentError, match="finite"):
        pf.quantize(pf.full((1, 32), float("nan")), "q8_0")
    with pytest.raises(pf.ArgumentError, match="float16 can hold"):
        pf.quantize(pf.full((1, 32), 1e9), "q8_0")
    with pytest.raises(pf.ShapeError, match="whole blocks of 18 bytes"):
        encoding("q4_0").decode(np.zeros(17, np.uint8))
    with pytest.raises(pf.DTypeError, match="bytes"):
        encoding("q4_0").decode(np.zeros(18, np.int8))


def test_what_cannot_be_multiplied_is_refused() -> None:
    w, x = pf.quantize(pf.ones(4, 64), "q8_0"), pf.ones(2, 64)
    given = {"encoding": "q8_0", "width": 64}
    with pytest.raises(pf.ShapeError, match=r"expected x \(\.\.\., 32\) and rows \(out, 34\) of q8_0"):
        pf.encoded_linear(x, w.data, encoding="q8_0", width=32)
    with pytest.raises(pf.ShapeError, match=r"expected a bias of shape \(4,\)"):
        pf.encoded_linear(x, w.data, pf.ones(3), **given)
    with pytest.raises(pf.DTypeError, match="expected a bias of float32, as x"):
        pf.encoded_linear(x, w.data, pf.ones(4, dtype=pf.float16), **given)
    with pytest.raises(pf.DTypeError, match=r"expected bytes \(uint8\)"):
        pf.encoded_linear(x, x, **given)
    with pytest.raises(pf.DTypeError, match="expected float32"):
        pf.encoded_linear(pf.ones(2, 64, dtype=pf.int32), w.data, **given)
    with pytest.raises(pf.ArgumentTypeError, match="whole number as width"):
        pf.encoded_linear(x, w.data, encoding="q8_0", width=6.5)


def test_an_encoding_without_an_encoder_says_so() -> None:
    with pytest.raises(pf.NotSupportedError, match="can be written but got q4_0"):
        replace(encoding("q4_0"), encode_blocks=None).encode(np.ones(32, np.float32))


def test_encoded_tensor() -> None:
    values = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)
    w = pf.quantize(pf.tensor(values), "q4_0")
    assert (w.shape, w.nbytes, w.ndim, len(w)) == ((6, 64), 6 * 36, 2, 6)
    assert repr(w) == "EncodedTensor(shape=(6, 64), encoding=q4_0, device=cpu)"
    whole = w.dequantize().numpy()
    np.testing.assert_array_equal(whole, encoding("q4_0").decode(w.data.numpy()))
    np.testing.assert_array_equal(w[2:4].dequantize().numpy(), whole[2:4])
    np.testing.assert_array_equal(w[pf.tensor([5, 0])].dequantize().numpy(), whole[[5, 0]])
    np.testing.assert_array_equal(w[3].dequantize().numpy(), whole[3])
    assert w.dequantize(pf.bfloat16).dtype is pf.bfloat16 and w.to("cpu").device == w.device
    with pytest.raises(pf.ArgumentTypeError, match="outermost"):
        w[1, 2]
    with pytest.raises(pf.DTypeError, match="bytes"):
        pf.EncodedTensor(pf.ones(2, 18), "q4_0")


def test_mapped_files_are_read_where_they_are(tmp_path: Path) -> None:
    kind = encoding("q6_k")
    data = kind.encode(normals(kind, 3))
    (tmp_path / "weights").write_bytes(b"odd" + data.tobytes())
    mapped = np.memmap(tmp_path / "weights", np.uint8, "r", 3, data.shape)
    w = pf.EncodedTensor(mapped, "q6_k")
    assert np.shares_memory(w.data.numpy(), mapped)
    np.testing.assert_array_equal(w.dequantize().numpy(), kind.decode(data))
    np.testing.assert_array_equal(w[1:].dequantize().numpy(), kind.decode(data[1:]))


def test_quantised_tensors_stay_on_their_device() -> None:
    assert pf.quantize(pf.ones(1, 32, device="sim:gfx942"), "q8_0").device == pf.ones(1, device="sim:gfx942").device
