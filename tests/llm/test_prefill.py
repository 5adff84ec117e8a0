"""Which tokens of which prompts a launch takes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from pyflame.llm.serving.prefill import Prefill, Shape, prefill, shapes_of
from pyflame.llm.serving.request import TextSequence

CONTEXT = 4096


@dataclass(eq=False)
class Waits:
    """A sequence that has so many tokens to read behind so many that are read; the same text has the same pages."""

    unread: int
    lines: int = 0
    text: str = ""

    @property
    def keys(self) -> list[bytes]:
        return [f"{self.text or id(self)} {n}".encode() for n in range((self.lines + self.unread) // 32)]


def waits(unread: int, lines: int = 0, text: str = "") -> TextSequence:
    return cast(TextSequence, Waits(unread, lines, text))


def chosen(sequences: list[TextSequence], room: int) -> Prefill:
    found = prefill(sequences, shapes_of(room, CONTEXT), room, CONTEXT)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("room", "unread", "shape"),
    [
        (2048, [512] * 9, (4, 512)),  # as many as there is room for
        (2048, [5000, 512, 512], (1, 2048)),  # a long prompt takes all of it, and others the next
        (2048, [300] * 20, (64, 32)),  # several pieces of each, with little padding
        (256, [512], (1, 256)),
        (256, [150], (1, 128)),  # and the rest in another launch, rather than 106 tokens of padding
        (256, [20] * 3, (4, 32)),
        (256, [5], (1, 8)),
        (256, [5, 40, 3, 8, 2], (4, 8)),  # few queries have a kernel of their own
        (256, [32] * 40, (8, 32)),
    ],
)
def test_the_shape_that_takes_in_most_for_its_cost(room: int, unread: list[int], shape: tuple[int, int]) -> None:
    assert chosen([waits(n) for n in unread], room).shape == shape


def test_pieces_follow_each_other_and_last_ones_come_first() -> None:
    one, two = waits(70), waits(150, 64)
    found = chosen([one, two], 256)
    assert found.shape == Shape(8, 32)
    assert [(p.sequence, p.start, p.count, p.last) for p in found.pieces] == [
        (one, 64, 6, True), (two, 192, 22, True), (one, 0, 32, False), (one, 32, 32, False),
        *((two, start, 32, False) for start in (64, 96, 128, 160)),
    ]  # fmt: skip
    assert found.sequences == [one, two]


def test_the_first_is_always_among_them() -> None:
    short, longs = waits(3), [waits(4000) for _ in range(3)]
    assert short in chosen([short, *longs], 512).sequences


def test_pages_that_others_read_are_waited_for() -> None:
    same, others = [waits(500, text="same") for _ in range(3)], [waits(500) for _ in range(3)]
    assert chosen([*same, *others], 2048).sequences == [same[0], *others]
    ends = [waits(32, text="end") for _ in range(3)]  # a last page is never shared
    assert chosen(ends, 256).sequences == ends


def test_only_ends_are_shorter_than_a_page() -> None:
    shapes = shapes_of(256, CONTEXT)
    assert prefill([waits(40)], shapes, 24, CONTEXT) is None
    assert prefill([waits(8)], shapes, 24, CONTEXT) is not None


def test_shapes_fit_the_context() -> None:
    assert max(shape.size for shape in shapes_of(256, 100)) == 128
    assert shapes_of(2048, 1 << 15)[-1] == (1, 2048)
    late = prefill([waits(4, 96)], shapes_of(256, 100), 256, 100)  # behind it there is no room for 128
    assert late is not None and late.shape == (1, 8) and late.bucket == 100
