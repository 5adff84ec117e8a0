"""Byte-pair tokens, the corpus of files and runs that last for a time."""

import io
import zlib
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

import pyflame as pf
from pyflame import nn, optim
from pyflame.core.errors import ArgumentError
from pyflame.train import Trainer
from pyflame.train.bpe import _WORDS, BytePairs
from pyflame.train.budget import TimeBudget
from pyflame.train.corpus import Windows, python_sources, read_corpus

TEXT = b"def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n" * 5


def slow_training(text, vocab_size):
    """Count all pairs anew for every merge; of equals that of the lowest tokens."""
    words = [(list(word), n) for word, n in Counter(_WORDS.findall(text)).items() if n >= 2]
    merges = []
    while 256 + len(merges) < vocab_size:
        seen = Counter()
        for word, n in words:
            for pair in pairwise(word):
                seen[pair] += n
        if not seen:
            break
        best = min(seen, key=lambda pair: (-seen[pair], pair))
        merges.append(best)
        for word, _ in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = [255 + len(merges)]
                i += 1
    return merges


def test_training_joins_the_most_frequent_pairs():
    source = python_sources()[0].read_bytes() + TEXT
    assert BytePairs.train(source, 400).merges == slow_training(source, 400)


@pytest.mark.parametrize("text", [TEXT, b"", b"\xff\x00 \xe2\x82\xac\r\n\t  x", "naïve €5".encode(), b"   \n\n   \n"])
def test_decoding_gives_the_text_back(text):
    tokenizer = BytePairs.train(TEXT, 300)
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text and tokens.dtype == np.uint16
    assert BytePairs(tokenizer.merges).encode(text).tolist() == tokens.tolist()


def test_tokens_are_longer_than_bytes():
    tokenizer = BytePairs.train(TEXT, 300)
    assert len(tokenizer) <= 300 and len(tokenizer.encode(TEXT)) < len(TEXT) / 2
    assert b" return" in tokenizer.pieces or b"return" in tokenizer.pieces


def test_training_ends_when_no_pair_is_left():
    assert len(BytePairs.train(b"ab ab", 1000)) < 262


def test_bad_tokenizers_are_refused():
    with pytest.raises(ArgumentError, match="vocab_size"):
        BytePairs.train(TEXT, 100)
    with pytest.raises(ArgumentError, match="number 0 joins 300 and 1"):
        BytePairs([(300, 1)])


@pytest.mark.slow
def test_the_standard_library_is_python_and_split_by_name(tmp_path):
    files = python_sources()
    assert len(files) > 200 and {"json", "asyncio"} <= {p.parent.name for p in files}
    assert not any("test" in p.parts or "site-packages" in p.parts for p in files)
    names = [f"file{i}.py" for i in range(60)]
    for i, name in enumerate(names):
        (tmp_path / name).write_bytes(b"x = %d\n" % i)
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "no.py").write_bytes(b"left out")
    corpus = read_corpus(python_sources(tmp_path), 260, held_out=0.2)
    apart = [i for i, name in enumerate(names) if zlib.crc32(name.encode()) < 0.2 * 2**32]
    assert 0 < len(apart) < 30
    order = sorted(range(60), key=lambda i: names[i])
    assert corpus.tokenizer.decode(corpus.held_out) == b"".join(b"x = %d\n" % i for i in order if i in apart)
    assert corpus.tokenizer.decode(corpus.train) == b"".join(b"x = %d\n" % i for i in order if i not in apart)
    assert corpus.files == 60 and corpus.nbytes == sum(p.stat().st_size for p in tmp_path.glob("*.py"))
    again = read_corpus(python_sources(tmp_path), tokenizer=BytePairs())
    assert len(again.tokenizer) == 256 and again.bytes_per_token == 1.0
    with pytest.raises(ArgumentError, match="give more files"):
        read_corpus(python_sources(tmp_path)[:1])
    with pytest.raises(ArgumentError, match="held_out"):
        read_corpus(files, held_out=1.0)


def test_windows_cover_the_tokens_once():
    windows = Windows(np.arange(20, dtype=np.uint16), 6)
    assert len(windows) == 3
    tokens, targets = zip(*[windows[i] for i in range(3)], strict=True)
    assert np.concatenate(tokens).tolist() == list(range(18)) and np.concatenate(targets).tolist() == list(range(1, 19))
    assert tokens[0].dtype == np.int64
    with pytest.raises(IndexError, match="number in"):
        windows[3]
    with pytest.raises(ArgumentError, match="more than 6 tokens"):
        Windows(np.arange(6), 6)


def test_a_time_budget_ends_the_run_and_shapes_the_learning_rate(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("pyflame.train.budget.time.monotonic", lambda: clock[0])

    class Tick(TimeBudget):
        """Each step takes a second, the first one eleven."""

        def on_step_end(self, trainer):
            clock[0] += 11.0 if trainer.step == 1 else 1.0
            super().on_step_end(trainer)
            rates.append(trainer.optimizer.param_groups[0]["lr"])
            ends.append(trainer.max_steps)

    rates, ends = [], []
    model = nn.Linear(2, 1)
    data = [(pf.ones(4, 2), pf.ones(4, 1))] * 3
    text = io.StringIO()
    trainer = Trainer(
        model, optim.SGD(model.parameters(), lr=0.5), nn.MSELoss(), train_data=data, max_epochs=1000, log_every=4,
        callbacks=[Tick(9.0, 0.1, warmup=4, final=0.1)], progress=Console(file=text, width=200),
    )  # fmt: skip
    fit = trainer.fit()
    assert fit.step == 10 and fit.reason == "9 seconds are over"
    assert ends[1:9] == [10] * 8  # known as soon as the speed is
    expected = [0.1 * min(1.0, (gone + 2) / 4) * (1 - 0.9 * gone / 9) for gone in range(10)]
    assert rates == pytest.approx(expected)
    assert text.getvalue().startswith("step 4/10  epoch 2")
    with pytest.raises(ArgumentError, match="above 0 seconds"):
        TimeBudget(0.0, 0.1)
