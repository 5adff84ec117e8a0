"""What public PyTorch programs, run with only their imports changed, found wrong here: one test for each cause."""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "floor_divide"])
@pytest.mark.parametrize("numbers", [(5, 3), (5, 3.0), (5.5, 3), (1j, 2), (2, 1j)])
def test_arithmetic_of_numbers_alone(name: str, numbers: tuple[Any, Any]) -> None:
    """Where PyTorch takes them: torch.mul(5, 5)."""
    try:
        theirs = getattr(torch, name)(*numbers)
    except RuntimeError:
        with pytest.raises(pf.PyFlameError):
            getattr(pf, name)(*numbers)
        return
    ours = getattr(pf, name)(*numbers)
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    np.testing.assert_allclose(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("name", ["bool", "uint8", "int8", "int64", "bfloat16", "float32", "float64", "complex64"])
def test_questions_to_dtypes(name: str) -> None:
    ours, theirs = getattr(pf, name), getattr(torch, name)
    for question in ("is_floating_point", "is_complex", "is_signed", "itemsize"):
        assert getattr(ours, question) == getattr(theirs, question)
    assert ours.to_real() is getattr(pf, str(theirs.to_real()).split(".")[-1])
    if theirs.is_floating_point or theirs.is_complex:
        assert ours.to_complex() is getattr(pf, str(theirs.to_complex()).split(".")[-1])


def test_assert_async() -> None:
    pf._assert_async(pf.tensor(True))
    with pytest.raises(RuntimeError, match="too small"):
        pf._assert_async(pf.tensor(1) > 2, "too small")


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_random_complex_numbers(dtype: str) -> None:
    kind = getattr(pf, dtype)
    generator = pf.Generator().manual_seed(0)
    normal = pf.randn(20000, dtype=kind, generator=generator)
    uniform = pf.rand_like(normal, generator=generator).numpy()
    assert normal.dtype is kind
    np.testing.assert_allclose([normal.numpy().real.var(), normal.numpy().imag.var()], 0.5, atol=0.02)
    for part in (uniform.real, uniform.imag):
        assert part.min() >= 0.0 and part.max() < 1.0
        np.testing.assert_allclose([part.mean(), part.var()], [0.5, 1 / 12], atol=0.01)
    assert abs(np.corrcoef(uniform.real, uniform.imag)[0, 1]) < 0.03


OLD_FORMS = [
    "a.add(2, b)", "t.add(a, 2.5, b)", "a.clone().add_(0.5, b)", "a.sub(2, b)", "a.addcmul(2, b, c)",
    "a.clone().addcdiv_(2, b, c)", "t.addcmul(a, 0.1, b, c)", "a.addmm(2, b, c)", "a.addmm(2, 3, b, c)",
    "t.addmm(2, a, 3, b, c)", "t.addmm(2, a, b, c)", "v.addmv(2, a, v)", "v.clone().addmv_(2, 3, a, v)",
    "a.addr(2, 3, v, v)", "a.addbmm(2, 3, s, s)", "s.baddbmm(2, 0.1, s, s)", "t.baddbmm(2, s, s, s)",
]  # fmt: skip


@pytest.mark.parametrize("form", OLD_FORMS)
@pytest.mark.filterwarnings("ignore:This overload")
def test_factors_before_tensors(form: str) -> None:
    """Old optimisers write `exp_avg.mul_(beta).add_(1 - beta, grad)`."""

    def run(library: Any) -> Any:
        numbers = np.random.default_rng(0)
        shapes = {"a": (3, 3), "b": (3, 3), "c": (3, 3), "v": (3,), "s": (2, 3, 3)}
        values = {k: library.tensor(numbers.normal(size=shape).astype("float32")) for k, shape in shapes.items()}
        return eval(form, {"t": library, **values}).numpy()

    np.testing.assert_allclose(run(pf), run(torch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["t.add(2, a, a)", "a.mul(2, a)", "a.add(a, 2)", "a.addcmul(a, 2, a)"])
def test_other_orders_are_refused(form: str) -> None:
    for library in (pf, torch):
        with pytest.raises((TypeError, RuntimeError)):
            eval(form, {"t": library, "a": library.ones(2)})


@pytest.mark.parametrize(
    "make",
    [
        "eye(2, out=o)", "zeros(2, 2, out=o)", "ones((2, 2), out=o)", "full((2, 2), 3, out=o)", "arange(4, out=e)",
        "linspace(0, 3, 4, out=e)", "logspace(0, 1, 2, out=e)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_makers_take_out(make: str, dtype: str) -> None:
    """What they make is of the dtype of `out`."""

    def run(library: Any) -> Any:
        kind = getattr(library, dtype)
        o, e = library.empty(2, 2, dtype=kind), library.empty(0, dtype=kind)
        made = eval(f"t.{make}", {"t": library, "o": o, "e": e})
        assert made is (o if "=o" in make else e) and made.dtype is kind
        return made.numpy()

    np.testing.assert_array_equal(run(pf), run(torch))


def test_random_whole_numbers_below_a_keyword() -> None:
    assert pf.randint(high=1, size=(2,)).tolist() == [0, 0]
    assert pf.randint_like(pf.ones(2), high=1).tolist() == [0.0, 0.0]
    with pytest.raises(pf.PyFlameError, match="expected whole numbers as bounds"):
        pf.randint_like(pf.ones(2))


BOTH = pytest.mark.parametrize("library", [pf, torch], ids=["pyflame", "torch"])


@BOTH
def test_backward_may_give_more_and_broadcast_gradients(library: Any) -> None:
    """None for arguments that there are none of, and gradients of the shape that an argument was broadcast to."""

    class Scale(library.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, factor: Any) -> Any:
            ctx.save_for_backward(x, factor)
            return x * factor

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, factor = ctx.saved_tensors
            return g * factor, g * x, None, None

    x, factor = library.ones(2, 3, requires_grad=True), library.full((3,), 2.0, requires_grad=True)
    Scale.apply(x, factor).sum().backward()
    assert x.grad.tolist() == [[2.0] * 3] * 2 and factor.grad.tolist() == [2.0] * 3


@BOTH
def test_tensors_take_attributes(library: Any) -> None:
    x = library.ones(2)
    x.seen = True
    assert x.seen and not hasattr(x + 1, "seen")
    assert copy.deepcopy(x).seen


@BOTH
def test_questions_that_no_class_is_asked(library: Any) -> None:
    class Like:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> str:
            return "asked"

    assert library.is_tensor(Like()) is False and library.is_storage(Like()) is False
    assert library.add(Like(), 1) == "asked"


@BOTH
def test_copies_of_groups_are_dicts(library: Any) -> None:
    group = library.optim.Adam([library.ones(2, requires_grad=True)], lr=0.5).param_groups[0]
    for made in (copy.copy(group), copy.deepcopy(group)):
        assert type(made) is dict and made["lr"] == 0.5 and made["params"][0].tolist() == [1.0, 1.0]


@BOTH
def test_out_of_functions_that_are_no_ops(library: Any) -> None:
    a = library.tensor([[2.0, 1.0], [1.0, 3.0]])
    values, vectors = library.zeros(2), library.zeros(2, 2)
    assert library.linalg.eigh(a, out=(values, vectors))[0] is values
    np.testing.assert_allclose(values.numpy(), [1.381966, 3.618034], rtol=1e-5)
    assert library.linalg.cholesky_ex(a, out=None).info.item() == 0
    drawn = library.empty(0, dtype=library.int64)
    assert library.multinomial(library.tensor([0.0, 1.0]), 1, out=drawn) is drawn and drawn.tolist() == [1]


def test_names_of_types() -> None:
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"):
        ours, theirs = (library.ones(2, dtype=getattr(library, name)) for library in (pf, torch))
        assert ours.type() == theirs.type()
        assert pf.ones(1).type(ours.type()).dtype is ours.dtype


@pytest.mark.parametrize("library", [pf, torch])
def test_walking_along_the_tape(library: Any) -> None:
    w = library.nn.Parameter(library.ones(2))
    y = (w * library.ones(2)).exp()
    product = y.grad_fn.next_functions[0][0]
    (leaf, place), (constant, _) = product.next_functions
    names = [y.grad_fn.name(), type(product).__name__, leaf.name()]
    assert names[0] == "ExpBackward0" and names[1] == "MulBackward0" and names[2].endswith("AccumulateGrad")
    assert leaf.variable is w and place == 0 and constant is None and leaf.next_functions == ()
    assert y.grad_fn == y.grad_fn and len({y.grad_fn, y.grad_fn, product}) == 2
    assert not hasattr(y.grad_fn, "variable") and "ExpBackward0" in repr(y.grad_fn)


def test_names_of_steps_along_the_tape() -> None:
    found = []
    for library in (pf, torch):

        class Cube(library.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x**3

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g

        x = library.ones(2, 2, requires_grad=True)
        nn = library.nn
        made = [
            x / 2, x @ x, x[None] @ x[None], x.sum(), x.view(4), x**2, x**3.5, x.std(), x.norm(), x.cumsum(0),
            x.double(),
            nn.functional.layer_norm(x, (2,)), nn.Linear(2, 2)(x), nn.Linear(2, 2, bias=False)(x), Cube.apply(x),
        ]  # fmt: skip
        found.append([type(y.grad_fn).__name__ for y in made])
    # PyTorch makes a view of what its product over batches gives
    assert found[0] == [name if i != 2 else "BmmBackward0" for i, name in enumerate(found[1])]


def test_numbers_to_complex_powers() -> None:
    found = []
    for library in (pf, torch):
        x = library.tensor([2.0, 0.5], dtype=library.float64, requires_grad=True)
        y = x**1j + 2j**x + library.pow(x, 0.5 + 1j)
        library.view_as_real(y).sum().backward()
        values = [y, library.tensor([2, 3]) ** 1j, 1j ** library.ones(2), library.tensor([True]) ** 1j]
        found.append(([v.detach().numpy() for v in values], x.grad.numpy()))
    for ours, theirs in zip([*found[0][0], found[0][1]], [*found[1][0], found[1][1]], strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_limits_print_as_theirs() -> None:
    for name in ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64"):
        ours, theirs = pf.finfo(getattr(pf, name)), torch.finfo(getattr(torch, name))
        assert repr(ours) == repr(theirs) and ours.resolution == theirs.resolution
    for name in ("uint8", "int8", "int32", "int64"):
        assert repr(pf.iinfo(getattr(pf, name))) == repr(torch.iinfo(getattr(torch, name)))


def test_checks_with_errors_of_their_own() -> None:
    for library in (pf, torch):
        for name, error in (("value", ValueError), ("type", TypeError), ("index", IndexError)):
            getattr(library, f"_check_{name}")(True, lambda: "no")
            with pytest.raises(error, match="said"):
                getattr(library, f"_check_{name}")(False, lambda: "said")
        library._check_is_size(3)
        library._check_tensor_all(library.ones(2) > 0)
        with pytest.raises(ValueError, match="said"):
            library._check_tensor_all_with(ValueError, library.ones(2) > 1, lambda: "said")
        with pytest.raises(TypeError):
            library._check_tensor_all(library.ones(2))
        with pytest.raises(RuntimeError):
            library._check_is_size(-1)


@pytest.mark.parametrize(
    "make", ["LSTM(1, 2, 2, proj_size=1)", "GRU(1, 2, bidirectional=True)", "RNN(1, 1, 1, 'relu')"]
)
def test_what_a_recurrent_layer_is_made_of(make: str) -> None:
    ours, theirs = (eval(f"library.nn.{make}", {"library": library}) for library in (pf, torch))
    assert ours.mode == theirs.mode
    assert [[tuple(w.shape) for w in layer] for layer in ours.all_weights] == [
        [tuple(w.shape) for w in layer] for layer in theirs.all_weights
    ]


def test_as_strided_of_parts() -> None:
    """torchdiffeq's adjoint reads states so; places count from where the part begins in its storage."""
    found = []
    for library in (pf, torch):
        whole = library.arange(12.0).requires_grad_()
        part = (whole * 1.0)[3:11]
        values = [
            library.as_strided(part, (), ()), part.as_strided((3, 2), (2, 1)), part.as_strided((2, 2), (1, 3), 5),
            part.view(2, 4)[1].as_strided((2,), (2,)), whole.detach()[4].as_strided((1,), (1,)),
        ]  # fmt: skip
        sum((v**2).sum() for v in values[:4]).backward()
        offsets = [v.storage_offset() for v in values]
        written = library.zeros(6)
        written[2:].as_strided((2,), (3,)).fill_(1.0)
        found.append(([v.tolist() for v in values], offsets, whole.grad.tolist(), written.tolist()))
    assert found[0] == found[1]


def test_as_strided_reads_the_memory_below_a_view() -> None:
    """Longformer cuts overlapping windows of transposed states so."""
    found = []
    for library in (pf, torch):
        whole = library.arange(12.0, requires_grad=True)
        grid = (whole * 1.0).view(3, 4)
        values = [
            grid.t().as_strided((2, 2), (1, 4)), grid[1:].as_strided((2,), (5,)), grid[2:].as_strided((3,), (2,), 1),
            grid[:, 1:3].view(3, 2, 1).as_strided((2, 3), (4, 1)), grid[1].expand(3, 4).as_strided((2,), (1,)),
            grid.detach().t().as_strided((4,), (3,)),
        ]  # fmt: skip
        sum((v**2).sum() for v in values[:1]).backward()
        written = library.zeros(3, 4)
        written.t().as_strided((2, 2), (1, 8)).copy_(library.arange(4.0).view(2, 2))
        found.append(([v.tolist() for v in values], whole.grad.tolist(), written.tolist(), values[5].requires_grad))
    assert found[0] == found[1]
    with pytest.raises(pf.ShapeError):
        pf.arange(6)[2:4].as_strided((2,), (5,))
    with pytest.raises(pf.NotSupportedError, match="dtype"):
        pf.ones(4).view(pf.int32)[1:].as_strided((1,), (1,), 0)


def _scaled(library: Any) -> Any:
    class Scaled(library.distributions.Normal):  # type: ignore[misc, name-defined]
        def __init__(self, loc: Any, scale: Any, extra: Any) -> None:
            self.extra = extra
            super().__init__(loc, scale)

        def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
            new = self._get_checked_instance(Scaled, _instance)
            new.extra = self.extra.expand(batch_shape)
            return super().expand(batch_shape, _instance=new)

    return Scaled(library.zeros(1), library.ones(1), library.full((1,), 3.0))


def test_expand_of_distributions_with_more_parameters() -> None:
    """As PyTorch writes its own: `_get_checked_instance`, and `_instance` handed upwards."""
    for library in (pf, torch):
        made = _scaled(library).expand((4,))
        assert tuple(made.extra.shape) == (4,) and tuple(made.loc.shape) == (4,) and tuple(made.batch_shape) == (4,)
        own = type("Own", (library.distributions.Normal,), {"__init__": lambda self: None})()
        with pytest.raises(NotImplementedError):
            own._get_checked_instance(library.distributions.Normal)


INSTANCES = ["Independent", "TransformedDistribution", "OneHotCategorical", "MixtureSameFamily", "LogNormal"]


@pytest.mark.parametrize("name", INSTANCES)
def test_expand_fills_what_was_begun(name: str) -> None:
    for library in (pf, torch):
        d = library.distributions
        base = d.Normal(library.zeros(3), library.ones(3))
        arguments = {
            "Independent": (base, 1), "TransformedDistribution": (base, [d.ExpTransform()]),
            "OneHotCategorical": (library.ones(3) / 3,), "LogNormal": (library.zeros(3), library.ones(3)),
            "MixtureSameFamily": (d.Categorical(library.ones(3) / 3), base),
        }  # fmt: skip
        kind = type("Kind", (getattr(d, name),), {})
        made = kind(*arguments[name])
        begun = made.__new__(kind)
        begun.more = 5
        shape = (2, *made.batch_shape)
        assert made.expand(shape, _instance=begun) is begun and begun.more == 5 and tuple(begun.batch_shape) == shape
        assert tuple(begun.log_prob(begun.sample()).shape) == shape


def test_streams_and_events_are_classes() -> None:
    """Libraries write `stream: torch.cuda.Stream | None`, and ask isinstance of it."""
    for library in (pf, torch):
        for kind in (library.cuda.Stream, library.cuda.Event):
            assert isinstance(kind, type) and (kind | None) and not isinstance(1, kind)
    assert issubclass(pf.cuda.Stream, pf.Stream) and issubclass(pf.cuda.Event, pf.Event)
    with pytest.raises(pf.NotSupportedError, match=r"pf\.jit"):
        pf.cuda.CUDAGraph()


def test_names_that_programs_compare_with() -> None:
    for library in (pf, torch):
        x = library.ones(2)
        assert x.layout not in (library.sparse_csc, library.sparse_bsr, library.sparse_bsc, library.jagged)
        assert x.dtype not in (library.complex32, library.chalf, library.qint8, library.quint8, library.qint32)
        assert not isinstance(2, (library.SymInt, library.SymFloat, library.SymBool))
        assert library.sym_max(2, 3) == 3 and library.sym_min(2, 3) == 2
        assert library.sym_int(2.5) == 2 and library.sym_float(2) == 2.0
        assert library.legacy_contiguous_format == library.contiguous_format
        library._dynamo.mark_static_address(x)
        library._dynamo.mark_dynamic(x, 0)
    for make in (lambda: pf.zeros(2, dtype=pf.complex32), lambda: pf.ones(2).to(pf.qint8)):
        with pytest.raises(pf.PyFlameError):
            make()


def test_pyflame_in_torchs_place() -> None:
    """A program that puts PyFlame in torch's place sets its attributes to what the paths give."""
    room = sys.modules["pyflame.autograd"]
    assert room.no_grad is pf.no_grad
    before = pf.autograd
    try:
        pf.autograd = room  # type: ignore[assignment]
        assert pf.autograd.grad is before.grad
        with pytest.raises(AttributeError):
            pf.autograd.no_such_name  # type: ignore[attr-defined]
    finally:
        pf.autograd = before


@pytest.mark.parametrize("library", [pf, torch], ids=["pyflame", "torch"])
def test_all_options_of_a_loader(library: Any) -> None:
    """As accelerate makes a loader again: every option by name, as it reads from the first; and all by their places."""
    kind = library.utils.data.DataLoader
    items = list(range(5))
    first = kind(items, 2, False, None, None, 0, None, False, True, 0, None, None, library.Generator())
    names = (
        "batch_size num_workers collate_fn pin_memory drop_last timeout worker_init_fn multiprocessing_context "
        "generator persistent_workers pin_memory_device in_order"
    )
    again = kind(items, **{name: getattr(first, name) for name in names.split()})
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in first] == [[0, 1], [2, 3]]


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_lists_that_stand_for_tuples() -> None:
    def found(library: Any) -> list[Any]:
        x = library.arange(12.0).reshape(3, 4)
        at = [library.tensor([0, 1]), library.tensor([1, 2])]
        keys = [
            [slice(None), slice(0, 2)],
            [slice(1)],
            [None, 0],
            [0, slice(1, 2)],
            [Ellipsis, 0],
            at,
            [0, at[1]],
            [0, 1],
        ]
        read = [x[key].tolist() for key in keys]
        x[[slice(0, 2), 1]] = -1.0
        return [*read, x.tolist()]

    assert found(pf) == found(torch)


@pytest.mark.parametrize("width", [0.3, 0.69, 1.0])
def test_cholesky_of_nearly_singular_matrices(width: float) -> None:
    """Gaussian processes ask `cholesky_ex` whether one is: it tells, and never raises."""
    x = np.linspace(0, 1, 12)
    kernel = pf.tensor(np.exp(-((x[:, None] - x) ** 2) / (2 * width**2)))
    low, info = pf.linalg.cholesky_ex(kernel)
    if info.item() == 0:
        np.testing.assert_allclose((low @ low.mT).numpy(), kernel.numpy(), atol=1e-8)
    try:
        pf.linalg.cholesky(kernel)
        assert info.item() == 0
    except pf.linalg.LinAlgError:
        assert info.item() > 0


NESTED: list[Any] = [
    [[0, 1], [1, 2]], [[0, 1]], [(0, 1), (2, 2)], [np.array([0, 1]), 2], [[0, 1], slice(1, 3)], [0, 2],
    [[True, False, True]], [[i % 3, 0] for i in range(40)],
]  # fmt: skip


@pytest.mark.parametrize("key", NESTED)
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_lists_of_lists_are_indices_of_each_axis(key: Any) -> None:
    found = []
    for library in (torch, pf):
        x = library.arange(12).reshape(3, 4)
        taken = x[key].tolist()
        x[key] = -1
        found.append((taken, x.tolist()))
    assert found[0] == found[1]
