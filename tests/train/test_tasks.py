"""Tasks: the rule holds in what is drawn; guess and floor agree with enumeration or simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from normlab.config.schema import OptimSpec, RunSpec, TaskSpec, TrainSpec
from normlab.train.tasks import TASKS, TrainingData, stream, validation_set


def task(**fields: object):  # noqa: ANN201
    spec = TaskSpec(**fields)
    return TASKS[spec.name](spec)


def enumerated(vocab: int, length: int, prefix: int, rule) -> np.ndarray:  # noqa: ANN001
    """All equally likely sequences of a deterministic rule, written the slow way."""
    rows = []
    for start in itertools.product(range(vocab), repeat=prefix):
        row = list(start)
        while len(row) < length + 1:
            row.append(rule(row) % vocab)
        rows.append(row)
    return np.array(rows)


def counted_losses(rows: np.ndarray, vocab: int, positions: slice) -> tuple[float, float]:
    """Best constant guess and floor by counting in equally likely sequences."""
    targets = rows[:, 1:][:, positions]
    p = np.bincount(targets.ravel(), minlength=vocab) / targets.size
    guess = -sum(q * math.log(q) for q in p if q)
    floors = []
    for t in range(1, rows.shape[1])[positions]:
        total = 0.0
        for context in {tuple(row[:t]) for row in rows.tolist()}:
            nexts = [row[t] for row in rows.tolist() if tuple(row[:t]) == context]
            counts = np.bincount(nexts) / len(nexts)
            total += len(nexts) / len(rows) * -sum(q * math.log(q) for q in counts if q)
        floors.append(total)
    return guess, float(np.mean(floors))


CASES = [
    ({"name": "affine", "a": 5, "b": 3, "c": 7}, 2, lambda r: 5 * r[-1] + 3 * r[-2] + 7),
    ({"name": "affine", "a": 2, "b": 4, "c": 1}, 2, lambda r: 2 * r[-1] + 4 * r[-2] + 1),  # even: not uniform
    ({"name": "affine", "a": 2, "b": 0, "c": 3}, 1, lambda r: 2 * r[-1] + 3),
    ({"name": "affine", "a": 3, "b": 8, "c": 3}, 1, lambda r: 3 * r[-1] + 3),  # b = 0 mod V: first order
    ({"name": "sum", "k": 3}, 3, lambda r: sum(r[-3:])),
]


@pytest.mark.parametrize("loss_on", ["all", "last"])
@pytest.mark.parametrize(("fields", "prefix", "rule"), CASES)
def test_recurrences_agree_with_enumeration(fields, prefix, rule, loss_on) -> None:  # noqa: ANN001
    ours = task(vocab=8, length=5, loss_on=loss_on, **fields)
    rows = enumerated(8, 5, prefix, rule)
    guess, floor = counted_losses(rows, 8, slice(None) if loss_on == "all" else slice(-1, None))
    losses = ours.losses()
    assert losses["uniform"] == pytest.approx(math.log(8))
    assert losses["guess"] == pytest.approx(guess) and losses["floor"] == pytest.approx(floor)
    legal = {tuple(row) for row in rows.tolist()}
    drawn = {tuple(row) for row in ours.draw(stream(0, 1), 500).tolist()}
    assert drawn <= legal and len(drawn) > len(legal) / 4


@pytest.mark.parametrize("loss_on", ["all", "last"])
@pytest.mark.parametrize("fields", [{"name": "table", "noise": 0.3}, {"name": "table"}, {"name": "markov"}])
def test_random_tasks_agree_with_simulation(fields, loss_on) -> None:  # noqa: ANN001
    vocab, length = 4, 4
    ours = task(vocab=vocab, length=length, loss_on=loss_on, seed=3, **fields)
    rows = ours.draw(stream(1, 1), 100_000)
    positions = slice(None) if loss_on == "all" else slice(-1, None)
    p = np.bincount(rows[:, 1:][:, positions].ravel(), minlength=vocab)
    p = p / p.sum()
    guess = -(p[p > 0] * np.log(p[p > 0])).sum()
    codes = [rows[:, :t] @ vocab ** np.arange(t) for t in range(1, length + 2)]

    def joint(code: np.ndarray) -> float:
        q = np.bincount(code)
        q = q[q > 0] / q.sum()
        return float(-(q * np.log(q)).sum())

    # H(x_t | before) = H(x_0 .. x_t) - H(x_0 .. x_{t-1}); at most 1024 sequences, so 100,000 draws pin it down.
    floor = np.mean([joint(codes[t]) - joint(codes[t - 1]) for t in range(1, length + 1)][positions])
    assert ours.losses()["guess"] == pytest.approx(guess, abs=0.01)
    assert ours.losses()["floor"] == pytest.approx(floor, abs=0.01)


def test_table_follows_its_table_and_noise_replaces_the_stated_share() -> None:
    clean, noisy = task(name="table", vocab=50), task(name="table", vocab=50, noise=0.4)
    rows = clean.draw(stream(0, 1), 200)
    assert (clean.table[rows[:, :-2], rows[:, 1:-1]] == rows[:, 2:]).all()
    rows = noisy.draw(stream(0, 1), 2000)
    broken = (noisy.table[rows[:, :-2], rows[:, 1:-1]] != rows[:, 2:]).mean()
    assert broken == pytest.approx(0.4 * 49 / 50, abs=0.01)


def test_every_task_shape_and_range() -> None:
    for name in TASKS:
        rows = task(name=name, vocab=7, length=9).draw(stream(0, 1), 20)
        assert rows.shape == (20, 10) and rows.dtype == np.int64
        assert rows.min() >= 0 and rows.max() < 7
        losses = task(name=name, vocab=7, length=9).losses()
        assert 0 <= losses["floor"] <= losses["guess"] + 1e-12 <= losses["uniform"] + 2e-12


def test_validation_hangs_on_the_tasks_seed_and_training_on_the_runs() -> None:
    def first(run_seed: int, **fields: object) -> np.ndarray:
        spec = RunSpec(task=TaskSpec(**fields), seed=run_seed)
        return TrainingData(TASKS[spec.task.name](spec.task), spec).next()

    assert not (first(0) == first(1)).all()
    assert (first(0) == first(0, seed=1)).all()
    assert (validation_set(task()) == validation_set(task())).all()
    assert not (validation_set(task()) == validation_set(task(seed=1))).all()
    assert not (validation_set(task(val_size=32)) == first(0)).all()  # another stream under the same seed


def test_finite_training_set_repeats_its_sequences() -> None:
    spec = RunSpec(task=TaskSpec(train_size=5), train=TrainSpec(steps=9), optim=OptimSpec())
    data = TrainingData(TASKS["affine"](spec.task), spec)
    seen = {tuple(row) for _ in range(20) for row in data.next().tolist()}
    assert len(seen) == 5
