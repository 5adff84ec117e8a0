"""Captures and graphs: forks and joins, replays, and what a capture forbids."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pyflame.runtime.sim.hip.types import (
    hipError_t,
    hipGraphExecUpdateResult,
    hipMemcpyKind,
    hipStreamCaptureMode,
    hipStreamCaptureStatus,
)
from tests.sim.machines import Host, fake_hip

SEEDS = range(8)
GLOBAL, THREAD, RELAXED = hipStreamCaptureMode
E, ANY = hipError_t, hipMemcpyKind.hipMemcpyDefault


def stream_of(host: Host) -> Any:
    return host.hipStreamCreateWithFlags(1)


def test_a_capture_runs_nothing_and_a_graph_runs_as_often_as_it_is_launched() -> None:
    for seed in SEEDS:
        host = Host(fake_hip(seed=seed))
        x, increment, stream = host.array([0, 0]), host.kernel("increment"), stream_of(host)
        host.hipStreamBeginCapture(stream, RELAXED)
        host.launch(increment, stream, x, 1)
        host.launch(increment, stream, x, 2)
        graph = host.hipStreamEndCapture(stream)
        host.hipDeviceSynchronize()
        assert host.read(x, 2) == [0, 0]
        executable = host.hipGraphInstantiateWithFlags(graph, 0)
        host.hipGraphDestroy(graph)  # the executable is its own
        for _ in range(3):
            host.hipGraphLaunch(executable, stream)
        host.launch(increment, stream, x, 1)
        host.hipStreamSynchronize(stream)
        assert host.read(x, 2) == [7, 3]
        host.hipGraphLaunch(executable, stream)
        host.hipGraphExecDestroy(executable)  # what was launched still runs
        host.hipDeviceSynchronize()
        assert host.read(x, 2) == [9, 4]


def test_arguments_are_those_of_the_capture() -> None:
    host = Host(fake_hip())
    a, b, increment, stream = host.array([0]), host.array([0]), host.kernel("increment"), stream_of(host)
    words = np.array([a, 1], np.int64)
    places = np.array([words.ctypes.data, words.ctypes.data + 8], np.int64)
    host.hipStreamBeginCapture(stream, RELAXED)
    host.hipModuleLaunchKernel(increment, 1, 1, 1, 1, 1, 1, 0, stream, places.ctypes.data, 0)
    executable = host.hipGraphInstantiate(host.hipStreamEndCapture(stream), 0)[0]
    words[0] = b
    host.hipGraphLaunch(executable, stream)
    host.hipDeviceSynchronize()
    assert host.read(a, 1) == [1] and host.read(b, 1) == [0]


def forked(host: Host, joined: bool = True) -> tuple[Any, Any, Any]:
    """x = 5 on one stream, then x += 1 on another, then y = x + x on the first, captured."""
    x, y = host.array([0]), host.array([0])
    add, increment = host.kernel("add"), host.kernel("increment")
    first, second = stream_of(host), stream_of(host)
    fork, join = host.hipEventCreate(), host.hipEventCreate()
    host.hipStreamBeginCapture(first, RELAXED)
    host.hipMemsetD32Async(x, 5, 1, first)
    host.hipEventRecord(fork, first)
    host.hipStreamWaitEvent(second, fork, 0)
    assert host.hipStreamIsCapturing(second) == hipStreamCaptureStatus.hipStreamCaptureStatusActive
    assert host.hipStreamGetCaptureInfo(first) == host.hipStreamGetCaptureInfo(second)
    host.launch(increment, second, x, 1)
    host.hipEventRecord(join, second)
    if joined:
        host.hipStreamWaitEvent(first, join, 0)
    host.launch(add, first, y, x, x, 1)
    return first, second, y


@pytest.mark.parametrize("seed", SEEDS)
def test_fork_and_join(seed: int) -> None:
    host = Host(fake_hip(seed=seed))
    first, second, y = forked(host)
    graph = host.hipStreamEndCapture(first)
    assert host.hipStreamIsCapturing(second) == hipStreamCaptureStatus.hipStreamCaptureStatusNone
    executable = host.hipGraphInstantiateWithFlags(graph, 0)
    for _ in range(2):
        host.hipGraphLaunch(executable, second)
        host.hipStreamSynchronize(second)
        assert host.read(y, 1) == [12]


def test_branches_of_a_graph_run_in_any_order() -> None:
    """Two branches that write the same place without an edge between them."""
    found = set()
    for seed in range(20):
        host = Host(fake_hip(seed=seed))
        x, first, second = host.array([0]), stream_of(host), stream_of(host)
        fork, join = host.hipEventCreate(), host.hipEventCreate()
        host.hipStreamBeginCapture(first, RELAXED)
        host.hipEventRecord(fork, first)
        host.hipStreamWaitEvent(second, fork, 0)
        host.hipMemsetD32Async(x, 1, 1, first)
        host.hipMemsetD32Async(x, 2, 1, second)
        host.hipEventRecord(join, second)
        host.hipStreamWaitEvent(first, join, 0)
        host.hipGraphLaunch(host.hipGraphInstantiateWithFlags(host.hipStreamEndCapture(first), 0), first)
        host.hipDeviceSynchronize()
        found.add(host.read(x, 1)[0])
    assert found == {1, 2}


def test_a_graph_launched_while_capturing_becomes_part_of_the_capture() -> None:
    host = Host(fake_hip())
    x, increment, stream = host.array([0]), host.kernel("increment"), stream_of(host)

    def graph_of(*works: Callable[[], Any]) -> Any:
        host.hipStreamBeginCapture(stream, RELAXED)
        for work in works:
            work()
        return host.hipGraphInstantiateWithFlags(host.hipStreamEndCapture(stream), 0)

    one = graph_of(lambda: host.launch(increment, stream, x, 1))
    three = graph_of(*[lambda: host.hipGraphLaunch(one, stream)] * 3)
    host.hipGraphLaunch(three, stream)
    host.hipDeviceSynchronize()
    assert host.read(x, 1) == [3]


def test_update_of_an_executable_graph() -> None:
    host = Host(fake_hip())
    x, stream = host.array([0]), stream_of(host)

    def graph_of(*values: int) -> Any:
        host.hipStreamBeginCapture(stream, RELAXED)
        for value in values:
            host.hipMemsetD32Async(x, value, 1, stream)
        return host.hipStreamEndCapture(stream)

    executable = host.hipGraphInstantiateWithFlags(graph_of(1), 0)
    assert host.hipGraphExecUpdate(executable, host.hipGraphClone(graph_of(2)), None) == (
        hipGraphExecUpdateResult.hipGraphExecUpdateSuccess
    )
    assert host.hip.hipGraphExecUpdate(executable, graph_of(3, 4), None)[0] == E.hipErrorGraphExecUpdateFailure
    host.hipGraphLaunch(executable, stream)
    host.hipDeviceSynchronize()
    assert host.read(x, 1) == [2]


# --- what is forbidden ------------------------------------------------------------------------------------------------

X = 0x1234
SPOILING: dict[str, tuple[Callable[[Host, Any, Any, Any], Any], hipError_t]] = {
    "synchronize": (lambda h, s, x, m: h.hip.hipStreamSynchronize(s), E.hipErrorStreamCaptureUnsupported),
    "query": (lambda h, s, x, m: h.hip.hipStreamQuery(s), E.hipErrorStreamCaptureUnsupported),
    "device": (lambda h, s, x, m: h.hip.hipDeviceSynchronize(), E.hipErrorStreamCaptureUnsupported),
    "event query": (lambda h, s, x, m: h.hip.hipEventQuery(m), E.hipErrorCapturedEvent),
    "event synchronize": (lambda h, s, x, m: h.hip.hipEventSynchronize(m), E.hipErrorCapturedEvent),
    "copy": (lambda h, s, x, m: h.hip.hipMemcpy(x, x + 4, 4, ANY), E.hipErrorStreamCaptureImplicit),
    "fill": (lambda h, s, x, m: h.hip.hipMemset(x, 0, 4), E.hipErrorStreamCaptureImplicit),
    "allocate in order": (lambda h, s, x, m: h.hip.hipMallocAsync(4, s), E.hipErrorStreamCaptureUnsupported),
    "callback": (lambda h, s, x, m: h.hip.hipStreamAddCallback(s, X, 0, 0), E.hipErrorStreamCaptureUnsupported),
}  # fmt: skip


@pytest.mark.parametrize("what", SPOILING)
def test_calls_that_spoil_any_capture(what: str) -> None:
    host = Host(fake_hip())
    x, stream, mark = host.array([0, 0]), stream_of(host), host.hipEventCreate()
    host.hipStreamBeginCapture(stream, RELAXED)
    host.hipMemsetD32Async(x, 1, 1, stream)
    host.hipEventRecord(mark, stream)
    call, status = SPOILING[what]
    assert call(host, stream, x, mark)[0] == status
    assert "the capture is spoiled" in host.hip.explain()
    assert host.hipStreamIsCapturing(stream) == hipStreamCaptureStatus.hipStreamCaptureStatusInvalidated
    assert host.hip.hipMemsetD32Async(x, 1, 1, stream) == (E.hipErrorStreamCaptureInvalidated,)
    assert host.hip.hipStreamEndCapture(stream) == (E.hipErrorStreamCaptureInvalidated, None)
    host.hipMemsetD32Async(x, 3, 1, stream)  # the stream works again
    host.hipDeviceSynchronize()
    assert host.read(x, 1) == [3]


@pytest.mark.parametrize("mode", hipStreamCaptureMode)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_unsafe_calls_by_mode(mode: hipStreamCaptureMode, elsewhere: bool) -> None:
    """A global capture stands no allocation of any thread, a thread-local one none of its own, a relaxed one any."""
    host = Host(fake_hip())
    stream, given = stream_of(host), list[Any]()
    host.hipStreamBeginCapture(stream, mode)

    def allocate() -> None:
        given.append(host.hip.hipMalloc(4)[0])

    if elsewhere:
        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
    else:
        allocate()
    spoiled = mode == GLOBAL or (mode == THREAD and not elsewhere)
    assert given == [E.hipErrorStreamCaptureUnsupported if spoiled else E.hipSuccess]
    assert host.hip.hipStreamEndCapture(stream)[0] == (E.hipErrorStreamCaptureInvalidated if spoiled else E.hipSuccess)


def test_a_branch_that_is_not_joined() -> None:
    host = Host(fake_hip())
    first, second, _ = forked(host, joined=False)
    assert host.hip.hipStreamEndCapture(second) == (E.hipErrorStreamCaptureUnmatched, None)
    assert host.hip.hipStreamEndCapture(first) == (E.hipErrorStreamCaptureUnjoined, None)
    assert host.hipStreamIsCapturing(second) == hipStreamCaptureStatus.hipStreamCaptureStatusNone


def test_the_null_stream_and_captures() -> None:
    host = Host(fake_hip())
    x, blocking, apart = host.array([0]), host.hipStreamCreate(), stream_of(host)
    assert host.hip.hipStreamBeginCapture(0, RELAXED) == (E.hipErrorStreamCaptureUnsupported,)
    host.hipStreamBeginCapture(apart, RELAXED)
    host.hipMemsetD32Async(x, 1, 1, 0)  # does not wait for it
    host.hipStreamEndCapture(apart)
    host.hipStreamBeginCapture(blocking, RELAXED)
    assert host.hip.hipMemsetD32Async(x, 1, 1, 0) == (E.hipErrorStreamCaptureImplicit,)
    assert host.hip.hipStreamEndCapture(blocking)[0] == E.hipErrorStreamCaptureInvalidated


def test_events_from_outside_and_of_two_captures() -> None:
    host = Host(fake_hip())
    x, first, second = host.array([0]), stream_of(host), stream_of(host)
    outside, inside, never = (host.hipEventCreate() for _ in range(3))
    host.hipEventRecord(outside, second)
    host.hipStreamBeginCapture(first, RELAXED)
    host.hipStreamWaitEvent(first, never, 0)  # never recorded: nothing to wait for
    assert host.hip.hipStreamWaitEvent(first, outside, 0) == (E.hipErrorStreamCaptureIsolation,)
    assert host.hip.hipStreamEndCapture(first)[0] == E.hipErrorStreamCaptureInvalidated
    for stream in (first, second):
        host.hipStreamBeginCapture(stream, RELAXED)
        host.hipMemsetD32Async(x, 1, 1, stream)
    host.hipEventRecord(inside, first)
    assert host.hip.hipStreamWaitEvent(second, inside, 0) == (E.hipErrorStreamCaptureMerge,)
    for stream in (first, second):
        assert host.hip.hipStreamEndCapture(stream)[0] == E.hipErrorStreamCaptureInvalidated


def test_wrong_ends_and_unknown_graphs() -> None:
    host = Host(fake_hip())
    stream, given = stream_of(host), list[Any]()
    assert host.hip.hipStreamEndCapture(stream) == (E.hipErrorIllegalState, None)
    assert host.hip.hipStreamBeginCapture(stream, 7) == (E.hipErrorInvalidValue,)
    host.hipStreamBeginCapture(stream, THREAD)
    assert host.hip.hipStreamBeginCapture(stream, THREAD) == (E.hipErrorIllegalState,)
    thread = threading.Thread(target=lambda: given.append(host.hip.hipStreamEndCapture(stream)))
    thread.start()
    thread.join()
    assert given == [(E.hipErrorStreamCaptureWrongThread, None)]
    graph = host.hipStreamEndCapture(stream)
    executable = host.hipGraphInstantiateWithFlags(graph, 0)
    host.hipGraphLaunch(executable, stream)  # empty, and fine
    host.hipGraphDestroy(graph)
    host.hipGraphExecDestroy(executable)
    assert host.hip.hipGraphDestroy(graph) == (E.hipErrorInvalidValue,)
    assert host.hip.hipGraphInstantiateWithFlags(graph, 0) == (E.hipErrorInvalidValue, None)
    assert host.hip.hipGraphLaunch(executable, stream) == (E.hipErrorInvalidValue,)
    assert host.hip.hipGraphExecDestroy(executable) == (E.hipErrorInvalidValue,)
