"""Metrics against plain NumPy formulas, batch by batch, eager and inside jit."""

from __future__ import annotations

import math

import numpy as np
import pytest

import pyflame as pf
from pyflame.train.metrics import F1, MAE, MSE, R2, Accuracy, MeanLoss, Metric, Perplexity, Precision, Recall


def _fed(metric: Metric, *batches: tuple[np.ndarray, np.ndarray]) -> float:
    for prediction, target in batches:
        metric.update(pf.tensor(prediction), pf.tensor(target))
    return metric.compute()


def _scores(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _classes(seed: int, count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, count, shape)


# --- accuracy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("top_k", [1, 3])
def test_accuracy(top_k):
    batches = [(_scores(i, n, 7), _classes(i, 7, n)) for i, n in enumerate((5, 5, 2))]
    right = [t in np.argsort(-s, kind="stable")[:top_k] for ss, tt in batches for s, t in zip(ss, tt, strict=True)]
    assert _fed(Accuracy(top_k), *batches) == np.mean(right)
    assert Accuracy(5).name == "top5_accuracy"


def test_accuracy_with_classes_on_axis_1_or_last():
    scores, target = _scores(0, 2, 5, 3), _classes(0, 5, 2, 3)  # (N, C, d)
    want = (scores.argmax(1) == target).mean()
    assert _fed(Accuracy(), (scores, target)) == want
    assert _fed(Accuracy(), (scores.transpose(0, 2, 1).copy(), target)) == want


def test_accuracy_of_ties_nan_and_ignored_targets():
    tie = np.zeros((2, 3), np.float32)
    assert _fed(Accuracy(), (tie, np.array([0, 1]))) == 0.5
    assert _fed(Accuracy(2), (tie, np.array([1, 2]))) == 0.5
    nan = np.full((2, 3), np.nan, np.float32)
    assert _fed(Accuracy(3), (nan, np.array([0, 1]))) == 0.0
    scores = np.eye(3, dtype=np.float32)
    assert _fed(Accuracy(ignore_index=-100), (scores, np.array([0, 2, -100]))) == 0.5


def test_accuracy_of_labels_and_probabilities():
    assert _fed(Accuracy(), (np.array([1, 2, 3]), np.array([1, 2, 0]))) == pytest.approx(2 / 3)
    probabilities, logits = np.array([0.4, 0.6], np.float32), np.array([-0.4, 0.4], np.float32)
    assert _fed(Accuracy(), (probabilities, np.array([0, 1]))) == 1.0
    assert _fed(Accuracy(threshold=0.0), (logits, np.array([0, 1]))) == 1.0


# --- precision, recall, F1 --------------------------------------------------------------------------------------------


def _by_hand(labels: np.ndarray, target: np.ndarray, classes: int, average: str) -> dict[str, float]:
    rows = []
    for c in range(classes):
        rows.append(((labels == c) & (target == c), labels == c, target == c))
    sums = [tuple(int(x.sum()) for x in row) for row in rows]
    if average == "binary":
        sums = sums[1:2]
    elif average == "micro":
        sums = [tuple(map(sum, zip(*sums, strict=True)))]
    else:
        sums = [s for s in sums if s[1] or s[2]]
    each = [
        (t / p if p else 0.0, t / a if a else 0.0, 2 * t / (p + a) if p + a else 0.0)
        for t, p, a in sums
    ]  # fmt: skip
    return dict(zip(("precision", "recall", "f1"), np.mean(each, axis=0), strict=True))


@pytest.mark.parametrize(("classes", "average"), [(None, "binary"), (6, "macro"), (6, "micro")])
def test_precision_recall_f1(classes, average):
    count = classes or 2
    # of 6 classes the last never occurs and the one before is never the target
    batches = [(_classes(i, min(count, 5), 20), _classes(10 + i, min(count, 4), 20)) for i in range(2)]
    labels, target = (np.concatenate(x) for x in zip(*batches, strict=True))
    want = _by_hand(labels, target, count, average)
    for kind in (Precision, Recall, F1):
        assert _fed(kind(classes, average), *batches) == pytest.approx(want[kind.name], abs=1e-12), kind


def test_f1_of_scores_and_ignored_targets():
    scores, target = _scores(3, 30, 4), _classes(4, 4, 30)
    target[::5] = -1
    want = _by_hand(scores.argmax(1)[target >= 0], target[target >= 0], 4, "macro")["f1"]
    assert _fed(F1(4, ignore_index=-1), (scores, target)) == pytest.approx(want)


def test_arguments_without_meaning():
    with pytest.raises(pf.ArgumentError, match=r"\[F1\] expected num_classes for average='macro'"):
        F1(average="macro")
    with pytest.raises(pf.ArgumentError, match="'binary', 'macro' or 'micro' but got 'mean'"):
        Recall(3, "mean")
    with pytest.raises(pf.ArgumentError, match="top_k of at least 1"):
        Accuracy(0)
    with pytest.raises(pf.ShapeError, match=r"\[Accuracy\] expected scores of shape"):
        _fed(Accuracy(), (_scores(0, 4, 3), _classes(0, 3, 5)))
    with pytest.raises(pf.ShapeError, match=r"\[MSE\] expected a prediction of the target's shape \(4,\)"):
        _fed(MSE(), (_scores(0, 4, 1), _scores(0, 4)))


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_perplexity():
    batches = [(_scores(i, 2, 3, 11), _classes(i, 11, 2, 3)) for i in range(2)]
    batches[1][1][0, 0] = -100
    losses = []
    for scores, target in batches:
        log = scores.astype(np.float64) - np.log(np.exp(scores.astype(np.float64)).sum(-1, keepdims=True))
        losses += [-log[b, t, target[b, t]] for b in range(2) for t in range(3) if target[b, t] >= 0]
    assert _fed(Perplexity(), *batches) == pytest.approx(math.exp(np.mean(losses)), rel=1e-6)
    assert math.isnan(Perplexity().compute())
    assert _fed(Perplexity(), (np.array([[0.0, 1e4]], np.float32), np.array([0]))) == math.inf


@pytest.mark.slow
def test_errors_and_r2():
    batches = [(_scores(i, n, 3), _scores(9 + i, n, 3)) for i, n in enumerate((6, 3))]
    p, t = (np.concatenate(x).astype(np.float64) for x in zip(*batches, strict=True))
    assert _fed(MAE(), *batches) == pytest.approx(np.abs(p - t).mean(), rel=1e-12)
    assert _fed(MSE(), *batches) == pytest.approx(((p - t) ** 2).mean(), rel=1e-12)
    assert _fed(R2(), *batches) == pytest.approx(1 - ((p - t) ** 2).sum() / ((t - t.mean()) ** 2).sum(), rel=1e-9)
    columns = 1 - ((p - t) ** 2).sum(0) / ((t - t.mean(0)) ** 2).sum(0)
    assert _fed(R2(outputs=3), *batches) == pytest.approx(columns.mean(), rel=1e-9)


def test_r2_far_from_zero_and_of_constants():
    t = 1e9 + np.random.default_rng(0).standard_normal(50)
    p = t + 0.1
    want = 1 - ((p - t) ** 2).sum() / ((t - t.mean()) ** 2).sum()
    assert _fed(R2(), (p[:20], t[:20]), (p[20:], t[20:])) == pytest.approx(want, rel=1e-5)
    ones = np.ones(4, np.float32)
    assert _fed(R2(), (ones, ones)) == 1.0 and _fed(R2(), (ones + 1, ones)) == 0.0


def test_mean_loss_weighs_batches():
    metric = MeanLoss()
    metric.update(pf.tensor(2.0), 3)
    metric.update(pf.tensor(6.0), 1)
    assert metric.compute() == 3.0


# --- cells ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_updates_inside_jit_equal_eager_ones():
    metrics = [Accuracy(2), F1(4), R2(outputs=4), MeanLoss()]
    again = [Accuracy(2), F1(4), R2(outputs=4), MeanLoss()]

    def update(group, scores, target):
        group[0].update(scores, target)
        group[1].update(scores, target)
        group[2].update(scores, scores * 0.5)
        group[3].update(scores.mean(), 8)

    jitted = pf.jit(lambda scores, target: update(metrics, scores, target))
    for i in range(3):
        scores, target = pf.tensor(_scores(i, 8, 4)), pf.tensor(_classes(i, 4, 8))
        jitted(scores, target)
        update(again, scores, target)
    assert jitted.traces == 1
    for a, b in zip(metrics, again, strict=True):
        assert a.compute() == pytest.approx(b.compute(), rel=1e-12), a


def test_reset_and_state():
    metric, other = Accuracy(), Accuracy()
    value = _fed(metric, (np.eye(3, dtype=np.float32), np.array([0, 1, 0])))
    other.load_state_dict(metric.state_dict())
    metric.reset()
    assert math.isnan(metric.compute()) and other.compute() == value == pytest.approx(2 / 3)


def test_updates_hold_no_batches():
    metric = MSE()
    held = pf.compile_stats().plan_misses
    for i in range(4):
        x = pf.tensor(_scores(i, 16))
        metric.update(x, x + 1)
    assert pf.compile_stats().plan_misses - held <= 4  # the same small plans each time, no growing graph
    assert metric.cells["error"]._node.op.name == "leaf"
