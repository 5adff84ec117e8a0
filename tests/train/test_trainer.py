"""The Trainer: what a run computes, where it ends, and how it goes on."""

from __future__ import annotations

import math
import os
import signal

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn, optim
from pyflame.data import DataLoader, IterableDataset, TensorDataset
from pyflame.train import Accuracy, CheckpointManager, EarlyStopping, LambdaCallback, Trainer
from tests.train.runs import X, Y, build, digests, full, loader, trainer


def _weights(run: Trainer) -> list[np.ndarray]:
    return [p.numpy().copy() for p in run.model.parameters()]


def _equal(a: Trainer, b: Trainer) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(_weights(a), _weights(b), strict=True))


def _batches(size: int = 10) -> list[tuple[pf.Tensor, pf.Tensor]]:
    return [(pf.tensor(X[i : i + size]), pf.tensor(Y[i : i + size])) for i in range(0, 60, size)]


def _regression(**options) -> Trainer:
    """No dropout and no statistics of the batch, so that batches can be split."""
    pf.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options = {"progress": False, "max_epochs": 2, **options}
    return Trainer(model, optimizer, lambda p, y: ((p.squeeze(-1) - y) ** 2).mean(), **options)


# --- where it ends ----------------------------------------------------------------------------------------------------


def test_epochs_and_steps():
    run = trainer(max_steps=None, max_epochs=2)  # 8 batches an epoch, the last of 4
    ended = run.fit()
    assert (ended.step, ended.epoch, ended.reason) == (16, 2, "max_epochs")
    assert trainer(max_steps=5, max_epochs=2).fit().reason == "max_steps"
    run = trainer(max_steps=3)
    assert (run.fit().step, run.epoch, run.batch) == (3, 0, 3)
    run.max_steps = 9
    assert (run.fit().step, run.epoch, run.batch) == (9, 1, 1)  # a second fit goes on


def test_training_lowers_the_loss():
    run = trainer(max_steps=200, eval_data=loader(60, shuffle=False), metrics=[Accuracy()])
    before, ended = run.evaluate(), run.fit()
    assert ended.metrics["loss"] < 0.7 * before["loss"] and ended.metrics["accuracy"] > 0.8


def test_a_step_is_one_trace_and_reads_nothing_back(monkeypatch):
    run = trainer(max_steps=20, log_every=20, train_data=_batches(), clip_norm=1.0)
    reads = []
    real = pf.Tensor._evaluated
    monkeypatch.setattr(pf.Tensor, "_evaluated", lambda self, why: reads.append((run.step, why)) or real(self, why))
    run.fit()
    assert run.steps.step.traces == 1
    assert {step for step, _ in reads} == {20}, "the host read a value before the log at step 20"


@pytest.mark.slow
def test_jit_equals_eager():
    a = trainer(max_steps=6, clip_norm=0.5)
    a.fit()
    b = trainer(max_steps=6, clip_norm=0.5, jit=False)
    b.fit()
    for name, x, y in zip(dict(a.model.named_parameters()), _weights(a), _weights(b), strict=True):
        # Batch norm takes the bias before it away again: its gradient is rounding alone, which Adam makes a full step.
        if name != "0.bias":
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.slow(16)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_mixed_precision(dtype):
    scaler = optim.GradScaler(init_scale=2.0**40) if dtype == "float16" else None
    run = trainer(max_steps=30, autocast=dtype, scaler=scaler, eval_data=loader(60, shuffle=False))
    before, after = run.evaluate()["loss"], run.fit().metrics or run.evaluate()
    assert after["loss"] < before and run.steps.step.traces == 2  # the last batch of an epoch is smaller
    if scaler is not None:
        assert scaler.get_scale() < 2.0**40  # the first steps overflowed and were skipped


# --- accumulation -----------------------------------------------------------------------------------------------------


