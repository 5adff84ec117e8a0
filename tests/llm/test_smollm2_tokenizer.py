"""The tokenizer of the real SmolLM2: ids that llama.cpp gave, and round trips."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyflame.llm.files import open_checkpoint
from pyflame.llm.tokenizer import Tokenizer

IDS = {
    "hello world": [28120, 905],
    "  two  spaces \n\n\ttab\r\n": [216, 827, 216, 5600, 38028, 197, 15999, 2738],
    "naïve café — “quotes” …": [3546, 46494, 37366, 1841, 619, 385, 2346, 573, 5548],
    "日本語のテキスト 한국어 العربية हिन्दी": [
        23274,
        115,
        40993,
        179,
        120,
        248,
        26453,
        11100,
        224,
        10391,
        251,
        10391,
        134,
        11100,
        226,
        216,
        33085,
        246,
        181,
        130,
        251,
        183,
        240,
        129,
        27819,
        34966,
        20602,
        31462,
        23339,
        43463,
        12335,
        134,
        27011,
        30658,
        16525,
        44757,
        37189,
    ],
    "\U0001f600\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466\U0001f3f3\ufe0f\u200d\U0001f308": [
        10813,
        242,
        218,
        10813,
        235,
        119,
        321,
        231,
        10813,
        235,
        119,
        321,
        231,
        10813,
        235,
        117,
        321,
        231,
        10813,
        235,
        116,
        10813,
        233,
        128,
        31752,
        321,
        231,
        10813,
        230,
        226,
    ],
    "def f(x):\n    return x**2  # ok\n": [1604, 275, 24, 104, 727, 472, 1003, 1792, 828, 34, 216, 907, 10907, 198],
    "12345 3.14159 ½ ² ٣": [33, 34, 35, 36, 37, 216, 35, 30, 33, 36, 33, 37, 41, 216, 16738, 216, 19133, 216, 164, 113],
    "I'm you're WE'LL don'T": [57, 5248, 346, 2316, 26587, 23, 16421, 1326, 23, 68],
    "<|im_start|>user\nHi<|im_end|>\n": [1, 4093, 198, 26843, 2, 198],
    "e\u0301 \u200b\ufeff": [85, 151, 219, 459, 229, 186, 136, 140],
}


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> Tokenizer:
    return open_checkpoint(smollm2).tokenizer()


@pytest.mark.slow
@pytest.mark.parametrize("text", IDS)
def test_ids_are_those_of_llama_cpp(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text) == IDS[text]
    assert tokenizer.decode(IDS[text], special=True) == text
    stream = tokenizer.stream(special=True)
    assert "".join([*map(stream.push, IDS[text]), stream.finish()]) == text


@pytest.mark.slow
def test_every_page_of_the_documentation(tokenizer: Tokenizer) -> None:
    for page in (Path(__file__).parents[2] / "docs").glob("*.md"):
        text = page.read_text()
        assert tokenizer.decode(tokenizer.encode(text), special=True) == text
