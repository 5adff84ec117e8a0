"""pf.aot.compile: what a plan says, and that run by what it says it computes the right thing."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn, optim
from pyflame.core.errors import ArgumentTypeError, DeviceFaultError, NotAvailableError
from pyflame.core.targets import TARGETS
from pyflame.engine.implementations import implementations
from pyflame.kernels import specs
from pyflame.runtime.rocm.metadata import read_metadata
from pyflame.transform.aot import AotPlan, BufferArg, ScalarArg
from pyflame.transform.aot_names import captured_names
from tests.aot.emulated import Emulation
from tests.emulated import EmulatedDriver
from tests.runtime.machine import machine, vendor

rng = np.random.default_rng(0)


def randn(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def test_plan_of_a_chain() -> None:
    """Everything that a launcher of its own would need."""
    weight = pf.tensor(randn(40))
    plan = pf.aot.compile(lambda x, s: (x * s + weight).tanh(), pf.tensor(randn(6, 40)), 0.5, target="gfx942")
    (launch,) = plan.launches
    assert launch.code_object[:4] == b"\x7fELF"
    assert launch.grid == (1, 1, 1)
    assert launch.block == (256, 1, 1)
    assert launch.dynamic_lds == 0
    assert launch.implementation == "generated"
    assert "tanh" in launch.ops
    roles = [(b.role, b.position, b.nbytes, b.shape, b.name) for b in plan.buffers]
    assert roles == [
        ("input", 0, 960, (6, 40), "x"),
        ("constant", -1, 160, (40,), "weight"),
        ("output", 0, 960, (6, 40), "result"),
        ("uniforms", -1, 8, (), ""),
    ]
    assert plan.buffers[1].data == weight.numpy().tobytes()
    assert plan.buffers[1].dtype is pf.float32
    assert np.frombuffer(plan.buffers[plan.uniform_buffer].data, np.float64).tolist() == [0.5]
    assert [(u.role, u.position, u.name) for u in plan.uniforms] == [("input", 1, "s")]
    kinds = [a for a in launch.args if isinstance(a, BufferArg)]
    assert sorted(a.buffer for a in kinds) == [0, 1, 2, 3]
    assert all(a.offset == 0 for a in kinds)
    assert all(a.dtype is pf.int64 for a in launch.args if isinstance(a, ScalarArg))
    assert read_metadata(launch.code_object)[launch.name].kernarg_bytes == 8 * len(launch.args)
    assert plan.report.clean and plan.report[launch.name].threads == 256


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_elementwise_equals_numpy(target: str, emulation: Emulation) -> None:
    weight = randn(40)
    captured = pf.tensor(weight)
    x = randn(6, 40)
    _, run = emulation.compile(lambda x, s: (x * s + captured).tanh(), pf.tensor(x), 0.5, target=target)
    np.testing.assert_allclose(run(pf.tensor(x), 0.5).numpy(), np.tanh(x * 0.5 + weight), rtol=2e-6)
    other = randn(6, 40)
    np.testing.assert_allclose(run(pf.tensor(other), -2.0).numpy(), np.tanh(other * -2.0 + weight), rtol=2e-6)


@pytest.mark.slow
def test_scratch_and_two_launches(emulation: Emulation) -> None:
    """A sum over few long rows leaves partial results in scratch; another value lives in the arena."""
    x = randn(3, 40_000)
    plan, run = emulation.compile(lambda x: ((x - x.mean()) * 1e-3).sum(axis=1).exp() * 2.0, pf.tensor(x))
    assert len(plan.launches) > 2
    assert [b.role for b in plan.buffers].count("scratch") == 1
    expected = np.exp(((x - x.mean(dtype=np.float64)) * 1e-3).sum(axis=1, dtype=np.float64)) * 2.0
    np.testing.assert_allclose(run(pf.tensor(x)).numpy(), expected, rtol=1e-4)


@pytest.mark.slow
def test_outputs_have_buffers_of_their_own(emulation: Emulation) -> None:
    """Views, the same tensor twice, an input, a constant."""
    x = randn(5, 8)

    def fn(x: pf.Tensor) -> Any:
        y = x + 1.0
        return {"y": y, "again": [y, y.T], "x": x, "slice": y[1:3], "one": pf.ones(3), "text": "kept", "n": (4, None)}

    plan, run = emulation.compile(fn, pf.tensor(x))
    assert [b.position for b in plan.buffers if b.role == "output"] == list(range(6))
    out = run(pf.tensor(x))
    expected = {"y": x + 1, "x": x, "slice": (x + 1)[1:3], "one": np.ones(3, np.float32)}
    for name, array in expected.items():
        np.testing.assert_array_equal(out[name].numpy(), array, name)
    np.testing.assert_array_equal(out["again"][0].numpy(), x + 1)
    np.testing.assert_array_equal(out["again"][1].numpy(), (x + 1).T)
    assert (out["text"], out["n"]) == ("kept", (4, None))


@pytest.mark.slow
def test_outputs_are_dense_where_channels_lie_last(emulation: Emulation) -> None:
    x, w = (pf.tensor(v).to(pf.bfloat16) for v in (randn(2, 8, 6, 6), randn(9, 8, 3, 3)))
    _, run = emulation.compile(lambda x, w: pf.relu(pf.conv2d(x, w)), x, w)
    got = run(x, w)
    want = pf.relu(pf.conv2d(x.to(pf.float32), w.to(pf.float32)))
    np.testing.assert_allclose(got.to(pf.float32).numpy(), want.numpy(), rtol=2e-2, atol=2e-2)
    assert got.is_contiguous()


@pytest.mark.slow
def test_named_tuples_become_plain(emulation: Emulation) -> None:
    Pair = namedtuple("Pair", "left right")
    _, run = emulation.compile(lambda x: Pair(x + 1.0, x - 1.0), pf.ones(3))
    left, right = run(pf.ones(3))
    assert (left.numpy().tolist(), right.numpy().tolist()) == ([2.0] * 3, [0.0] * 3)


@pytest.mark.slow
def test_inputs_need_not_be_dense(emulation: Emulation) -> None:
    x = randn(8, 12)
    _, run = emulation.compile(lambda pair: pair[0] * pair[1]["b"], (pf.tensor(x).T, {"b": pf.tensor(x).T}))
    view = pf.tensor(x).T
    np.testing.assert_array_equal(run((view, {"b": view})).numpy(), (x * x).T)


@pytest.mark.slow
def test_slices_are_askew(emulation: Emulation) -> None:
    """A byte offset that vectors cannot have takes the text without vectors."""
    x = randn(4, 65)
    _, run = emulation.compile(lambda x: x.reshape(-1)[1:257] * 2.0, pf.tensor(x))
    np.testing.assert_array_equal(run(pf.tensor(x)).numpy(), x.reshape(-1)[1:257] * 2)


@pytest.mark.slow
def test_bad_index_is_found(emulation: Emulation) -> None:
    table = randn(11, 24)
    good, bad = np.array([3, -1, 0]), np.array([3, 11, 0])
    plan, run = emulation.compile(lambda t, i: pf.embedding(t, i) * 2.0, pf.tensor(table), pf.tensor(good))
    assert plan.buffers[plan.error_buffer].data == bytes(24)
    np.testing.assert_array_equal(run(pf.tensor(table), pf.tensor(good)).numpy(), table[good] * 2)
    with pytest.raises(pf.IndexError, match=r"expected an index in \[-11, 10\] but got 11; called at .*test_plan"):
        run(pf.tensor(table), pf.tensor(bad))


@pytest.mark.slow
def test_constants_are_frozen(emulation: Emulation) -> None:
    weight = pf.tensor(np.full(8, 3.0, np.float32))
    _, run = emulation.compile(lambda x: x * weight, pf.ones(8))
    weight += 1.0
    np.testing.assert_array_equal(run(pf.ones(8)).numpy(), np.full(8, 3.0))


@pytest.mark.slow
def test_state_goes_on(emulation: Emulation) -> None:
    """A training step: the optimiser's state is fed to the next run, and the captured cells stay as they are."""
    start, gradients = randn(16), [randn(16) for _ in range(3)]

    def step_of(weight: nn.Parameter) -> Any:
        optimizer = optim.AdamW([weight], lr=0.1)

        def step(gradient: pf.Tensor) -> pf.Tensor:
            weight.grad = gradient
            optimizer.step()
            weight.grad = None
            return weight * 1.0

        return step

    eager, ahead = nn.Parameter(pf.tensor(start)), nn.Parameter(pf.tensor(start))
    expected = step_of(eager)
    plan, run = emulation.compile(step_of(ahead), pf.tensor(gradients[0]))
    assert {s.kind for s in plan.outputs} == {"result", "state"}
    assert len(plan.state) == [s.kind for s in plan.outputs].count("state") > 2
    for gradient in gradients:
        want = expected(pf.tensor(gradient)).numpy()
        np.testing.assert_allclose(run(pf.tensor(gradient)).numpy(), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ahead.numpy(), start)


