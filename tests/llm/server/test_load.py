"""`pyflame llm load-test` and `pyflame serve`, as commands."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.cli.serve import load_served, options_from
from pyflame.core.errors import ArgumentError
from pyflame.llm.load_test import Lengths, Load, percentile
from tests.llm import small
from tests.llm.server.live import Live


def test_arrivals_and_percentiles() -> None:
    assert Load("", rate=4.0, requests=4, arrivals="fixed").arrivals_at() == [0.0, 0.25, 0.5, 0.75]
    poisson = Load("", rate=4.0, requests=4000).arrivals_at()
    assert poisson[-1] == pytest.approx(1000, rel=0.1) and poisson == sorted(poisson)
    assert set(Load("", rate=float("inf"), requests=3).arrivals_at()) == {0.0}
    assert [percentile(range(1, 101), p) for p in (50, 95, 99)] == [50, 95, 99] and percentile([], 50) is None


def test_lengths() -> None:
    rng = random.Random(1)
    assert Lengths("7").draw(rng) == 7 and 3 <= Lengths("3-5").draw(rng) <= 5
    drawn = sorted(Lengths("lognormal:200:0.6").draw(rng) for _ in range(2001))
    assert drawn[1000] == pytest.approx(200, rel=0.1)
    with pytest.raises(ArgumentError, match="32-512"):
        Lengths("many").draw(rng)


@pytest.mark.slow
def test_load_test(live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["llm", "load-test", live.url, "-n", "6", "-r", "50", "--prompt", "4-8", "--output", "5"]
    assert main([*asked, "--json", "--plot", str(tmp_path / "load.html")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["generated_tokens"] == 30 and found["failed"] == {}
    assert 0 < found["inter_token"]["p50"] <= found["request"]["p99"] and found["generated_tokens_per_second"] > 0
    assert "<svg" in (tmp_path / "load.html").read_text()
    assert main([*asked, "--plot", str(tmp_path / "load.png")]) == 0
    assert "time to first token" in capsys.readouterr().out
    assert (tmp_path / "load.png").read_bytes()[:4] == b"\x89PNG"
    assert main([*asked, "--json", "-m", "other"]) == 0
    assert sum(json.loads(capsys.readouterr().out)["failed"].values()) == 6
    assert main(["llm", "load-test", "http://127.0.0.1:9"]) == 1
    assert "expected a server at http://127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.slow(16)
def test_serve_command_ends_in_order(tmp_path: Path) -> None:
    """A token is made for an address that others reach, and SIGTERM ends the server in order."""
    file = small.gguf(tmp_path / "small.gguf")
    command = [sys.executable, "-m", "pyflame", "serve", "-m", f"tiny={file}", "--host", "0.0.0.0", "--port", "0"]
    command += ["--rows", "2", "--chunk", "32"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        try:
            token = re.match(r"token: (\S+)", lines[0])
            port = re.search(r":(\d+)/v1", lines[2])
            assert token and port, lines
            url = f"http://127.0.0.1:{port[1]}"
            for _ in range(100):
                try:
                    assert httpx.get(f"{url}/v1/models").status_code == 401
                    break
                except httpx.ConnectError:
                    pass
            headers = {"Authorization": f"Bearer {token[1]}"}
            body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
            answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)
            assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] >= 1
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) in (0, -signal.SIGTERM)
            assert "Finished server process" in process.stdout.read()
        finally:
            process.kill()


@pytest.mark.slow
def test_serve_loads_adapters_by_name(tmp_path: Path) -> None:
    file = small.gguf(tmp_path / "small.gguf")
    tuned = pf.llm.load(file, device="cpu")
    pf.llm.add_lora(tuned, rank=2, targets=("attn_q", "ffn_up"))
    with pf.no_grad():
        for parameter in pf.llm.lora_parameters(tuned):
            parameter.copy_(pf.randn(*parameter.shape))
    pf.llm.save_adapter(tuned, tmp_path / "adapter", base="small")
    name, model = load_served(options_from(["--device", "cpu"]), f"tuned={file}+{tmp_path / 'adapter'}")
    assert name == "tuned"
    want = tuned.generate("hello", max_tokens=8).tokens
    assert model.generate("hello", max_tokens=8).tokens == want
    name, base = load_served(options_from(["--device", "cpu"]), str(file))
    assert name == "small" and base.generate("hello", max_tokens=8).tokens != want


def test_serve_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "-m", str(tmp_path / "none.gguf")]) == 1
    assert "none.gguf" in capsys.readouterr().err
