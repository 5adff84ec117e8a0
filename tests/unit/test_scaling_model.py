"""The model of data parallel training on many GPUs: its formula, and that it says what it is."""

from __future__ import annotations

import pytest

from benchmarks.scaling import Links, exchange_seconds, main

FREE = Links(inside=100e9, outside=10e9, latency=0.0, memory=float("inf"))


def test_bytes_over_links() -> None:
    assert exchange_seconds(1e9, 1, 25e6, FREE) == 0
    assert exchange_seconds(100e9, 2, 25e6, FREE) == pytest.approx(1.0)  # each sends half of them twice
    assert exchange_seconds(100e9, 8, 25e6, FREE) == pytest.approx(2 * 7 / 8)
    # then an eighth of them around a ring of two machines
    assert exchange_seconds(80e9, 16, 25e6, FREE) == pytest.approx(2 * 7 / 8 * 0.8 + 1.0)


def test_messages_and_memory_cost_too() -> None:
    late = Links(inside=float("inf"), outside=float("inf"), latency=1e-6, memory=float("inf"))
    assert exchange_seconds(100e6, 8, 25e6, late) == pytest.approx(4 * 14e-6)
    packed = Links(inside=float("inf"), outside=float("inf"), latency=0.0, memory=1e9)
    assert exchange_seconds(1e9, 2, 25e6, packed) == pytest.approx(4.0)


def test_it_says_that_it_is_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model-only", "--parameters", "1e9"]) == 0
    text = capsys.readouterr().out
    assert "a model, not a measurement: 1e+09 parameters" in text and len(text.splitlines()) == 8