@pytest.mark.slow
def test_gradients_come_out(emulation: Emulation) -> None:
    weight = nn.Parameter(pf.tensor(randn(4)))
    x = randn(3, 4)

    def fn(x: pf.Tensor) -> None:
        (x * weight).sum().backward()

    plan, _ = emulation.compile(fn, pf.tensor(x))
    assert [s.kind for s in plan.outputs] == ["gradient"]
    assert weight.grad is None


@pytest.mark.slow
def test_names_and_roles_of_a_training_step() -> None:
    """A launcher of its own can tell parameters from moments, steps, rates and random numbers."""
    model = pf.nn.Sequential(pf.nn.Linear(4, 6), pf.nn.Dropout(0.5), pf.nn.Linear(6, 2))
    optimizer = pf.optim.AdamW(model.parameters(), lr=0.1)

    def step(batch: dict[str, pf.Tensor], scale: float) -> dict[str, pf.Tensor]:
        optimizer.zero_grad()
        loss = pf.cross_entropy(model(batch["x"]), batch["y"]) * scale
        loss.backward()
        optimizer.step()
        return {"loss": loss, "first": model(batch["x"])[:, 0].reshape(5, 1)}

    plan = pf.aot.compile(step, {"x": pf.ones(5, 4), "y": pf.zeros(5, dtype=pf.int64)}, 2.0, target="gfx942")
    by_role: dict[str, list[str]] = {}
    for buffer in plan.buffers:
        by_role.setdefault(buffer.role, []).append(buffer.name)
    weights = [f"model.{n}.{p}" for n in (0, 2) for p in ("weight", "bias")]
    moments = [f"optimizer.state.{w}.{m}" for w in weights for m in ("exp_avg", "exp_avg_sq")]
    assert by_role["input"] == ["batch.x", "batch.y"]
    assert sorted(by_role["state"]) == sorted([*weights, *moments, "optimizer.param_groups.0.steps"])
    assert "optimizer.param_groups.0.lr.float64" in by_role["constant"] and "" not in by_role["constant"]
    gradients = [f"{w}.grad" for w in weights]
    assert set(by_role["output"]) == {"result.loss", "result.first", *by_role["state"], *gradients}
    for buffer in plan.buffers:
        if buffer.role == "output":
            assert (
                buffer.shape == plan.outputs[buffer.position].shape
                and buffer.name == plan.outputs[buffer.position].name
            )
    for buffer, output in plan.state:
        assert plan.buffers[buffer].role == "state" and plan.buffers[buffer].name == plan.outputs[output].name
    data = np.frombuffer(plan.buffers[plan.uniform_buffer].data, np.int64)
    words = {(u.role, u.position): data[n] for n, u in enumerate(plan.uniforms) if u.role in ("seed", "offset")}
    assert set(words) == {(role, stream) for role in ("seed", "offset") for stream in range(2)}
    assert words["offset", 0] != words["offset", 1]


