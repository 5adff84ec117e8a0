"""Indexing, reading and assigning: every kind of NumPy index against NumPy, gradients against NumPy and torch.

Integers are taken before index arrays, as in torch; in NumPy they broadcast with them and may move their axes forward.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pyflame as pf
from tests.needs import needs_torch, torch

Key = tuple[Any, ...]
EXAMPLES = settings(max_examples=100, deadline=None, derandomize=True)


# --- random indices -------------------------------------------------------------------------------------------------


@st.composite
def slices(draw: Any, size: int) -> slice:
    edge = st.none() | st.integers(-size - 2, size + 2)
    return slice(draw(edge), draw(edge), draw(st.none() | st.sampled_from([1, 2, 3, -1, -2])))


@st.composite
def index_arrays(draw: Any, size: int, shared: tuple[int, ...]) -> np.ndarray:
    """Integers that broadcast to a common shape."""
    skip = draw(st.integers(0, len(shared)))
    shape = tuple(draw(st.sampled_from([n, 1])) for n in shared[skip:])
    count = int(np.prod(shape))
    values = draw(st.lists(st.integers(-size, size - 1), min_size=count, max_size=count)) if size else []
    assume(len(values) == count)
    return np.array(values, np.int64).reshape(shape)


@st.composite
def keys(draw: Any, shape: tuple[int, ...]) -> Key:
    """Any index NumPy takes: integers, slices, None, Ellipsis, bools, masks and index arrays, mixed."""
    shared = draw(st.sampled_from([(), (1,), (2,), (3,), (2, 2), (0,)]))
    items: list[Any] = []
    axis = 0
    dots = False
    while axis < len(shape):
        size = shape[axis]
        kind = draw(
            st.sampled_from(["slice"] * 3 + ["int"] * 2 + ["array"] * 3 + ["none", "dots", "mask", "stop", "flag"])
        )
        if kind == "none":
            items.append(None)
        elif kind == "flag":
            items.append(draw(st.booleans()))
        elif kind == "dots" and not dots:
            dots = True
            items.append(Ellipsis)
            axis += draw(st.integers(0, len(shape) - axis))
        elif kind == "stop":
            break
        elif kind == "mask":
            rank = draw(st.integers(1, len(shape) - axis))
            area = shape[axis : axis + rank]
            bits = draw(st.lists(st.booleans(), min_size=int(np.prod(area)), max_size=int(np.prod(area))))
            items.append(np.array(bits, bool).reshape(area))
            axis += rank
        elif kind == "int" and size:
            items.append(draw(st.integers(-size, size - 1)))
            axis += 1
        elif kind == "array":
            items.append(draw(index_arrays(size, shared)))
            axis += 1
        else:
            items.append(draw(slices(size)))
            axis += 1
    return tuple(items)


shapes = st.lists(st.sampled_from([1, 2, 3, 4, 5, 0]), max_size=4).map(tuple)
cases = shapes.flatmap(
    lambda shape: st.tuples(st.just(shape), keys(shape), st.sampled_from(["tensor", "array", "list"]))
)


def ours(key: Key, form: str) -> Any:
    """The key with its arrays as tensors, arrays or lists."""
    made = {"tensor": pf.tensor, "array": lambda a: a, "list": lambda a: a.tolist() if a.size and a.ndim else a}[form]
    items = tuple(made(item) if isinstance(item, np.ndarray) else item for item in key)
    return items[0] if len(items) == 1 and not isinstance(items[0], list) else items


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def split(array: np.ndarray, key: Key) -> tuple[np.ndarray, Key]:
    """A view of the array with the integers of a key taken, and the rest of the key."""
    first: list[Any] = []
    rest: list[Any] = []
    for item in key:
        if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            first.append(item)
        elif isinstance(item, np.ndarray) and item.ndim == 0 and item.dtype != bool:
            first.append(int(item))
        else:
            rest.append(item)
            mask = isinstance(item, np.ndarray) and item.dtype == bool
            axes = item.ndim if mask else 0 if item is None or isinstance(item, bool) else 1
            first += [item] if item is Ellipsis else [slice(None)] * axes
    return array[tuple(first) if any(i is Ellipsis for i in first) else (*first, ...)], tuple(rest)


def read(array: np.ndarray, key: Key) -> np.ndarray | None:
    """What NumPy reads; None where it refuses."""
    try:
        view, rest = split(array, key)
        return view[rest].copy()
    except IndexError:
        return None


# --- against NumPy --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@EXAMPLES
@given(cases)
def test_read(case: tuple[tuple[int, ...], Key, str]) -> None:
    shape, key, form = case
    array = numbers(shape)
    want = read(array, key)
    if want is None:
        with pytest.raises((IndexError, ValueError)):
            pf.tensor(array)[ours(key, form)].numpy()
        return
    got = pf.tensor(array)[ours(key, form)]
    np.testing.assert_array_equal(got.numpy(), want)
    assert got.shape == want.shape


@st.composite
def assignments(draw: Any) -> tuple[tuple[int, ...], Key, str, np.ndarray | float]:
    shape, key, form = draw(cases)
    want = read(numbers(shape), key)
    assume(want is not None)
    assert want is not None
    skip = draw(st.integers(0, want.ndim))
    sizes = tuple(draw(st.sampled_from([n, 1])) for n in want.shape[skip:])
    value = draw(
        st.sampled_from(
            [numbers(sizes, 1), numbers((1, *sizes), 2) if skip == 0 and want.ndim else numbers(sizes, 1), 2.5]
        )
    )
    return shape, key, form, value


@pytest.mark.slow
@EXAMPLES
@given(assignments())
def test_assign(case: tuple[tuple[int, ...], Key, str, Any]) -> None:
    shape, key, form, value = case
    want = numbers(shape)
    x = pf.tensor(want)
    before = x * 1.0
    view, rest = split(want, key)
    try:
        view[rest] = value
    except TypeError:
        assume(False)  # NumPy takes no value with more axes than the result for a mask
    x[ours(key, form)] = pf.tensor(value) if isinstance(value, np.ndarray) and form == "tensor" else value
    np.testing.assert_array_equal(x.numpy(), want)
    np.testing.assert_array_equal(before.numpy(), numbers(shape))  # earlier readers keep the old value


@pytest.mark.slow
@EXAMPLES
@given(cases)
def test_update(case: tuple[tuple[int, ...], Key, str]) -> None:
    """x[i] += 1 and the like, on memory that may be overwritten and on memory that may not."""
    shape, key, form = case
    want = numbers(shape)
    taken = read(want, key)
    assume(taken is not None)
    assert taken is not None
    x, y = pf.tensor(want), pf.tensor(want) * 1.0
    total = y.sum()
    weight = numbers(taken.shape, 1)
    for tensor in (x, y):
        tensor[ours(key, form)] += pf.tensor(weight)
        tensor[...] *= 2.0
        tensor[ours(key, form)] = tensor[ours(key, form)] * 3.0
    start = want.sum()
    view, rest = split(want, key)
    view[rest] += weight
    want *= 2
    view[rest] = view[rest] * 3.0
    np.testing.assert_allclose(x.numpy(), want)
    np.testing.assert_allclose(y.numpy(), want)
    np.testing.assert_allclose(total.numpy(), start)


def test_update_that_reads_other_elements() -> None:
    want = np.arange(12.0).reshape(3, 4)
    x = pf.tensor(want)
    x[1:] = x[:-1] + 1.0
    x[:, 1:3] = x[:, 2:0:-1]
    x[:3, :3] += x[:3, :3].T
    x[:, 0] = x.sum(1)
    x[pf.tensor([0, 1])] = x[pf.tensor([1, 0])]
    x[pf.tensor([0, 2])] = x[1:]
    want[1:] = want[:-1] + 1.0
    want[:, 1:3] = want[:, 2:0:-1].copy()
    want[:3, :3] += want[:3, :3].T.copy()
    want[:, 0] = want.sum(1)
    want[[0, 1]] = want[[1, 0]]
    want[[0, 2]] = want[1:].copy()
    np.testing.assert_array_equal(x.numpy(), want)


@pytest.mark.slow
@EXAMPLES
@given(cases)
def test_read_gradient(case: tuple[tuple[int, ...], Key, str]) -> None:
    shape, key, form = case
    array = numbers(shape)
    want = read(array, key)
    assume(want is not None)
    assert want is not None
    x = pf.tensor(array, requires_grad=True)
    weight = numbers(want.shape, 3)
    (x[ours(key, form)] * pf.tensor(weight)).sum().backward()
    expected = np.zeros(shape)
    np.add.at(*split(expected, key), weight)
    np.testing.assert_allclose(np.zeros(shape) if x.grad is None else x.grad.numpy(), expected, atol=1e-12)


@pytest.mark.slow
@EXAMPLES
@given(assignments())
def test_assign_gradient(case: tuple[tuple[int, ...], Key, str, Any]) -> None:
    shape, key, form, value = case
    positions = read(np.arange(int(np.prod(shape))).reshape(shape), key)
    assert positions is not None
    assume(len(np.unique(positions)) == positions.size)
    start = pf.tensor(numbers(shape), requires_grad=True)
    source = pf.tensor(np.asarray(value), requires_grad=True)
    x = start * 1.0
    x[ours(key, form)] = source
    weight = numbers(shape, 3)
    (x * pf.tensor(weight)).sum().backward()
    base = weight.copy()
    view, rest = split(base, key)
    view[rest] = 0
    np.testing.assert_allclose(start.grad.numpy(), base, atol=1e-12)
    taken = read(weight, key)
    assert taken is not None
    have = np.shape(value)[np.ndim(value) - min(np.ndim(value), taken.ndim) :]
    axes = tuple(a for a in range(taken.ndim) if a < taken.ndim - len(have) or have[a - taken.ndim] == 1)
    expected = taken.sum(axis=axes, keepdims=True).reshape(np.shape(value))
    np.testing.assert_allclose(
        np.zeros(np.shape(value)) if source.grad is None else source.grad.numpy(), expected, atol=1e-12
    )


@pytest.mark.slow
@needs_torch
@EXAMPLES
@given(cases)
def test_against_torch(case: tuple[tuple[int, ...], Key, str]) -> None:
    """Where torch takes an index it means the same."""
    shape, key, _ = case
    assume(not any(isinstance(item, slice) and (item.step or 1) < 0 for item in key))
    array = numbers(shape)
    assume(read(array, key) is not None)
    theirs = torch.tensor(array, requires_grad=True)
    try:
        want = theirs[tuple(torch.from_numpy(item) if isinstance(item, np.ndarray) else item for item in key)]
    except (IndexError, ValueError):
        assume(False)
    (want * want).sum().backward()
    for _ in range(2):  # the second time the index is known
        x = pf.tensor(array, requires_grad=True)
        got = x[ours(key, "tensor")]
        assert got.shape == tuple(want.shape)
        np.testing.assert_array_equal(got.detach().numpy(), want.detach().numpy())
        (got * got).sum().backward()
        gradient = np.zeros(shape) if x.grad is None else x.grad.numpy()
        np.testing.assert_allclose(gradient, theirs.grad.numpy(), atol=1e-12)


def test_known_index_in_every_mode() -> None:
    """An index that was read before makes the same view: written through, without gradients, eager and on a device."""
    for _ in range(3):
        x = pf.arange(12.0).reshape(3, 4).clone().requires_grad_()
        with pf.no_grad():
            row = x[1]
            row[1:3] = 0
        assert not row.requires_grad
        assert x[1].requires_grad
        assert x[1].tolist() == row.tolist() == [4, 0, 0, 7]
        with pf.eager():
            assert x[1, 3].item() == x[1][3].item() == 7
        moved = pf.arange(3).to("cpu")[1]
        assert (moved + pf.arange(3)[1]).item() == 2


def test_slices_between_tensors() -> None:
    text = pf.arange(100)
    for start in pf.tensor([3, 90]):
        first = int(start)
        assert text[start : start + 4].tolist() == list(range(first, first + 4))
        assert text[start - 1 : start * 2 - start : 1].tolist() == [first - 1]
    with pytest.raises(pf.PyFlameError, match="whole numbers"):
        text[pf.tensor(0.5) :]


# --- known cases ----------------------------------------------------------------------------------------------------

X = np.arange(60.0).reshape(3, 4, 5)
LISTED: list[Any] = [
    0,
    -1,
    np.int64(1),
    slice(None, None, -1),
    None,
    ...,
    (..., 0),
    (0, ..., None),
    (1, 2, 3),
    (slice(2, 0, -1), slice(None), slice(4, None, -3)),
    [0, 2],
    [[0, 1], [2, 0]],
    ([0, 1], [1, 3]),
    ([[0], [2]], [1, 3, 0]),
    (slice(None), [0, 1], [3, 4]),
    ([0, 1], slice(None), [3, 4]),
    (0, slice(None), [3, 4]),
    (slice(None), 2, [0, 1]),
    (None, [0, 1], None, [1, 2]),
    ([0, 1], None, [1, 2]),
    X > 30,
    (X[:, :, 0] > 20),
    (slice(None), np.array([True, False, True, True])),
    (np.array([True, False, True]), slice(1, 3), [0, 1]),
    (np.array([True, False, True]), [1, 3]),
    True,
    False,
    (True, 0),
    (slice(0, 0), [1]),
    [],
    np.zeros((0, 2), np.int64),
    range(2),
    (np.array(1), np.array(2)),
    ((0, 2),),
    np.array([1, 0], np.int8),
]


BESIDE: list[Any] = [
    (slice(0, 2), [0, 1], ..., 0),
    (slice(0, 0), [0, 1], ..., 0),
    (0, slice(None), [0, 1]),
    (0, slice(0, 0), [0, 1]),
    (0, None, [0, 1]),
    ([0, 1], 0, [2, 3]),
    ([0, 1], 0, slice(None), [2, 3]),
    ([0, 1], slice(None), 0),
]


@needs_torch
@pytest.mark.parametrize("key", BESIDE, ids=str)
def test_integers_beside_arrays(key: Any) -> None:
    array = np.arange(120.0).reshape(2, 3, 4, 5)
    want = torch.tensor(array)
    got = pf.tensor(array)
    np.testing.assert_array_equal(got[key].numpy(), want[key].numpy())
    tensors = tuple(pf.tensor(i) if isinstance(i, (list, int)) else i for i in key)
    np.testing.assert_array_equal(got[tensors].numpy(), want[key].numpy())
    value = np.random.default_rng(0).standard_normal(want[key].shape)
    got[key] = value
    want[key] = torch.tensor(value)
    np.testing.assert_array_equal(got.numpy(), want.numpy())


@pytest.mark.parametrize("form", [list, pf.tensor])
def test_out_of_range_beside_an_empty_slice(form: Any) -> None:
    x = pf.ones(3, 4)
    for index in ([4], [0, -5]):
        with pytest.raises(pf.IndexError, match=r"expected an index in \[-4, 3\] for axis 1 but got"):
            x[0:0, form(index)]
        with pytest.raises(pf.IndexError):
            x[0:0, form(index)] = 1.0


def _assigned(x: Any, index: Any, value: Any) -> Any:
    out = x * 1.0
    out[index] = value
    return out


@needs_torch
@pytest.mark.parametrize(
    ("way", "value"),
    [
        ("setitem", 2.0),
        ("setitem", [2.0, 3.0, 4.0]),
        ("index_fill", 2.0),
        ("index_copy", [2.0, 3.0, 4.0]),
        ("scatter", [2.0, 3.0, 4.0]),
        ("masked_fill", 2.0),
    ],
)
def test_gradient_where_a_position_comes_twice(way: str, value: Any) -> None:
    """index_fill counts the position once, the others each value: as torch has it."""

    def run(library: Any) -> list[Any]:
        x = library.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
        v = library.tensor(value, requires_grad=True)
        index = library.tensor([1, 1, 2])
        out = {
            "setitem": lambda: _assigned(x, index, v),
            "index_fill": lambda: x.index_fill(0, index, v),
            "index_copy": lambda: x.index_copy(0, index, v),
            "scatter": lambda: x.scatter(0, index, v),
            "masked_fill": lambda: x.masked_fill(x.detach() > 2.0, v),
        }[way]()
        (out * library.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
        return [x.grad.tolist(), v.grad.tolist()]

    assert run(pf) == run(torch)


@pytest.mark.parametrize("key", LISTED, ids=str)
def test_listed(key: Any) -> None:
    x = pf.tensor(X)
    index = (list(key),) if isinstance(key, range) else key
    if isinstance(key, list) and key and isinstance(key[0], list):  # one list for each axis, as PyTorch has it
        index = tuple(key)
    want = X.copy()
    view, rest = split(want, index if isinstance(index, tuple) else (index,))
    np.testing.assert_array_equal(x[key].numpy(), view[rest])
    view[rest] = -1.0
    x[key] = -1.0
    np.testing.assert_array_equal(x.numpy(), want)


def test_zero_dimensional() -> None:
    x = pf.tensor(5.0)
    assert x[...].shape == () and x[()].item() == 5.0 and x[None].shape == (1,) and x[True].shape == (1,)
    x[()] = 2.0
    assert x.item() == 2.0
    x[...] = pf.tensor([3.0])
    assert x.item() == 3.0
    with pytest.raises(IndexError):
        x[0]


def test_index_tensor_of_any_integer_dtype() -> None:
    x = pf.tensor(X)
    for dtype in (pf.int32, pf.int16, pf.int8, pf.int64):
        index = pf.tensor([2, 0], dtype=dtype)
        np.testing.assert_array_equal(x[index].numpy(), X[[2, 0]])
        y = pf.zeros(3)
        y[index] = pf.tensor([1.0, 2.0])
        np.testing.assert_array_equal(y.numpy(), [2, 0, 1])
    at = pf.tensor(1)
    np.testing.assert_array_equal(x[at].numpy(), X[1])
    np.testing.assert_array_equal(x[:, at].numpy(), X[:, 1])


@needs_torch
@pytest.mark.filterwarnings("ignore:.*uint8")
def test_bytes_are_a_mask() -> None:
    for key in (np.array([1, 0, 2], np.uint8), (X[:, :, 0] > 20).astype(np.uint8)):
        made, want = pf.tensor(X), torch.tensor(X)
        ours, theirs = pf.tensor(key), torch.tensor(key)
        np.testing.assert_array_equal(made[ours].numpy(), want[theirs].numpy())
        values = made[ours] + 1
        for accumulate in (False, True):
            got = made.index_put((ours,), values, accumulate)
            np.testing.assert_array_equal(
                got.numpy(), want.index_put((theirs,), torch.tensor(values.numpy()), accumulate).numpy()
            )
    assert pf.tensor(X)[pf.tensor(1, dtype=pf.uint8)].shape == (1, *X.shape)
    with pytest.warns(UserWarning, match="uint8"):
        pf.ones(2)[pf.tensor([1, 0], dtype=pf.uint8)]


def test_in_place_arithmetic() -> None:
    x, want = pf.tensor(X), X.copy()
    x[1] += 1
    x[:, [0, 2]] *= 2.0
    x[x > 50] -= 50.0
    want[1] += 1
    want[:, [0, 2]] *= 2
    want[want > 50] -= 50
    np.testing.assert_array_equal(x.numpy(), want)


def test_last_write_wins() -> None:
    for count in (5, 200_000):
        index = np.random.default_rng(0).integers(0, 7, count)
        values = np.arange(count, dtype=np.float32)
        want = np.zeros(7, np.float32)
        want[index] = values
        x = pf.zeros(7)
        x[pf.tensor(index)] = pf.tensor(values)
        np.testing.assert_array_equal(x.numpy(), want)


def test_value_is_converted() -> None:
    x = pf.zeros(4, dtype=pf.int32)
    x[1:3] = pf.tensor([1.7, -2.7])
    x[[0, 3]] = 9.9
    assert x.tolist() == [9, 1, -2, 9]


def test_unbound_base_is_written_in_place_and_shared_one_is_not() -> None:
    a = pf.tensor([1.0, 2.0, 3.0])
    y, z = a * 2.0, a * 2.0  # equal values, then different assignments
    y[0] = 0.0
    z[[1]] = 9.0
    total = y + z
    assert total.tolist() == [2.0, 13.0, 12.0]
    assert y.tolist() == [0.0, 4.0, 6.0] and z.tolist() == [2.0, 9.0, 6.0]
