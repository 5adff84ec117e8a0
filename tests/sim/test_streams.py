"""Streams run late and in a bad order: what is ordered holds, and a missing event shows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from pyflame.runtime.sim.faults import SimulationFault
from pyflame.runtime.sim.hip.types import hipError_t, hipEventDisableTiming, hipStreamNonBlocking
from pyflame.runtime.sim.hip.work import Scheduler, Work
from tests.sim.machines import Host, fake_hip

SEEDS = range(12)
OK, NOT_READY = hipError_t.hipSuccess, hipError_t.hipErrorNotReady


# --- the scheduler ----------------------------------------------------------------------------------------------------


def run(seed: int, edges: dict[int, list[int]], goals: list[int], count: int) -> list[int]:
    """The order in which works 0 ... count - 1 ran, `edges` telling what each comes behind."""
    scheduler, out = Scheduler(seed), list[int]()
    made: list[Work] = []
    for n in range(count):
        made.append(scheduler.add(0, str(n), partial(out.append, n), [made[e] for e in edges.get(n, [])]))
    scheduler.finish([made[g] for g in goals])
    return out


@pytest.mark.parametrize("seed", SEEDS)
def test_work_runs_behind_what_it_comes_behind(seed: int) -> None:
    edges = {2: [0], 3: [1], 4: [2, 3], 5: [0], 6: [4, 5]}
    order = run(seed, edges, [6], 7)
    assert sorted(order) == list(range(7))
    assert all(order.index(e) < order.index(n) for n, leaders in edges.items() for e in leaders)


def test_orders_differ_by_seed_and_are_repeated_with_one() -> None:
    orders = [run(seed, {}, list(range(6)), 6) for seed in SEEDS]
    assert len(set(map(tuple, orders))) > 3
    assert orders == [run(seed, {}, list(range(6)), 6) for seed in SEEDS]


def test_mostly_what_nobody_waits_for_stays() -> None:
    ran = [run(seed, {}, [0], 4) for seed in SEEDS]
    assert all(0 in r for r in ran)
    assert any(r == [0] for r in ran)
    assert any(len(r) > 1 for r in ran)  # a device may also be quick


def test_the_newest_tends_to_come_first() -> None:
    first = [run(seed, {}, [0, 1], 2)[0] for seed in range(60)]
    assert first.count(1) > first.count(0) > 0


def test_failed_work_takes_what_comes_behind_it_along() -> None:
    broken: list[tuple[int, str]] = []
    scheduler = Scheduler(0, lambda device, fault: broken.append((device, fault.kind)))
    ran: list[int] = []

    def fail() -> None:
        raise SimulationFault("race", "two waves")

    bad = scheduler.add(3, "bad", fail)
    behind = scheduler.add(1, "behind", lambda: ran.append(1), [bad])
    beside = scheduler.add(1, "beside", lambda: ran.append(2))
    scheduler.finish([behind, beside])
    assert ran == [2]
    assert broken == [(3, "race")]
    assert behind.failed is not None and behind.failed.kind == "race" and beside.failed is None
    assert scheduler.of(1) == scheduler.of(3) == []


# --- streams ----------------------------------------------------------------------------------------------------------


def outcomes(program: Callable[[Host], list[int]], seeds: range = SEEDS) -> set[tuple[int, ...]]:
    """What a program gives with each seed."""
    return {tuple(program(Host(fake_hip(seed=seed)))) for seed in seeds}


def handed_over(host: Host, event: bool) -> list[int]:
    """One stream makes 1 + 2; another adds 1 to it, with or without waiting for an event."""
    add, increment = host.kernel("add"), host.kernel("increment")
    a, b, out = host.array([1]), host.array([2]), host.array([0])
    producer, consumer = (host.hipStreamCreateWithFlags(hipStreamNonBlocking) for _ in range(2))
    mark = host.hipEventCreateWithFlags(hipEventDisableTiming)
    host.launch(add, producer, out, a, b, 1)
    host.hipEventRecord(mark, producer)
    if event:
        host.hipStreamWaitEvent(consumer, mark, 0)
    host.launch(increment, consumer, out, 1)
    host.hipDeviceSynchronize()
    return host.read(out, 1)


def test_a_missing_event_shows() -> None:
    assert outcomes(lambda host: handed_over(host, event=True)) == {(4,)}
    assert (3,) in outcomes(lambda host: handed_over(host, event=False))


def test_work_of_one_stream_runs_in_order() -> None:
    def program(host: Host) -> list[int]:
        add, x, one = host.kernel("add"), host.array([1]), host.array([1])
        stream = host.hipStreamCreate()
        for _ in range(10):
            host.launch(add, stream, x, x, x, 1)
            host.launch(add, stream, x, x, one, 1)
        host.hipStreamSynchronize(stream)
        return host.read(x, 1)

    assert outcomes(program) == {(2**10 + 2**10 - 1,)}


def test_nothing_has_to_run_before_the_host_waits() -> None:
    def program(host: Host) -> list[int]:
        x, increment, stream = host.array([0]), host.kernel("increment"), host.hipStreamCreate()
        host.launch(increment, stream, x, 1)
        return host.read(x, 1)

    assert outcomes(program) == {(0,), (1,)}  # a device may be quick, too


def null_stream(host: Host, flags: int, first_null: bool) -> list[int]:
    """x = 5 on one stream, then x += 1 on another; one of them is the null stream."""
    x, increment = host.array([0]), host.kernel("increment")
    other = host.hipStreamCreateWithFlags(flags)
    first, second = (0, other) if first_null else (other, 0)
    host.hipMemsetD32Async(x, 5, 1, first)
    host.launch(increment, second, x, 1)
    host.hipStreamSynchronize(second)
    host.hipDeviceSynchronize()
    return host.read(x, 1)


@pytest.mark.parametrize("first_null", [False, True])
def test_the_null_stream_waits_for_blocking_streams_only(first_null: bool) -> None:
    assert outcomes(lambda host: null_stream(host, 0, first_null)) == {(6,)}
    assert (5,) in outcomes(lambda host: null_stream(host, hipStreamNonBlocking, first_null))


def test_the_null_stream_waits_for_what_a_destroyed_stream_was_given() -> None:
    def program(host: Host) -> list[int]:
        x, increment, stream = host.array([0]), host.kernel("increment"), host.hipStreamCreate()
        host.hipMemsetD32Async(x, 5, 1, stream)
        host.hipStreamDestroy(stream)
        host.launch(increment, 0, x, 1)
        host.hipStreamSynchronize(0)
        return host.read(x, 1)

    assert outcomes(program) == {(6,)}


def test_an_event_means_the_last_record_before_the_wait() -> None:
    def program(host: Host) -> list[int]:
        x, increment = host.array([0]), host.kernel("increment")
        first, second = host.hipStreamCreateWithFlags(1), host.hipStreamCreateWithFlags(1)
        mark = host.hipEventCreateWithFlags(hipEventDisableTiming)
        host.hipMemsetD32Async(x, 5, 1, first)
        host.hipEventRecord(mark, first)
        host.hipStreamWaitEvent(second, mark, 0)
        host.hipEventRecord(mark, second)  # does not disturb the wait that was asked for
        host.hipEventDestroy(mark)
        host.launch(increment, second, x, 1)
        host.hipStreamSynchronize(second)
        return host.read(x, 1)

    assert outcomes(program) == {(6,)}


def test_queries_come_true_in_the_end() -> None:
    answers = set()
    for seed in SEEDS:
        host = Host(fake_hip(seed=seed))
        x, stream, mark = host.array([0]), host.hipStreamCreate(), host.hipEventCreate()
        assert host.hip.hipEventQuery(mark) == (OK,)  # never recorded
        host.hipMemsetD32Async(x, 5, 1, stream)
        host.hipEventRecord(mark, stream)
        given = [host.hip.hipEventQuery(mark)[0]]
        answers.add(given[0])
        while given[-1] != OK:
            assert given[-1] == NOT_READY
            given.append(host.hip.hipEventQuery(mark)[0])
        assert host.read(x, 1) == [5]
        assert host.hip.hipGetLastError() == (OK,)  # not ready is no error
        host.hipMemsetD32Async(x, 6, 1, stream)
        while host.hip.hipStreamQuery(stream)[0] == NOT_READY:
            pass
        assert host.read(x, 1) == [6]
    assert answers == {OK, NOT_READY}


def test_elapsed_time() -> None:
    host = Host(fake_hip(seed=3))
    stream, first, last = host.hipStreamCreate(), host.hipEventCreate(), host.hipEventCreate()
    plain = host.hipEventCreateWithFlags(hipEventDisableTiming)
    assert host.hip.hipEventElapsedTime(first, last) == (hipError_t.hipErrorInvalidHandle, None)
    for event in (first, plain, last):
        host.hipEventRecord(event, stream)
    status = host.hip.hipEventElapsedTime(first, last)[0]
    assert status in (OK, NOT_READY)
    host.hipEventSynchronize(last)
    assert host.hipEventElapsedTime(first, last) >= 0
    assert host.hip.hipEventElapsedTime(first, plain)[0] == hipError_t.hipErrorInvalidHandle


def test_functions_of_the_host_run_in_stream_order() -> None:
    def program(host: Host) -> list[int]:
        x, stream, seen = host.array([0]), host.hipStreamCreate(), list[int]()
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: seen.extend((data or 0, host.read(x, 1)[0])))
        host.hipMemsetD32Async(x, 5, 1, stream)
        host.hipLaunchHostFunc(stream, function, 77)
        host.hipMemsetD32Async(x, 6, 1, stream)
        host.hipStreamSynchronize(stream)
        return seen

    assert outcomes(program) == {(77, 5)}


# --- copies -----------------------------------------------------------------------------------------------------------


def test_pinned_memory_is_read_when_the_stream_gets_there() -> None:
    def program(host: Host) -> list[int]:
        (address, view), x, stream = host.pinned(1), host.array([0]), host.hipStreamCreate()
        view[0] = 1
        host.hipMemcpyHtoDAsync(x, address, 4, stream)
        view[0] = 2  # too early
        host.hipStreamSynchronize(stream)
        return host.read(x, 1)

    assert (2,) in outcomes(program)


def test_pageable_memory_is_copied_before_the_call_returns() -> None:
    def program(host: Host) -> list[int]:
        x, stream, data = host.array([0]), host.hipStreamCreate(), np.ones(1, np.int32)
        host.hipMemcpyHtoDAsync(x, data, 4, stream)
        data[0] = 2
        back = np.zeros(1, np.int32)
        host.hipMemcpyDtoHAsync(back, x, 4, stream)
        return [int(back[0])]

    assert outcomes(program) == {(1,)}


def test_a_download_to_pinned_memory_arrives_when_waited_for() -> None:
    def program(host: Host, wait: bool) -> list[int]:
        (address, view), x, stream = host.pinned(1), host.array([7]), host.hipStreamCreate()
        host.hipMemcpyDtoHAsync(address, x, 4, stream)
        if wait:
            host.hipStreamSynchronize(stream)
        return [int(view[0])]

    assert outcomes(lambda host: program(host, True)) == {(7,)}
    assert (0,) in outcomes(lambda host: program(host, False))


def test_freeing_waits_for_the_device() -> None:
    def program(host: Host) -> list[int]:
        x, spare, increment = host.array([0]), host.array([0]), host.kernel("increment")
        stream = host.hipStreamCreateWithFlags(hipStreamNonBlocking)
        host.launch(increment, stream, x, 1)
        host.hipFree(spare)
        return host.read(x, 1)

    assert outcomes(program) == {(1,)}


def test_memory_freed_in_stream_order_is_gone_for_a_stream_that_did_not_wait() -> None:
    def statuses(wait: bool) -> set[hipError_t]:
        found = set()
        for seed in SEEDS:
            host = Host(fake_hip(seed=seed))
            owner, user = host.hipStreamCreateWithFlags(1), host.hipStreamCreateWithFlags(1)
            x, mark = host.hipMallocAsync(4, owner), host.hipEventCreate()
            host.hipMemsetD32Async(x, 1, 1, user)
            host.hipEventRecord(mark, user)
            if wait:
                host.hipStreamWaitEvent(owner, mark, 0)
            host.hipFreeAsync(x, owner)
            found.add(host.hip.hipDeviceSynchronize()[0])
        return found

    assert statuses(wait=True) == {OK}
    assert hipError_t.hipErrorIllegalAddress in statuses(wait=False)
