"""Worker processes: the same batches, and clear words when one of them fails."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.data import DataError, DataLoader, TensorDataset, WorkerError, WorkerTimeoutError, default_collate, pool
from tests.data import datasets
from tests.data.datasets import Announced, Computed, Counter, Faulty, Mixed, Noise, Rows, Unstartable

ROOT = Path(__file__).resolve().parent.parent.parent


def plain(value: Any) -> Any:
    if isinstance(value, pf.Tensor):
        return value.tolist()
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def comes_true(condition: Callable[[], bool], seconds: float = 30) -> bool:
    """Sooner than a worker that sleeps wakes up, also on a machine with much else to do."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def all_end(processes: list[int]) -> bool:
    return comes_true(lambda: not any(map(is_running, processes)))


def nothing_new_stays(before: list[str]) -> bool:
    """In /dev/shm, where other programs have names for a while too."""
    return comes_true(lambda: set(os.listdir("/dev/shm")) <= set(before))


def test_the_number_of_workers_changes_nothing() -> None:
    """Order, values and random numbers: two workers, one worker, and a start in the middle of the epoch."""
    one = DataLoader(Noise(14), 3, shuffle=True, seed=9, num_workers=1)
    first, second = plain(list(one)), plain(list(one))
    order = [b[0] for b in first]
    assert order == [b[0].tolist() for b in DataLoader(Noise(14), 3, shuffle=True, seed=9)]
    drawn = np.array([b[1:] for b in first[:-1]])
    assert len(np.unique(drawn)) == drawn.size  # no two items share a number

    two = DataLoader(Noise(14), 3, shuffle=True, seed=9, num_workers=2, persistent_workers=True, prefetch_factor=1)
    assert plain(list(two)) == first
    batches = iter(two)
    seen = [plain(next(batches)) for _ in range(3)]
    state = two.state_dict()
    del batches
    resumed = DataLoader(Noise(14), 3, shuffle=True, num_workers=2)
    resumed.load_state_dict(state)
    assert seen + plain(list(resumed)) == second
    two.set_epoch(0)  # what the left iteration had asked for is dropped
    assert plain(list(two)) == first


def mapped() -> int:
    """How many segments this process has mapped."""
    return Path("/proc/self/maps").read_text().count("pyflame-data")


@pytest.mark.slow
def test_large_arrays_travel_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_MOST_LENT", 6)
    gc.collect()
    before, named = (mapped(), len(os.listdir("/proc/self/fd"))), os.listdir("/dev/shm")
    x = np.arange(64 * 4096, dtype=np.float32).reshape(64, 4096)
    loader = DataLoader(
        TensorDataset(x, np.arange(64)), 4, shuffle=True, seed=0, num_workers=1, persistent_workers=True
    )
    for _ in loader:
        assert 0 < mapped() - before[0] <= 5  # two ahead, this one, the one before, and one on its way back
    held = list(loader)  # more than may stay in shared memory: the rest is copied out
    assert mapped() - before[0] <= 6 + 5
    for rows, at in held:
        np.testing.assert_array_equal(rows.numpy(), x[at.numpy()])
    again = list(loader)
    for rows, at in held + again:
        np.testing.assert_array_equal(rows.numpy(), x[at.numpy()])
    del held, again, rows, at, loader, _
    gc.collect()
    assert (mapped(), len(os.listdir("/proc/self/fd"))) == before and nothing_new_stays(named)


def test_any_structure_travels() -> None:
    data = Mixed(6)
    for ours, wanted in zip(DataLoader(data, 2, num_workers=1), DataLoader(data, 2), strict=True):
        assert ours["text"] == wanted["text"]
        for key in ("half", "bits", "strided", "empty", "number"):
            assert ours[key].dtype is wanted[key].dtype and ours[key].shape == wanted[key].shape
            np.testing.assert_array_equal(ours[key].numpy(), wanted[key].numpy())


def test_ops_inside_a_worker() -> None:
    ours, wanted = DataLoader(Computed(4), 2, num_workers=1), DataLoader(Computed(4), 2)
    for a, b in zip(ours, wanted, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_worker_may_keep_its_batches() -> None:
    loader = DataLoader(Rows(40, 4096), 2, num_workers=1, collate_fn=datasets.keep)
    assert [y.tolist() for _, y in loader] == [[i, i + 1] for i in range(0, 40, 2)]


def test_worker_info_and_init() -> None:
    loader = DataLoader(Announced(4), 1, num_workers=2, worker_init_fn=datasets.announce)
    assert [plain(b) for b in loader] == [[[f"{n} of 2"], ["1"], [4]] for n in (0, 1, 0, 1)]
    assert "ANNOUNCED" not in os.environ


def test_persistent_workers() -> None:
    keeping = DataLoader(Rows(4), 1, num_workers=2, collate_fn=datasets.pid, persistent_workers=True)
    first = list(keeping)
    assert len(set(first)) == 2 and os.getpid() not in first
    assert list(keeping) == first
    for _ in keeping:
        break
    assert list(keeping) == first
    both = list(zip(keeping, keeping, strict=True))  # a second iterator at the same time has workers of its own
    assert [a for a, _ in both] == first and not {b for _, b in both} & set(first)
    del keeping
    gc.collect()
    assert all_end(first + [b for _, b in both])
    leaving = DataLoader(Rows(4), 1, num_workers=1, collate_fn=datasets.pid)
    (process, *_), (other, *_) = list(leaving), list(leaving)
    assert process != other and all_end([process, other])


def test_streams_are_split_between_workers() -> None:
    loader = DataLoader(Counter(11), 2, num_workers=2, seed=4, persistent_workers=True)
    first = plain(list(loader))
    assert [b[0] for b in first] == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9]]
    second = plain(list(loader))
    assert [b[0] for b in second] == [b[0] for b in first]
    assert [b[1] for b in second] != [b[1] for b in first]  # other random numbers in each epoch
    batches = iter(loader)
    seen = [plain(next(batches)) for _ in range(3)]
    state = loader.state_dict()
    rest = plain(list(batches))
    loader.load_state_dict(state)
    assert plain(list(loader)) == rest and len(seen) + len(rest) == 6
    unsplit = DataLoader(Counter(3, split=False), 2, num_workers=2)
    assert [b[0] for b in plain(list(unsplit))] == [[0, 1], [0, 1], [2], [2]]