def test_accumulating_equals_larger_batches():
    target = X[:, 0].copy()
    small = [(pf.tensor(X[i : i + 10]), pf.tensor(target[i : i + 10])) for i in range(0, 60, 10)]
    large = [(pf.tensor(X[i : i + 30]), pf.tensor(target[i : i + 30])) for i in range(0, 60, 30)]
    a = _regression(train_data=small, accumulate=3, clip_norm=0.5)
    b = _regression(train_data=large, clip_norm=0.5)
    assert a.fit().step == b.fit().step == 4
    for x, y in zip(_weights(a), _weights(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    assert a.steps.micro.traces == a.steps.apply.traces == 1


def test_batches_that_are_left_over_make_a_step_of_their_own():
    target = X[:, 0].copy()
    parts = [(pf.tensor(X[i : i + 10]), pf.tensor(target[i : i + 10])) for i in range(0, 60, 10)]
    whole = [(pf.tensor(X[i:j]), pf.tensor(target[i:j])) for i, j in ((0, 40), (40, 60))]

    class Unknown:  # no length: the end is seen only when it is reached
        def __iter__(self):
            return iter(parts)

    want = _regression(train_data=whole, max_epochs=1)
    want.fit()
    for data in (parts, Unknown()):
        run = _regression(train_data=data, accumulate=4, max_epochs=1)
        assert run.fit().step == 2
        for x, y in zip(_weights(run), _weights(want), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


# --- kinds of batches -------------------------------------------------------------------------------------------------


def test_kinds_of_batches_give_the_same():
    target = X[:, 0].copy()
    want = _regression(train_data=[(X, target)])
    want.fit()
    named = _regression(train_data=[{"input": X, "labels": target}])
    named.fit()

    class WithLoss(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x, y):
            prediction = self.inner(x)
            return ((prediction.squeeze(-1) - y) ** 2).mean(), prediction

    plain = _regression(train_data=[(X, target)])
    own = Trainer(WithLoss(plain.model), plain.optimizer, train_data=[(X, target)], max_epochs=2, progress=False)
    own.fit()
    assert _equal(named, want) and _equal(own, want)
    assert want.predict([(X, target)]).shape == (60, 1)
    with pytest.raises(pf.ArgumentError, match="predictions and targets for the metrics"):
        Trainer(own.model, own.optimizer, train_data=[(X, target)], eval_data=[(X, target)], metrics=[Accuracy()],
                max_steps=1, progress=False).evaluate()  # fmt: skip


def test_batches_without_meaning():
    for data, message in [
        ([X], "inputs and a target"),
        ([{"input": X}], "target under 'labels'"),
        ([], "train_data with batches"),
        ([(3, 4)], "batches with tensors"),
    ]:
        with pytest.raises(pf.PyFlameError, match=message):
            _regression(train_data=data).fit()
    run = _regression(train_data=[(X, Y)])
    run.loss_fn = lambda p, y: p
    with pytest.raises(pf.ShapeError, match=r"loss with one element but got shape \(60, 1\)"):
        run.fit()


def test_predict_and_evaluate_leave_modes_as_they_were():
    run = trainer(eval_data=loader(25, shuffle=False))
    run.model[1].eval()  # frozen statistics
    before = [m.training for m in run.model.modules()]
    out = run.predict(loader(25, shuffle=False))
    metrics = run.evaluate()
    assert [m.training for m in run.model.modules()] == before
    run.model.eval()
    want = run.model(pf.tensor(X))
    np.testing.assert_allclose(out.numpy(), want.numpy(), rtol=1e-4, atol=1e-6)
    assert metrics["loss"] == pytest.approx(pf.cross_entropy(want, pf.tensor(Y)).item(), rel=1e-5)
    assert run.predict(pf.tensor(X[:3])).shape == (3, 2)
    with pytest.raises(pf.ArgumentError, match=r"\[predict\] expected data with batches"):
        run.predict([])


def test_arguments_without_meaning():
    for options, message in [
        ({"max_steps": None}, "max_epochs or max_steps but got neither"),
        ({"max_steps": 0}, "max_steps of at least 1"),
        ({"accumulate": 1.5}, "accumulate of at least 1"),
        ({"schedule": "hour"}, "schedule 'step' or 'epoch'"),
        ({"train_data": iter([1])}, "iterated again each epoch"),
    ]:
        with pytest.raises(pf.PyFlameError, match=message):
            trainer(**options)
    model, optimizer = build()
    with pytest.raises(pf.ArgumentError, match="eval_data for ReduceLROnPlateau"):
        Trainer(model, optimizer, train_data=[], max_steps=1,
                scheduler=optim.lr_scheduler.ReduceLROnPlateau(optimizer))  # fmt: skip
    with pytest.raises(pf.ArgumentError, match=r"\[evaluate\] expected data"):
        trainer().evaluate()


def test_a_loss_that_is_not_finite_is_told():
    run = _regression(train_data=[(X, np.full(60, np.nan, np.float32))], max_steps=2)
    with pytest.warns(RuntimeWarning, match="the loss is nan at step 2; a smaller learning rate"):
        run.fit()


# --- schedules --------------------------------------------------------------------------------------------------------


def test_schedules_by_step_epoch_and_evaluation():
    rates: dict[str, list[float]] = {}
    for kind in ("step", "epoch", "plateau"):
        model, optimizer = build()
        if kind == "plateau":
            scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.9)
        else:
            scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        seen = rates.setdefault(kind, [])
        watch = LambdaCallback(on_step_end=lambda run, seen=seen: seen.append(run.optimizer.param_groups[0]["lr"]))
        Trainer(
            model, optimizer, nn.CrossEntropyLoss(), train_data=_batches(30), eval_data=_batches(30), max_epochs=3,
            scheduler=scheduler, schedule="epoch" if kind == "epoch" else "step", callbacks=[watch], progress=False,
        ).fit()  # fmt: skip
    first = 1e-2
    assert rates["step"] == pytest.approx([first * 0.5**i for i in range(1, 7)])
    assert rates["epoch"] == pytest.approx([first * 0.5**i for i in (0, 0, 1, 1, 2, 2)])
    assert rates["plateau"] == pytest.approx([first * 0.5**i for i in (0, 0, 0, 0, 1, 1)])  # the first is the best


# --- resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [5, 8, 16], ids=["within an epoch", "at its end", "at the second end"])
def test_a_longer_run_continues_bit_for_bit(tmp_path, stop):
    """Stopped within an epoch or where one ends, by a fresh process' objects, with the loader's own position."""
    want = trainer(max_steps=20, eval_data=loader(30, shuffle=False))
    want.fit()
    trainer(max_steps=stop, eval_data=loader(30, shuffle=False), checkpoint=tmp_path).fit()
    run = trainer(max_steps=20, eval_data=loader(30, shuffle=False), checkpoint=tmp_path, seed=99)
    assert run.fit().step == 20
    assert _equal(run, want) and run.metrics == want.metrics and run.epoch == want.epoch == 2


def test_data_without_a_position_is_wound_forward(tmp_path):
    want = trainer(train_data=_batches(), max_steps=15)
    want.fit()
    for seed, stop in enumerate((4, 6, 15)):  # 6 batches an epoch
        run = trainer(train_data=_batches(), max_steps=stop, checkpoint=tmp_path, seed=seed)
        run.fit()
    assert _equal(run, want)


def test_a_stream_of_unknown_length_continues(tmp_path):
    class Rows(IterableDataset):
        def __iter__(self):
            return zip(X, Y, strict=True)

    def start(**options) -> Trainer:
        return trainer(train_data=DataLoader(Rows(), batch_size=10), eval_data=_batches(), **options)

    want = start(max_steps=15)
    want.fit()
    for seed, stop in enumerate((4, 6, 15)):
        run = start(max_steps=stop, checkpoint=tmp_path, seed=seed)
        run.fit()
    assert _equal(run, want) and run.metrics == want.metrics and run.epoch == want.epoch == 2


def test_evaluations_and_checkpoints_do_not_change_training(tmp_path):
    def start(**options) -> Trainer:
        return trainer(train_data=DataLoader(TensorDataset(X, Y), 10, shuffle=True), max_steps=9, **options)

    plain = start()
    plain.fit()
    shuffled = DataLoader(TensorDataset(X, Y), 30, shuffle=True)  # draws a seed when it is first used
    watched = start(eval_data=shuffled, eval_every=2, checkpoint=tmp_path, checkpoint_every=1)
    watched.fit()
    assert _equal(plain, watched)


def test_a_finished_run_is_finished(tmp_path):
    trainer(max_steps=4, checkpoint=tmp_path).fit()
    names = [p.name for p in CheckpointManager(tmp_path).all()]
    run = trainer(max_steps=4, checkpoint=tmp_path)
    assert run.fit().step == 4 and [p.name for p in CheckpointManager(tmp_path).all()] == names


def test_starting_anew_in_a_used_folder_is_refused(tmp_path):
    trainer(max_steps=2, checkpoint=tmp_path).fit()
    run = trainer(max_steps=4, checkpoint=tmp_path)
    with pytest.raises(pf.ArgumentError, match="holds step-00000002; use resume=True, remove it"):
        run.fit(resume=False)
    assert trainer(max_steps=2, checkpoint=tmp_path / "other").fit(resume=False).step == 2


@pytest.mark.slow
def test_a_damaged_checkpoint_costs_only_its_steps(tmp_path):
    want = full(tmp_path / "want", max_steps=11)
    want.fit()
    full(tmp_path, max_steps=10).fit()
    path = tmp_path / "checkpoints" / "step-00000010" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    run = full(tmp_path, max_steps=11)
    with pytest.warns(RuntimeWarning, match="step-00000010.model.safetensors is damaged.*Using step-00000009"):
        run.fit()
    assert digests(tmp_path) == digests(tmp_path / "want")


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


def _press(*steps: int) -> LambdaCallback:
    def press(run: Trainer) -> None:
        if run.step in steps:
            os.kill(os.getpid(), signal.SIGINT)

    return LambdaCallback(on_step_end=press)


def test_ctrl_c_ends_after_the_step_with_a_checkpoint(tmp_path, capfd):
    before = signal.getsignal(signal.SIGINT)
    run = trainer(max_steps=20, checkpoint=tmp_path, callbacks=[_press(3)])
    assert run.fit().reason == "interrupted" and run.step == 3
    assert CheckpointManager(tmp_path).latest().step == 3
    assert signal.getsignal(signal.SIGINT) is before
    assert "press Ctrl-C again" in capfd.readouterr().err


def test_a_second_ctrl_c_raises(tmp_path):
    def press_twice(run: Trainer) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    run = trainer(checkpoint=tmp_path, callbacks=[LambdaCallback(on_step_end=press_twice)])
    with pytest.raises(KeyboardInterrupt):
        run.fit()
    assert CheckpointManager(tmp_path).all() == [] and signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("eval_every", [3, None], ids=["after a step", "after an epoch"])
def test_an_evaluation_that_was_cut_short_is_done_when_resumed(tmp_path, eval_every):
    class Pressing:
        pressed = False

        def __iter__(self):
            for batch in _batches(20):
                if not Pressing.pressed:
                    Pressing.pressed = True
                    os.kill(os.getpid(), signal.SIGINT)
                yield batch

    def start(data, **options) -> Trainer:
        return trainer(max_steps=None, max_epochs=2, eval_every=eval_every, train_data=loader(20), eval_data=data,
                       callbacks=[EarlyStopping(patience=100)], **options)  # fmt: skip

    want = start(_batches(20))
    want.fit()
    run = start(Pressing(), checkpoint=tmp_path)
    assert run.fit().reason == "interrupted" and run.step == 3 and run.metrics == {}
    run = start(Pressing(), checkpoint=tmp_path)
    assert run.fit().reason == "max_epochs"
    assert _equal(run, want) and run.metrics == want.metrics and not math.isnan(run.callbacks[0].best)
    assert run.callbacks[0].state_dict() == want.callbacks[0].state_dict()


def test_a_run_in_another_thread_leaves_ctrl_c_alone():
    import threading

    reasons: list[str] = []
    thread = threading.Thread(target=lambda: reasons.append(trainer(max_steps=2).fit().reason))
    thread.start()
    thread.join()
    assert reasons == ["max_steps"]