def test_names_of_what_a_function_captures() -> None:
    held = {"scales": [pf.ones(2), pf.zeros(3)]}

    class Holder:
        def __init__(self) -> None:
            self._hidden = {"inner": pf.ones(4)}

        def call(self, x: pf.Tensor) -> pf.Tensor:
            return x + self._hidden["inner"].sum() + held["scales"][0].sum()

    names = captured_names(Holder().call)
    assert sorted(names.values()) == ["held.scales.0", "held.scales.1", "inner"]


@pytest.mark.slow
def test_random_numbers_move_on(emulation: Emulation) -> None:
    x = pf.ones(64, 64)
    _, run = emulation.compile(lambda x: pf.dropout(x, 0.5, training=True), x)
    pf.manual_seed(7)
    first, second = run(x).numpy(), run(x).numpy()
    assert (first != second).any()
    pf.manual_seed(7)
    np.testing.assert_array_equal(first, pf.dropout(x, 0.5, training=True).numpy())
    np.testing.assert_array_equal(second, pf.dropout(x, 0.5, training=True).numpy())


@pytest.mark.slow
def test_a_loaded_plan_runs(emulation: Emulation, tmp_path: Path) -> None:
    x = randn(4, 32)
    plan, _ = emulation.compile(lambda x, s: x.exp() * s, pf.tensor(x), 2.0)
    plan.save(tmp_path / "plan.pfaot")
    device = emulation.devices[0][2]
    loaded = pf.aot.load(tmp_path / "plan.pfaot")
    loaded.place(device)
    np.testing.assert_allclose(loaded.run(pf.tensor(x), 3.0).numpy(), np.exp(x) * 3, rtol=2e-6)
    loaded.close()