@pytest.mark.parametrize(
    ("how", "kind", "texts"),
    [
        ("raise", KeyError, ["batch 2 from worker 0", "KeyError: 'no item 5'", "in __getitem__", "datasets.py"]),
        ("own", datasets.Demanding, ["a and b", "num_workers=0"]),
        ("unpicklable", TypeError, ["default_collate", "item 1 is function"]),
    ],
)
def test_a_worker_that_raises(how: str, kind: type[Exception], texts: list[str]) -> None:
    batches = iter(DataLoader(Faulty(how), 2, num_workers=2))
    assert [next(batches)[1].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(kind) as caught:
        next(batches)
    assert isinstance(caught.value, WorkerError) and isinstance(caught.value, pf.PyFlameError)
    assert all(text in str(caught.value) for text in texts)


@pytest.mark.parametrize(("how", "text"), [("kill", "SIGKILL (exit code -9); "), ("exit", "exit code 3; ")])
def test_a_worker_that_dies(how: str, text: str) -> None:
    """It is noticed while the parent waits for another one."""
    before = os.listdir("/dev/shm")
    started = time.monotonic()
    with pytest.raises(WorkerError) as caught:
        list(DataLoader(Faulty(how), batch_sampler=[["sleep"], [5]], num_workers=2))
    assert time.monotonic() - started < 30  # the other one sleeps for a minute
    assert "expected batch 0 but worker 1 (pid " in str(caught.value) and text in str(caught.value)
    assert nothing_new_stays(before)


def test_a_worker_that_hangs() -> None:
    loader = DataLoader(Faulty("kill"), num_workers=1, timeout=0.5, sampler=["sleep"])
    batches = loader._batches(0, 0)
    workers = [w.process.pid for w in batches.gi_frame.f_locals["pool"]._workers]
    with pytest.raises(TimeoutError, match=r"batch 0 from worker 0 within 0\.5 s") as caught:
        next(batches)
    assert isinstance(caught.value, WorkerTimeoutError)
    assert all_end(workers)


def test_what_cannot_reach_a_worker() -> None:
    with pytest.raises(DataError, match=r"expected a dataset that can be pickled.*lambda.*or use num_workers=0"):
        next(iter(DataLoader([lambda: 1], num_workers=1)))
    with pytest.raises(DataError, match="expected a collate_fn that can be pickled"):
        next(iter(DataLoader([1], num_workers=1, collate_fn=lambda items: items)))
    with pytest.raises(OSError, match="worker 0 to start but it raised OSError: the file is not there") as caught:
        next(iter(DataLoader(Unstartable(3), num_workers=1)))
    assert isinstance(caught.value, WorkerError)


def test_a_script_without_a_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from pyflame.data import DataLoader\nlist(DataLoader([1, 2], num_workers=1))\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "needs `if __name__ == '__main__':`" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_parent_dies(how: signal.Signals) -> None:
    """Its workers end at once, busy as they are, and nothing is left in shared memory."""
    before = os.listdir("/dev/shm")
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.data.interrupted"], cwd=ROOT, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert program.stdout is not None and program.stderr is not None
    with program:
        workers = [int(word) for word in program.stdout.readline().split()]
        assert len(workers) == 2 and all(map(is_running, workers))
        if how is signal.SIGINT:
            os.killpg(program.pid, how)  # as a terminal does
        else:
            program.kill()
        assert all_end(workers)
        error = program.stderr.read()
    assert nothing_new_stays(before)
    if how is signal.SIGINT:
        assert error.rstrip().endswith("KeyboardInterrupt") and error.count("Traceback") == 1


def test_the_default_collate_is_the_same_in_a_worker() -> None:
    """Known by its identity there too, or the fast path of a TensorDataset would not be taken."""
    loader = DataLoader(OnlyWhole(np.arange(6.0)), 3, num_workers=1)
    assert loader.collate_fn is default_collate
    assert plain(list(loader)) == [[[0, 1, 2]], [[3, 4, 5]]]


class OnlyWhole(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        raise AssertionError
