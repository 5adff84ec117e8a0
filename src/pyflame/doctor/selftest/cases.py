"""All cases of the self-test, by family, and the order in which they are tried."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

from pyflame.core.dtype import bfloat16, float16, float32
from pyflame.core.errors import ArgumentError, suggest
from pyflame.doctor.selftest import device_cases as device
from pyflame.doctor.selftest import program_cases as program
from pyflame.doctor.selftest.bench import Case
from pyflame.doctor.selftest.op_cases import op_cases

ENCODINGS = ("q8_0", "q4_0", "q4_1", "q4_k", "q6_k")


@lru_cache(maxsize=1)
def all_cases() -> dict[str, Case]:
    """Every case by its id: the machine's first, then whole programs, then the op catalogue.

    >>> len(all_cases()) > 1000
    True
    """
    found = [
        Case("copies", "bytes", device.copies_bytes),
        Case("copies", "views", device.copies_views),
        Case("copies", "large", device.copies_large),
        Case("memory", "counts", device.memory_counts),
        Case("memory", "reuse", device.memory_reuse),
        Case("memory", "exhausted", device.memory_exhausted),
        Case("streams", "order", device.streams_order),
        Case("streams", "events", device.streams_events),
        Case("random numbers", "bits", device.random_bits),
        Case("random numbers", "normals", device.random_normals),
        Case("libraries", "gemm", program.libraries_gemm),
        Case("libraries", "convolution", program.libraries_convolution),
        Case("graphs", "replay", program.graphs_replay),
        Case("graphs", "state", program.graphs_state),
        *[Case("encoded linear", name, partial(program.encoded, name=name)) for name in ENCODINGS],
        *[Case("attention layer", d.name, partial(program.attention, dtype=d)) for d in (float32, float16, bfloat16)],
        Case("training", "eager", partial(program.training, fast=False)),
        Case("training", "jit", partial(program.training, fast=True)),
        *op_cases(),
    ]
    return {case.id: case for case in found}


def families() -> list[str]:
    """The names of all families, in order."""
    return list(dict.fromkeys(case.family for case in all_cases().values()))


def find_case(name: str) -> Case:
    """A case by its id, such as "reduction/sum"."""
    if name not in all_cases():
        raise ArgumentError(f"[selftest] expected a case but got {name!r}{suggest(name, all_cases())}")
    return all_cases()[name]


def rounds(wanted: Sequence[str], seed: int) -> Iterator[list[Case]]:
    """One case of each family, then another of each, until all had their turn. The seed orders a family's cases.

    >>> [len(cases) for cases in rounds(["copies", "memory"], 0)]
    [2, 2, 2]
    """
    order: dict[str, list[Case]] = {name: [] for name in wanted}
    for case in all_cases().values():
        if case.family in order:
            order[case.family].append(case)
    for name, cases in order.items():
        random.Random(f"{seed} {name}").shuffle(cases)
    while any(order.values()):
        yield [cases.pop() for cases in order.values() if cases]