@pytest.mark.slow
def test_runs_show_in_profiles(emulation: Emulation) -> None:
    plan, run = emulation.compile(lambda x: (x.exp() @ x).sum(), pf.ones(8, 8))
    with pf.profile() as p:
        run(pf.ones(8, 8))
    seen = [e for e in p.events if e.why == "compiled ahead of time"]
    assert [(e.name, e.ops) for e in seen] == [(x.name, x.ops) for x in plan.launches]


@pytest.mark.slow
def test_closing_starts_over(emulation: Emulation) -> None:
    count = pf.tensor(np.zeros(3, np.float32))

    def step(x: pf.Tensor) -> pf.Tensor:
        count.add_(x)
        return count * 1.0

    plan, run = emulation.compile(step, pf.ones(3))
    assert [run(pf.ones(3)).numpy()[0] for _ in range(3)] == [1.0, 2.0, 3.0]
    plan.place(emulation.devices[0][2])
    assert run(pf.ones(3)).numpy().tolist() == [1.0] * 3
    assert count.numpy().tolist() == [0.0] * 3


@pytest.mark.slow
def test_a_bad_index_leaves_state_alone(emulation: Emulation) -> None:
    total = pf.tensor(np.zeros(24, np.float32))
    table = randn(11, 24)

    def step(t: pf.Tensor, i: pf.Tensor) -> pf.Tensor:
        total.add_(pf.embedding(t, i).sum(axis=0))
        return total * 1.0

    _, run = emulation.compile(step, pf.tensor(table), pf.tensor(np.array([1, 2])))
    with pytest.raises(pf.IndexError):
        run(pf.tensor(table), pf.tensor(np.array([1, 99])))
    got = run(pf.tensor(table), pf.tensor(np.array([1, 2])))
    np.testing.assert_allclose(got.numpy(), table[1] + table[2], rtol=1e-6)


