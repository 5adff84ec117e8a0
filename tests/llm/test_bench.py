"""`pyflame llm bench`, over a small random model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.llm.bench import Speed, bench, context_for, read_bytes, runs
from pyflame.llm.load import load_decoder
from tests.llm import small
from tests.llm.checkpoints import make


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.gguf(tmp_path_factory.mktemp("bench") / "small.gguf")


@pytest.mark.slow
def test_prints_llama_benchs_columns(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["llm", "bench", str(path), "-p", "9", "-n", "5", "-r", "2", "--device", "cpu", "--kv", "fp16"]) == 0
    out, err = capsys.readouterr()
    assert all(word in out for word in ("small q8_0", "pp9", "tg5", "±", "t/s", "fp16", "cpu"))
    assert err.count("bench:") == 10  # a line for each tenth


@pytest.mark.slow
def test_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["llm", "bench", str(path), "-p", "0", "-n", "5", "-r", "3", "--device", "cpu", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    checkpoint = pf.llm.open_checkpoint(path)
    assert row["test"] == "tg5" and len(row["samples_ts"]) == 3 and row["model_size"] == checkpoint.nbytes
    assert row["weight_bytes_per_token"] == checkpoint.nbytes  # a tied head reads all of the table
    assert row["gb_per_s"] == pytest.approx(checkpoint.nbytes * row["avg_ts"] / 1e9)
    assert row["share_of_copy_limit"] == pytest.approx(row["gb_per_s"] / row["copy_limit_gb_per_s"])


def test_runs_and_context(path: Path) -> None:
    model = pf.llm.load(path, device="cpu", context=context_for(9, 12))
    steps: list[None] = []
    found = bench(model, 9, 12, 2, lambda: steps.append(None))
    assert [speed.test for speed in found] == ["pp9", "tg12"] and len(steps) == runs(9, 12, 2)
    assert all(len(speed.samples) == 2 and speed.mean > 0 for speed in found)


def test_mean_and_deviation() -> None:
    speed = Speed("tg4", (10.0, 14.0), 100)
    assert (speed.mean, speed.deviation, speed.bytes_per_second) == (12.0, pytest.approx(8**0.5), 1200.0)
    assert Speed("pp4", (10.0,), None).deviation == 0.0 and Speed("pp4", (10.0,), None).bytes_per_second is None


def test_a_token_reads_the_experts_it_uses(tmp_path: Path) -> None:
    checkpoint, _ = make("mixtral", tmp_path)
    sizes = {name: x.nbytes for name, x in checkpoint.tensors.items()}
    experts = sum(size for name, size in sizes.items() if ".experts." in name)
    table = sizes["model.embed_tokens.weight"]
    want = sum(sizes.values()) - experts + experts * 2 // 4 - table + table // 96
    assert read_bytes(load_decoder(checkpoint)) == want


@pytest.mark.parametrize("options", [["-p", "0", "-n", "0"], ["-r", "0"], ["-n", "100000"], ["-t", "99"], ["-t", "-1"]])
def test_says_what_is_wrong(
    path: Path, options: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYFLAME_THREADS", str(pf.get_num_threads()))  # in use from now on, and put back in the end
    assert main(["llm", "bench", str(path), "-p", "4", "-n", "4", "--device", "cpu", *options]) == 1
    assert "expected" in capsys.readouterr().err
