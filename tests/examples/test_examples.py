"""Each example runs in small and learns more than chance can give."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyflame as pf
from tests.llm.small import gguf

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name, *options):
    """What an example prints."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *options], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(pattern, text):
    """The groups of a pattern that stands in the text once."""
    (found,) = re.findall(pattern, text)
    return [float(v) for v in found]


one_in_three = pytest.mark.share(3)


@pytest.mark.slow
def test_mlp():
    out = run("mlp.py", "--steps", "150")
    accuracy, chance = numbers(r"accuracy ([\d.]+) on new points \(chance: ([\d.]+)\)", out)
    assert chance == pytest.approx(1 / 3, abs=1e-3) and accuracy > 0.9  # no straight lines get that far
    before, after = numbers(r"\nloss ([\d.]+) -> ([\d.]+)\n", out)
    assert after < before / 3


@pytest.mark.slow
@one_in_three
def test_cnn():
    out = run("cnn.py", "--epochs", "1", "--images", "2048")
    accuracy, chance = numbers(r"accuracy ([\d.]+) on new images \(chance: ([\d.]+)\)", out)
    assert chance == 0.2 and accuracy > 0.6
    before, after = numbers(r"\nloss ([\d.]+) -> ([\d.]+)\n", out)
    assert after < before - 0.5


@pytest.mark.slow
@one_in_three
def test_char_rnn():
    out = run("char_rnn.py", "--steps", "60", "--width", "64", "--letters", "20", "--prompt", "Zeta:")
    before, after, frequencies = numbers(r"loss ([\d.]+) -> ([\d.]+) \(letter frequencies alone: ([\d.]+)\)", out)
    assert before > 4.0 and after < frequencies - 0.3  # it has learnt which letters follow which
    assert len(out.split("Zeta:")[1].split("\n\nloss")[0]) == 20


@pytest.mark.slow(16)
@one_in_three
def test_gpt():
    out = run(
        "gpt.py", "--steps", "100", "--context", "32", "--layers", "2", "--width", "64", "--bytes", "20", "--bf16"
    )
    before, after, frequencies = numbers(r"loss ([\d.]+) -> ([\d.]+) \(byte frequencies alone: ([\d.]+)\)", out)
    assert before > 5.0 and after < frequencies - 0.15


def losses(text):
    return numbers(r"loss ([\d.]+) -> ([\d.]+)", text)


@pytest.mark.slow
def test_distributed_gpt_in_one_process():
    before, after = losses(run("distributed_gpt.py", "--steps", "20"))
    assert before > 5.0 and after < before - 1


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["ddp", "zero1", "zero2", "zero3"])
def test_distributed_gpt_in_two_processes(mode, tmp_path):
    """The losses of one process; then further in one process, from the checkpoint of two."""
    file = ["--checkpoint", str(tmp_path / "run.safetensors")]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, str(EXAMPLES / "distributed_gpt.py"), "--steps", "20", "--mode", mode, *file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    alone = losses(run("distributed_gpt.py", "--steps", "40"))
    further = losses(run("distributed_gpt.py", "--steps", "40", *file))
    assert losses(done.stdout)[0] == pytest.approx(alone[0], abs=2e-4)
    assert further[1] == pytest.approx(alone[1], abs=2e-3)


@pytest.mark.slow(16)
@one_in_three
def test_torch_bert():
    pytest.importorskip("transformers")
    out = run("torch_bert.py", "--layers", "1", "--width", "64", "--length", "8", "--times", "1")
    results, gradients = numbers(r"results differ by up to ([\d.e+-]+), gradients by ([\d.e+-]+) of the largest", out)
    assert results < 1e-5 and gradients < 1e-5
    assert out.count(", 0 in torch") == 2  # forward and backward


@pytest.mark.slow(16)
@one_in_three
def test_torch_resnet():
    pytest.importorskip("torch")
    out = run("torch_resnet.py", "--steps", "50", "--fine-steps", "16")
    accuracy, chance = numbers(r"angles: accuracy ([\d.]+) on new images \(chance: ([\d.]+)\)", out)
    assert accuracy > 0.6 > chance
    fine, fresh = numbers(r"bends: accuracy ([\d.]+) fine-tuned, ([\d.]+) from nothing", out)
    assert fine > max(0.8, fresh + 0.1)


@pytest.mark.slow(16)
@one_in_three
def test_volume_profile(tmp_path):
    drawing = tmp_path / "profile.html"
    out = run("volume_profile/app.py", "--sessions", "400", "--ticks", "300", "--html", str(drawing))
    scores = {name: numbers(re.escape(name) + r" +(-?[\d.]+) +([\d.]+)\n", out) for name in ("least squares", "model")}
    mean_r2, mean_mae = numbers(r"mean of the training sessions +(-?[\d.]+) +([\d.]+)\n", out)
    # the mean knows nothing; a straight line does not know the two kinds of day
    assert scores["model"][0] > max(0.2, scores["least squares"][0] + 0.1, mean_r2) and scores["model"][1] < mean_mae
    assert "POC" in out and "█" in out
    assert drawing.read_text(encoding="utf-8").count("<rect") > 20


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_stay_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 150


@pytest.mark.slow
@one_in_three
def test_lora(tmp_path):
    model, adapter = gguf(tmp_path / "small.gguf"), tmp_path / "adapter"
    out = run("lora.py", "--model", str(model), "--context", "128", "--steps", "8", "--save", str(adapter))
    before, after = numbers(r"loss ([\d.]+) -> ([\d.]+)\n", out)
    assert after < before - 0.5
    assert (adapter / "adapter_model.safetensors").exists()


@one_in_three
def test_batch_inference(tmp_path):
    model, asked, answered = gguf(tmp_path / "small.gguf"), tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [{"id": n, "prompt": "hello world " * (1 + n * 5 % 4)} for n in range(5)]
    lines.append({"id": 5, "messages": [{"role": "user", "content": "hello"}]})
    asked.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    options = ["--model", str(model), "--context", "128", "--batch", "4", "--max-tokens", "5"]
    run("batch_inference.py", *options, "--input", str(asked), "--output", str(answered))
    found = [json.loads(line) for line in answered.read_text().splitlines()]
    assert [one["id"] for one in found] == list(range(6)) and all(one["tokens"] <= 5 for one in found)
    loaded = pf.llm.load(model, context=128)
    wanted = [loaded.generate(one["prompt"], max_tokens=5).text for one in lines[:5]]
    wanted.append(loaded.generate(messages=lines[5]["messages"], max_tokens=5).text)
    assert [one["text"] for one in found] == wanted
    asked.write_text('{"prompt": "a"}\n{"text": "b"}\n')
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "batch_inference.py"), "--input", str(asked)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "line 2: expected an object with either" in done.stderr


@pytest.mark.slow
@one_in_three
def test_embeddings(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("red apples\n\nblue rivers run deep\ngreen hills\n")
    out = run("embeddings.py", "--texts", str(texts), "--query", "blue rivers run deep", "--top", "2")
    assert "3 vectors of 64 numbers" in out
    best, second = re.findall(r"\n +(-?[\d.]+)  (.*)", out)
    assert best == ("1.000", "blue rivers run deep") and float(second[0]) < 0.999