def test_memory_is_given_back_when_loading_fails(emulation: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _ = emulation.compile(lambda x: x + 1.0, pf.ones(8))
    _, driver, device = emulation.devices[0]
    plan.close()

    def refuse(code: bytes) -> int:
        raise pf.DeviceError("[rocm] no binary for this GPU")

    monkeypatch.setattr(driver, "load_module", refuse)
    with pytest.raises(pf.DeviceError, match="no binary"):
        plan.place(device)
    device.empty_cache()
    assert not driver.live and not driver.loaded


# --- errors -----------------------------------------------------------------------------------------------------------


def test_run_without_a_device() -> None:
    plan = pf.aot.compile(lambda x: x + 1.0, pf.ones(4), target="gfx942")
    if pf.rocm_device_count():
        pytest.skip("there is an AMD GPU, whose plans are run elsewhere")
    with pytest.raises(NotAvailableError, match=r"\[aot\] expected a gfx942 device .* none is available"):
        plan.run(pf.ones(4))


def test_a_fault_names_the_plans_kernels() -> None:
    plan = pf.aot.compile(lambda x: x + 1.0, pf.ones(4), target="gfx942")

    class Breaking(EmulatedDriver):
        def load_module(self, code: bytes) -> int:
            return 0

        def get_function(self, module: int, name: str) -> Any:
            return name

        def launch(self, *args: Any) -> None:
            self.stream_synchronize = self.event_synchronize = self.fail  # as a GPU does: it is told of later

        def fail(self, stream: int) -> None:
            raise DeviceFaultError("[rocm] illegal address")

    with machine(rocm=vendor("rocm", Breaking(("gfx942",)))):
        with pytest.raises(DeviceFaultError, match=f"illegal address. Kernels .*: {plan.launches[0].name}$"):
            plan.run(pf.ones(4))
        with pytest.raises(DeviceFaultError, match=f"rocm:0 to work but it broke before.* {plan.launches[0].name}$"):
            pf.eval(pf.ones(4, device="rocm") * 2.0)
        plan.close()


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ((pf.ones(5), 1.0), pf.ShapeError, r"of shape \(4,\) as input 0 but got one of shape \(5,\); compile a plan"),
        (
            (pf.ones(4).cast(pf.int64), 1.0),
            pf.DTypeError,
            r"expected float32 as input 0 but got int64; cast it with \.to",
        ),
        ((pf.ones(4),), ArgumentTypeError, "structure"),
        ((1.0, pf.ones(4)), ArgumentTypeError, "expected a tensor as input 0 but got float"),
    ],
)
def test_inputs_are_checked(inputs: Any, error: type[Exception], message: str) -> None:
    plan = pf.aot.compile(lambda x, s: x * s, pf.ones(4), 1.0, target="gfx942")
    with pytest.raises(error, match=message):
        plan.run(*inputs)


def test_no_kernel_for_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, spec in list(specs().items()):
        if key[0] == "running_sum" and "hip" in spec.languages:
            monkeypatch.delitem(specs(), key)
    implementations.cache_clear()
    try:
        with pytest.raises(pf.DeviceError, match=r"\[running_sum\] expected a kernel for gfx1100"):
            pf.aot.compile(lambda x: pf.cumsum(x, 0), pf.ones(8), target="gfx1100")
    finally:
        implementations.cache_clear()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "gfx94"}, r"\[aot\] expected one of gfx906, .* but got 'gfx94'; did you mean 'gfx942'"),
        ({"target": "sm_90"}, "expected one of gfx906"),
        ({"target": None}, "but got None"),
        ({"target": "gfx942", "vendor_libraries": True}, "no code object"),
    ],
)
def test_options_are_checked(options: Any, message: str) -> None:
    with pytest.raises(pf.ArgumentError, match=message):
        pf.aot.compile(lambda x: x + 1.0, pf.ones(4), **options)


def test_features_of_a_target_are_dropped() -> None:
    plan = pf.aot.compile(lambda x: x + 1.0, pf.ones(4), target="gfx942:sramecc+:xnack-")
    assert plan.target == "gfx942"


def test_moves_to_the_same_device_are_none() -> None:
    plan = pf.aot.compile(lambda x: (x.to("cpu") * 2.0).to("cpu"), pf.ones(4), target="gfx942")
    assert len(plan.launches) == 1


def test_functions_are_checked() -> None:
    with pytest.raises(ArgumentTypeError, match="expected a function but got int"):
        pf.aot.compile(3, target="gfx942")  # type: ignore[arg-type]
    with pytest.raises(pf.TraceError, match=r"item\(\)"):
        pf.aot.compile(lambda x: x * x.sum().item(), pf.ones(4), target="gfx942")
    with pytest.raises(pf.TraceError, match="stays on one device"):
        pf.aot.compile(lambda x: x.to("null") + 1.0, pf.ones(4), target="gfx942")
    with pytest.raises(ArgumentTypeError, match="but got object; let the function capture it"):
        pf.aot.compile(lambda x, o: x, pf.ones(4), object(), target="gfx942")


@pytest.mark.slow
def test_every_known_target_builds() -> None:
    for name, target in TARGETS.items():
        if target.language == "hip":
            plan: AotPlan = pf.aot.compile(lambda x: pf.softmax(x), pf.ones(4, 256), target=name)
            assert plan.report.clean, name
